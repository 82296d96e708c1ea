//! Lifetimes as text: the files of MiniMalloc and idealloc.

use std::io::{self, BufRead, Read, Write};

use super::{Buffer, Lifetimes, Placement, PlanError};

const HEADER: &str = "id,lower,upper,size";
/// Bytes of a line at most, so that a file that is something else is not read as one line.
const LONGEST: u64 = 1 << 16;

/// What the `upper` of a file is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lives {
    /// The first instant after: lives are half open, as MiniMalloc and idealloc write them.
    #[default]
    HalfOpen,
    /// The last instant: lives are closed, as CANN counts.
    Closed,
}

/// [`Lifetimes`] whose buffers have names: an instance of the planning problem, as files have it.
///
/// A line `id,lower,upper,size` comes first, or may be missing; then each buffer has a line with these fields. Numbers are
/// decimal and below 2^64; ids are any text without a comma, all different. Spaces around fields do not count, nor do empty
/// lines. Lines end as on Unix or on Windows.
///
/// ```
/// use remat::plan::{BestFit, Instance, Limits, Lives, Planner};
///
/// let file = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\n";
/// let instance = Instance::read(file.as_bytes(), Lives::HalfOpen)?;
/// let planned = BestFit.plan(instance.lifetimes(), &Limits::none())?;
/// let mut solution = Vec::new();
/// instance.write_placement(&planned.placement, &mut solution, Lives::HalfOpen)?;
/// assert_eq!(solution, b"id,lower,upper,size,offset\nb1,0,3,4,0\nb2,3,9,4,0\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    // One for each buffer, no two the same.
    ids: Vec<String>,
    lifetimes: Lifetimes,
}

impl Instance {
    /// Lifetimes whose buffers have their numbers as ids.
    #[must_use]
    pub fn numbered(lifetimes: Lifetimes) -> Self {
        Self { ids: (0..lifetimes.len()).map(|number| number.to_string()).collect(), lifetimes }
    }

    /// Reads a file. Takes n log n time for n lines.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is no such file; which line of it is not.
    pub fn read(mut file: impl BufRead, lives: Lives) -> Result<Self, CsvError> {
        let mut ids = Vec::new();
        let mut buffers = Vec::new();
        // Of each buffer.
        let mut lines: Vec<usize> = Vec::new();
        let mut bytes = Vec::new();
        let mut empty = true;
        for number in 1.. {
            bytes.clear();
            if file.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if bytes.len() as u64 == LONGEST && bytes.last() != Some(&b'\n') {
                return Err(CsvError::LongLine { line: number });
            }
            let line =
                std::str::from_utf8(&bytes).map_err(|_| CsvError::NoText { line: number })?;
            // What Windows likes to begin files with.
            let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { line };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let first = std::mem::replace(&mut empty, false);
            if first && is_header(line, number)? {
                continue;
            }
            let (id, buffer) = parse(line, number, lives)?;
            ids.push(id.to_owned());
            buffers.push(buffer);
            lines.push(number);
        }
        if empty {
            return Err(CsvError::Empty);
        }
        let instance = Self { ids, lifetimes: Lifetimes::new(buffers)? };
        instance.all_different(&lines)?;
        Ok(instance)
    }

    fn all_different(&self, lines: &[usize]) -> Result<(), CsvError> {
        let mut order: Vec<usize> = (0..self.ids.len()).collect();
        order.sort_unstable_by_key(|&i| (&self.ids[i], i));
        let twice = order.windows(2).filter(|pair| self.ids[pair[0]] == self.ids[pair[1]]);
        match twice.min_by_key(|pair| pair[1]) {
            None => Ok(()),
            Some(pair) => Err(CsvError::Twice {
                line: lines[pair[1]],
                first: lines[pair[0]],
                id: excerpt(&self.ids[pair[1]]),
            }),
        }
    }

    /// The name of each buffer.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// What a planner is given.
    #[must_use]
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// It cannot be written, or a buffer has an alignment or a colour, for which the format has no place.
    pub fn write(&self, mut file: impl Write, lives: Lives) -> Result<(), CsvError> {
        for (number, buffer) in self.lifetimes.buffers().iter().enumerate() {
            let what = match buffer {
                Buffer { align: 2.., .. } => "an alignment",
                Buffer { colour: 1.., .. } => "a colour",
                _ => continue,
            };
            return Err(CsvError::NoPlace { id: excerpt(&self.ids[number]), what });
        }
        writeln!(file, "{HEADER}")?;
        for line in self.lines(lives) {
            writeln!(file, "{line}")?;
        }
        Ok(file.flush()?)
    }

    /// Writes the file with a further field, `offset`: a solution, as MiniMalloc writes it.
    ///
    /// # Errors
    ///
    /// It cannot be written, or the placement is of more or fewer buffers.
    pub fn write_placement(
        &self,
        placement: &Placement,
        mut file: impl Write,
        lives: Lives,
    ) -> Result<(), CsvError> {
        let (offsets, buffers) = (placement.offsets(), self.lifetimes.len());
        if offsets.len() != buffers {
            return Err(CsvError::Count { offsets: offsets.len(), buffers });
        }
        writeln!(file, "{HEADER},offset")?;
        for (line, offset) in self.lines(lives).zip(offsets) {
            writeln!(file, "{line},{offset}")?;
        }
        Ok(file.flush()?)
    }

    fn lines(&self, lives: Lives) -> impl Iterator<Item = String> {
        self.ids.iter().zip(self.lifetimes.buffers()).map(move |(id, buffer)| {
            let upper = match lives {
                Lives::HalfOpen => buffer.upper,
                Lives::Closed => buffer.upper - 1,
            };
            format!("{id},{},{upper},{}", buffer.lower, buffer.size)
        })
    }
}

/// Whether a first line is the header. Fails if it is another one.
fn is_header(line: &str, number: usize) -> Result<bool, CsvError> {
    if line.split(',').map(str::trim).eq(HEADER.split(',')) {
        return Ok(true);
    }
    let digit = |field: &str| field.bytes().any(|byte| byte.is_ascii_digit());
    if line.split(',').skip(1).any(digit) {
        return Ok(false);
    }
    Err(CsvError::Header { line: number, found: excerpt(line) })
}

fn parse(line: &str, number: usize, lives: Lives) -> Result<(&str, Buffer), CsvError> {
    let mut fields = line.split(',').map(str::trim);
    let (Some(id), Some(lower), Some(upper), Some(size), None) =
        (fields.next(), fields.next(), fields.next(), fields.next(), fields.next())
    else {
        return Err(CsvError::Fields { line: number, found: line.split(',').count() });
    };
    let value = |name, text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        let value = text.parse::<u64>().ok().filter(|_| digits);
        value.ok_or_else(|| CsvError::Number { line: number, name, found: excerpt(text) })
    };
    let (lower, upper, size) =
        (value("lower", lower)?, value("upper", upper)?, value("size", size)?);
    // The first instant after; none after the last one that there is.
    let end = match lives {
        Lives::HalfOpen => Some(upper),
        Lives::Closed => upper.checked_add(1),
    };
    match end {
        None => Err(CsvError::Endless { line: number, upper }),
        Some(end) if lower >= end => Err(CsvError::NeverAlive { line: number, lower, upper }),
        Some(end) => Ok((id, Buffer::new(lower, end, size))),
    }
}

/// As much of a text as an error can show.
fn excerpt(text: &str) -> String {
    let mut chars = text.chars();
    let start: String = chars.by_ref().take(40).collect();
    if chars.next().is_some() { start + "..." } else { start }
}

/// Why a file is not read or written. Lines count from 1.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CsvError {
    /// Of the system.
    #[error("the file cannot be read or written: {0}")]
    Io(#[from] io::Error),
    /// Nothing is in it.
    #[error("the file is empty: write {HEADER} and a line for each buffer")]
    Empty,
    /// Too long for a buffer.
    #[error("line {line} has {LONGEST} bytes or more: it should be {HEADER}")]
    LongLine {
        /// Which line.
        line: usize,
    },
    /// No UTF-8.
    #[error("line {line} is no UTF-8 text")]
    NoText {
        /// Which line.
        line: usize,
    },
    /// Other fields than these, or in another order.
    #[error("line {line} is {found:?}: it should be {HEADER} or a buffer")]
    Header {
        /// Which line.
        line: usize,
        /// What is there.
        found: String,
    },
    /// More or fewer fields.
    #[error("line {line} has {found} fields: it should have four, {HEADER}")]
    Fields {
        /// Which line.
        line: usize,
        /// How many are there.
        found: usize,
    },
    /// Something else, or too large.
    #[error("line {line}: {name} is {found:?}, which is no whole number from 0 to below 2^64")]
    Number {
        /// Which line.
        line: usize,
        /// Which field.
        name: &'static str,
        /// What is there.
        found: String,
    },
    /// Not alive for any instant.
    #[error("line {line}: the buffer lives from {lower} to {upper}, which is no time at all")]
    NeverAlive {
        /// Which line.
        line: usize,
        /// When it begins.
        lower: u64,
        /// Its end, as in the file.
        upper: u64,
    },
    /// Alive at the last instant of all, so that there is none after it.
    #[error("line {line}: the buffer lives to {upper}, included: it should end before")]
    Endless {
        /// Which line.
        line: usize,
        /// Its end, as in the file.
        upper: u64,
    },
    /// An id that another buffer has.
    #[error("line {line}: the buffer of line {first} has the id {id:?} already")]
    Twice {
        /// Which line.
        line: usize,
        /// Where the id was seen first.
        first: usize,
        /// The id.
        id: String,
    },
    /// All are good, but not together.
    #[error(transparent)]
    Lifetimes(#[from] PlanError),
    /// More than the format can say.
    #[error("buffer {id} has {what}: the format has no place for that")]
    NoPlace {
        /// Which buffer.
        id: String,
        /// What it has.
        what: &'static str,
    },
    /// Of other lifetimes.
    #[error("the placement has {offsets} offsets, and there are {buffers} buffers")]
    Count {
        /// How many offsets there are.
        offsets: usize,
        /// How many buffers there are.
        buffers: usize,
    },
}

#[cfg(test)]
mod tests;
