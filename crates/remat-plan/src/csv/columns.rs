//! Columns of a file, and their names.

use super::{CsvError, Lives, excerpt};

/// Meaning of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    Id,
    Lower,
    Upper,
    Size,
    Alignment,
    Gaps,
    Hint,
    Offset,
}

/// Names of columns, with their meanings.
const NAMES: [(&str, Field); 13] = [
    ("id", Field::Id),
    ("buffer", Field::Id),
    ("buffer_id", Field::Id),
    ("lower", Field::Lower),
    ("start", Field::Lower),
    ("begin", Field::Lower),
    ("upper", Field::Upper),
    (END, Field::Upper),
    ("size", Field::Size),
    ("alignment", Field::Alignment),
    ("gaps", Field::Gaps),
    ("hint", Field::Hint),
    ("offset", Field::Offset),
];

/// Name of the column whose value is the last instant of the life, under both values of [`Lives`].
const END: &str = "end";

/// Columns that every file needs, each with its first name in `NAMES`.
const NEEDED: [(&str, Field); 4] =
    [("id", Field::Id), ("lower", Field::Lower), ("upper", Field::Upper), ("size", Field::Size)];

/// Columns of a file in their order. No column occurs twice, and all columns of `NEEDED` occur.
#[derive(Clone, Debug)]
pub(super) struct Columns {
    pub fields: Vec<(Field, &'static str)>,
    /// Whether the end of a life or gap in the file is its last instant.
    pub is_closed: bool,
}

/// Whether a line has the names of columns. A line has names if no field after the first field
/// begins like a number.
pub(super) fn is_header(line: &str) -> bool {
    let is_number = |field: &str| {
        field.trim().starts_with(|it: char| "+-.".contains(it) || it.is_ascii_digit())
    };
    !line.split(',').skip(1).any(is_number)
}

impl Columns {
    /// Number of the column with the ids, counted from 1.
    pub fn ids(&self) -> usize {
        1 + self.fields.iter().position(|(field, _)| *field == Field::Id).unwrap_or(0)
    }

    /// Columns of a file that has no line of column names.
    pub fn usual(lives: Lives) -> Self {
        let fields = NEEDED.map(|(name, field)| (field, name)).to_vec();
        Self { fields, is_closed: lives == Lives::Closed }
    }

    /// Reads the names of the columns.
    pub fn read(line: &str, number: usize, lives: Lives) -> Result<Self, CsvError> {
        let mut fields: Vec<(Field, &'static str)> = Vec::new();
        for (at, found) in line.split(',').map(str::trim).enumerate() {
            let known = NAMES.iter().find(|(name, _)| name.eq_ignore_ascii_case(found));
            let refused = |why: String| CsvError::Column {
                line: number,
                column: at + 1,
                found: excerpt(found),
                why,
            };
            let Some(&(name, field)) = known else {
                let names: Vec<&str> = NAMES.iter().map(|(name, _)| *name).collect();
                return Err(refused(format!(
                    "no column has this name: choose one of {}",
                    names.join(", ")
                )));
            };
            if let Some(first) = fields.iter().position(|(other, _)| *other == field) {
                let other = fields[first].1;
                return Err(refused(format!(
                    "column {} ({other}) has the same meaning",
                    first + 1
                )));
            }
            fields.push((field, name));
        }
        let is_missing =
            |(_, field): &&(&str, Field)| fields.iter().all(|(other, _)| other != field);
        if let Some((name, _)) = NEEDED.iter().find(is_missing) {
            return Err(CsvError::Missing { line: number, name, found: excerpt(line) });
        }
        let is_closed = lives == Lives::Closed || fields.iter().any(|(_, name)| *name == END);
        Ok(Self { fields, is_closed })
    }
}
