//! `--resume`: what a run goes on with, its options and its state.

use super::args::TrainArgs;
use super::checkpoint::{self, Kept, Options};
use super::failure::Failure;
use super::foreign;
use super::task::Task;
use clap::ArgMatches;
use remat::checkpoint::{Checkpoint, Fit, Known};
use std::ffi::OsString;
use std::path::Path;

/// The arguments of `remat train`, and the options that are kept of them. A run that goes on has those of its checkpoint.
pub fn arguments(
    args: TrainArgs,
    matches: &ArgMatches,
) -> Result<(Box<TrainArgs>, Options), Failure> {
    let Some(path) = args.checkpoints.resume.clone() else {
        return Ok((Box::new(args), Options::of(matches)));
    };
    let (checkpoint, known) = args.checkpoints.names.open(&path)?;
    // All after `train`, where it stands first among what is no option before it.
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = given.iter().position(|arg| arg == "train").map_or(given.len(), |at| at + 1);
    let (front, rest) = given.split_at(at);
    let merged = match known {
        Some(known) => foreign::arguments(&known, &path, &args, matches, rest)?,
        None => Kept::of(&checkpoint, &path)?.options.merge(matches, rest, &path)?,
    };
    let all = std::iter::once(OsString::from("remat")).chain(front.iter().cloned()).chain(merged);
    checkpoint::parse(all, &path)
}

/// The state that a run begins with.
pub enum Resumed {
    Nothing,
    /// A run of ours, and what is kept of it.
    Run(Checkpoint, Kept),
    /// A file of another library.
    Weights(Checkpoint, Fit),
}

/// Takes from an opened file the run or the weights to go on from, for a run that would begin like `new`.
pub fn resume(
    path: &Path,
    (file, known): (Checkpoint, Option<Known>),
    new: &Kept,
    task: &dyn Task,
) -> Result<Resumed, Failure> {
    if let Some(known) = &known {
        let fit = foreign::fit(&file, Some(known), task, path)?;
        return Ok(Resumed::Weights(file, fit));
    }
    let before = Kept::of(&file, path)?;
    before.check(new, path)?;
    Ok(Resumed::Run(file, new.after(before.done)))
}
