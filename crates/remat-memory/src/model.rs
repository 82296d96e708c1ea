//! Brute-force model of the arena and its pool: sorted lists of ranges, compared after each
//! operation.
//!
//! The model uses the public interface alone. The fuzz target includes this file by `#[path]`, and
//! imports the types that this file takes from `super`. The target cuts its input into words, and
//! applies [`Operation::from_word`] of each word.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use super::{
    Block, Content, End, FreeNeighbors, Growth, Move, Pool, Region, RegionSource, SplitRule,
};

/// Kind of arena to test.
#[derive(Clone, Copy, Debug)]
pub struct Mode {
    /// Bytes that the pool may take. Without growth, the address space is one fixed region of
    /// `limit` bytes from 0. With growth, the address space has four times `limit` bytes.
    pub limit: u64,
    pub granularity: u64,
    pub split: SplitRule,
    pub grows: Option<Grows>,
    /// Sizes are up to `2^scale` granules.
    pub scale: u64,
}

/// Rules of growth of an arena.
#[derive(Clone, Copy, Debug)]
pub struct Grows {
    pub allow_growth: bool,
    pub garbage_collection: bool,
    /// Whether the source lets adjacent regions join.
    pub joins: bool,
}

/// Modes for ten blocks or a hundred, exact bytes or granules, sizes from the whole arena down to a
/// few bytes, both split rules, fixed and growing arenas.
pub const MODES: [Mode; 14] = {
    const EXACT: SplitRule = SplitRule::Exact;
    const TF: SplitRule = SplitRule::tensorflow();
    const fn tf(bytes: u64) -> SplitRule {
        SplitRule::TensorFlow { max_internal_fragmentation: bytes }
    }
    const fn mode(limit: u64, granularity: u64, scale: u64, split: SplitRule) -> Mode {
        Mode { limit, granularity, split, grows: None, scale }
    }
    const fn growing(mode: Mode, garbage_collection: bool, joins: bool) -> Mode {
        let grows = Grows { allow_growth: true, garbage_collection, joins };
        Mode { grows: Some(grows), ..mode }
    }
    /// Granule of the growing modes. Only arenas of more than 2 MiB have several regions, because
    /// the first region has 2 MiB. A large granule keeps the number of granules small.
    const G: u64 = 1 << 18;
    [
        mode(64, 1, 4, EXACT),
        mode(300, 1, 8, EXACT),
        mode(256 * 16, 256, 3, EXACT),
        mode(256 * 250, 256, 5, EXACT),
        mode(16 * 200, 16, 2, EXACT),
        mode(0, 1, 2, EXACT),
        mode(256 * 100, 256, 5, TF),
        mode(256 * 100, 256, 5, tf(256 * 3)),
        growing(mode(G * 100, G, 4, EXACT), false, false),
        growing(mode(G * 100, G, 5, EXACT), true, true),
        growing(mode(G * 100, G, 5, TF), true, false),
        growing(mode(G * 100, G, 3, tf(2 * G)), false, true),
        growing(mode(G * 90 + 7, G, 6, EXACT), true, false),
        Mode {
            grows: Some(Grows { allow_growth: false, garbage_collection: true, joins: false }),
            ..mode(256 * 60, 256, 4, TF)
        },
    ]
};

/// Call on an arena.
#[derive(Clone, Copy, Debug)]
pub enum Operation {
    Alloc {
        bytes: u64,
    },
    AllocHigh {
        bytes: u64,
    },
    AllocApart {
        bytes: u64,
        end: End,
    },
    AllocAligned {
        bytes: u64,
        alignment: u64,
    },
    AllocAt {
        granule: u64,
        bytes: u64,
    },
    Free {
        nth: u64,
    },
    Compact {
        bytes: u64,
        pinned: u64,
    },
    Extend {
        bytes: u64,
    },
    Release,
    ResetPeak,
    /// Limits what the source gives from now on. The source gives at most `granules` granules at
    /// once, and `spare` granules more than requested. `place` determines where the regions lie.
    Ration {
        granules: u64,
        spare: u64,
        place: u64,
    },
}

impl Operation {
    /// Converts a word to an operation; every word is valid. Small sizes are as likely as large
    /// sizes. A few sizes are far too large for any arena.
    pub fn from_word(word: u64, mode: &Mode) -> Self {
        let (kind, power, rest) = (word % 64, word / 64 % 64, word >> 12);
        let bytes = match power {
            0 => 0,
            1 => u64::MAX - rest % 1000,
            _ => rest % (mode.granularity << (power % (mode.scale + 1))) + 1,
        };
        let high = rest >> 20;
        match kind {
            0..16 => Self::Alloc { bytes },
            16..20 => Self::AllocHigh { bytes },
            20..24 => {
                let end = if high.is_multiple_of(2) { End::Low } else { End::High };
                Self::AllocApart { bytes, end }
            }
            24..27 => {
                let alignment = (mode.granularity / 2).max(1) << (high % 6);
                Self::AllocAligned { bytes, alignment }
            }
            27..30 => Self::AllocAt { granule: high & 0x1ff, bytes },
            30..55 => Self::Free { nth: rest },
            // If `pinned` is 0, every block may move.
            55..58 => Self::Compact { bytes, pinned: rest >> 30 & 3 },
            58 => Self::Extend { bytes },
            59 => Self::Release,
            60 => Self::ResetPeak,
            _ => Self::Ration {
                granules: if high.is_multiple_of(3) { 1 << 20 } else { high % 40 },
                spare: (high >> 8) % 7 / 4,
                place: high >> 12,
            },
        }
    }
}

/// Address space, and the regions taken from it.
#[derive(Debug)]
struct Land {
    bytes: u64,
    granularity: u64,
    joins: bool,
    taken: Vec<Region>,
    most: u64,
    spare: u64,
    place: u64,
    /// Actions of the pool that the model has not read yet, oldest first.
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Event {
    Asked { bytes: u64, given: Option<Region> },
    Back(Region),
}

impl Land {
    fn find(&self, bytes: u64) -> Option<Region> {
        if bytes > self.most {
            return None;
        }
        let bytes = (bytes + self.spare).min(self.bytes);
        let clear = |start: u64| {
            let end = start + bytes;
            end <= self.bytes && self.taken.iter().all(|r| end <= r.start || r.end() <= start)
        };
        let starts = (0..self.bytes / self.granularity).map(|granule| granule * self.granularity);
        let clear: Vec<_> = starts.filter(|&start| clear(start)).collect();
        // The first and the last place are chosen often, so that regions touch.
        let nth = match self.place % 4 {
            0 => self.place as usize / 4 % clear.len().max(1),
            1 => clear.len().saturating_sub(1),
            _ => 0,
        };
        clear.get(nth).map(|&start| Region { start, bytes })
    }
}

#[derive(Debug)]
struct Lender(Rc<RefCell<Land>>);

impl RegionSource for Lender {
    fn take(&mut self, bytes: u64) -> Option<Region> {
        let mut land = self.0.borrow_mut();
        let given = land.find(bytes);
        land.taken.extend(given);
        land.events.push(Event::Asked { bytes, given });
        given
    }

    fn give_back(&mut self, region: Region) {
        let mut land = self.0.borrow_mut();
        // Joined regions are given back as one region.
        let before: u64 = land.taken.iter().map(|taken| taken.bytes).sum();
        land.taken.retain(|taken| taken.start < region.start || region.end() < taken.end());
        let after: u64 = land.taken.iter().map(|taken| taken.bytes).sum();
        assert_eq!(before - after, region.bytes, "{region:?} is not what was taken");
        land.events.push(Event::Back(region));
    }

    fn may_join(&self, below: Region, above: Region) -> bool {
        assert_eq!(below.end(), above.start);
        self.0.borrow().joins
    }
}

/// Block of the model.
#[derive(Clone, Copy, Debug)]
struct ModelBlock {
    offset: u64,
    size: u64,
    requested: u64,
    owner: u64,
    block: Block,
}

/// Block or hole of the model.
#[derive(Clone, Copy, Debug)]
struct Tile {
    /// Index of the region that contains the tile.
    region: usize,
    offset: u64,
    size: u64,
    /// Index of the block; `None` for a hole.
    block: Option<usize>,
}

impl Tile {
    fn end(&self) -> u64 {
        self.offset + self.size
    }
}

/// Offset and size of a block; `None` if the block fits nowhere.
type Place = Option<(u64, u64)>;

/// Pool, and its expected state.
#[derive(Debug)]
pub struct Model {
    mode: Mode,
    pool: Pool<Lender>,
    land: Rc<RefCell<Land>>,
    /// Regions by start; joined regions are one.
    regions: Vec<Region>,
    /// Blocks by offset.
    blocks: Vec<ModelBlock>,
    /// Owner that last wrote to each granule of the address space.
    memory: Vec<u64>,
    owners: u64,
    next_region: u64,
    /// Peaks of used, live and reserved bytes.
    peaks: [u64; 3],
    high_water: u64,
    largest_allocation: u64,
}

impl Model {
    pub fn new(mode: Mode) -> Self {
        let Mode { limit, granularity, split, grows, .. } = mode;
        let bytes = if grows.is_some_and(|grows| grows.allow_growth) { 4 * limit } else { limit };
        let land = Land {
            bytes: bytes / granularity * granularity,
            granularity,
            joins: grows.is_some_and(|grows| grows.joins),
            taken: vec![],
            most: u64::MAX,
            spare: 0,
            place: 0,
            events: vec![],
        };
        let memory = vec![0; (land.bytes / granularity) as usize];
        let land = Rc::new(RefCell::new(land));
        let growth = Growth {
            memory_limit: limit,
            allow_growth: grows.is_some_and(|grows| grows.allow_growth),
            garbage_collection: grows.is_some_and(|grows| grows.garbage_collection),
        };
        let first = if growth.allow_growth { limit.min(2 << 20) } else { limit };
        Self {
            mode,
            pool: Pool::new(Lender(Rc::clone(&land)), growth, granularity, split),
            land,
            regions: vec![],
            blocks: vec![],
            memory,
            owners: 0,
            next_region: first.max(1).next_multiple_of(granularity),
            peaks: [0; 3],
            high_water: 0,
            largest_allocation: 0,
        }
    }

    /// Applies an operation to the pool and to the model, and compares them.
    pub fn apply(&mut self, operation: Operation) {
        self.owners += 1;
        let owner = self.owners;
        match operation {
            Operation::Alloc { bytes } => {
                let got = self.pool.alloc(bytes, owner);
                let expected = self.growing(bytes, |model| model.best_fit(bytes, End::Low));
                self.enter(got, expected, bytes);
            }
            Operation::AllocHigh { bytes } => {
                let got = self.pool.alloc_high(bytes, owner);
                let expected = self.growing(bytes, |model| model.best_fit(bytes, End::High));
                self.enter(got, expected, bytes);
            }
            Operation::AllocAligned { bytes, alignment } => {
                let got = self.pool.alloc_aligned(bytes, alignment, owner);
                let padding = alignment.saturating_sub(self.mode.granularity);
                let enough = bytes.max(1).saturating_add(padding);
                let expected = self.growing(enough, |model| model.aligned(bytes, alignment));
                self.enter(got, expected, bytes);
            }
            Operation::AllocApart { bytes, end } => {
                let got = self.pool.arena_mut().alloc_apart(bytes, end, owner);
                let expected = self.apart(bytes, end);
                self.enter(got, expected, bytes);
            }
            Operation::AllocAt { granule, bytes } => {
                let at = granule * self.mode.granularity;
                let got = self.pool.arena_mut().alloc_at(at, bytes, owner);
                let expected = self.exactly_at(at, bytes);
                self.enter(got, expected, bytes);
            }
            Operation::Free { nth } => {
                if !self.blocks.is_empty() {
                    let held = self.blocks.remove((nth % self.blocks.len() as u64) as usize);
                    self.pool.free(held.block);
                }
            }
            Operation::Compact { bytes, pinned } => self.compact(bytes, pinned),
            Operation::Extend { bytes } => {
                let got = self.pool.extend(bytes);
                assert_eq!(got, self.extend(bytes));
            }
            Operation::Release => {
                let got = self.pool.release_free_regions();
                assert_eq!(got, self.release());
            }
            Operation::ResetPeak => {
                self.pool.arena_mut().reset_peak();
                self.peaks = [self.used(), self.live(), self.reserved()];
                self.high_water = self.blocks.last().map_or(0, |held| held.offset + held.size);
                self.largest_allocation = 0;
            }
            Operation::Ration { granules, spare, place } => {
                let mut land = self.land.borrow_mut();
                land.most = granules * self.mode.granularity;
                land.spare = spare * self.mode.granularity;
                land.place = place;
            }
        }
        assert_eq!(self.land.borrow().events, [], "more than was expected of the pool");
        self.compare();
    }

    /// Takes the next action that the source saw.
    fn event(&self) -> Event {
        let events = &mut self.land.borrow_mut().events;
        assert!(!events.is_empty(), "the pool did less than was expected");
        events.remove(0)
    }

    /// Calls `place`; on failure, takes a region for `bytes` bytes and calls `place` again.
    fn growing(&mut self, bytes: u64, place: impl Fn(&Self) -> Place) -> Place {
        let here = place(self);
        if here.is_some() || self.extend(bytes) {
            return here.or_else(|| place(self));
        }
        let held: u64 = self.reserved() - self.free_regions().iter().map(|r| r.bytes).sum::<u64>();
        let hopeless = u128::from(held) + self.round_wide(bytes) > u128::from(self.mode.limit);
        let collects = self.mode.grows.is_some_and(|grows| grows.garbage_collection);
        if !collects || hopeless || self.release() == 0 || !self.extend(bytes) {
            return None;
        }
        place(self)
    }

    /// Takes a region as the source did.
    fn extend(&mut self, bytes: u64) -> bool {
        let granularity = self.mode.granularity;
        let available = self.mode.limit.saturating_sub(self.reserved());
        let available = available / granularity * granularity;
        if self.round_wide(bytes) > u128::from(available) {
            return false;
        }
        let wanted = self.round(bytes);
        let fits = wanted <= self.next_region;
        let most = self.mode.limit.max(granularity);
        while wanted > self.next_region {
            self.next_region = (2 * self.next_region).min(most);
        }
        let mut asked = self.next_region.min(available);
        let region = loop {
            let Event::Asked { bytes, given } = self.event() else { panic!("asked for nothing") };
            assert_eq!(bytes, asked);
            match given {
                Some(region) => break region,
                None if asked == wanted => return false,
                None => {
                    let less = (asked as f64 * 0.9).ceil() as u64;
                    let less = less.next_multiple_of(granularity);
                    asked = less.min(asked - granularity).max(wanted);
                }
            }
        };
        if fits {
            self.next_region = (2 * self.next_region).min(most);
        }
        self.regions.push(region);
        self.regions.sort_unstable_by_key(|region| region.start);
        if self.land.borrow().joins {
            self.regions.dedup_by(|above, below| {
                let joins = below.end() == above.start;
                below.bytes += if joins { above.bytes } else { 0 };
                joins
            });
        }
        self.peaks[2] = self.peaks[2].max(self.reserved());
        true
    }

    fn free_regions(&self) -> Vec<Region> {
        let holds = |region: &Region, held: &ModelBlock| {
            region.start <= held.offset && held.offset < region.end()
        };
        let free = |region: &&Region| !self.blocks.iter().any(|held| holds(region, held));
        self.regions.iter().filter(free).copied().collect()
    }

    /// Gives free regions back as the pool did.
    fn release(&mut self) -> u64 {
        let free = self.free_regions();
        for &region in &free {
            assert_eq!(self.event(), Event::Back(region));
        }
        self.regions.retain(|region| !free.contains(region));
        free.iter().map(|region| region.bytes).sum()
    }

    fn enter(&mut self, got: Option<Block>, expected: Place, requested: u64) {
        let arena = self.pool.arena();
        assert_eq!(got.map(|block| (arena.offset(block), arena.size(block))), expected);
        let (Some(block), Some((offset, size))) = (got, expected) else { return };
        let at = self.blocks.partition_point(|held| held.offset < offset);
        self.blocks.insert(at, ModelBlock { offset, size, requested, owner: self.owners, block });
        self.peaks[0] = self.peaks[0].max(self.used());
        self.peaks[1] = self.peaks[1].max(self.live());
        self.high_water = self.high_water.max(offset + size);
        self.largest_allocation = self.largest_allocation.max(size);
        let written = self.granules(offset, requested);
        self.memory[written].fill(self.owners);
    }

    fn compact(&mut self, bytes: u64, pinned: u64) {
        let movable = |owner: u64| pinned == 0 || owner % 4 != pinned;
        let fits = self.best_fit(bytes, End::Low).is_some();
        let slide = self.slide_cost(bytes, movable);
        let free = self.reserved() - self.used();
        let plan = self.pool.arena().plan_compaction(bytes, movable);
        let Some(moves) = plan else {
            assert!(slide.is_none(), "sliding would have done");
            let hopeless = u128::from(free) < self.round_wide(bytes);
            assert!(pinned != 0 || hopeless || self.regions.len() > 1);
            return;
        };
        let cost = moves.iter().map(|m| m.bytes).sum::<u64>();
        assert!(slide.is_none_or(|slide| cost <= slide), "{cost} is above {slide:?}");
        assert_eq!(moves.is_empty(), fits);
        for m in &moves {
            self.carry_out(*m, movable);
        }
        self.pool.arena_mut().apply_moves(&moves);
        assert!(self.best_fit(bytes, End::Low).is_some(), "no hole for {bytes} after {moves:?}");
        for held in &self.blocks {
            let content = &self.memory[self.granules(held.offset, held.requested)];
            assert!(content.iter().all(|&owner| owner == held.owner), "{held:?} is clobbered");
        }
    }

    /// Performs one `memmove`.
    fn carry_out(&mut self, m: Move, movable: impl Fn(u64) -> bool) {
        let at = self.blocks.iter().position(|held| held.block == m.block).unwrap();
        let mut held = self.blocks.remove(at);
        assert_eq!((m.from, m.bytes), (held.offset, held.requested));
        assert!(movable(held.owner), "{held:?} was not to be moved");
        let fits = |hole: &Tile| hole.offset <= m.to && m.to + held.size <= hole.end();
        assert!(self.holes().iter().any(fits), "{m:?} goes to where something is");
        let (from, to) = (self.granules(m.from, m.bytes), self.granules(m.to, m.bytes));
        self.memory.copy_within(from, to.start);
        held.offset = m.to;
        let at = self.blocks.partition_point(|other| other.offset < m.to);
        self.blocks.insert(at, held);
        self.high_water = self.high_water.max(m.to + held.size);
    }

    /// Fewest bytes moved by packing any run of tiles of one region; tries every run.
    fn slide_cost(&self, bytes: u64, movable: impl Fn(u64) -> bool) -> Option<u64> {
        let size = self.round_wide(bytes);
        let tiles = self.tiles();
        let mut best = None;
        for i in 0..tiles.len() {
            let (mut free, mut cost) = (0, 0);
            for tile in &tiles[i..] {
                if tile.region != tiles[i].region {
                    break;
                }
                match tile.block.map(|at| self.blocks[at]) {
                    None => free += tile.size,
                    Some(held) if movable(held.owner) => cost += held.requested,
                    Some(_) => break,
                }
                if u128::from(free) >= size {
                    best = Some(best.unwrap_or(cost).min(cost));
                    break;
                }
            }
        }
        best
    }

    fn compare(&self) {
        let arena = self.pool.arena();
        assert!(arena.regions().eq(self.regions.iter().copied()));
        let tiles = self.tiles();
        let holes = tiles.iter().filter(|tile| tile.block.is_none());
        let stats = arena.stats();
        assert_eq!((stats.blocks, stats.holes), (self.blocks.len(), holes.clone().count()));
        let largest = holes.map(|hole| hole.size).max().unwrap_or(0);
        let [used, live, reserved] = [self.used(), self.live(), self.reserved()];
        assert_eq!(
            [stats.used, stats.live, stats.reserved, stats.free, stats.largest_free],
            [used, live, reserved, reserved - used, largest]
        );
        assert_eq!([stats.peak, stats.peak_live, stats.peak_reserved], self.peaks);
        assert_eq!(
            (stats.high_water, stats.largest_allocation),
            (self.high_water, self.largest_allocation)
        );
        assert_eq!(self.pool.next_region(), self.next_region);

        let chunks: Vec<_> = arena.chunks().collect();
        assert_eq!(chunks.len(), tiles.len());
        let free_at = |at: Option<usize>, region| {
            let tile = at.and_then(|at| tiles.get(at)).filter(|tile| tile.region == region);
            tile.filter(|tile| tile.block.is_none()).map_or(0, |tile| tile.size)
        };
        for (i, (tile, chunk)) in tiles.iter().zip(&chunks).enumerate() {
            assert_eq!((chunk.offset, chunk.size), (tile.offset, tile.size));
            let Some(at) = tile.block else {
                assert_eq!(chunk.content, Content::Free);
                continue;
            };
            let ModelBlock { offset, size, requested, owner, block } = self.blocks[at];
            assert_eq!(chunk.content, Content::Used { block, owner, requested });
            assert_eq!((arena.offset(block), arena.size(block)), (offset, size));
            assert_eq!((arena.requested(block), arena.owner(block)), (requested, owner));
            let left = free_at(i.checked_sub(1), tile.region);
            let right = free_at(Some(i + 1), tile.region);
            assert_eq!(arena.free_neighbors(block), FreeNeighbors { left, right });
        }
        assert!(arena.chunks().rev().eq(chunks.iter().rev().copied()));
        if let Some(held) = self.blocks.get(self.blocks.len() / 2) {
            let at = tiles.iter().position(|tile| tile.offset == held.offset).unwrap();
            let region = tiles[at].region;
            let first = tiles.iter().position(|tile| tile.region == region).unwrap();
            let end = tiles.iter().rposition(|tile| tile.region == region).unwrap() + 1;
            assert!(arena.chunks_after(held.block).eq(chunks[at + 1..end].iter().copied()));
            let below = chunks[first..at].iter().rev().copied();
            assert!(arena.chunks_before(held.block).eq(below));
        }
        arena.check();
    }

    /// Blocks and holes in address order.
    fn tiles(&self) -> Vec<Tile> {
        let mut tiles = vec![];
        let mut blocks = self.blocks.iter().enumerate().peekable();
        for (region, &Region { start, .. }) in self.regions.iter().enumerate() {
            let end = self.regions[region].end();
            let mut at = start;
            while at < end {
                let next = blocks.peek().filter(|(_, held)| held.offset < end);
                let stop = next.map_or(end, |(_, held)| held.offset);
                if at < stop {
                    tiles.push(Tile { region, offset: at, size: stop - at, block: None });
                    at = stop;
                } else if let Some((i, held)) = blocks.next() {
                    tiles.push(Tile { region, offset: at, size: held.size, block: Some(i) });
                    at += held.size;
                }
            }
        }
        tiles
    }

    fn holes(&self) -> Vec<Tile> {
        let mut tiles = self.tiles();
        tiles.retain(|tile| tile.block.is_none());
        tiles
    }

    /// Bytes that a block takes of `free` bytes.
    fn taken(&self, bytes: u64, free: u64) -> u64 {
        let size = self.round(bytes);
        match self.mode.split {
            SplitRule::TensorFlow { max_internal_fragmentation: most }
                if free < 2 * size && free - size < most =>
            {
                free
            }
            _ => size,
        }
    }

    fn at_end(&self, hole: &Tile, bytes: u64, end: End) -> (u64, u64) {
        let size = self.taken(bytes, hole.size);
        match end {
            End::Low => (hole.offset, size),
            End::High => (hole.end() - size, size),
        }
    }

    fn best_fit(&self, bytes: u64, end: End) -> Place {
        let size = self.round_wide(bytes);
        let holes = self.holes().into_iter().filter(|hole| u128::from(hole.size) >= size);
        let best = holes.min_by_key(|hole| (hole.size, hole.offset))?;
        Some(self.at_end(&best, bytes, end))
    }

    fn apart(&self, bytes: u64, end: End) -> Place {
        let size = self.round_wide(bytes);
        let holes = self.holes();
        let largest = holes.iter().map(|hole| hole.size).max()?;
        let gap = holes.iter().position(|hole| hole.size == largest)?;
        let side = match end {
            End::Low => &holes[..=gap],
            End::High => &holes[gap..],
        };
        let fits = side.iter().filter(|hole| u128::from(hole.size) >= size);
        let best = fits.min_by_key(|hole| (hole.size, hole.offset))?;
        Some(self.at_end(best, bytes, end))
    }

    fn aligned(&self, bytes: u64, alignment: u64) -> Place {
        let size = self.round_wide(bytes);
        let start = |hole: &Tile| hole.offset.next_multiple_of(alignment);
        let fits =
            |hole: &Tile| u128::from(start(hole)) + size <= u128::from(hole.offset + hole.size);
        let holes = self.holes().into_iter().filter(fits);
        let best = holes.min_by_key(|hole| (hole.size, hole.offset))?;
        Some((start(&best), self.taken(bytes, best.end() - start(&best))))
    }

    fn exactly_at(&self, offset: u64, bytes: u64) -> Place {
        let end = u128::from(offset) + self.round_wide(bytes);
        let inside = |hole: &Tile| hole.offset <= offset && end <= u128::from(hole.end());
        self.holes().iter().any(inside).then(|| (offset, self.round(bytes)))
    }

    fn used(&self) -> u64 {
        self.blocks.iter().map(|held| held.size).sum()
    }

    fn live(&self) -> u64 {
        self.blocks.iter().map(|held| self.round(held.requested)).sum()
    }

    fn reserved(&self) -> u64 {
        self.regions.iter().map(|region| region.bytes).sum()
    }

    fn round_wide(&self, bytes: u64) -> u128 {
        u128::from(bytes.max(1)).next_multiple_of(u128::from(self.mode.granularity))
    }

    fn round(&self, bytes: u64) -> u64 {
        self.round_wide(bytes) as u64
    }

    /// Granules that the `bytes` bytes at `offset` touch.
    fn granules(&self, offset: u64, bytes: u64) -> Range<usize> {
        let granularity = self.mode.granularity;
        let start = offset / granularity;
        start as usize..(start + bytes.div_ceil(granularity)) as usize
    }
}
