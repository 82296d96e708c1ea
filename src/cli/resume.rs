//! `--resume`: the options and the state with which a run continues.

use super::args::TrainArgs;
use super::checkpoint::{self, Kept, Options};
use super::failure::Failure;
use super::foreign;
use super::ranks::CopiedFile;
use super::task::Task;
use clap::ArgMatches;
use remat::checkpoint::{Checkpoint, Fit, Known};
use std::ffi::OsString;
use std::path::Path;

/// Returns the arguments of the run, and the options among them that a checkpoint keeps. With
/// `--resume`, options that are not given have the values of the checkpoint, which is read from
/// `copy` if there is one.
pub fn arguments(
    args: TrainArgs,
    matches: &ArgMatches,
    copy: Option<&CopiedFile>,
) -> Result<(Box<TrainArgs>, Options), Failure> {
    let Some(path) = copy.map(|copy| copy.path.clone()).or(args.checkpoints.resume.clone()) else {
        return Ok((Box::new(args), Options::of(matches)));
    };
    let (checkpoint, known) = args.checkpoints.names.open(&path)?;
    // The arguments after the first `train`, the name of the command. Only global options can
    // precede the name of the command.
    let given: Vec<OsString> = std::env::args_os().skip(1).collect();
    let at = given.iter().position(|arg| arg == "train").map_or(given.len(), |at| at + 1);
    let (front, rest) = given.split_at(at);
    let merged = match known {
        Some(known) => foreign::arguments(&known, &path, &args, matches, rest)?,
        None => Kept::of(&checkpoint, &path)?.options.merge(matches, rest, &path)?,
    };
    let all = std::iter::once(OsString::from("remat")).chain(front.iter().cloned()).chain(merged);
    let (mut args, options) = checkpoint::parse(all, &path)?;
    args.checkpoints.resume = Some(path);
    Ok((args, options))
}

/// State at the beginning of a run.
pub enum Resumed {
    Nothing,
    /// A run of `remat train`, with its metadata.
    Run(Checkpoint, Kept),
    /// Weights in a file of another library.
    Weights(Checkpoint, Fit),
}

/// Checks an opened file for a resumed run, and returns the state that the run takes from the file.
/// `new` is the metadata of a run that begins anew.
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
