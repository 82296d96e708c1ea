//! Sums that are made while other ops run.
//!
//! An all-reduce is two ops. [`Start`] copies its input, hands the copy to a thread that runs
//! collectives, and returns at once. [`Wait`] returns the sum:
//!
//! ```text
//! ops       backward  start g3  backward  start g2  backward  wait g3  update  wait g2  update
//! thread              ── sum g3 ──────── sum g2 ─────────
//! ```
//!
//! The thread runs collectives in the order of their starts, which is the same on all ranks. An op
//! that is a collective itself waits until the thread has nothing left to do.

use super::header::{Header, Kind, Status};
use super::link::Link;
use super::ranks::Ranks;
use super::sum;
use super::traffic::{START, WAIT};
use crate::device::{DeviceError, cpu};
use crate::layout::{DType, Layout};
use crate::ops::CustomOp;
use crate::sync::channel::{Receiver, Sender, bounded, unbounded};
use crate::sync::{Mutex, lock, thread};
use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// Sum over all ranks, or the reason why the sum is missing.
type Summed = Result<Vec<f32>, String>;

/// Collective that the thread is to run.
struct Queued {
    header: Header,
    values: Vec<f32>,
    /// Number of values of each rank that are sent at once.
    piece: usize,
    done: Sender<Summed>,
}

/// Thread that runs collectives beside other ops. The thread ends when the queue is dropped.
pub(super) struct Queue {
    jobs: Sender<Queued>,
}

impl Queue {
    pub fn new(link: &Arc<Link>) -> Self {
        let (jobs, taken) = unbounded();
        let link = Arc::clone(link);
        let named = thread::Builder::new().name("remat-ranks".to_owned());
        // Without the thread, the jobs are dropped, and the ops that wait for them fail.
        let _ = named.spawn(move || run(&link, &taken));
        Self { jobs }
    }

    fn add(&self, link: &Link, job: Queued) {
        link.start();
        if self.jobs.send(job).is_err() {
            link.end();
        }
    }
}

fn run(link: &Link, jobs: &Receiver<Queued>) {
    for Queued { header, mut values, piece, done } in jobs {
        let summed = link.agree(header, Status::Ready, "", None).and_then(|_turn| {
            link.sum(&mut values, piece).map_err(|error| error.0)?;
            Ok(values)
        });
        // If the op that waits for the sum is gone, the sum is not needed.
        let _ = done.send(summed);
        link.end();
    }
}

/// State that the two ops share.
struct Exchange {
    ranks: Ranks,
    header: Header,
    layout: Layout,
    /// Number of values of each rank that are sent at once.
    piece: usize,
    /// Whether all ranks agree later whether to use the sums.
    is_agreed: bool,
    sum: Mutex<Option<Receiver<Summed>>>,
}

/// First op: `x -> x`, in place and unchanged. Hands a copy of `x` to the thread.
pub(super) struct Start(Arc<Exchange>);

/// Second op: `() -> sum`, of the same layout as `x`.
pub(super) struct Wait(Arc<Exchange>);

impl Start {
    /// Makes the two ops. The buffer has `room` bytes.
    pub fn new(
        ranks: &Ranks,
        name: &str,
        layout: Layout,
        room: usize,
        is_agreed: bool,
    ) -> (Self, Wait) {
        let header = Header::new(name, Kind::Sum, DType::F32, 0);
        let piece = sum::piece(room, ranks.size());
        let sum = Mutex::default();
        let shared =
            Arc::new(Exchange { ranks: ranks.clone(), header, layout, piece, is_agreed, sum });
        (Self(Arc::clone(&shared)), Wait(shared))
    }
}

impl fmt::Debug for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "start of {:x}", self.0.header.tensor)
    }
}

impl fmt::Debug for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "end of {:x}", self.0.header.tensor)
    }
}

impl CustomOp for Start {
    fn name(&self) -> &str {
        START
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(Vec::new())
    }

    fn once(&self) -> bool {
        true
    }

    fn updates(&self, _inputs: usize) -> usize {
        1
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        let Exchange { ranks, header, sum, .. } = &*self.0;
        ranks.link().skip(*header, &why.to_string());
        let (done, wait) = bounded(1);
        let _ = done.send(Err(why.to_string()));
        *lock(sum) = Some(wait);
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let Exchange { ranks, header, piece, sum, .. } = &*self.0;
        let header = Header { bytes: self.0.layout.bytes(), ..*header };
        let values: &mut [f32] = operands.write(0);
        let (done, wait) = bounded(1);
        *lock(sum) = Some(wait);
        ranks
            .queue()
            .add(ranks.link(), Queued { header, values: values.to_vec(), piece: *piece, done });
        Ok(())
    }
}

impl CustomOp for Wait {
    fn name(&self) -> &str {
        WAIT
    }

    fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![self.0.layout])
    }

    fn once(&self) -> bool {
        true
    }

    fn skipped(&self, why: &(dyn Error + 'static)) {
        if !self.0.is_agreed {
            self.0.ranks.link().fail(&why.to_string());
        }
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let wait = lock(&self.0.sum).take();
        let gone = || Err("the thread for collectives has ended".to_owned());
        let summed = self.0.ranks.link().waiting(|| match wait {
            Some(wait) => wait.recv().unwrap_or_else(|_| gone()),
            None => gone(),
        });
        let sum: &mut [f32] = operands.write(0);
        sum.copy_from_slice(&summed.map_err(DeviceError::new)?);
        Ok(())
    }
}
