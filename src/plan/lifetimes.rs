//! Which buffers are alive when: what a planner is given.

use super::PlanError;

/// Bytes that are wanted for some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffer {
    /// The first instant at which it is alive.
    pub lower: u64,
    /// The first instant after, at which another may have its bytes: lives are half open.
    pub upper: u64,
    /// In bytes. May be 0.
    pub size: u64,
    /// Its address must be a multiple of this, a power of two.
    pub align: u64,
    /// Buffers of different colours must not share bytes even at different times: they may be in use by ops that run in
    /// parallel. Planners that know no colours refuse more than one.
    pub colour: u32,
}

impl Buffer {
    /// Alive in `lower..upper`, with no wish for its address.
    #[must_use]
    pub fn new(lower: u64, upper: u64, size: u64) -> Self {
        Self { lower, upper, size, align: 1, colour: 0 }
    }

    /// Alive from when it is made to its last reader, both included, as CANN counts.
    #[must_use]
    pub fn closed(first: u64, last: u64, size: u64) -> Self {
        Self::new(first, last.saturating_add(1), size)
    }

    /// Its address is to be a multiple of `align`, a power of two.
    #[must_use]
    pub fn aligned(self, align: u64) -> Self {
        Self { align, ..self }
    }

    /// Whether both are alive at some instant.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        self.lower < other.upper && other.lower < self.upper
    }

    /// Its size times how long it lives.
    #[must_use]
    pub fn area(&self) -> u128 {
        u128::from(self.size) * u128::from(self.upper - self.lower)
    }
}

/// Buffers to be placed, numbered from 0 in the order given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lifetimes {
    // Each alive for at least an instant, aligned to a power of two; all sizes rounded up to their alignment add up to
    // less than 2^64, so that no address overflows.
    buffers: Vec<Buffer>,
}

impl Lifetimes {
    /// # Errors
    ///
    /// A buffer that ends before it begins or is never alive, or whose alignment is no power of two; sizes that add up to
    /// 2^64 bytes or more.
    pub fn new(buffers: impl IntoIterator<Item = Buffer>) -> Result<Self, PlanError> {
        let buffers: Vec<_> = buffers.into_iter().collect();
        let mut total = 0_u64;
        for (number, buffer) in buffers.iter().enumerate() {
            if buffer.lower >= buffer.upper {
                return Err(PlanError::NeverAlive {
                    number,
                    lower: buffer.lower,
                    upper: buffer.upper,
                });
            }
            if !buffer.align.is_power_of_two() {
                return Err(PlanError::Alignment { number, align: buffer.align });
            }
            // Its bytes, and those lost before it to bring it to its address.
            let bytes = buffer.size.checked_add(buffer.align - 1);
            total = bytes.and_then(|bytes| total.checked_add(bytes)).ok_or(PlanError::TooLarge)?;
        }
        Ok(Self { buffers })
    }

    /// All of them.
    #[must_use]
    pub fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.buffers.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.buffers.is_empty()
    }

    /// Most bytes alive at once: no placement takes less.
    #[must_use]
    pub fn load(&self) -> u64 {
        let mut most = 0;
        let mut alive = 0;
        for change in self.changes() {
            match change {
                Change::Free(i) => alive -= self.buffers[i].size,
                Change::Alloc(i) => {
                    alive += self.buffers[i].size;
                    most = most.max(alive);
                }
            }
        }
        most
    }

    /// Bytes of all buffers together: what they take without reuse.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.size).sum()
    }

    /// What happens, in order of time: at each instant first those that end, then those that begin, each in the order of
    /// their numbers.
    #[must_use]
    pub fn changes(&self) -> Vec<Change> {
        let begins =
            self.buffers.iter().enumerate().map(|(i, buffer)| (buffer.lower, Change::Alloc(i)));
        let ends =
            self.buffers.iter().enumerate().map(|(i, buffer)| (buffer.upper, Change::Free(i)));
        let mut changes: Vec<_> = ends.chain(begins).collect();
        changes.sort_unstable();
        changes.into_iter().map(|(_, change)| change).collect()
    }
}

/// A buffer, by its number, begins or ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// It is alive no longer.
    Free(usize),
    /// It is alive from now on.
    Alloc(usize),
}
