//! Occupancy of the arena as one line of text.

use super::{Arena, Content};

impl Arena {
    /// Draws all regions, end to end, as one line of `width` characters. With fewer than `width`
    /// granules, the line has one character per granule.
    ///
    /// `*` is used, `x` is the part of a block beyond its request, and `_` is free. Each character
    /// shows the most frequent kind among the bytes that it stands for. On a tie, `*` wins over
    /// `x`, and `x` over `_`. TensorFlow's line has 100 characters. Time: O(chunks + width).
    ///
    /// ```
    /// let mut arena = remat_memory::Arena::new(2048);
    /// let keep = [arena.alloc(1024, 0), arena.alloc(1, 1), arena.alloc(256, 2)];
    /// assert_eq!(arena.occupancy(8), "****x*__");
    /// # drop(keep);
    /// ```
    #[must_use]
    pub fn occupancy(&self, width: usize) -> String {
        let bytes = self.reserved();
        let width = (width as u64).min(bytes / self.granularity());
        let edge = |cell: u64| (u128::from(cell) * u128::from(bytes) / u128::from(width)) as u64;
        // Bytes of the current character: used, beyond the requests, and free.
        let mut shares = [0; 3];
        let (mut cell, mut at) = (0, 0);
        let mut line = String::new();
        let mut paint = |kind: usize, bytes: u64| {
            let end = at + bytes;
            while at < end {
                let stop = end.min(edge(cell + 1));
                shares[kind] += stop - at;
                at = stop;
                if at == edge(cell + 1) {
                    let [used, tail, free] = std::mem::take(&mut shares);
                    line.push(match used.max(tail).max(free) {
                        most if most == used => '*',
                        most if most == tail => 'x',
                        _ => '_',
                    });
                    cell += 1;
                }
            }
        };
        if width > 0 {
            for chunk in self.chunks() {
                match chunk.content {
                    Content::Used { requested, .. } => {
                        paint(0, requested);
                        paint(1, chunk.size - requested);
                    }
                    Content::Free => paint(2, chunk.size),
                }
            }
        }
        line
    }
}
