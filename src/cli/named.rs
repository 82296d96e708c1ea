//! Options whose values have names. `--help` lists each name with a line of description.

use super::values::distinct;
use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use remat::unstable::plan::{self, order};
use remat::{CostModelKind, PolicyKind};
use std::ffi::OsStr;
use std::str::FromStr;

/// Parser of a value, with the list of names that `--help` shows.
#[derive(Clone)]
struct Named<F> {
    names: Vec<(&'static str, &'static str)>,
    parse: F,
}

/// Parser of a policy: a name or a formula.
pub fn policy() -> impl TypedValueParser<Value = PolicyKind> {
    Named { names: policy_names(), parse: parse::<PolicyKind> }
}

/// Parser of policies separated by commas, or `all` or `ablation`.
pub fn policies() -> impl TypedValueParser<Value = Vec<PolicyKind>> {
    let mut names = policy_names();
    names.push(("all", "all of these except none"));
    names.push((
        "ablation",
        "all 36 combinations of own cost, neighbourhood, size, staleness and free neighbours",
    ));
    Named { names, parse: parse_policies }
}

/// Parser of the name of a cost model.
pub fn cost_model() -> impl TypedValueParser<Value = CostModelKind> {
    let about = |name: &str| name.parse().map_or("", CostModelKind::about);
    let names = CostModelKind::NAMES.map(|name| (name, about(name)));
    Named { names: names.to_vec(), parse: parse::<CostModelKind> }
}

/// Parser of names of planners separated by commas, or `all`.
pub fn planners() -> impl TypedValueParser<Value = Vec<String>> {
    let all = || plan::all().iter().map(|planner| planner.name()).collect::<Vec<_>>();
    // The result has the planner's full name: `nnvm` becomes `nnvm:16`.
    let known = |name: &str| plan::named(name).map(|one| one.name()).map_err(|e| e.to_string());
    Named { names: listed(all()), parse: move |text: &str| names_of(text, all, known) }
}

/// Parser of names of orders separated by commas, or `all`.
pub fn orders() -> impl TypedValueParser<Value = Vec<String>> {
    let all = || order::all().iter().map(|one| one.name().to_owned()).collect::<Vec<_>>();
    let known =
        |name: &str| order::named(name).map(|one| one.name().to_owned()).map_err(|e| e.to_string());
    Named { names: listed(all()), parse: move |text: &str| names_of(text, all, known) }
}

/// Names for `--help`, plus `all`. The strings are leaked, because clap needs them until the
/// program ends.
fn listed(names: Vec<String>) -> Vec<(&'static str, &'static str)> {
    names.into_iter().chain(["all".to_owned()]).map(|name| (&*name.leak(), "")).collect()
}

/// Names in `text`, separated by commas, without repetitions and in the order of first appearance.
fn names_of(
    text: &str,
    all: impl Fn() -> Vec<String>,
    known: impl Fn(&str) -> Result<String, String>,
) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for part in text.split(',').map(str::trim) {
        match part {
            "all" => names.extend(all()),
            part => names.push(known(part)?),
        }
    }
    Ok(distinct(names.into_iter()))
}

fn policy_names() -> Vec<(&'static str, &'static str)> {
    let about = |name: &str| name.parse().map_or("", PolicyKind::about);
    PolicyKind::NAMES.map(|name| (name, about(name))).to_vec()
}

fn parse<T: FromStr<Err: std::fmt::Display>>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|error: T::Err| error.to_string())
}

fn parse_policies(text: &str) -> Result<Vec<PolicyKind>, String> {
    let mut policies = Vec::new();
    for part in text.split(',') {
        match part.trim() {
            "all" => policies.extend(PolicyKind::all()),
            "ablation" => policies.extend(PolicyKind::ablations()),
            part => policies.push(parse(part)?),
        }
    }
    Ok(distinct(policies.into_iter()))
}

impl<T, F> TypedValueParser for Named<F>
where
    T: Clone + Send + Sync + 'static,
    F: Fn(&str) -> Result<T, String> + Clone + Send + Sync + 'static,
{
    type Value = T;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<T, Error> {
        let text = value.to_string_lossy();
        (self.parse)(&text).map_err(|problem| {
            let option = arg.map_or_else(String::new, ToString::to_string);
            let message = format!("invalid value '{text}' for '{option}': {problem}\n");
            Error::raw(ErrorKind::ValueValidation, message).with_cmd(command)
        })
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |&(name, about)| match about {
            "" => PossibleValue::new(name),
            about => PossibleValue::new(name).help(about),
        };
        Some(Box::new(self.names.iter().map(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_planners_expand_and_repeat_nothing() {
        let parse = |text: &str| planners().parse_ref(&Command::new("x"), None, text.as_ref());
        let all = parse("all").unwrap();
        assert_eq!(all.len(), plan::all().len());
        assert_eq!(parse("pushdown, all,pushdown").unwrap().len(), all.len());
        assert_eq!(parse("nnvm,two-level").unwrap(), ["nnvm:16", "two-level"]);
        assert!(parse("two-levels").unwrap_err().to_string().contains("did you mean two-level"));
        let parse = |text: &str| orders().parse_ref(&Command::new("x"), None, text.as_ref());
        assert_eq!(parse("sink,program").unwrap(), ["sink", "program"]);
        assert_eq!(parse("all").unwrap().len(), order::all().len());
        assert!(parse("best").unwrap_err().to_string().contains("least-peak"));
    }

    #[test]
    fn lists_of_policies_expand_and_repeat_nothing() {
        let all = parse_policies("all").unwrap();
        assert_eq!(all.len(), PolicyKind::NAMES.len() - 1);
        assert_eq!(parse_policies("lru, all, dtr").unwrap().len(), all.len());
        let formulas = parse_policies("own/(size*stale),1/stale^2").unwrap();
        assert_eq!(formulas.len(), 2);
        assert_eq!(parse_policies("ablation").unwrap().len(), 36);
        assert!(parse_policies("lru,,dtr").is_err());
        assert!(parse_policies("best").unwrap_err().contains("dtr-eq"));
    }
}
