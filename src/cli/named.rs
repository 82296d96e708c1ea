//! Values that go by name: `--help` lists the names, with a line about each.

use clap::builder::{PossibleValue, TypedValueParser};
use clap::error::ErrorKind;
use clap::{Arg, Command, Error};
use remat::{CostModelKind, PolicyKind};
use std::ffi::OsStr;
use std::str::FromStr;

/// Parses what `T` parses, and lists its names in `--help`.
#[derive(Clone)]
struct Named<T> {
    names: Vec<(&'static str, &'static str)>,
    parse: fn(&str) -> Result<T, String>,
}

/// A policy's name, or a formula.
pub fn policy() -> impl TypedValueParser<Value = PolicyKind> {
    Named { names: policy_names(), parse: parse::<PolicyKind> }
}

/// Policies separated by commas, or `all` or `ablation`.
pub fn policies() -> impl TypedValueParser<Value = Vec<PolicyKind>> {
    let mut names = policy_names();
    names.push(("all", "all of these except none"));
    names.push((
        "ablation",
        "all 36 combinations of own cost, neighbourhood, size, staleness and free neighbours",
    ));
    Named { names, parse: parse_policies }
}

/// A cost model's name.
pub fn cost_model() -> impl TypedValueParser<Value = CostModelKind> {
    let about = |name: &str| name.parse().map_or("", CostModelKind::about);
    let names = CostModelKind::NAMES.map(|name| (name, about(name)));
    Named { names: names.to_vec(), parse: parse::<CostModelKind> }
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
    // In the order they were first named.
    let mut distinct = Vec::new();
    for policy in policies {
        if !distinct.contains(&policy) {
            distinct.push(policy);
        }
    }
    Ok(distinct)
}

impl<T: Clone + Send + Sync + 'static> TypedValueParser for Named<T> {
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
        let values = self.names.iter().map(|(name, about)| PossibleValue::new(name).help(about));
        Some(Box::new(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
