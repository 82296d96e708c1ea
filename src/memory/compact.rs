//! Moving blocks together when there is room enough, but not in one piece.
//!
//! A plan is one of two kinds. *Sliding* picks a run of neighbouring chunks and packs its blocks to
//! its low end. A hole takes in its neighbour only when everything between them moves, whichever
//! way, so the cost of a run that starts and ends with a hole it needs is all of its blocks, and the
//! cheapest run is found by two pointers. *Evacuating* picks a run whose blocks fit into holes
//! elsewhere, so that their own bytes join the new hole as well; it is often far cheaper, but the
//! blocks may fail to fit, so only the few cheapest runs are tried.

use std::cmp::Reverse;

use super::slab::{Block, EDGE};
use super::{Arena, Chunk, Content};

/// How many evacuations, cheapest first, are tried before sliding is taken.
const EVACUATIONS: usize = 16;

/// One block to be copied elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[doc(alias("defrag", "defragmentation"))]
pub struct Move {
    /// The block; its handle stays valid.
    pub block: Block,
    /// Where it starts.
    pub from: u64,
    /// Where it shall start. The two ranges may overlap.
    pub to: u64,
    /// Bytes to copy: what the holder asked for, as the rest of the block means nothing.
    pub bytes: u64,
}

/// A run of neighbouring chunks of one region, none of them an unmovable block.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// First byte.
    start: u64,
    /// Just past the last byte.
    end: u64,
    /// Slot of the first chunk.
    first: u32,
    /// Bytes in holes.
    free: u64,
    /// Bytes to copy if all its blocks move.
    cost: u64,
}

/// What is to be done with a run.
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
    /// The cheapest moves found that leave a hole for a block of `bytes`, in an order in which each
    /// can be carried out by itself (as a `memmove`) after the ones before it. Empty if there is
    /// such a hole already.
    ///
    /// Only blocks for whose owner `movable` holds are moved. The cost of a plan is the bytes it
    /// copies. It is the least of all plans that keep the order of blocks, or one of those that
    /// empty a run of chunks into other holes, where one of them was found that is cheaper yet.
    ///
    /// `None` if no plan was found. When every block is movable and there is one region, there is a
    /// plan whenever [`Arena::free_bytes`] suffices.
    ///
    /// # Time complexity
    /// O(chunks), and O(chunks * log chunks) where evacuating may be cheaper than sliding.
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
        // Both kinds in one pass, for it is loading the chunks that takes the time.
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

    /// Enters moves into the books, one after the other. The caller copies the bytes, in the same
    /// order. All handles stay valid.
    ///
    /// # Panics
    /// If a move does not start where its block is, or where it goes is not free (apart from the
    /// block's own bytes): the plan is out of date.
    ///
    /// # Time complexity
    /// For each move, O(log holes) when it slides and O(holes at least that large) when it does not.
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

    /// Calls `found` on the shortest run ending at each chunk that is `enough`, if there is one, for each kind. `enough`
    /// must hold for every run that contains one for which it holds.
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

    /// A run that is not empty, less its first chunk.
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

    /// Empties the cheapest of `runs` for which that is possible, looking at a few only.
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

    /// Moves the blocks of a run into holes outside of it, the largest first, each by best fit.
    /// `holes` are all there are, as sizes and offsets in ascending order.
    fn evacuate(&self, run: Run, holes: &[(u64, u64)]) -> Option<Vec<Move>> {
        let outside = |&&(_, offset): &&(u64, u64)| offset < run.start || offset >= run.end;
        let mut holes: Vec<_> = holes.iter().filter(outside).copied().collect();
        let mut blocks: Vec<_> = self.chunks_of(run).filter(|chunk| !chunk.is_free()).collect();
        blocks.sort_by_key(|chunk| Reverse(chunk.size));
        blocks.into_iter().map(|chunk| chunk.moved_to(fill(&mut holes, chunk.size)?)).collect()
    }

    /// The chunks of a run, in address order.
    fn chunks_of(&self, run: Run) -> impl Iterator<Item = Chunk> + '_ {
        self.chunks_from(run.first).take_while(move |chunk| chunk.offset < run.end)
    }
}

impl Chunk {
    /// The move of this block there; `None` if it is a hole.
    pub(super) const fn moved_to(&self, to: u64) -> Option<Move> {
        match self.content {
            Content::Free => None,
            Content::Used { block, requested, .. } => {
                Some(Move { block, from: self.offset, to, bytes: requested })
            }
        }
    }
}

/// Packs the blocks among neighbouring chunks, which are in address order, from `to` on, which is not above the
/// first of them.
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

/// Takes `size` bytes of the best fit among holes, which are sizes and offsets in ascending order. Where they
/// start, or `None` if they fit nowhere.
pub(super) fn fill(holes: &mut Vec<(u64, u64)>, size: u64) -> Option<u64> {
    let at = holes.partition_point(|&(has, _)| has < size);
    if at == holes.len() {
        return None;
    }
    let (has, to) = holes.remove(at);
    add_hole(holes, (has - size, to + size));
    Some(to)
}

/// Adds a hole, unless it is empty.
pub(super) fn add_hole(holes: &mut Vec<(u64, u64)>, hole: (u64, u64)) {
    if hole.0 > 0 {
        holes.insert(holes.partition_point(|&other| other < hole), hole);
    }
}
