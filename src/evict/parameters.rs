//! Parameters of policies, written after the policy's name as in
//! `megengine:own-cost:staleness=0.5`.

use super::{ArticleConstants, Exponents, Formula, MegEngine, ParsePolicyError, PolicyKind};
use std::fmt;

/// Parameter of a policy: a number with a name.
struct Parameter<P> {
    name: &'static str,
    of: fn(&mut P) -> &mut f64,
    /// Whether the value must be above 0.
    is_factor: bool,
}

const fn any<P>(name: &'static str, of: fn(&mut P) -> &mut f64) -> Parameter<P> {
    Parameter { name, of, is_factor: false }
}

const fn factor<P>(name: &'static str, of: fn(&mut P) -> &mut f64) -> Parameter<P> {
    Parameter { name, of, is_factor: true }
}

const EXPONENTS: [Parameter<Exponents>; 3] = [
    any("cost", |it| &mut it.cost),
    any("bytes", |it| &mut it.bytes),
    any("staleness", |it| &mut it.staleness),
];

/// Exponents and rerun factor of MegEngine's function.
type Megengine = (Exponents, f64);

const MEGENGINE: [Parameter<Megengine>; 4] = [
    any("cost", |it| &mut it.0.cost),
    any("bytes", |it| &mut it.0.bytes),
    any("staleness", |it| &mut it.0.staleness),
    factor("rerun", |it| &mut it.1),
];

const ARTICLE: [Parameter<ArticleConstants>; 8] = [
    any("cost", |it| &mut it.exponents.cost),
    any("bytes", |it| &mut it.exponents.bytes),
    any("staleness", |it| &mut it.exponents.staleness),
    factor("rerun", |it| &mut it.rerun_factor),
    any("cost-offset", |it| &mut it.cost_offset),
    any("staleness-offset", |it| &mut it.staleness_offset),
    factor("cost-scale", |it| &mut it.cost_scale),
    factor("memory-unit", |it| &mut it.memory_unit),
];

/// Parameter without a value. If a policy has the parameter, a tensor's own cost counts in its
/// score.
const OWN_COST: &str = "own-cost";

impl PolicyKind {
    /// Parses the name of a policy followed by parameters, such as `megengine:own-cost`. Returns
    /// `None` if the text does not begin with the name of a policy that has parameters.
    pub(super) fn with_parameters(text: &str) -> Option<Result<Self, ParsePolicyError>> {
        let (name, rest) = text.split_once(':')?;
        let given = Given { text, policy: name, rest };
        Some(match name {
            "megengine" => given
                .read(&MEGENGINE, (Exponents::default(), MegEngine::RERUN_FACTOR), true)
                .map(|((exponents, rerun_factor), own_cost)| Self::MegEngine {
                    exponents,
                    own_cost,
                    rerun_factor,
                }),
            "megengine-article" => given
                .read(&ARTICLE, ArticleConstants::default(), false)
                .map(|(constants, _)| Self::MegEngineArticle(constants)),
            "ancestors" | "dtr" | "dtr-eq" | "dtr-local" => {
                let (kind, formula) = match name {
                    "ancestors" => (Self::Ancestors, Formula::ANCESTORS),
                    "dtr" => (Self::Dtr, Formula::DTR),
                    "dtr-eq" => (Self::DtrEq, Formula::DTR_EQ),
                    _ => (Self::DtrLocal, Formula::DTR_LOCAL),
                };
                let read = given.read(&EXPONENTS, formula.exponents, false);
                read.map(|(exponents, _)| kind.with_exponents(exponents))
            }
            _ => return None,
        })
    }

    /// Writes the parameters whose values differ from the default.
    pub(super) fn write_parameters(self, to: &mut impl fmt::Write) -> fmt::Result {
        match self {
            Self::MegEngine { exponents, own_cost, rerun_factor } => {
                if own_cost {
                    write!(to, ":{OWN_COST}")?;
                }
                let usual = (Exponents::default(), MegEngine::RERUN_FACTOR);
                write(&MEGENGINE, (exponents, rerun_factor), usual, to)
            }
            Self::MegEngineArticle(constants) => {
                write(&ARTICLE, constants, ArticleConstants::default(), to)
            }
            _ => Ok(()),
        }
    }
}

fn write<P: Copy>(
    parameters: &[Parameter<P>],
    mut values: P,
    mut usual: P,
    to: &mut impl fmt::Write,
) -> fmt::Result {
    for Parameter { name, of, .. } in parameters {
        let (value, usual) = (*of(&mut values), *of(&mut usual));
        // Compare bits, not numbers, because 0 and -0 are equal numbers but print differently.
        if value.to_bits() != usual.to_bits() {
            write!(to, ":{name}={value}")?;
        }
    }
    Ok(())
}

/// Text of a policy and its parameters.
#[derive(Clone, Copy)]
struct Given<'a> {
    text: &'a str,
    policy: &'a str,
    rest: &'a str,
}

impl Given<'_> {
    /// Reads the values of the parameters, and whether the own cost counts. The text may contain
    /// `own-cost` only if `has_own_cost` is set.
    fn read<P>(
        self,
        parameters: &[Parameter<P>],
        mut values: P,
        has_own_cost: bool,
    ) -> Result<(P, bool), ParsePolicyError> {
        let mut own_cost = false;
        let mut seen: Vec<&str> = Vec::new();
        for part in self.rest.split(':') {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            let failed = |why: String| ParsePolicyError::Parameter {
                text: self.text.to_owned(),
                parameter: part.to_owned(),
                why,
            };
            if seen.contains(&name) {
                return Err(failed("the parameter is given twice".to_owned()));
            }
            seen.push(name);
            if has_own_cost && part == OWN_COST {
                own_cost = true;
                continue;
            }
            let Some(parameter) = parameters.iter().find(|known| known.name == name) else {
                let own_cost = has_own_cost.then(|| OWN_COST.to_owned());
                let names = parameters.iter().map(|known| format!("{}=X", known.name));
                let names: Vec<String> = own_cost.into_iter().chain(names).collect();
                return Err(failed(format!("{} has {}", self.policy, names.join(", "))));
            };
            let number = value.parse::<f64>().ok().filter(|it| it.is_finite());
            match number.filter(|&it| it > 0.0 || !parameter.is_factor) {
                Some(number) => *(parameter.of)(&mut values) = number,
                None if parameter.is_factor => {
                    return Err(failed(format!("give a number above 0, such as {name}=1.5")));
                }
                None => return Err(failed(format!("give a finite number, such as {name}=1.5"))),
            }
        }
        Ok((values, own_cost))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn megengine(exponents: [f64; 3], own_cost: bool, rerun_factor: f64) -> PolicyKind {
        let [cost, bytes, staleness] = exponents;
        PolicyKind::MegEngine {
            exponents: Exponents { cost, bytes, staleness },
            own_cost,
            rerun_factor,
        }
    }

    #[test]
    fn policies_with_parameters_print_as_they_parse() {
        let constants =
            ArticleConstants { cost_scale: 1.0, rerun_factor: 1.5, ..Default::default() };
        for (kind, text) in [
            (PolicyKind::megengine(), "megengine"),
            (megengine([1.0; 3], true, 1.0001), "megengine:own-cost"),
            (megengine([1.0, 2.0, 0.5], false, 1.0001), "megengine:bytes=2:staleness=0.5"),
            (
                megengine([0.1 + 0.2, -1.0, 0.0], true, 2.0),
                "megengine:own-cost:cost=0.30000000000000004:bytes=-1:staleness=0:rerun=2",
            ),
            (PolicyKind::megengine_article(), "megengine-article"),
            (PolicyKind::MegEngineArticle(constants), "megengine-article:rerun=1.5:cost-scale=1"),
        ] {
            assert_eq!(kind.to_string(), text);
            assert_eq!(text.parse(), Ok(kind));
        }
        // Parameters may come in any order, and may be given with their default values.
        let said = "megengine:rerun=1.0001:staleness=0.5:bytes=2:cost=1".parse();
        assert_eq!(said, Ok(megengine([1.0, 2.0, 0.5], false, 1.0001)));
    }

    #[test]
    fn exponents_of_dtr_s_rules_make_a_formula_of_them() {
        for (text, formula) in [
            ("dtr:staleness=0.5", "(own+exact)/(size*stale^0.5)"),
            ("dtr-eq:cost=2:bytes=3", "(own+eq)^2/(size^3*stale)"),
            ("dtr-local:bytes=0", "own/stale"),
            ("dtr:cost=0", "1/(size*stale)"),
            ("ancestors:staleness=1", "(own+ancestors)/(size*stale)"),
        ] {
            let kind: PolicyKind = text.parse().unwrap();
            assert_eq!(kind.to_string(), formula);
            assert_eq!(formula.parse(), Ok(kind), "{text}");
        }
        // With the default exponents, `dtr` with parameters parses to the variant `Formula`, not
        // `Dtr`.
        let usual: PolicyKind = "dtr:cost=1".parse().unwrap();
        assert_eq!(usual, PolicyKind::Formula(Formula::DTR));
    }

    #[test]
    fn other_parameters_are_refused() {
        for (text, said) in [
            (
                "megengine:",
                "`` of `megengine:`: megengine has own-cost, cost=X, bytes=X, staleness=X, rerun=X",
            ),
            ("megengine:own_cost", "`own_cost` of `megengine:own_cost`: megengine has own-cost, "),
            ("megengine:own-cost=1", "`own-cost=1` of "),
            (
                "megengine:cost",
                "`cost` of `megengine:cost`: give a finite number, such as cost=1.5",
            ),
            ("megengine:cost=x", "give a finite number"),
            ("megengine:cost=NaN", "give a finite number"),
            ("megengine:cost=inf", "give a finite number"),
            ("megengine:rerun=0", "`rerun=0` of `megengine:rerun=0`: give a number above 0"),
            ("megengine:rerun=-1", "give a number above 0"),
            (
                "megengine:cost=1:cost=2",
                "`cost=2` of `megengine:cost=1:cost=2`: the parameter is given twice",
            ),
            ("megengine:own-cost:own-cost", "the parameter is given twice"),
            ("megengine:cost-scale=1", "megengine has own-cost"),
            (
                "megengine-article:own-cost",
                "megengine-article has cost=X, bytes=X, staleness=X, rerun=X, cost-offset=X",
            ),
            ("megengine-article:memory-unit=0", "give a number above 0"),
            ("dtr:rerun=2", "dtr has cost=X, bytes=X, staleness=X"),
            ("lru:staleness=2", "`lru:staleness=2` is not a policy; choose one of"),
        ] {
            let error = text.parse::<PolicyKind>().unwrap_err().to_string();
            assert!(error.contains(said), "{text}: {error}");
        }
    }
}
