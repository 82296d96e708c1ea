//! The ranks of a training: this process alone, or all processes of an MPI job.

use super::args::TrainArgs;
use super::checkpoint::Kept;
use super::failure::Failure;
use super::interrupt;
use super::ranks_args::RanksArgs;
use super::sync::thread;
use super::terminal::say;
use super::values::DeviceName;
use super::words::Counted;
use remat::ByteSize;
use remat::unstable::collective::{Fabric, FabricError, Ranks};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::cell::Cell;
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Placeholder for the number of the rank in names of files.
const RANK: &str = "{rank}";

/// The ranks of a training, as this process sees them.
pub struct World {
    /// `None` without `--distributed`.
    ranks: Option<Ranks>,
    /// Number of ranks on this machine.
    local: usize,
    /// Whether every rank comes to its end without another exchange, so that no rank waits for
    /// another.
    ends: Cell<bool>,
}

impl World {
    /// World of this process alone.
    pub const fn alone() -> Self {
        Self { ranks: None, local: 1, ends: Cell::new(true) }
    }

    /// Ranks that `fabric` connects.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "for ranks of an MPI job"))]
    pub fn of(fabric: impl Fabric, args: &RanksArgs) -> Self {
        let (_, local) = fabric.local();
        let ByteSize(buffer) = args.rank_buffer;
        let ranks = Ranks::with_buffer(fabric, usize::try_from(buffer).unwrap_or(usize::MAX));
        // A single rank waits for no other rank.
        let ends = Cell::new(ranks.size() == 1);
        Self { ranks: Some(ranks), local, ends }
    }

    /// The ranks, if there are several.
    pub fn several(&self) -> Option<&Ranks> {
        self.ranks.as_ref().filter(|ranks| ranks.size() > 1)
    }

    /// Number of this rank.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, Ranks::rank)
    }

    /// Number of ranks.
    pub fn size(&self) -> usize {
        self.ranks.as_ref().map_or(1, Ranks::size)
    }

    /// Number of ranks on this machine, which share its processors and its memory.
    pub const fn local(&self) -> usize {
        self.local
    }

    /// Whether this rank is rank 0, which reports.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Whether every rank comes to its end, so that the job need not be aborted.
    #[cfg_attr(not(feature = "mpi"), allow(dead_code, reason = "for ranks of an MPI job"))]
    pub const fn ends(&self) -> bool {
        self.ends.get()
    }

    /// Records that from here on every rank ends without another exchange.
    pub fn end(&self) {
        self.ends.set(true);
    }

    /// Gives a value of each rank to all ranks.
    pub fn exchange<T: Serialize + DeserializeOwned>(
        &self,
        name: &str,
        value: T,
    ) -> Result<Vec<T>, Failure> {
        let Some(ranks) = self.several() else { return Ok(vec![value]) };
        let failed = |error: serde_json::Error| Failure::new(format!("{name} of ranks: {error}"));
        let text = serde_json::to_vec(&value).map_err(failed)?;
        let all = ranks.exchange(name, &text)?;
        all.iter().map(|text| serde_json::from_slice(text).map_err(failed)).collect()
    }

    /// Fails on all ranks if a rank has failed. Rank 0 prints the failures of all ranks.
    pub fn agree<T>(&self, result: Result<T, Failure>) -> Result<T, Failure> {
        if self.several().is_none() {
            return result;
        }
        let mine = result.as_ref().err().map(|failure| (failure.code(), failure.to_string()));
        let all = self.exchange("failures", mine)?;
        let told =
            all.iter().enumerate().filter_map(|(rank, failure)| Some((rank, failure.as_ref()?)));
        let told: Vec<(usize, &(u8, String))> = told.collect();
        let Some(&(_, (code, first))) = told.first() else { return result };
        self.end();
        let is_one = told.len() == all.len() && told.iter().all(|(_, (_, other))| other == first);
        let message = match is_one {
            true => first.clone(),
            false => {
                let lines =
                    told.iter().map(|(rank, (_, message))| format!("rank {rank}: {message}"));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        Err(Failure::of_all(*code, message).told_by(self.is_first()))
    }

    /// Does work that may take long on some ranks. Each rank waits until all ranks have finished
    /// their work. An interrupt of one rank interrupts all ranks.
    pub fn each<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Failure> {
        thread::scope(|scope| {
            let started = thread::Builder::new().spawn_scoped(scope, work);
            let work = started.map_err(|error| Failure::new(format!("no thread: {error}")))?;
            loop {
                let own = (work.is_finished(), interrupt::is_requested());
                // Without the other ranks, the work of this rank is of no use.
                let all = self.exchange("work", own).inspect_err(|_| interrupt::request())?;
                if all.iter().any(|(_, is_interrupted)| *is_interrupted) {
                    interrupt::request();
                }
                if all.iter().all(|(is_done, _)| *is_done) {
                    return Ok(work.join().unwrap_or_else(|panic| resume_unwind(panic)));
                }
                thread::sleep(MOMENT);
            }
        })
    }

    /// Fails unless all ranks have the same options and data.
    pub fn compare(&self, run: &Kept) -> Result<(), Failure> {
        let all = self.exchange("options", run.clone())?;
        let differs = |(rank, other)| Some((rank, all[0].difference(other)?));
        let Some((rank, (what, first, other))) = all.iter().enumerate().find_map(differs) else {
            return Ok(());
        };
        self.end();
        let failure = Failure::usage(format!(
            "ranks differ: {what} is {first} on rank 0, but {other} on rank {rank}; give all ranks the same"
        ));
        Err(failure.told_by(self.is_first()))
    }

    /// Adapts the arguments to this rank: its budget, its share of the cores, its names of files.
    /// Rank 0 alone writes files without a rank in their names.
    pub fn adapt(&self, args: &mut TrainArgs) -> Result<(), Failure> {
        let TrainArgs { device, memory, checkpoints, output, ranks, .. } = args;
        if let Some(budgets) = &mut memory.budget {
            *budgets = budgets.of_rank(self.rank(), self.size())?;
        }
        if ranks.distributed.is_none() {
            return Ok(());
        }
        if matches!(device.device, DeviceName::Cuda(_)) {
            return Err(Failure::usage(
                "--distributed needs --device cpu: collectives of GPUs are not supported; drop --device",
            ));
        }
        if self.size() == 1 && !output.quiet {
            say("one rank: start several with mpirun -n N remat train --distributed mpi ..");
        }
        let name = |path: &Path| {
            let text = path.to_str().filter(|text| text.contains(RANK))?;
            Some(PathBuf::from(text.replace(RANK, &self.rank().to_string())))
        };
        if let Some(path) = &mut output.record {
            match name(path) {
                Some(own) => *path = own,
                None if self.size() == 1 => {}
                None => {
                    return Err(Failure::usage(format!(
                        "--record {}: each of the {} ranks writes a recording; write {RANK} in the name, such as \
                         run.{RANK}.jsonl",
                        path.display(),
                        self.size()
                    )));
                }
            }
        }
        let files = [
            &mut output.json,
            &mut output.log,
            &mut output.plot,
            &mut checkpoints.save,
            &mut memory.learn_cache,
        ];
        for file in files {
            let own = file.as_deref().and_then(name);
            if own.is_some() {
                *file = own;
            } else if !self.is_first() {
                *file = None;
            }
        }
        output.quiet |= !self.is_first();
        Ok(())
    }

    /// Copies a file of rank 0 to the ranks that do not have it. Returns the copy of this rank.
    pub fn copy(&self, path: Option<&Path>) -> Result<Option<CopiedFile>, Failure> {
        let Some((ranks, path)) = self.several().zip(path) else { return Ok(None) };
        if self.exchange("files", path.exists())?.into_iter().all(|is_there| is_there) {
            return Ok(None);
        }
        let failed = |error: io::Error| Failure::new(format!("{}: {error}", path.display()));
        let mut source = match self.is_first() {
            true => Some(File::open(path).map_err(failed)?),
            false => None,
        };
        let mut copy = match self.is_first() {
            true => None,
            false => Some(CopiedFile::create(self.rank()).map_err(failed)?),
        };
        let mut chunk = vec![0; COPIED_AT_ONCE];
        loop {
            let read = source.as_mut().map_or(Ok(0), |file| file.read(&mut chunk));
            let all = ranks.exchange("file", &chunk[..read.map_err(failed)?])?;
            match &mut copy {
                _ if all[0].is_empty() => return Ok(copy),
                Some(copy) => copy.file.write_all(&all[0]).map_err(failed)?,
                None => {}
            }
        }
    }

    /// Fails if the data has fewer examples than a step of all ranks takes.
    pub fn fits(&self, examples: usize, step: usize, example: &'static str) -> Result<(), Failure> {
        if self.size() == 1 || step <= examples {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "a step of {} ranks takes {}, but the data has {examples}; lower --batch, or the number of ranks",
            self.size(),
            Counted(step as u64, example)
        )))
    }
}

/// Time between two checks whether all ranks have finished their work.
const MOMENT: Duration = Duration::from_millis(20);

/// Bytes of a file that are copied at once.
const COPIED_AT_ONCE: usize = 1 << 20;

/// Copy of a file of rank 0. Dropping the value removes the copy.
pub struct CopiedFile {
    pub path: PathBuf,
    file: File,
}

impl CopiedFile {
    fn create(rank: usize) -> io::Result<Self> {
        let name = format!("remat-{}-{rank}.safetensors", std::process::id());
        let path = std::env::temp_dir().join(name);
        Ok(Self { file: File::create_new(&path)?, path })
    }
}

impl Drop for CopiedFile {
    fn drop(&mut self) {
        // An error is ignored, because the system clears its temporary files in any case.
        let _ = fs::remove_file(&self.path);
    }
}

impl From<FabricError> for Failure {
    fn from(error: FabricError) -> Self {
        Self::new(error.to_string())
    }
}
