//! What is planned: a step of a trace, or buffers from a file.

use super::super::failure::Failure;
use super::super::output::is_standard;
use super::PlanArgs;
use flate2::bufread::MultiGzDecoder;
use remat::lab::Trace;
use remat::memory::ALIGNMENT;
use remat::plan::{Capture, Instance, Lives};
use std::fs::File;
use std::io::{self, BufRead, BufReader, stdin};
use std::path::Path;

/// Gzip begins with this byte, and no text does.
const GZIP: u8 = 0x1f;

/// What is planned.
pub enum Input {
    /// Ops and buffers: they can be ordered, and recomputed.
    Step { name: String, which: String, capture: Capture },
    /// Buffers alone.
    Buffers { name: String, instance: Instance },
}

impl Input {
    /// Reads the file. What it is shows in its first character.
    pub fn read(args: &PlanArgs) -> Result<Self, Failure> {
        let path = &*args.input;
        let failed = |error: io::Error| match is_standard(path) {
            true => Failure::new(format!("stdin: {error}")),
            false => Failure::new(format!("{}: {error}", path.display())),
        };
        let mut text = open(path).and_then(unpacked).map_err(failed)?;
        let start = text.fill_buf().map_err(failed)?.trim_ascii_start();
        match start.first() {
            Some(b'{') => {
                let name =
                    if is_standard(path) { "stdin".into() } else { path.display().to_string() };
                let trace = Trace::read(text, &name).map_err(|e| Failure::new(e.to_string()))?;
                Self::of_trace(&trace, args)
            }
            _ => Self::of_buffers(text, args),
        }
    }

    fn of_trace(trace: &Trace, args: &PlanArgs) -> Result<Self, Failure> {
        if args.closed {
            return Err(Failure::usage(
                "--closed is for files of buffers, and this is a trace; drop --closed",
            ));
        }
        let program = trace.program();
        let steps = program.steps();
        let all = 0..program.commands().len();
        let (range, which) = match (args.step, steps.len()) {
            (None, 0) => (all, "all of it".to_owned()),
            (None, count) => (steps[count - 1].clone(), format!("step {count} of {count}")),
            (Some(_), 0) => {
                let what =
                    format!("no step ends in {}; drop --step to plan all of it", trace.name());
                return Err(Failure::usage(what));
            }
            (Some(step), count) => {
                let range = steps.get(step - 1).cloned().ok_or_else(|| {
                    Failure::usage(format!(
                        "--step {step}: {} has steps 1 to {count}; give one of them",
                        trace.name()
                    ))
                })?;
                (range, format!("step {step} of {count}"))
            }
        };
        let granule = if trace.is_recording() { ALIGNMENT } else { 1 };
        let capture = program.capture(range, granule);
        let capture =
            capture.map_err(|e| Failure::new(format!("{}: {e}", args.input.display())))?;
        Ok(Self::Step { name: trace.name().to_owned(), which, capture })
    }

    fn of_buffers(text: impl BufRead, args: &PlanArgs) -> Result<Self, Failure> {
        let given = [
            ("--step", args.step.is_some()),
            ("--order", args.order.is_some()),
            ("--budget", args.budget.is_some()),
        ];
        let lives = if args.closed { Lives::Closed } else { Lives::HalfOpen };
        let instance = Instance::read(text, lives)
            .map_err(|error| Failure::new(format!("{}: {error}", args.input.display())))?;
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!(
                "{option} needs ops, and {} has buffers only; give a trace, or drop {option}",
                args.input.display()
            )));
        }
        let name = args.input.file_name().map_or("stdin".into(), |name| name.to_string_lossy());
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        let name = name.strip_suffix(".csv").unwrap_or(name).to_owned();
        Ok(Self::Buffers { name: if name == "-" { "stdin".into() } else { name }, instance })
    }

    /// Without folder and endings.
    pub fn name(&self) -> &str {
        match self {
            Self::Step { name, .. } | Self::Buffers { name, .. } => name,
        }
    }
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match is_standard(path) {
        true => Box::new(BufReader::new(stdin())),
        false => Box::new(BufReader::with_capacity(1 << 16, File::open(path)?)),
    })
}

fn unpacked(mut reader: Box<dyn BufRead>) -> io::Result<Box<dyn BufRead>> {
    let is_packed = reader.fill_buf()?.first() == Some(&GZIP);
    Ok(if is_packed { Box::new(BufReader::new(MultiGzDecoder::new(reader))) } else { reader })
}
