//! Formulas as text: `(own+eq)/(size*stale)`.

use super::{Around, Exponents, Formula};
use std::fmt;
use std::str::FromStr;

/// Error for a text that is not a formula.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{text}` is not a formula: {problem}; write for example (own+exact)/(size*stale); \
     the numerator is 1 or a sum of own and one of exact, eq, sources or ancestors, the denominator a product of \
     size or (size+free), and stale; each may have an exponent, such as ^2"
)]
pub struct ParseFormulaError {
    text: String,
    problem: String,
}

/// Prints a text that parses to the same formula.
impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Exponents { cost, bytes, staleness } = self.exponents;
        let around = match self.around {
            Around::Nothing => None,
            Around::Sources => Some("sources"),
            Around::Ancestors => Some("ancestors"),
            Around::Exact => Some("exact"),
            Around::Classes => Some("eq"),
        };
        match (self.own_cost && cost != 0.0, around.filter(|_| cost != 0.0)) {
            (true, Some(around)) => write!(f, "(own+{around}){}", Power(cost))?,
            (true, None) => write!(f, "own{}", Power(cost))?,
            (false, Some(around)) => write!(f, "{around}{}", Power(cost))?,
            (false, None) => f.write_str("1")?,
        }
        let size = if self.free_neighbours { "(size+free)" } else { "size" };
        match (bytes != 0.0, staleness != 0.0) {
            (true, true) => write!(f, "/({size}{}*stale{})", Power(bytes), Power(staleness)),
            (true, false) => write!(f, "/{size}{}", Power(bytes)),
            (false, true) => write!(f, "/stale{}", Power(staleness)),
            (false, false) => Ok(()),
        }
    }
}

/// Exponent, printed as in `^2`. The exponent 1 prints as an empty text.
struct Power(f64);

impl fmt::Display for Power {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 1.0 { Ok(()) } else { write!(f, "^{}", self.0) }
    }
}

impl FromStr for Formula {
    type Err = ParseFormulaError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let squeezed: String = text.chars().filter(|c| !c.is_whitespace()).collect();
        parse(&squeezed).map_err(|problem| ParseFormulaError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Formula, String> {
    let mut parts = text.split('/');
    let above = parts.next().unwrap_or_default();
    let below = parts.next().unwrap_or("1");
    if parts.next().is_some() {
        return Err("it has two fraction bars".to_owned());
    }
    let mut formula = Formula {
        own_cost: false,
        around: Around::Nothing,
        free_neighbours: false,
        exponents: Exponents { cost: 0.0, bytes: 0.0, staleness: 0.0 },
    };
    let (sum, exponent) = power(above)?;
    for term in sum.split('+').filter(|_| sum != "1") {
        formula.exponents.cost = exponent;
        let around = match term {
            "own" if formula.own_cost => return Err("own occurs twice".to_owned()),
            "own" => {
                formula.own_cost = true;
                continue;
            }
            "exact" => Around::Exact,
            "eq" => Around::Classes,
            "sources" => Around::Sources,
            "ancestors" => Around::Ancestors,
            _ => return Err(format!("`{term}` cannot be in the numerator")),
        };
        if formula.around != Around::Nothing {
            return Err("exact, eq, sources and ancestors exclude each other".to_owned());
        }
        formula.around = around;
    }
    let (product, exponent) = power(below)?;
    if exponent != 1.0 && product.contains('*') {
        return Err("give each factor of the denominator its own exponent".to_owned());
    }
    let product = if product.contains('*') { product } else { below };
    for factor in product.split('*').filter(|_| product != "1") {
        let (part, exponent) = power(factor)?;
        let known = match part {
            "size" | "size+free" => &mut formula.exponents.bytes,
            "stale" => &mut formula.exponents.staleness,
            _ => return Err(format!("`{part}` cannot be in the denominator")),
        };
        if *known != 0.0 {
            return Err(format!("`{part}` occurs twice"));
        }
        *known = exponent;
        formula.free_neighbours |= part == "size+free";
    }
    Ok(formula)
}

/// Splits a part of a formula into its base, without outer parentheses, and its exponent.
fn power(text: &str) -> Result<(&str, f64), String> {
    // A `^` inside the part is not the part's exponent.
    let (base, exponent) = match text.rsplit_once('^') {
        Some((base, exponent)) if !exponent.contains([')', '*', '+']) => {
            let exponent = exponent.parse::<f64>().ok().filter(|x| x.is_finite() && *x != 0.0);
            (base, exponent.ok_or("an exponent must be a number other than 0")?)
        }
        _ => (text, 1.0),
    };
    let inner = base.strip_prefix('(').and_then(|rest| rest.strip_suffix(')'));
    match inner {
        // `(a)*(b)` has no outer parentheses.
        Some(inner) if inner.find(')').is_none_or(|end| inner[..end].contains('(')) => {
            Ok((inner, exponent))
        }
        _ if base.contains('*') && exponent != 1.0 => Ok((text, 1.0)),
        _ => Ok((base, exponent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_named_ones_print_and_parse() {
        for (formula, text) in [
            (Formula::DTR, "(own+exact)/(size*stale)"),
            (Formula::DTR_EQ, "(own+eq)/(size*stale)"),
            (Formula::DTR_LOCAL, "own/(size*stale)"),
            (Formula::LRU, "1/stale"),
            (Formula::LARGEST, "1/size"),
            (Formula::MSPS, "(own+sources)/size"),
            (Formula::ANCESTORS, "(own+ancestors)/(size*stale^0.6666666666666666)"),
        ] {
            assert_eq!(formula.to_string(), text);
            assert_eq!(text.parse(), Ok(formula), "{text}");
        }
    }

    #[test]
    fn parts_may_be_left_out_and_have_exponents() {
        for text in [
            "(own+eq)^0.5/((size+free)^2*stale^3)",
            "exact/(size+free)",
            "eq^2/stale",
            "own",
            "1",
            "own/(size^0.5*stale)",
            "1/((size+free)*stale^2)",
        ] {
            let formula: Formula = text.parse().unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(formula.to_string(), text);
        }
        let loose: Formula = " own + eq / size * stale ^ 2".parse().unwrap();
        assert_eq!(loose.to_string(), "(own+eq)/(size*stale^2)");
    }

    #[test]
    fn malformed_formulas_are_refused() {
        for text in [
            "",
            "/",
            "own/",
            "size/own",
            "own+own",
            "eq+exact",
            "own/size/stale",
            "own^x",
            "own^0",
            "own/size*size",
            "own^inf",
            "(own",
            "own)",
            "own/(size",
            "()",
            "own/(stale*)",
            "own/(size*stale)^2",
            "lru",
        ] {
            assert!(text.parse::<Formula>().is_err(), "{text}: {:?}", text.parse::<Formula>());
        }
    }
}
