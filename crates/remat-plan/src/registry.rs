//! All planners, by name.

use super::Planner;
use super::reuse::nnvm::Nnvm;
use super::reuse::{
    BestFit, BinaryBlock, Exact, First, Gaps, IntervalMove, MaxBlock, Portfolio, Pushdown, Take,
    TwoLevel,
};

/// Planners with a common name. An option after a colon selects one of the planners, as in
/// `max-block:oldest`.
struct Family {
    name: &'static str,
    /// Options that [`all`] lists. The option "" stands for the name without an option.
    listed: &'static [&'static str],
    /// Makes the planner of an option; `None` for an unknown option.
    make: fn(option: &str) -> Option<Box<dyn Planner>>,
}

static FAMILIES: [Family; 13] = [
    family("best-fit", &[""], |option| plain(option, BestFit)),
    family("pushdown", &[""], |option| plain(option, Pushdown)),
    family("gaps-size", &[""], |option| plain(option, Gaps::by(First::Size))),
    family("gaps-area", &[""], |option| plain(option, Gaps::by(First::Area))),
    family("gaps-life", &[""], |option| plain(option, Gaps::by(First::Life))),
    family("gaps-birth", &[""], |option| plain(option, Gaps::by(First::Birth))),
    family("nnvm", &["16", "auto"], nnvm),
    family("max-block", &["", "oldest"], |option| {
        boxed(Take::named(option).map(|take| MaxBlock { take, ..MaxBlock::default() }))
    }),
    family("binary-block", &["", "oldest"], |option| {
        boxed(Take::named(option).map(|take| BinaryBlock { take, ..BinaryBlock::default() }))
    }),
    family("two-level", &["1", "", "3"], two_level),
    family("interval-move", &[""], |option| plain(option, IntervalMove)),
    family("exact", &[""], |option| boxed(exact(option))),
    family("portfolio", &[""], |option| boxed(exact(option).map(|exact| Portfolio { exact }))),
];

const fn family(
    name: &'static str,
    listed: &'static [&'static str],
    make: fn(&str) -> Option<Box<dyn Planner>>,
) -> Family {
    Family { name, listed, make }
}

fn boxed(planner: Option<impl Planner + 'static>) -> Option<Box<dyn Planner>> {
    planner.map(|planner| Box::new(planner) as Box<dyn Planner>)
}

/// Planner of a family without options; `None` if there is an option.
fn plain(option: &str, planner: impl Planner + 'static) -> Option<Box<dyn Planner>> {
    boxed(option.is_empty().then_some(planner))
}

fn nnvm(option: &str) -> Option<Box<dyn Planner>> {
    match option {
        "" => boxed(Some(Nnvm::default())),
        option => boxed(format!("nnvm:{option}").parse::<Nnvm>().ok()),
    }
}

/// Exact planner. The option is the limit of the planner on nodes.
fn exact(option: &str) -> Option<Exact> {
    match option {
        "" => Some(Exact::default()),
        nodes => nodes.parse().ok().map(|nodes| Exact { nodes }),
    }
}

fn two_level(option: &str) -> Option<Box<dyn Planner>> {
    match option {
        "" => boxed(Some(TwoLevel::default())),
        option => boxed(option.parse().ok().filter(|&levels| levels > 0).map(TwoLevel::of)),
    }
}

/// All planners in a fixed order, some of them with several options. [`UnknownPlanner`] lists these
/// planners by name.
#[must_use]
pub fn all() -> Vec<Box<dyn Planner>> {
    let options = |family: &'static Family| family.listed.iter().map(move |it| (family, it));
    FAMILIES.iter().flat_map(options).filter_map(|(family, option)| (family.make)(option)).collect()
}

/// Finds a planner by the name that [`Planner::name`] gives, such as `pushdown`,
/// `max-block:oldest`, `nnvm:8` or `two-level:4`.
///
/// # Errors
///
/// [`UnknownPlanner`], with the names of all planners, if no planner has this name.
pub fn named(name: &str) -> Result<Box<dyn Planner>, UnknownPlanner> {
    let (family, option) = match name.split_once(':') {
        // A name that ends in a colon is a mistake.
        Some((_, "")) => return Err(UnknownPlanner::new(name)),
        Some((family, option)) => (family, option),
        None => (name, ""),
    };
    let planner = FAMILIES.iter().find(|it| it.name == family).and_then(|it| (it.make)(option));
    planner.ok_or_else(|| UnknownPlanner::new(name))
}

/// Error: no planner has the name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no planner is called {name:?}{}: choose one of {}",
    .near.as_ref().map(|near| format!(" (did you mean {near}?)")).unwrap_or_default(),
    .known.join(", ")
)]
pub struct UnknownPlanner {
    /// Requested name.
    pub name: String,
    /// Name of a planner with a similar spelling.
    pub near: Option<String>,
    /// Names of all planners. `nnvm`, `two-level`, `exact` and `portfolio` also take numbers that
    /// are not listed here.
    pub known: Vec<String>,
}

impl UnknownPlanner {
    fn new(name: &str) -> Self {
        let known: Vec<_> = all().iter().map(|planner| planner.name()).collect();
        let near = known.iter().min_by_key(|known| edits(name, known));
        // A similar name is suggested if at most half of its letters have to change.
        let near = near.filter(|near| edits(name, near) * 2 <= near.len()).cloned();
        Self { name: name.to_owned(), near, known }
    }
}

/// Number of letters to insert, remove or replace to turn `from` into `to` (Levenshtein's
/// distance).
fn edits(from: &str, to: &str) -> usize {
    // Length of a prefix of `to` -> distance between this prefix and the letters of `from` read so
    // far.
    let mut row: Vec<usize> = (0..=to.chars().count()).collect();
    for (seen, a) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = seen + 1;
        for (at, b) in to.chars().enumerate() {
            let replaced = diagonal + usize::from(a != b);
            diagonal = row[at + 1];
            row[at + 1] = replaced.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.chars().count()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let known: Vec<_> = all().iter().map(|planner| planner.name()).collect();
        let families = FAMILIES.iter().map(|family| family.listed.len());
        assert_eq!(known.len(), families.sum::<usize>());
        let others = ["nnvm:0", "nnvm:3", "two-level:4", "two-level:4294967295"];
        for name in known.iter().map(String::as_str).chain(others) {
            assert_eq!(named(name).unwrap().name(), name);
        }
        for (short, long) in [("nnvm", "nnvm:16"), ("two-level:2", "two-level")] {
            assert_eq!(named(short).unwrap().name(), long);
        }
        for (i, name) in known.iter().enumerate() {
            assert!(!known[..i].contains(name), "{name} is there twice");
        }
    }

    #[test]
    fn other_names_are_refused() {
        let wrong = ["", ":", "best-fit:", "best-fit:oldest", "max-block:newest", "two-level:0"];
        let more = ["two-level:x", "two-level:4294967296", "nnvm:-1", "Pushdown", "pushdown "];
        for name in wrong.into_iter().chain(more) {
            let Err(error) = named(name) else { panic!("{name:?} was taken") };
            assert_eq!(error.known.len(), all().len());
            let text = error.to_string();
            assert!(text.contains(&format!("{name:?}")) && text.contains("two-level:3"), "{text}");
        }
    }

    #[test]
    fn the_nearest_name_is_suggested() {
        for (name, near) in [
            ("two-levels", Some("two-level")),
            ("bestfit", Some("best-fit")),
            ("max-block:newest", Some("max-block:oldest")),
            ("gap-size", Some("gaps-size")),
            ("two-level:x", Some("two-level:1")),
            ("simulated-annealing", None),
            ("", None),
        ] {
            let error = named(name).err();
            assert_eq!(error.and_then(|error| error.near).as_deref(), near, "{name}");
        }
    }

    #[test]
    fn edits_are_counted() {
        for (from, to, count) in [
            ("", "", 0),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
            ("abc", "acb", 2),
            ("ä", "a", 1),
        ] {
            assert_eq!((edits(from, to), edits(to, from)), (count, count), "{from} {to}");
        }
    }
}
