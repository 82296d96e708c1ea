//! Ranks that are threads of one process.

use super::fabric::{Fabric, FabricError};
use crate::sync::{Condvar, Mutex, MutexGuard, lock, wait};
use std::fmt;
use std::sync::Arc;

/// Makes a fabric for each of `count` ranks in one process, for tests and for several devices that
/// one process drives. A rank that is dropped is gone: calls of the other ranks then fail.
///
/// ```
/// use remat::unstable::collective::{Fabric, threads};
///
/// let [first, second] = <[_; 2]>::try_from(threads(2)).unwrap();
/// let waiting = std::thread::spawn(move || second.broadcast(0, &mut [0; 4]).unwrap_err());
/// drop(first);
/// assert_eq!(waiting.join().unwrap().to_string(), "rank 0 has left");
/// ```
///
/// # Panics
/// Panics if `count` is 0.
#[must_use]
pub fn threads(count: usize) -> Vec<Threads> {
    assert!(count > 0, "a training has at least one rank");
    let board = Board { posted: vec![None; count], taken: 0, gone: vec![false; count] };
    let shared = Arc::new(Shared { board: Mutex::new(board), changed: Condvar::new() });
    (0..count).map(|rank| Threads { rank, count, shared: Arc::clone(&shared) }).collect()
}

/// Fabric of a rank that is a thread; see [`threads`].
pub struct Threads {
    rank: usize,
    count: usize,
    shared: Arc<Shared>,
}

struct Shared {
    board: Mutex<Board>,
    changed: Condvar,
}

/// Board on which each rank posts its bytes of the current call.
struct Board {
    posted: Vec<Option<Arc<[u8]>>>,
    /// Number of ranks that have taken the bytes of all ranks.
    taken: usize,
    gone: Vec<bool>,
}

impl Threads {
    /// Posts bytes, and returns the bytes of all ranks.
    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Arc<[u8]>>, FabricError> {
        let Shared { board, changed } = &*self.shared;
        let mut board = lock(board);
        // The bytes of the last call stay until all ranks have taken them.
        while board.posted[self.rank].is_some() {
            self.check(&board)?;
            board = wait(changed, board);
        }
        board.posted[self.rank] = Some(Arc::from(bytes));
        changed.notify_all();
        while board.posted.iter().any(Option::is_none) {
            self.check(&board)?;
            board = wait(changed, board);
        }
        let all = board.posted.iter().flatten().cloned().collect();
        board.taken += 1;
        if board.taken == self.count {
            board.taken = 0;
            board.posted.fill(None);
            changed.notify_all();
        }
        Ok(all)
    }

    /// Fails if a rank is gone before it has posted its bytes, because the rank will never post
    /// them.
    fn check(&self, board: &MutexGuard<'_, Board>) -> Result<(), FabricError> {
        let missing =
            board.posted.iter().zip(&board.gone).position(|(at, gone)| at.is_none() && *gone);
        missing.map_or(Ok(()), |rank| Err(FabricError(format!("rank {rank} has left"))))
    }
}

impl Fabric for Threads {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.count
    }

    fn local(&self) -> (usize, usize) {
        (self.rank, self.count)
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        let piece = send.len() / self.count;
        let all = self.exchange(send)?;
        for (from, to) in all.iter().zip(receive.chunks_exact_mut(piece.max(1))) {
            to.copy_from_slice(&from[self.rank * piece..][..piece]);
        }
        Ok(())
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        let all = self.exchange(send)?;
        for (from, to) in all.iter().zip(receive.chunks_exact_mut(send.len().max(1))) {
            to.copy_from_slice(from);
        }
        Ok(())
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        let mine: &[u8] = if root == self.rank { bytes } else { &[] };
        let all = self.exchange(mine)?;
        bytes.copy_from_slice(&all[root]);
        Ok(())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        lock(&self.shared.board).gone[self.rank] = true;
        self.shared.changed.notify_all();
    }
}

impl fmt::Debug for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} of {} threads", self.rank, self.count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_many_calls_arrive_in_order() {
        for count in [1, 2, 3, 5] {
            let ranks: Vec<_> = threads(count)
                .into_iter()
                .map(|fabric| {
                    std::thread::spawn(move || {
                        let me = fabric.rank() as u8;
                        for round in 0..200_u8 {
                            let send: Vec<u8> = (0..count as u8).map(|to| 16 * me + to).collect();
                            let mut got = vec![0; count];
                            fabric.all_to_all(&send, &mut got).unwrap();
                            assert!(
                                (0..count as u8).map(|from| 16 * from + me).eq(got.iter().copied())
                            );
                            let mut got = vec![0; 2 * count];
                            fabric.all_gather(&[me, round], &mut got).unwrap();
                            assert!((0..count as u8).flat_map(|from| [from, round]).eq(got));
                            let root = usize::from(round) % count;
                            let mut bytes = [me, round];
                            fabric.broadcast(root, &mut bytes).unwrap();
                            assert_eq!(bytes, [root as u8, round]);
                        }
                    })
                })
                .collect();
            ranks.into_iter().for_each(|rank| rank.join().unwrap());
        }
    }

    #[test]
    fn a_rank_that_has_posted_may_leave() {
        let mut ranks = threads(2);
        let (second, first) = (ranks.pop().unwrap(), ranks.pop().unwrap());
        let early = std::thread::spawn(move || first.all_gather(&[1], &mut [0; 2]));
        let mut got = [0; 2];
        second.all_gather(&[2], &mut got).unwrap();
        early.join().unwrap().unwrap();
        assert_eq!(got, [1, 2]);
        let error = second.all_gather(&[2], &mut got).unwrap_err();
        assert_eq!(error.to_string(), "rank 0 has left");
    }
}
