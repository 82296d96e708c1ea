//! Predictions of traffic, compared with the calls that the ops make.

use super::*;
use crate::collective::{Fabric, FabricError, Ranks, threads};
use crate::ops::{Op, Tensor};
use crate::runtime::Runtime;
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// Fabric that counts the messages of a rank.
#[derive(Debug)]
struct Counting<F> {
    fabric: F,
    sent: Arc<Mutex<Traffic>>,
}

impl<F: Fabric> Counting<F> {
    fn add(&self, bytes: usize) {
        let mut sent = lock(&self.sent);
        *sent = sent.and(Traffic::to_others(self.fabric.size() as u64, 1, bytes as u64));
    }
}

impl<F: Fabric> Fabric for Counting<F> {
    fn rank(&self) -> usize {
        self.fabric.rank()
    }

    fn size(&self) -> usize {
        self.fabric.size()
    }

    fn local(&self) -> (usize, usize) {
        self.fabric.local()
    }

    fn all_to_all(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.add(send.len() / self.size());
        self.fabric.all_to_all(send, receive)
    }

    fn all_gather(&self, send: &[u8], receive: &mut [u8]) -> Result<(), FabricError> {
        self.add(send.len());
        self.fabric.all_gather(send, receive)
    }

    fn broadcast(&self, root: usize, bytes: &mut [u8]) -> Result<(), FabricError> {
        let hops = u64::from(self.size().next_power_of_two().ilog2());
        let mut sent = lock(&self.sent);
        *sent = sent.and(Traffic { messages: hops, bytes: hops * bytes.len() as u64 });
        drop(sent);
        self.fabric.broadcast(root, bytes)
    }
}

/// Traffic of rank 0 for one collective on `rows` rows of 8 numbers, header included.
fn sent(pattern: Pattern, count: usize, rows: usize, buffer: usize) -> Traffic {
    let ranks = threads(count).into_iter().map(|fabric| {
        std::thread::spawn(move || {
            let total = Arc::new(Mutex::new(Traffic::default()));
            let ranks = Ranks::with_buffer(Counting { fabric, sent: Arc::clone(&total) }, buffer);
            let runtime = Runtime::builder().budget("16MiB").threads(1).cpu().unwrap();
            let mut x = runtime.ones(&[rows, 8]).unwrap();
            let mut in_place = |op: Op| runtime.update(op, &mut [&mut x], &[]).unwrap();
            match pattern {
                Pattern::AllReduce => in_place(ranks.all_reduce("x")),
                Pattern::Broadcast => in_place(ranks.broadcast("x", 0)),
                Pattern::ReduceScatter => drop(Tensor::apply(ranks.reduce_scatter("x"), &[&x])),
                Pattern::AllGather => drop(Tensor::apply(ranks.all_gather("x"), &[&x])),
            }
            runtime.sync().unwrap();
            *lock(&total)
        })
    });
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().unwrap()).next().unwrap()
}

#[test]
fn predictions_are_what_the_ops_send() {
    for pattern in Pattern::ALL {
        for count in [2, 3, 4] {
            for (rows, buffer) in [(12, 1 << 10), (1200, 1 << 10), (1201, 3000), (4096, 1 << 20)] {
                let rows = match pattern {
                    Pattern::ReduceScatter => rows / count * count,
                    _ => rows,
                };
                let whole = if pattern == Pattern::AllGather { rows * count } else { rows };
                let bytes = (whole * 8 * 4) as u64;
                let header = Traffic::to_others(count as u64, 1, header::BYTES as u64);
                let expected = header.and(pattern.of_values(bytes, count as u64, buffer as u64));
                let what = format!("{pattern:?} of {rows} rows on {count} ranks by {buffer} B");
                assert_eq!(sent(pattern, count, rows, buffer), expected, "{what}");
            }
        }
    }
}

#[test]
fn an_all_reduce_sends_as_much_as_a_ring() {
    // 2 (N - 1) messages and 2 (N - 1) / N of the bytes, and the header of one all-gather.
    assert_eq!(
        Pattern::AllReduce.traffic(4096, 8),
        Traffic { messages: 3 * 7, bytes: 2 * 7 * 4096 / 8 + 7 * 40 }
    );
    for pattern in Pattern::ALL {
        assert_eq!(pattern.traffic(1 << 30, 1), Traffic::default());
        assert_eq!(Pattern::named(pattern.name()), Some(pattern));
    }
    assert_eq!(Pattern::named("add"), None);
}
