//! `--record`: the trace of a run, in whole steps.

use super::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use remat::trace::{Entry, JsonLines, Recorder};
use remat::unstable::program::Command;
use std::collections::VecDeque;
use std::io::{self, Stdout, Write};
use std::path::Path;
use std::sync::Arc;

/// Recorder that writes only finished steps, and leaves no file if the run fails. An incomplete
/// step, ended by an out-of-memory error or by Ctrl-C, would be useless to a replay.
#[derive(Debug)]
pub struct Recording {
    /// Writer of the lines; `None` after the file is finished or abandoned.
    lines: Option<JsonLines>,
    /// Entries since the end of the last step.
    step: Vec<Entry>,
    /// Issued steps that may still be running. At most two steps are open, because the training loop
    /// issues a step before it waits for the previous step.
    open: VecDeque<Vec<Entry>>,
    /// Number of steps written.
    written: usize,
    /// Limit on the number of steps to write.
    most: usize,
    /// First error of the writer.
    error: Option<io::Error>,
    done: LoopProgress,
}

/// Progress of the training loop, shared with the recorder.
#[derive(Clone, Debug, Default)]
pub struct LoopProgress(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    steps: AtomicUsize,
    run: AtomicBool,
}

impl LoopProgress {
    /// Reports that the first `steps` steps are done. The steps done are written even if a later
    /// step does not finish.
    pub fn steps(&self, steps: usize) {
        self.0.steps.store(steps, Ordering::Relaxed);
    }

    /// Number of steps reported as done.
    pub fn count(&self) -> usize {
        self.0.steps.load(Ordering::Relaxed)
    }

    /// Reports that the run did not fail, so that the recording is kept.
    pub fn run(&self) {
        self.0.run.store(true, Ordering::Relaxed);
    }
}

impl Recording {
    /// Starts to record at most `most` steps. The destination is a file, packed if its name ends in
    /// `.gz`, or stdout if the path is `-`.
    pub fn create(path: &Path, most: usize, done: &LoopProgress) -> io::Result<Self> {
        let lines = match path.as_os_str() == "-" {
            true => JsonLines::to(UntilReaderLeaves(io::stdout())),
            false => JsonLines::create(path)?,
        };
        Ok(Self {
            lines: Some(lines),
            step: Vec::new(),
            open: VecDeque::new(),
            written: 0,
            most,
            error: None,
            done: done.clone(),
        })
    }

    /// Writes the finished steps.
    fn write(&mut self) {
        let done = self.done.0.steps.load(Ordering::Relaxed).min(self.most);
        while self.written < done
            && let Some(lines) = &mut self.lines
            && let Some(step) = self.open.pop_front()
        {
            step.iter().for_each(|entry| lines.record(entry));
            self.written += 1;
        }
        if self.written == self.most {
            // All requested steps are written. Finish the file now, so that the file stays even if
            // the run fails later.
            self.close();
        }
    }

    /// Finishes the file. Stores the error, unless an earlier error is stored.
    fn close(&mut self) {
        if let Some(Err(error)) = self.lines.take().map(|mut lines| lines.finish()) {
            self.error.get_or_insert(error);
        }
    }
}

impl Recorder for Recording {
    fn record(&mut self, entry: &Entry) {
        if self.lines.is_none() {
            return;
        }
        self.step.push(entry.clone());
        if matches!(entry, Entry::Did { command: Command::Step, .. }) {
            self.open.push_back(std::mem::take(&mut self.step));
            self.write();
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.write();
        if self.written > 0 && self.done.0.run.load(Ordering::Relaxed) {
            self.close();
        }
        self.lines = None;
        self.error.take().map_or(Ok(()), Err)
    }
}

/// Stdout. A closed pipe is not an error: the reader of the pipe needs no more output.
#[derive(Debug)]
struct UntilReaderLeaves(Stdout);

impl Write for UntilReaderLeaves {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        unless_it_left(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        unless_it_left(self.0.flush(), ())
    }
}

fn unless_it_left<T>(written: io::Result<T>, all: T) -> io::Result<T> {
    written.or_else(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => Ok(all),
        _ => Err(error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remat::unstable::program::TensorId;

    /// Records three steps and half of a fourth, and reports `done_steps` steps as done. Returns
    /// the content of the file, if the file exists.
    fn recorded(name: &str, most: usize, done_steps: usize, is_kept: bool) -> Option<String> {
        let folder = std::env::temp_dir().join(format!("remat-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("a");
        let done = LoopProgress::default();
        let mut recording = Recording::create(&path, most, &done).unwrap();
        for step in 1..=4 {
            let did = |command| Entry::Did { command, used: None, peak: None };
            recording.record(&did(Command::Del(TensorId(step))));
            if step < 4 {
                recording.record(&did(Command::Step));
            }
            done.steps(done_steps.min(step as usize));
        }
        if is_kept {
            done.run();
        }
        recording.finish().unwrap();
        let text = std::fs::read_to_string(&path).ok();
        std::fs::remove_dir_all(folder).unwrap();
        text
    }

    #[test]
    fn only_steps_that_are_done_are_written() {
        let steps = |text: &str| text.matches("\"step\"").count();
        for done in 1..=3 {
            let text = recorded("done", usize::MAX, done, true).unwrap();
            assert_eq!(steps(&text), done, "{text}");
            assert!(text.contains(&done.to_string()) && !text.contains(&(done + 1).to_string()));
        }
        assert_eq!(recorded("none-done", usize::MAX, 0, true), None);
        assert_eq!(recorded("failed", usize::MAX, 3, false), None);
        assert_eq!(steps(&recorded("most", 2, 3, false).unwrap()), 2, "safe before the run failed");
    }
}
