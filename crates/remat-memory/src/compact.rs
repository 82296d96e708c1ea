//! Compaction: moving blocks together if enough bytes are free, but no hole is large enough.
//!
//! There are two kinds of plans. *Sliding* picks a run of neighbouring chunks and packs the blocks
//! of the run to its low end. Two holes merge only if all blocks between them move. The cost of a
//! run between two needed holes is therefore the bytes of all its blocks. A scan with two pointers
//! finds the cheapest run.
//!
//! *Evacuating* picks a run whose blocks fit into holes elsewhere. The bytes of the moved blocks
//! become part of the new hole. Evacuating is often far cheaper than sliding, but the blocks may
//! fit into no other holes. Evacuating is therefore tried for the few cheapest runs only.

use std::cmp::Reverse;

use super::slab::{Block, EDGE};
use super::{Arena, Chunk, Content};

/// Number of evacuations, cheapest first, that are tried before the plan falls back to sliding.
const EVACUATIONS: usize = 16;

/// Move of one block to another offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[doc(alias("defrag", "defragmentation"))]
pub struct Move {
    /// Block to move; its handle stays valid.
    pub block: Block,
    /// Offset of the first byte of the block before the move.
    pub from: u64,
    /// Offset of the first byte of the block after the move. The ranges before and after the move
    /// may overlap.
    pub to: u64,
    /// Bytes to copy: the requested bytes, because the rest of the block holds no data.
    pub bytes: u64,
}

/// Run of neighbouring chunks of one region, in which every block may move.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Offset of the first byte.
    start: u64,
    /// Offset just past the last byte.
    end: u64,
    /// Slot of the first chunk.
    first: u32,
    /// Bytes in holes of the run.
    free: u64,
    /// Bytes to copy if all blocks of the run move.
    cost: u64,
}

/// Method of turning a run into a hole.
#[derive(Clone, Copy)]
enum Kind {
    Slide,
    Evacuate,
}

impl Run {
    fn len(&self) -> u64 {
        self.end - self.start
    }
}

impl Arena {
    /// Plans the cheapest moves found that make a hole for a block of `bytes` bytes.
    ///
    /// The caller must carry out the moves one by one in the order of the list, each as a
    /// `memmove`. The list is empty if a large enough hole exists already. Only blocks whose owner
    /// is `movable` are moved.
    ///
    /// The cost of a plan is the number of bytes copied. A sliding plan keeps the order of blocks;
    /// the cheapest sliding plan is always found. Some plans that evacuate a run of chunks into
    /// other holes are tried, and chosen if cheaper.
    ///
    /// `None` if no plan was found. If every block is movable and there is one region, a plan
    /// exists whenever at least `bytes` bytes are free.
    ///
    /// # Time complexity
    /// Time: O(chunks), or O(chunks * log chunks) if evacuating may be cheaper than sliding.
    pub fn plan_compaction(&self, bytes: u64, movable: impl Fn(u64) -> bool) -> Option<Vec<Move>> {
        let size = self.round(bytes)?;
        if self.largest_free() >= size {
            return Some(Vec::new());
        }
        if self.free_bytes() < size {
            return None;
        }
        let mut slide: Option<Run> = None;
        let mut evacuations: Vec<Run> = Vec::new();
        let is_cheaper =
            |run: &Run, slide: Option<Run>| slide.is_none_or(|best| run.cost < best.cost);
        // One pass finds the runs of both kinds, because loading the chunks takes most of the time.
        self.shortest_runs(
            &movable,
            |kind, run| match kind {
                Kind::Slide => run.free >= size,
                Kind::Evacuate => run.len() >= size,
            },
            |kind, run| match kind {
                _ if !is_cheaper(&run, slide) => {}
                Kind::Slide => slide = Some(run),
                Kind::Evacuate => evacuations.push(run),
            },
        );
        evacuations.retain(|run| is_cheaper(run, slide));
        self.cheapest_evacuation(evacuations).or_else(|| Some(self.slide(slide?)))
    }

    /// Records moves, one after the other. The caller copies the bytes in the order of `moves`. All
    /// handles stay valid.
    ///
    /// # Panics
    /// If the plan is out of date: a move does not start at the offset of its block, or its target
    /// has bytes of another block.
    ///
    /// # Time complexity
    /// A move that slides takes O(log holes). Any other move takes O(holes of at least the block's
    /// size).
    pub fn apply_moves(&mut self, moves: &[Move]) {
        for m in moves {
            let index = self.slab.resolve(m.block);
            let (offset, size) = (self.slab[index].offset, self.slab[index].size);
            assert_eq!(offset, m.from, "{:?} is not where the move starts", m.block);
            assert!(
                m.to.is_multiple_of(self.granularity()),
                "{:?} moves off the granules",
                m.block
            );

            let left = self.slab.insert_before(index, offset, size);
            self.slab.unlink(index);
            let around = self.join(left);
            let near = m.to >= around.offset && around.end() - size >= m.to;
            let hole = if near { Some(around) } else { self.bins.around(m.to, size, &self.slab) };
            let hole = hole.unwrap_or_else(|| panic!("{:?} moves to {}: not free", m.block, m.to));

            let place = self.cut(hole, m.to, size);
            self.slab.link_before(place, index);
            self.slab[index].offset = m.to;
            self.slab.remove(place);
            self.counts.high_water = self.counts.high_water.max(m.to + size);
            self.counts.moves += 1;
            self.debug_check();
        }
    }

    /// Calls `found`, for each kind and each chunk, with the shortest run that ends at the chunk
    /// and satisfies `enough`. If `enough` holds for a run, `enough` must hold for every longer run
    /// that contains the run.
    fn shortest_runs(
        &self,
        movable: impl Fn(u64) -> bool,
        enough: impl Fn(Kind, &Run) -> bool,
        mut found: impl FnMut(Kind, Run),
    ) {
        let run_from = |first, start| Run { start, end: start, first, free: 0, cost: 0 };
        let mut index = self.slab[EDGE].next;
        let mut runs = [run_from(index, self.slab[index].offset); 2];
        while index != EDGE {
            let (slot, note) = (&self.slab[index], self.slab.note(index));
            index = slot.next;
            if slot.is_barrier() || slot.is_used() && !movable(note.owner) {
                runs = [run_from(index, slot.end()); 2];
                continue;
            }
            let (free, cost) = if slot.is_used() { (0, note.requested) } else { (slot.size, 0) };
            for (kind, run) in [Kind::Slide, Kind::Evacuate].into_iter().zip(&mut runs) {
                run.end = slot.end();
                run.free += free;
                run.cost += cost;
                loop {
                    let shorter = self.without_first(*run);
                    if !enough(kind, &shorter) {
                        break;
                    }
                    *run = shorter;
                }
                if enough(kind, run) {
                    found(kind, *run);
                }
            }
        }
    }

    /// Run without its first chunk; the run must not be empty.
    fn without_first(&self, mut run: Run) -> Run {
        let slot = &self.slab[run.first];
        if slot.is_used() {
            run.cost -= self.slab.note(run.first).requested;
        } else {
            run.free -= slot.size;
        }
        run.start = slot.end();
        run.first = slot.next;
        run
    }

    /// Packs the blocks of a run to its low end.
    fn slide(&self, run: Run) -> Vec<Move> {
        pack(self.chunks_of(run), run.start)
    }

    /// Plans to empty the cheapest of `runs` whose blocks fit into holes outside the run. Tries
    /// only the cheapest few runs.
    fn cheapest_evacuation(&self, mut runs: Vec<Run>) -> Option<Vec<Move>> {
        if runs.is_empty() {
            return None;
        }
        if runs.len() > EVACUATIONS {
            runs.select_nth_unstable_by_key(EVACUATIONS, |run| (run.cost, run.start));
            runs.truncate(EVACUATIONS);
        }
        runs.sort_unstable_by_key(|run| (run.cost, run.start));
        let mut holes: Vec<_> = self.bins.iter(&self.slab).map(|hole| hole.key()).collect();
        holes.sort_unstable();
        runs.into_iter().find_map(|run| self.evacuate(run, &holes))
    }

    /// Plans to move the blocks of a run into holes outside the run: the largest block first, each
    /// into the best fit. `holes` are all holes, as pairs of size and offset in ascending order.
    fn evacuate(&self, run: Run, holes: &[(u64, u64)]) -> Option<Vec<Move>> {
        let outside = |&&(_, offset): &&(u64, u64)| offset < run.start || offset >= run.end;
        let mut holes: Vec<_> = holes.iter().filter(outside).copied().collect();
        let mut blocks: Vec<_> = self.chunks_of(run).filter(|chunk| !chunk.is_free()).collect();
        blocks.sort_by_key(|chunk| Reverse(chunk.size));
        blocks.into_iter().map(|chunk| chunk.moved_to(fill(&mut holes, chunk.size)?)).collect()
    }

    /// Chunks of a run, in address order.
    fn chunks_of(&self, run: Run) -> impl Iterator<Item = Chunk> + '_ {
        self.chunks_from(run.first).take_while(move |chunk| chunk.offset < run.end)
    }
}

impl Chunk {
    /// Move of this block to offset `to`; `None` if the chunk is a hole.
    pub(super) const fn moved_to(&self, to: u64) -> Option<Move> {
        match self.content {
            Content::Free => None,
            Content::Used { block, requested, .. } => {
                Some(Move { block, from: self.offset, to, bytes: requested })
            }
        }
    }
}

/// Packs the blocks among neighbouring chunks from offset `to` on. The chunks are in address order,
/// and `to` is not above the first of them.
pub(super) fn pack(chunks: impl Iterator<Item = Chunk>, mut to: u64) -> Vec<Move> {
    let mut moves = Vec::new();
    for chunk in chunks {
        if let Some(m) = chunk.moved_to(to) {
            moves.push(m);
            to += chunk.size;
        }
    }
    moves
}

/// Takes `size` bytes of the best fit among `holes`, which are pairs of size and offset in
/// ascending order. Returns the offset of the taken bytes, or `None` if no hole is large enough.
pub(super) fn fill(holes: &mut Vec<(u64, u64)>, size: u64) -> Option<u64> {
    let at = holes.partition_point(|&(has, _)| has < size);
    if at == holes.len() {
        return None;
    }
    let (has, to) = holes.remove(at);
    add_hole(holes, (has - size, to + size));
    Some(to)
}

/// Adds a hole to the sorted list, unless the hole is empty.
pub(super) fn add_hole(holes: &mut Vec<(u64, u64)>, hole: (u64, u64)) {
    if hole.0 > 0 {
        holes.insert(holes.partition_point(|&other| other < hole), hole);
    }
}
