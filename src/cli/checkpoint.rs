//! `--save` and `--resume`: the metadata that `remat train` adds to the tensors of a checkpoint.

use super::args::TrainArgs;
use super::command::{Cli, Command};
use super::failure::Failure;
use super::task::{Part, Task};
use super::words::Counted;
use clap::parser::ValueSource;
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _};
use remat::checkpoint::{Checkpoint, CheckpointError};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;

/// Name of the metadata about the run.
const KEY: &str = "train";

/// Metadata of a run: its options, its data, and the number of finished steps.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Kept {
    /// Version of the program that wrote the checkpoint.
    remat: String,
    pub options: Options,
    /// Number of finished steps.
    pub done: usize,
    /// Number of examples to learn from.
    examples: usize,
    /// Hash of the first examples.
    data_sha256: String,
    /// Number of ranks.
    #[serde(default = "one")]
    ranks: usize,
}

/// Number of ranks for a checkpoint whose metadata does not state the number.
const fn one() -> usize {
    1
}

impl Kept {
    /// Metadata of a run that has not begun.
    pub fn new(options: &Options, task: &dyn Task, ranks: usize) -> Self {
        Self {
            remat: env!("CARGO_PKG_VERSION").to_owned(),
            options: options.clone(),
            done: 0,
            examples: task.examples(),
            data_sha256: fingerprint(task),
            ranks,
        }
    }

    /// Whether a checkpoint has metadata of a run.
    pub fn is_in(checkpoint: &Checkpoint) -> bool {
        checkpoint.get(KEY).is_some()
    }

    /// Reads the metadata of a checkpoint.
    pub fn of(checkpoint: &Checkpoint, path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| Failure::new(format!("{}: {what}", path.display()));
        let text = checkpoint.get(KEY).ok_or_else(|| {
            wrong(
                "the file has no training run; give a file that `remat train --save` wrote"
                    .to_owned(),
            )
        })?;
        serde_json::from_str(text).map_err(|error| {
            wrong(format!("the metadata of the training run cannot be read: {error}"))
        })
    }

    /// Copy of the metadata, for a checkpoint after `done` steps.
    pub fn after(&self, done: usize) -> Self {
        Self { done, ..self.clone() }
    }

    /// Name and text of the metadata.
    pub fn text(&self) -> (&'static str, String) {
        (KEY, serde_json::to_string(self).expect("text and numbers"))
    }

    /// Fails unless the checkpoint has the same version of remat and the same data as `new`. `new`
    /// is the metadata of the resumed run at its first step.
    pub fn check(&self, new: &Self, path: &Path) -> Result<(), Failure> {
        let path = path.display();
        let refused = |what: String| Err(Failure::usage(format!("{path} was {what}")));
        let (was, is) = (&self.remat, &new.remat);
        if was != is {
            return refused(format!(
                "written by remat {was}, but this is remat {is}; use remat {was} to go on"
            ));
        }
        let (was, is) = (self.ranks, new.ranks);
        if was != is {
            return refused(format!(
                "trained on {}, but this run has {is}; start it with mpirun -n {was}",
                Counted(was as u64, "rank")
            ));
        }
        let (was, is) = (self.examples, new.examples);
        if was != is {
            return refused(format!(
                "trained on {was} examples, but the data has {is}; choose the data of the checkpoint"
            ));
        }
        let (was, is) = (&self.data_sha256, &new.data_sha256);
        if was != is {
            let (was, is) = (&was[..16], &is[..16]);
            return refused(format!(
                "trained on other data: the first examples had the SHA-256 {was}, but now {is}; choose the data of \
                 the checkpoint"
            ));
        }
        Ok(())
    }

    /// First difference from the run of another rank: its name, and both values.
    pub fn difference(&self, other: &Self) -> Option<(String, String, String)> {
        let (mine, others) = (&self.options, &other.options);
        if self.remat != other.remat {
            let what = "the version of remat".to_owned();
            return Some((what, self.remat.clone(), other.remat.clone()));
        }
        for arg in options_of_training() {
            let id = arg.get_id().as_str();
            if !same(mine.get(id), others.get(id)) {
                return Some((told(&arg), text(mine.get(id)), text(others.get(id))));
            }
        }
        let of = |value: usize| value.to_string();
        let data = |kept: &Self| format!("data with the SHA-256 {}", &kept.data_sha256[..16]);
        [
            ("the number of examples", of(self.examples), of(other.examples)),
            ("the beginning of the data", data(self), data(other)),
            ("the number of finished steps", of(self.done), of(other.done)),
        ]
        .into_iter()
        .find(|(_, mine, others)| mine != others)
        .map(|(what, mine, others)| (what.to_owned(), mine, others))
    }
}

/// Hash of the first examples: at most 64, and at most 1 GiB of inputs.
fn fingerprint(task: &dyn Task) -> String {
    /// Limit on the input bytes to hash. If a single example is larger, no example is hashed.
    const MOST_BYTES: u64 = 1 << 30;
    let bytes = task.blank(1).map_or(u64::MAX, |one| one.inputs.layout().bytes());
    let most = (MOST_BYTES / bytes.max(1)).min(64) as usize;
    let indices: Vec<usize> = (0..task.examples().min(most)).collect();
    let batch = task.batch(&Part::whole(&indices, 0));
    let mut hash = Sha256::new();
    hash.update(batch.inputs.as_bytes());
    hash.update(batch.labels.as_bytes());
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Options that the results of a run depend on, bit for bit: their names, and their given or
/// default values.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Options(BTreeMap<String, Vec<String>>);

/// Headings in `--help` whose options a checkpoint does not keep, because a resumed run may change
/// them.
const FREE_HEADINGS: [&str; 7] = [
    "Device",
    "Memory",
    "Output",
    "Terminal",
    "Checkpoints",
    "Files of other libraries",
    "Several ranks",
];
/// Options under other headings that a checkpoint does not keep.
const FREE: [&str; 4] = ["no_test", "eval_every", "help", "version"];

/// Options that may change when a run at a constant rate is resumed.
const LENGTH: [&str; 2] = ["steps", "epochs"];

/// Options of `remat train` that a checkpoint keeps.
fn options_of_training() -> Vec<clap::Arg> {
    let mut command = Cli::command();
    command.build();
    let train = command.find_subcommand("train").expect("there is one");
    let matters = |arg: &&clap::Arg| {
        let heading = arg.get_help_heading();
        !heading.is_some_and(|heading| FREE_HEADINGS.contains(&heading))
            && !FREE.contains(&arg.get_id().as_str())
    };
    train.get_arguments().filter(matters).cloned().collect()
}

/// Name of an option in messages: `--lr`, or the name of a positional argument.
fn told(arg: &clap::Arg) -> String {
    arg.get_long().map_or_else(|| format!("the {}", arg.get_id()), |long| format!("--{long}"))
}

/// Value of an option in messages.
fn text(values: Option<&[String]>) -> String {
    match values {
        None => "not given".to_owned(),
        Some([value]) if value == "true" => "given".to_owned(),
        Some(values) => values.join(" "),
    }
}

impl Options {
    /// Options of a run of `remat train`.
    pub fn of(matches: &ArgMatches) -> Self {
        let text = |value: &std::ffi::OsStr| value.to_string_lossy().into_owned();
        let each = options_of_training().into_iter().filter_map(|arg| {
            let id = arg.get_id().as_str();
            let values = matches.get_raw(id)?.map(text).collect::<Vec<_>>();
            // clap gives `false` for a flag that is not set. Flags that are not set are left out.
            (values != ["false"]).then(|| (id.to_owned(), values))
        });
        Self(each.collect())
    }

    fn get(&self, id: &str) -> Option<&[String]> {
        self.0.get(id).map(Vec::as_slice)
    }

    /// The options as arguments, without those for which `leaves_out` is true.
    fn args(&self, leaves_out: impl Fn(&str) -> bool) -> Vec<OsString> {
        let mut args = Vec::new();
        for arg in options_of_training() {
            let id = arg.get_id().as_str();
            let Some(values) = self.get(id).filter(|_| !leaves_out(id)) else { continue };
            match arg.get_long() {
                Some(long) if arg.get_action().takes_values() => {
                    args.extend(values.iter().map(|value| format!("--{long}={value}").into()));
                }
                Some(long) => args.push(format!("--{long}").into()),
                None => args.extend(values.iter().map(OsString::from)),
            }
        }
        args
    }

    /// Whether the finished steps are the same for every total number of steps. True for a constant
    /// learning rate.
    fn has_any_length(&self) -> bool {
        self.get("schedule").is_some_and(|schedule| schedule == ["constant"])
    }

    /// Arguments of a resumed run. `given` has the arguments after `remat train`. Options that are
    /// not in `given` have the values of the checkpoint. Fails if a given option must not change
    /// and differs from the checkpoint.
    pub fn merge(
        &self,
        matches: &ArgMatches,
        given: &[OsString],
        path: &Path,
    ) -> Result<Vec<OsString>, Failure> {
        let now = Self::of(matches);
        let is_given = |id: &str| is_given(matches, id);
        let lengthens = self.has_any_length() && LENGTH.iter().any(|id| is_given(id));
        let may_differ = |id: &str| lengthens && LENGTH.contains(&id);
        for arg in options_of_training() {
            let id = arg.get_id().as_str();
            let (was, is) = (self.get(id), now.get(id));
            if !is_given(id) || may_differ(id) || same(was, is) {
                continue;
            }
            let hint = match LENGTH.contains(&id) {
                true => "; only a run with --schedule constant can be made longer".to_owned(),
                false => format!("; drop {}", told(&arg)),
            };
            return Err(Failure::usage(format!(
                "{} is {} here, but {} in the run of {}{hint}",
                told(&arg),
                text(is),
                text(was),
                path.display()
            )));
        }
        let mut args = self.args(|id| is_given(id) || may_differ(id));
        args.extend(given.iter().cloned());
        Ok(args)
    }
}

/// Whether an option is on the command line.
pub fn is_given(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Value of a numeric option.
pub fn number(matches: &ArgMatches, id: &str) -> Option<usize> {
    matches.try_get_one(id).ok().flatten().copied()
}

/// Whether two values are the same text, or the same number.
fn same(a: Option<&[String]>, b: Option<&[String]>) -> bool {
    let number = |values: &[String]| values.first().and_then(|value| value.parse::<f64>().ok());
    match (a, b) {
        (Some(a), Some(b)) => a == b || number(a).is_some_and(|x| number(b) == Some(x)),
        (a, b) => a == b,
    }
}

/// Arguments of the run that wrote a checkpoint, with the options in `instead` replaced.
pub fn arguments_of(
    options: &Options,
    path: &Path,
    instead: &[(&str, String)],
) -> Result<Box<TrainArgs>, Failure> {
    let args = options.args(|id| instead.iter().any(|(other, _)| *other == id));
    let option = |id: &str| id.replace('_', "-");
    let instead = instead.iter().map(|(id, value)| format!("--{}={value}", option(id)).into());
    let all = ["remat".into(), "train".into()].into_iter().chain(args).chain(instead);
    Ok(parse(all, path)?.0)
}

pub fn parse(
    args: impl Iterator<Item = OsString>,
    path: &Path,
) -> Result<(Box<TrainArgs>, Options), Failure> {
    let wrong = |error: clap::Error| {
        let text = error.to_string();
        let first = text.lines().next().unwrap_or_default();
        let first = first.strip_prefix("error: ").unwrap_or(first);
        Failure::usage(format!(
            "{} has options of a run that are not valid here: {first}",
            path.display()
        ))
    };
    let matches = Cli::command().try_get_matches_from(args).map_err(wrong)?;
    match (Cli::from_arg_matches(&matches).map_err(wrong)?.command, matches.subcommand()) {
        (Some(Command::Train(args)), Some((_, matches))) => Ok((args, Options::of(matches))),
        _ => Err(Failure::usage(format!(
            "{} does not come from a run of `remat train`",
            path.display()
        ))),
    }
}

/// Converts an error of a checkpoint to a failure of the program.
pub fn failure(error: CheckpointError) -> Failure {
    match error {
        CheckpointError::Runtime(error) => error.into(),
        CheckpointError::Version { .. }
        | CheckpointError::Tensors { .. }
        | CheckpointError::Differs { .. } => Failure::usage(error.to_string()),
        error => Failure::new(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &str) -> (ArgMatches, Options) {
        let all = ["remat", "train"].into_iter().chain(args.split_whitespace());
        let matches = Cli::command().try_get_matches_from(all).unwrap();
        let train = matches.subcommand_matches("train").unwrap().clone();
        let options = Options::of(&train);
        (train, options)
    }

    #[test]
    fn options_that_matter_are_kept_and_come_back() {
        let (_, kept) = options(
            "mlp --steps 5 --lr 0.5 --nesterov --budget 50% --save x --no-test --quiet --threads 1",
        );
        for id in ["model", "data", "batch", "steps", "lr", "nesterov", "seed", "optimizer"] {
            assert!(kept.get(id).is_some(), "{id}");
        }
        for id in ["budget", "save", "no_test", "quiet", "threads", "device", "color", "policy"] {
            assert!(kept.get(id).is_none(), "{id}");
        }
        let args = arguments_of(&kept, Path::new("x"), &[]).unwrap();
        assert!((args.learning.steps, args.optimizer.lr()) == (Some(5), 0.5));
        let (_, again) = options(
            &kept
                .args(|_| false)
                .iter()
                .map(|arg| arg.to_str().unwrap())
                .collect::<Vec<_>>()
                .join(" "),
        );
        assert_eq!(again, kept);
        let other = [("data", "synthetic:1x8x8".to_owned())];
        let args = arguments_of(&kept, Path::new("x"), &other).unwrap();
        assert_eq!(args.learning.data.to_string(), "synthetic:1x8x8");
    }

    #[test]
    fn options_given_again_must_equal_those_of_the_saved_run() {
        let (_, kept) = options("mlp --steps 5 --lr 0.5");
        let merge = |args: &str| {
            let (matches, _) = options(args);
            let given: Vec<OsString> = args.split_whitespace().map(OsString::from).collect();
            kept.merge(&matches, &given, Path::new("x")).map_err(|failure| format!("{failure:?}"))
        };
        for args in ["", "mlp", "--lr 0.50 --budget 1MiB", "--steps 5 --quiet"] {
            assert!(merge(args).is_ok(), "{args}");
        }
        for (args, said) in [
            ("resnet20", "the model is resnet20 here, but mlp in the run of x"),
            ("--lr 0.1", "--lr is 0.1 here, but 0.5 in the run of x"),
            ("--clip 1", "--clip is 1 here, but not given in the run of x"),
            ("--nesterov", "--nesterov is given here, but not given in the run of x"),
            ("--steps 6", "can be made longer"),
            ("--epochs 6", "can be made longer"),
        ] {
            let error = merge(args).unwrap_err();
            assert!(error.contains(said), "{args}: {error}");
        }
        let (_, constant) = options("mlp --steps 5 --schedule constant");
        let (matches, _) = options("--epochs 6");
        let given = ["--epochs".into(), "6".into()];
        let merged = constant.merge(&matches, &given, Path::new("x")).unwrap();
        assert!(merged.contains(&"mlp".into()) && !merged.contains(&"--steps=5".into()));
    }
}
