//! Parser of the line of a buffer.

use super::columns::{Columns, Field};
use super::{CsvError, Gap, excerpt};
use crate::{Buffer, Lifetimes, PlanError};

/// A buffer as read from its line.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub buffer: Buffer,
    pub gaps: Vec<Gap>,
    pub hint: Option<u64>,
}

impl Columns {
    /// Reads the line of a buffer. Returns the id of the buffer, and its other values as a `Row`.
    /// Adds the size of the buffer, with the bytes that alignment may waste, to `total`.
    pub fn row<'a>(
        &self,
        line: &'a str,
        number: usize,
        total: &mut u64,
    ) -> Result<(&'a str, Row), CsvError> {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != self.fields.len() {
            let names: Vec<&str> = self.fields.iter().map(|(_, name)| *name).collect();
            return Err(CsvError::Fields {
                line: number,
                found: fields.len(),
                expected: names.len(),
                columns: names.join(","),
            });
        }
        // Each error names the column and the text of the field.
        let refused = |column: Field, why: String| {
            let at = self.fields.iter().position(|(field, _)| *field == column).unwrap_or(0);
            CsvError::Value {
                line: number,
                column: at + 1,
                name: self.fields[at].1,
                found: excerpt(fields[at]),
                why,
            }
        };
        let number_of = |column: Field, text: &str| {
            let why = || "expected a whole number from 0 to below 2^64".to_owned();
            whole(text).ok_or_else(|| refused(column, why()))
        };
        // Each field is parsed.
        let mut id = "";
        let (mut lower, mut upper) = (0, 0);
        let mut row = Row { buffer: Buffer::new(0, 1, 0), gaps: Vec::new(), hint: None };
        let mut offset = None;
        for ((field, _), &text) in self.fields.iter().zip(&fields) {
            let given = || match text {
                "" => Ok(None),
                text => number_of(*field, text).map(Some),
            };
            match field {
                Field::Id => id = text,
                Field::Lower => lower = number_of(Field::Lower, text)?,
                Field::Upper => upper = number_of(Field::Upper, text)?,
                Field::Size => row.buffer.size = number_of(Field::Size, text)?,
                Field::Alignment => row.buffer.align = given()?.unwrap_or(1),
                Field::Gaps => {}
                Field::Hint => row.hint = given()?,
                Field::Offset => offset = given()?,
            }
        }
        row.hint = offset.or(row.hint);
        // First instant after the life; `None` if the life includes instant `u64::MAX`.
        let end = if self.is_closed { upper.checked_add(1) } else { Some(upper) };
        let Some(end) = end else {
            return Err(refused(
                Field::Upper,
                "this is the last possible instant; give an earlier one".into(),
            ));
        };
        // Conditions on several fields are checked: life, alignment, total size, gaps.
        if lower >= end {
            let is_included = if self.is_closed { "included" } else { "excluded" };
            let why = format!(
                "the buffer lives from {lower} to {upper}, {is_included}: the life is empty"
            );
            return Err(refused(Field::Upper, why));
        }
        (row.buffer.lower, row.buffer.upper) = (lower, end);
        if row.buffer.align == 0 {
            return Err(refused(Field::Alignment, "expected 1 or more".into()));
        }
        let bytes = row.buffer.size.checked_add(row.buffer.align - 1);
        *total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or_else(|| {
            refused(
                Field::Size,
                "all buffers so far, alignments included, have 2^64 bytes or more".into(),
            )
        })?;
        if let Some(at) = self.fields.iter().position(|(field, _)| *field == Field::Gaps) {
            let gaps =
                |text: &str| text.split_ascii_whitespace().map(|gap| self.gap(gap)).collect();
            let gaps: Result<Vec<Gap>, String> = gaps(fields[at]);
            row.gaps = gaps.map_err(|why| refused(Field::Gaps, why))?;
            self.check_gaps(&row).map_err(|why| refused(Field::Gaps, why))?;
        }
        Ok((id, row))
    }

    /// Reads a gap: `7-9`, or `7-9@0:16`.
    fn gap(&self, text: &str) -> Result<Gap, String> {
        let pair = |text: &str, by: char| {
            let (first, second) = text.split_once(by)?;
            Some((whole(first)?, whole(second)?))
        };
        let (time, kept) = match text.split_once('@') {
            Some((time, kept)) => (time, Some(kept)),
            None => (text, None),
        };
        let time = pair(time, '-');
        let kept = kept.map_or(Some((0, 0)), |kept| pair(kept, ':'));
        let (Some((lower, upper)), Some((start, end))) = (time, kept) else {
            return Err(format!(
                "{:?} is not a gap: write for example 7-9 or 7-9@0:16",
                excerpt(text)
            ));
        };
        let upper = if self.is_closed { upper.checked_add(1) } else { Some(upper) };
        let upper = upper.ok_or_else(|| {
            format!("{:?} ends at the last possible instant: give an earlier end", excerpt(text))
        })?;
        Ok(Gap { lower, upper, kept: start..end })
    }

    /// Checks that the buffer can have its gaps.
    fn check_gaps(&self, row: &Row) -> Result<(), String> {
        let checked = Lifetimes::new([row.buffer]).and_then(|it| it.with_gaps(0, row.gaps.clone()));
        match checked {
            Ok(_) => Ok(()),
            Err(PlanError::Gap { lower, upper, why, .. }) => {
                let upper = if self.is_closed { upper.saturating_sub(1) } else { upper };
                Err(format!("the buffer has a gap {lower}-{upper}, {why}"))
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Parses a number of decimal digits. Any other character is an error.
fn whole(text: &str) -> Option<u64> {
    text.parse().ok().filter(|_| text.bytes().all(|byte| byte.is_ascii_digit()))
}
