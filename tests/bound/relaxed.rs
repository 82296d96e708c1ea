//! Reads the linear program that is written for other solvers, and solves it in whole numbers by
//! trying all assignments.

use std::collections::HashMap;

/// Terms of a sum: the number of a variable and its coefficient.
type Sum = Vec<(usize, f64)>;

/// Program in the LP format.
#[derive(Debug, Default)]
pub struct Relaxed {
    names: HashMap<String, usize>,
    objective: Sum,
    /// Constraints: each sum is at least the number. A row with `<=` is stored with all signs
    /// changed.
    rows: Vec<(Sum, f64)>,
}

impl Relaxed {
    pub fn read(text: &str) -> Self {
        let mut relaxed = Self::default();
        let mut words = text.split_whitespace();
        assert_eq!((words.next(), words.next()), (Some("minimize"), Some("obj:")));
        let (mut sum, mut sign, mut factor) = (Sum::new(), 1.0, 1.0);
        while let Some(word) = words.next() {
            match word {
                "+" => sign = 1.0,
                "-" => sign = -1.0,
                "subject" => {
                    assert_eq!(words.next(), Some("to"));
                    relaxed.objective = std::mem::take(&mut sum);
                }
                "<=" | ">=" => {
                    let turn = if word == "<=" { -1.0 } else { 1.0 };
                    let right: f64 = words.next().unwrap().parse().unwrap();
                    let row = sum.drain(..).map(|(name, factor)| (name, turn * factor)).collect();
                    relaxed.rows.push((row, turn * right));
                }
                "end" => {
                    assert!(sum.is_empty() && words.next().is_none());
                    return relaxed;
                }
                word => match word.parse::<f64>() {
                    Ok(number) => factor = number,
                    Err(_) => {
                        let next = relaxed.names.len();
                        let name = *relaxed.names.entry(word.to_owned()).or_insert(next);
                        sum.push((name, sign * factor));
                        (sign, factor) = (1.0, 1.0);
                    }
                },
            }
        }
        panic!("no end: {text}");
    }

    /// Least objective with every variable 0 or 1. `None` if there are too many variables to try
    /// all.
    pub fn least(&self) -> Option<f64> {
        if self.names.len() > 14 {
            return None;
        }
        let at = |sum: &Sum, set: u32| -> f64 {
            sum.iter().filter(|(name, _)| set >> name & 1 == 1).map(|(_, factor)| factor).sum()
        };
        let fits = |set: &u32| self.rows.iter().all(|(row, right)| at(row, *set) >= right - 1e-9);
        let all = (0..1u32 << self.names.len()).filter(fits);
        Some(all.map(|set| at(&self.objective, set)).fold(f64::INFINITY, f64::min))
    }
}
