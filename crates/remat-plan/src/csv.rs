//! Lifetimes as text files, in the formats of MiniMalloc and idealloc.

mod columns;
mod error;
mod row;

use std::io::{BufRead, Read, Write};

use self::columns::Columns;
use self::error::excerpt;
use self::row::Row;
use super::{Gap, Lifetimes, Placement};

pub use self::error::CsvError;

/// Limit on the bytes of a line. Without the limit, a file of another format could be read into
/// memory as one long line.
const LONGEST: u64 = 1 << 16;
/// Limit on the bytes of successive empty lines: a packed file of a few kilobytes may unpack to
/// gigabytes of empty lines.
const BLANK: usize = 1 << 20;
/// Limit on the number of buffers, and on the number of gaps.
const MOST: usize = 1 << 22;

/// Whether the end of a life in a file is part of the life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lives {
    /// The end is the first instant after the life. MiniMalloc and idealloc write half-open lives.
    #[default]
    HalfOpen,
    /// The end is the last instant of the life. CANN writes closed lives. In a file with closed
    /// lives, the end of a gap is also the last instant of the gap.
    Closed,
}

/// [`Lifetimes`] whose buffers have names: one instance of the planning problem, as a file holds
/// it.
///
/// A file has a line with the names of its columns, in any order, and then a line for each buffer:
///
/// | column | |
/// |---|---|
/// | `id`, `buffer` or `buffer_id` | any text without a comma, all different |
/// | `lower`, `start` or `begin` | first instant of the life |
/// | `upper` | first instant after the life; its last instant with [`Lives::Closed`] |
/// | `end` instead of `upper` | last instant of the life, also with [`Lives::HalfOpen`] |
/// | `size` | in bytes |
/// | `alignment` | alignment of the address; 1 if the field is empty |
/// | `gaps` | times in which the buffer takes no memory, as `7-9 12-14`; a gap ends as a life does |
/// | `hint`, `offset` | address at which a search first places the buffer; with both columns, `offset` counts |
///
/// The columns `id`, `lower`, `upper` and `size` are needed, under any of their names. A gap such
/// as `7-9@0:16` keeps bytes 0 to 15 of the buffer. If the first line has numbers, this line is the
/// first buffer, and the columns are `id,lower,upper,size`. Numbers are decimal and below 2^64.
/// Spaces around fields and empty lines are ignored. Lines end as on Unix or on Windows. A file may
/// have up to 2^22 buffers, and up to 2^22 gaps.
///
/// ```
/// use remat_plan::{Gaps, Instance, Limits, Lives, Planner};
///
/// let file = "id,lower,upper,size,gaps\nb1,0,9,4,3-6\nb2,3,6,4,\n";
/// let instance = Instance::read(file.as_bytes(), Lives::HalfOpen)?;
/// let planned = Gaps::default().plan(instance.lifetimes(), &Limits::none())?;
/// let mut solution = Vec::new();
/// instance.write_placement(&planned.placement, &mut solution, Lives::HalfOpen)?;
/// assert_eq!(solution, b"id,lower,upper,size,gaps,offset\nb1,0,9,4,3-6,0\nb2,3,6,4,,0\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    // Name of each buffer; no two names are equal.
    ids: Vec<String>,
    lifetimes: Lifetimes,
}

impl Instance {
    /// Makes an instance in which the name of each buffer is its number.
    #[must_use]
    pub fn numbered(lifetimes: Lifetimes) -> Self {
        Self { ids: (0..lifetimes.len()).map(|number| number.to_string()).collect(), lifetimes }
    }

    /// Makes an instance in which buffer `i` has the name `ids[i]`.
    ///
    /// # Errors
    ///
    /// [`CsvError`] in these cases:
    ///
    /// - The number of ids is not the number of buffers.
    /// - Two ids are equal.
    /// - An id contains a comma or a line end, or has spaces around it, so that a file cannot hold
    ///   the id.
    pub fn named(ids: Vec<String>, lifetimes: Lifetimes) -> Result<Self, CsvError> {
        if ids.len() != lifetimes.len() {
            return Err(CsvError::Ids { ids: ids.len(), buffers: lifetimes.len() });
        }
        let cannot_be = |id: &&String| id.contains([',', '\n', '\r']) || id.trim() != id.as_str();
        if let Some(id) = ids.iter().find(cannot_be) {
            return Err(CsvError::Id { id: excerpt(id) });
        }
        let instance = Self { ids, lifetimes };
        match instance.twice() {
            Some([_, second]) => Err(CsvError::Same { id: excerpt(&instance.ids[second]) }),
            None => Ok(instance),
        }
    }

    /// Reads a file. Time: O(n log n) for n lines.
    ///
    /// # Errors
    ///
    /// [`CsvError`] if the file cannot be read, or is not in this format. The error names the line
    /// and the column.
    pub fn read(mut file: impl BufRead, lives: Lives) -> Result<Self, CsvError> {
        let mut columns = None;
        let mut ids = Vec::new();
        let mut rows: Vec<Row> = Vec::new();
        let mut lines: Vec<usize> = Vec::new();
        let (mut total, mut gaps) = (0, 0);
        let mut bytes = Vec::new();
        let mut blank = 0;
        for number in 1.. {
            // The next line, of at most `LONGEST` bytes, is read.
            bytes.clear();
            if file.by_ref().take(LONGEST).read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            if bytes.len() as u64 == LONGEST && bytes.last() != Some(&b'\n') {
                return Err(CsvError::LongLine { line: number });
            }
            let line =
                std::str::from_utf8(&bytes).map_err(|_| CsvError::NoText { line: number })?;
            // Windows files may begin with a byte order mark.
            let line = if number == 1 { line.trim_start_matches('\u{feff}') } else { line };
            let line = line.trim();
            blank = if line.is_empty() { blank + bytes.len() } else { 0 };
            if blank > BLANK {
                return Err(CsvError::Blank { line: number });
            }
            if line.is_empty() {
                continue;
            }
            // The first line may name the columns; every other line is a buffer.
            if columns.is_none() && columns::is_header(line) {
                columns = Some(Columns::read(line, number, lives)?);
                continue;
            }
            let columns: &Columns = columns.get_or_insert_with(|| Columns::usual(lives));
            if rows.len() == MOST {
                return Err(CsvError::TooMany { line: number, what: "buffers" });
            }
            let (id, row) = columns.row(line, number, &mut total)?;
            gaps += row.gaps.len();
            if gaps > MOST {
                return Err(CsvError::TooMany { line: number, what: "gaps" });
            }
            ids.push(id.to_owned());
            rows.push(row);
            lines.push(number);
        }
        let Some(columns) = columns else { return Err(CsvError::Empty) };
        let mut lifetimes = Lifetimes::new(rows.iter().map(|row| row.buffer))?;
        for (number, row) in rows.into_iter().enumerate() {
            if !row.gaps.is_empty() {
                lifetimes = lifetimes.with_gaps(number, row.gaps)?;
            }
            if let Some(hint) = row.hint {
                lifetimes = lifetimes.with_hint(number, hint);
            }
        }
        let instance = Self { ids, lifetimes };
        match instance.twice() {
            Some([first, second]) => Err(CsvError::Twice {
                line: lines[second],
                column: columns.ids(),
                first: lines[first],
                id: excerpt(&instance.ids[second]),
            }),
            None => Ok(instance),
        }
    }

    /// First buffer with the same id as an earlier buffer, as `[earlier, buffer]`.
    fn twice(&self) -> Option<[usize; 2]> {
        let mut order: Vec<usize> = (0..self.ids.len()).collect();
        order.sort_unstable_by_key(|&i| (&self.ids[i], i));
        let twice = order.windows(2).filter(|pair| self.ids[pair[0]] == self.ids[pair[1]]);
        twice.min_by_key(|pair| pair[1]).map(|pair| [pair[0], pair[1]])
    }

    /// Name of each buffer.
    #[must_use]
    pub fn ids(&self) -> &[String] {
        &self.ids
    }

    /// Lifetimes for a planner.
    #[must_use]
    pub fn lifetimes(&self) -> &Lifetimes {
        &self.lifetimes
    }

    /// Writes the file. A column `alignment`, `gaps` or `hint` is left out if no buffer has a value
    /// for it. With [`Lives::Closed`] the columns of a life are `start` and `end`; with
    /// [`Lives::HalfOpen`] they are `lower` and `upper`.
    ///
    /// # Errors
    ///
    /// [`CsvError`] if the file cannot be written, or if a buffer has a colour, which the format
    /// cannot hold.
    pub fn write(&self, file: impl Write, lives: Lives) -> Result<(), CsvError> {
        let buffers = self.lifetimes.buffers();
        if let Some(number) = buffers.iter().position(|buffer| buffer.colour > 0) {
            let id = excerpt(&self.ids[number]);
            return Err(CsvError::NoPlace { id, what: "a colour" });
        }
        match self.lifetimes.has_hints() {
            true => {
                let hint = |i| self.lifetimes.hint(i).map(|it| it.to_string()).unwrap_or_default();
                self.write_with(Some(("hint", &hint)), file, lives)
            }
            false => self.write_with(None, file, lives),
        }
    }

    /// Writes the file with one more column, `offset`, which holds the addresses: a solution in the
    /// format of MiniMalloc. Hints are left out.
    ///
    /// # Errors
    ///
    /// [`CsvError`] if the file cannot be written, or if the placement does not have one address
    /// for each buffer.
    pub fn write_placement(
        &self,
        placement: &Placement,
        file: impl Write,
        lives: Lives,
    ) -> Result<(), CsvError> {
        let (offsets, buffers) = (placement.offsets(), self.lifetimes.len());
        if offsets.len() != buffers {
            return Err(CsvError::Count { offsets: offsets.len(), buffers });
        }
        self.write_with(Some(("offset", &|i| offsets[i].to_string())), file, lives)
    }

    /// Writes the file, with one more column if `column` gives its name and its fields.
    fn write_with(
        &self,
        column: Option<(&str, &dyn Fn(usize) -> String)>,
        mut file: impl Write,
        lives: Lives,
    ) -> Result<(), CsvError> {
        let buffers = self.lifetimes.buffers();
        let has_aligns = buffers.iter().any(|buffer| buffer.align > 1);
        let has_gaps = self.lifetimes.has_gaps();
        let (bounds, last) = match lives {
            Lives::HalfOpen => ("lower,upper", 0),
            Lives::Closed => ("start,end", 1),
        };
        write!(file, "id,{bounds},size")?;
        let columns = [has_aligns.then_some("alignment"), has_gaps.then_some("gaps")];
        for name in columns.into_iter().flatten().chain(column.map(|(name, _)| name)) {
            write!(file, ",{name}")?;
        }
        writeln!(file)?;
        for (number, (id, buffer)) in self.ids.iter().zip(buffers).enumerate() {
            write!(file, "{id},{},{},{}", buffer.lower, buffer.upper - last, buffer.size)?;
            if has_aligns {
                write!(file, ",{}", buffer.align)?;
            }
            if has_gaps {
                let gaps = self.lifetimes.gaps(number).iter();
                let gaps: Vec<String> = gaps.map(|gap| written(gap, last)).collect();
                write!(file, ",{}", gaps.join(" "))?;
            }
            if let Some((_, field)) = column {
                write!(file, ",{}", field(number))?;
            }
            writeln!(file)?;
        }
        Ok(file.flush()?)
    }
}

/// Text of a gap. The end of the gap is written as `upper - last`, where `last` is 1 for closed
/// lives and 0 for half-open lives.
fn written(gap: &Gap, last: u64) -> String {
    let Gap { lower, upper, kept } = gap;
    let upper = upper - last;
    match kept.is_empty() {
        true => format!("{lower}-{upper}"),
        false => format!("{lower}-{upper}@{}:{}", kept.start, kept.end),
    }
}

#[cfg(test)]
mod tests;
