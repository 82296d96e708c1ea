//! Records of each step of a training: a log, and a plot at the end.

use super::failure::Failure;
use super::output::{self, Output, is_standard};
use super::task::Score;
use super::terminal::warn;
use remat::Stats;
use remat::unstable::files::{WholeFile, read_whole};
use remat::unstable::lab::plot::{self, TrainingStep};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Line of the log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// Number of the step, from 1.
    step: usize,
    loss: f32,
    lr: f32,
    seconds: f64,
    /// Most bytes in use at once from the start of the run to the end of the step.
    peak_bytes: u64,
    /// Bytes in use at the end of the step.
    used_bytes: u64,
    /// Evictions in the step.
    evictions: u64,
    /// Ops recomputed in the step.
    recomputed_ops: u64,
    /// Cost of recomputing in the step, divided by the cost of the step's own ops.
    recompute_ratio: f64,
    /// Loss of the test after the step; `None` without a test.
    test_loss: Option<f64>,
    test_accuracy: Option<f64>,
}

/// Numbers about a finished step.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// Number of the step, from 1.
    pub step: usize,
    pub loss: f32,
    pub lr: f32,
    pub time: Duration,
    pub stats: Stats,
}

/// A log that is written line by line. If the run is killed, the lines of the finished steps stay.
struct Log {
    path: PathBuf,
    format: Format,
    /// Lines of an existing log that a resumed run keeps.
    kept: String,
    state: State,
}

enum State {
    /// No line was written yet. An existing log is replaced when the first new line is written.
    Waits,
    Open(File),
    /// Writing the file failed.
    Lost(io::Error),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

/// Log and plot of a run. Log and plot are each made only if their option is given.
pub struct Journal {
    log: Option<Log>,
    svg: Option<Output>,
    plot: plot::Training,
    /// The last step, which is written later, because the result of a test may still be added.
    last: Option<Entry>,
    before: Stats,
    quiet: bool,
}

impl Journal {
    /// Prepares the files. Fails before the work if a file cannot be written. `before` is the
    /// number of steps done before this run; the lines of these steps in an existing log are kept.
    pub fn create(
        log: Option<&Path>,
        plot: Option<&Path>,
        title: String,
        before: usize,
        quiet: bool,
    ) -> Result<Self, Failure> {
        let svg = plot.map(Output::create).transpose()?;
        let plot = plot::Training { title, ..plot::Training::default() };
        let log = log.map(|path| Log::new(path, before)).transpose()?;
        Ok(Self { log, svg, plot, last: None, before: Stats::default(), quiet })
    }

    /// Sets the peak, in bytes, that the run would have without evictions, for the plot.
    pub const fn unbudgeted(&mut self, peak: u64) {
        self.plot.unbudgeted_peak = Some(peak);
    }

    /// Records a finished step.
    pub fn step(&mut self, done: &Done) {
        self.write();
        let Done { step, loss, lr, time, stats } = *done;
        let before = std::mem::replace(&mut self.before, stats);
        let work = stats.base_cost - before.base_cost;
        let recompute_ratio =
            (stats.recompute_cost - before.recompute_cost) / work.max(f64::MIN_POSITIVE);
        self.last = Some(Entry {
            step,
            loss,
            lr,
            seconds: time.as_secs_f64(),
            peak_bytes: stats.peak_bytes,
            used_bytes: stats.used_bytes,
            evictions: stats.evictions - before.evictions,
            recomputed_ops: stats.recomputed_ops - before.recomputed_ops,
            recompute_ratio,
            test_loss: None,
            test_accuracy: None,
        });
        if self.svg.is_some() {
            self.plot.budget = Some(stats.budget_bytes);
            self.plot.steps.push(TrainingStep {
                step,
                loss: loss.into(),
                peak_bytes: stats.peak_bytes,
                used_bytes: stats.used_bytes,
                recomputed: recompute_ratio,
            });
        }
    }

    /// Records a test after the last step. `stats` are the counters after the test, so that the
    /// work of the test does not count for the next step.
    pub fn test(&mut self, score: &Score, stats: &Stats) {
        self.before = *stats;
        let Some(last) = &mut self.last else { return };
        last.test_loss = Some(score.mean_loss());
        last.test_accuracy = Some(score.accuracy());
        self.plot.tests.push((last.step, score.mean_loss()));
    }

    /// Writes the last step and the plot. Fails if a file could not be written, or if the plot has
    /// no step.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.write();
        let logged = self.log.map_or(Ok(()), Log::finish);
        let drawn = || plot::training(&self.plot).map_err(output::no_drawing);
        output::all([logged, Output::deliver_to(self.svg, drawn)])
    }

    /// Writes the last step to the log. A failure to write does not end the run.
    fn write(&mut self) {
        let Some((entry, log)) = self.last.take().zip(self.log.as_mut()) else { return };
        if let Err(error) = log.write(&entry) {
            if !self.quiet {
                let path = log.path.display();
                warn(format_args!("--log {path}: {error}; the run continues without a log"));
            }
            log.state = State::Lost(error);
        }
    }
}

impl Log {
    /// Prepares a log, without changing an existing file. Fails if the file cannot be written.
    fn new(path: &Path, before: usize) -> Result<Self, Failure> {
        let format = Format::of(path).unwrap_or(Format::JsonLines);
        // `can_be_written` also refuses a path that no file can replace, such as a device.
        output::can_be_written(path)?;
        let kept = match before {
            0 => String::new(),
            _ => format.up_to(path, before)?,
        };
        Ok(Self { path: path.to_owned(), format, kept, state: State::Waits })
    }

    /// Replaces the existing file by the kept lines, and opens the file to append new lines.
    fn open(&self) -> io::Result<File> {
        let mut whole = WholeFile::create(&self.path)?;
        whole.write_all(self.kept.as_bytes())?;
        whole.finish()?;
        File::options().append(true).open(&self.path)
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let is_first = matches!(self.state, State::Waits);
        if is_first {
            self.state = State::Open(self.open()?);
        }
        let State::Open(file) = &mut self.state else { return Ok(()) };
        file.write_all(&self.format.line(entry, is_first && self.kept.is_empty())?)
    }

    /// Finishes the log. A run without steps leaves an empty log.
    fn finish(self) -> Result<(), Failure> {
        let written = match self.state {
            State::Waits => self.open().map(drop),
            State::Open(_) => Ok(()),
            State::Lost(error) => Err(error),
        };
        written.map_err(|error| {
            let path = self.path.display();
            Failure::new(format!("the run is done, but --log {path} is incomplete: {error}"))
        })
    }
}

impl Format {
    /// Size limit of an existing log, in bytes.
    const MOST_BYTES: u64 = 1 << 30;
    /// First characters of a JSON line.
    const BEGINS: &str = r#"{"step":"#;
    /// First characters of the line of column names, in CSV.
    const COLUMNS: &str = "step,loss,lr,";

    fn line(self, entry: &Entry, is_first: bool) -> io::Result<Vec<u8>> {
        match self {
            Self::Csv => {
                let mut writer = csv::WriterBuilder::new();
                // The first line has the column names.
                let mut writer = writer.has_headers(is_first).from_writer(Vec::new());
                writer.serialize(entry).map_err(io::Error::other)?;
                writer.into_inner().map_err(io::Error::other)
            }
            Self::JsonLines => {
                let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
                line.push(b'\n');
                Ok(line)
            }
        }
    }

    /// Reads, from an existing log, the line of column names and the lines of the first `steps`
    /// steps. Drops an incomplete last line, which a killed program leaves. Refuses a file that is
    /// not a log, because the new log would replace its content.
    fn up_to(self, path: &Path, steps: usize) -> Result<String, Failure> {
        let refused = |what: &dyn std::fmt::Display| {
            let path = path.display();
            Failure::usage(format!(
                "--log {path}: {what}; name another file, or move this file away"
            ))
        };
        let bytes = match read_whole(path, "logs to continue", Self::MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
            bytes => bytes.map_err(|error| refused(&error))?,
        };
        let mut kept = String::new();
        for (number, line) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
            let not_ours =
                || refused(&format_args!("line {number} is not a line of a log of remat train"));
            let line = std::str::from_utf8(line).map_err(|_| not_ours())?;
            match self.step(line) {
                Some(step) if line.ends_with('\n') && step <= steps as u64 => kept += line,
                Some(_) => {}
                None if !line.ends_with('\n') && self.may_begin_with(line) => {}
                None => return Err(not_ours()),
            }
        }
        Ok(kept)
    }

    /// Number of the step of a line; 0 for the line of column names.
    fn step(self, line: &str) -> Option<u64> {
        match self {
            Self::Csv if line.starts_with(Self::COLUMNS) => Some(0),
            Self::Csv => {
                let (step, rest) = line.split_once(',')?;
                let loss = rest.split(',').next()?.parse::<f64>();
                loss.is_ok().then(|| step.parse().ok())?
            }
            Self::JsonLines => {
                let entry: serde_json::Value = serde_json::from_str(line).ok()?;
                entry.get("loss").and(entry.get("step"))?.as_u64()
            }
        }
    }

    /// Whether the incomplete line `cut` may be the beginning of a line of a log.
    fn may_begin_with(self, cut: &str) -> bool {
        match self {
            Self::Csv => {
                let is_number = |c: char| c.is_ascii_digit() || ",.+-eEinfNa".contains(c);
                Self::COLUMNS.starts_with(cut)
                    || cut.starts_with(Self::COLUMNS)
                    || cut.chars().all(is_number)
            }
            Self::JsonLines => Self::BEGINS.starts_with(cut) || cut.starts_with(Self::BEGINS),
        }
    }

    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "csv" => Some(Self::Csv),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// Parses the path of a log. The ending of the name determines the format.
pub fn log(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_standard(&path) || Format::of(&path).is_none() {
        return Err("name a file that ends in .csv or .jsonl".to_owned());
    }
    Ok(path)
}
