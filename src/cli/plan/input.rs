//! Input of `remat plan`: a step of a trace, a graph, or buffers from a file.

use super::super::failure::Failure;
use super::super::output::is_standard;
use super::PlanArgs;
use remat::unstable::files::unpacked;
use remat::unstable::lab::Trace;
use remat::unstable::memory::ALIGNMENT;
use remat::unstable::plan::graph::{Graph, GraphError};
use remat::unstable::plan::{Capture, Instance, Lives};
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read as _, stdin};
use std::path::Path;

/// Input of `remat plan`.
pub enum Input {
    /// A step: ops and their buffers. The ops can be reordered and run again. `ids` are the names
    /// of the buffers, which only a graph has.
    Step { name: String, which: String, capture: Capture, ids: Option<Vec<String>> },
    /// Buffers without ops.
    Buffers { name: String, instance: Instance },
}

impl Input {
    /// Reads the file. The first line determines the kind of the file.
    pub fn read(args: &PlanArgs) -> Result<Self, Failure> {
        let path = &*args.input;
        let failed = |error: io::Error| match is_standard(path) {
            true => Failure::new(format!("stdin: {error}")),
            false => Failure::new(format!("{}: {error}", path.display())),
        };
        let mut text = open(path).and_then(unpacked).map_err(failed)?;
        let start = start(&mut text).map_err(failed)?;
        let kind = Kind::of(&start);
        let text = Cursor::new(start).chain(text);
        match kind {
            Kind::Trace => {
                let name =
                    if is_standard(path) { "stdin".into() } else { path.display().to_string() };
                let trace = Trace::read(text, &name).map_err(|e| Failure::new(e.to_string()))?;
                Self::of_trace(&trace, args)
            }
            Kind::Graph => Self::of_graph(text, args),
            Kind::Buffers => Self::of_buffers(text, args),
        }
    }

    fn of_trace(trace: &Trace, args: &PlanArgs) -> Result<Self, Failure> {
        if args.closed {
            return Err(Failure::usage(
                "--closed is for files of buffers, but the input is a trace; drop --closed",
            ));
        }
        let program = trace.program();
        let steps = program.steps();
        let all = 0..program.commands().len();
        let (range, which) = match (args.step, steps.len()) {
            (None, 0) => (all, "the whole trace".to_owned()),
            (None, count) => (steps[count - 1].clone(), format!("step {count} of {count}")),
            (Some(_), 0) => {
                let what = format!(
                    "{} has no end of a step; drop --step to plan the whole trace",
                    trace.name()
                );
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
        Ok(Self::Step { name: trace.name().to_owned(), which, capture, ids: None })
    }

    fn of_graph(text: impl BufRead, args: &PlanArgs) -> Result<Self, Failure> {
        let given = [("--closed", args.closed), ("--step", args.step.is_some())];
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!(
                "{option} does not apply to a graph, and {} is a graph; drop {option}",
                args.input.display()
            )));
        }
        let failed = |error: GraphError| Failure::new(format!("{}: {error}", args.input.display()));
        let step = Graph::read(text).and_then(|graph| graph.capture()).map_err(failed)?;
        let (name, which) = (name_of(&args.input, ".json"), "a graph".to_owned());
        Ok(Self::Step { name, which, capture: step.capture, ids: Some(step.names) })
    }

    fn of_buffers(text: impl BufRead, args: &PlanArgs) -> Result<Self, Failure> {
        let given = [
            ("--step", args.step.is_some()),
            ("--order", args.order.is_some()),
            ("--budget", args.budget.is_some()),
            ("--graph", args.graph.is_some()),
        ];
        let lives = if args.closed { Lives::Closed } else { Lives::HalfOpen };
        let instance = Instance::read(text, lives)
            .map_err(|error| Failure::new(format!("{}: {error}", args.input.display())))?;
        if let Some((option, _)) = given.iter().find(|(_, is_given)| *is_given) {
            return Err(Failure::usage(format!(
                "{option} needs ops, but {} has only buffers; give a trace, or drop {option}",
                args.input.display()
            )));
        }
        Ok(Self::Buffers { name: name_of(&args.input, ".csv"), instance })
    }

    /// Name of the input, without folder and endings.
    pub fn name(&self) -> &str {
        match self {
            Self::Step { name, .. } | Self::Buffers { name, .. } => name,
        }
    }
}

/// Name of a file, without folder and `ending`.
fn name_of(path: &Path, ending: &str) -> String {
    let name = path.file_name().map_or("stdin".into(), |name| name.to_string_lossy());
    let name = name.strip_suffix(".gz").unwrap_or(&name);
    let name = name.strip_suffix(ending).unwrap_or(name);
    if name == "-" { "stdin".to_owned() } else { name.to_owned() }
}

/// Kind of a file.
enum Kind {
    Trace,
    Graph,
    Buffers,
}

/// Limit on the bytes of the first line. A line of a trace has the same limit.
const LONGEST: u64 = 16 << 20;

/// Reads blank lines at the start of a file, and the first line that is not blank. Returns all
/// bytes read.
fn start(text: &mut impl BufRead) -> io::Result<Vec<u8>> {
    let mut start = Vec::new();
    let mut line = 0;
    // Check only the line read last: checking all lines each time would take quadratic time.
    while start[line..].trim_ascii().is_empty() && (start.len() as u64) < LONGEST {
        line = start.len();
        if text.by_ref().take(LONGEST).read_until(b'\n', &mut start)? == 0 {
            break;
        }
    }
    Ok(start)
}

impl Kind {
    /// Kind of a file by its first line. A trace has a JSON object on each line, and the first
    /// object names an event or an instruction. A graph is a single object, possibly over several
    /// lines.
    fn of(start: &[u8]) -> Self {
        let line = start.strip_prefix("\u{feff}".as_bytes()).unwrap_or(start).trim_ascii();
        if !line.starts_with(b"{") {
            return Self::Buffers;
        }
        // An object that is neither a trace nor a graph counts as a trace. The reader of traces
        // then reports the error.
        let keys = |object: serde_json::Map<String, serde_json::Value>| {
            !["format", "tensors", "ops"].iter().any(|&key| object.contains_key(key))
        };
        // If the line is not a complete object, its first key determines the kind.
        let key = line[1..].trim_ascii_start().strip_prefix(b"\"");
        let key = key.and_then(|rest| rest.split(|&byte| byte == b'"').next());
        let is_trace = match serde_json::from_slice(line) {
            Ok(object) => keys(object),
            Err(_) => key.is_some_and(|key| {
                key == b"event" || (!key.is_empty() && key.iter().all(u8::is_ascii_uppercase))
            }),
        };
        if is_trace { Self::Trace } else { Self::Graph }
    }
}

fn open(path: &Path) -> io::Result<Box<dyn BufRead>> {
    Ok(match is_standard(path) {
        true => Box::new(BufReader::new(stdin())),
        false => Box::new(BufReader::with_capacity(1 << 16, File::open(path)?)),
    })
}
