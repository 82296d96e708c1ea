//! What is kept of each step: a log, and a plot at the end.

use super::failure::Failure;
use super::output::{Output, is_standard};
use super::task::Score;
use remat::Stats;
use remat::lab::plot::{self, TrainingStep};
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// One line of the log.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Entry {
    /// From 1 on.
    step: usize,
    loss: f32,
    lr: f32,
    seconds: f64,
    /// Most bytes in use up to its end.
    peak_bytes: u64,
    /// Bytes in use at its end.
    used_bytes: u64,
    /// In this step, as are the next two.
    evictions: u64,
    recomputed_ops: u64,
    /// The cost of what was recomputed over the cost of the work itself.
    recompute_ratio: f64,
    /// After this step, if there was a test.
    test_loss: Option<f64>,
    test_accuracy: Option<f64>,
}

/// What a step came to.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    /// From 1 on.
    pub step: usize,
    pub loss: f32,
    pub lr: f32,
    pub time: Duration,
    pub stats: Stats,
}

/// A log that is written line by line, so that a run that is killed leaves what it did.
struct Log {
    file: File,
    path: PathBuf,
    format: Format,
    /// The first line of CSV has the names.
    is_empty: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    JsonLines,
}

/// Both of them, where they are asked for.
pub struct Journal {
    log: Option<Log>,
    svg: Option<Output>,
    plot: plot::Training,
    /// The last step, which may be tested yet.
    last: Option<Entry>,
    before: Stats,
}

impl Journal {
    /// Creates the files at once, so that those that cannot be written are an error before the work. Of a log that is there
    /// already, the lines about the first `before` steps stay, after which the run goes on.
    pub fn create(
        log: Option<&Path>,
        plot: Option<&Path>,
        title: String,
        before: usize,
    ) -> Result<Self, Failure> {
        let svg = plot.map(Output::create).transpose()?;
        let plot = plot::Training { title, ..plot::Training::default() };
        let log = log.map(|path| Log::create(path, before)).transpose()?;
        Ok(Self { log, svg, plot, last: None, before: Stats::default() })
    }

    /// A step is done.
    pub fn step(&mut self, done: &Done) -> Result<(), Failure> {
        self.write()?;
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
        Ok(())
    }

    /// There was a test after the last step. What it recomputed is not the next one's.
    pub fn test(&mut self, score: &Score, stats: &Stats) {
        self.before = *stats;
        let Some(last) = &mut self.last else { return };
        last.test_loss = Some(score.mean_loss());
        last.test_accuracy = Some(score.accuracy());
        self.plot.tests.push((last.step, score.mean_loss()));
    }

    /// Writes what is left. A run without a step that can be drawn has no plot.
    pub fn finish(mut self) -> Result<(), Failure> {
        self.write()?;
        let Some(svg) = self.svg.take() else { return Ok(()) };
        let picture = plot::training(&self.plot);
        svg.deliver(&picture.map_err(|error| Failure::new(format!("--plot: {error}")))?)
    }

    fn write(&mut self) -> Result<(), Failure> {
        match (self.last.take(), &mut self.log) {
            (Some(entry), Some(log)) => {
                log.write(&entry).map_err(|e| Failure::writing(&log.path, &e))
            }
            _ => Ok(()),
        }
    }
}

impl Log {
    fn create(path: &Path, before: usize) -> Result<Self, Failure> {
        let format = Format::of(path).unwrap_or(Format::JsonLines);
        let text = match before {
            0 => String::new(),
            // A log that cannot be read is one that is not there.
            _ => format.up_to(&std::fs::read_to_string(path).unwrap_or_default(), before),
        };
        let create = || {
            let mut file = File::create(path)?;
            file.write_all(text.as_bytes())?;
            Ok(file)
        };
        let file = create().map_err(|e: io::Error| Failure::writing(path, &e))?;
        Ok(Self { file, path: path.to_owned(), format, is_empty: text.is_empty() })
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let line = match self.format {
            Format::Csv => {
                let mut writer = csv::WriterBuilder::new();
                let mut writer = writer.has_headers(self.is_empty).from_writer(Vec::new());
                writer.serialize(entry).map_err(io::Error::other)?;
                writer.into_inner().map_err(io::Error::other)?
            }
            Format::JsonLines => {
                let mut line = serde_json::to_vec(entry).map_err(io::Error::other)?;
                line.push(b'\n');
                line
            }
        };
        self.is_empty = false;
        self.file.write_all(&line)
    }
}

impl Format {
    /// The lines about the first steps, and what stands above them. What was cut off when a program was killed goes.
    fn up_to(self, text: &str, steps: usize) -> String {
        let step = |line: &str| match self {
            Self::Csv if line.starts_with("step,") => Some(0),
            Self::Csv => line.split(',').next()?.parse().ok(),
            Self::JsonLines => {
                let entry: serde_json::Value = serde_json::from_str(line).ok()?;
                entry["step"].as_u64()
            }
        };
        let stays = |line: &&str| step(line).is_some_and(|step| step <= steps as u64);
        text.split_inclusive('\n').filter(|line| line.ends_with('\n')).filter(stays).collect()
    }

    fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "csv" => Some(Self::Csv),
            "jsonl" => Some(Self::JsonLines),
            _ => None,
        }
    }
}

/// Where a log goes: its name says its format.
pub fn log(text: &str) -> Result<PathBuf, String> {
    let path = PathBuf::from(text);
    if is_standard(&path) || Format::of(&path).is_none() {
        return Err("name a file that ends in .csv or .jsonl".to_owned());
    }
    Ok(path)
}
