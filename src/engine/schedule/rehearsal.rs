//! Simulation of a regeneration, without runs on the device.
//!
//! The *due* runs, which have to run at least once, are simulated in a given order. Evicted inputs
//! are regenerated first, depth first, as in `regenerate.rs`. If memory is short, a storage is
//! evicted.
//!
//! The choice of the storage to evict depends on when each storage is *needed* next, which is known
//! only in a rehearsal. A storage is needed at the next due run that reads the storage, or that
//! needs an evicted storage made from it. A storage may thus be kept although no due run reads it
//! soon. Candidates for eviction are the storages that are needed last. Of the candidates, the
//! rehearsal evicts the one that costs least to recompute per byte and per unit of time until its
//! next need.

use super::Step;
use super::closure::{Closure, Positions, Storage};
use smallvec::SmallVec;
use std::collections::BTreeSet;

/// Time of need of a storage that is no longer needed.
const NEVER: u32 = u32::MAX;

/// Number of storages that are compared for an eviction: the storages whose next need is farthest
/// away.
const COMPARED: usize = 32;

/// Number of evicted storages visited to estimate the cost of recomputing one storage.
const LOOKED_AT: usize = 64;

/// Limit on the average effort per simulated run, beyond which the rehearsal gives up. A rehearsal
/// should take less time than the runs.
const EFFORT: usize = 4096;

/// Simulates the runs of a closure, the part of the graph that a regeneration touches. Returns the
/// steps, their cost and the number of runs. Returns `None` if the runs do not fit in `room` bytes,
/// or exceed the limits on cost, runs or effort.
pub(super) fn rehearse(
    closure: &Closure,
    order: &[u32],
    room: u64,
    most: f64,
    most_runs: usize,
) -> Option<(Vec<Step>, f64, usize)> {
    let mut rehearsal = Rehearsal::new(closure, order, room, most, most_runs);
    rehearsal.release_what_is_not_needed();
    for &run in order {
        if closure.runs[run as usize].outputs.iter().any(|&node| rehearsal.is_missing(node)) {
            rehearsal.run(Some(run))?;
        }
        rehearsal.pass(run);
    }
    // Restore all wanted storages together.
    rehearsal.run(None)?;
    Some((rehearsal.steps, rehearsal.cost, rehearsal.runs))
}

struct Rehearsal<'a> {
    closure: &'a Closure,
    /// Time at which each run is due; `None` for a run that is not due but may have to run.
    due: Vec<Option<u32>>,
    /// Number of due runs (runs that have to run), which is the time at which all wanted storages
    /// must be resident.
    end: u32,
    now: u32,
    nodes: Vec<Node>,
    /// Evictable storages, ordered by time of need.
    candidates: BTreeSet<(u32, u32)>,
    room: u64,
    used: u64,
    steps: Vec<Step>,
    cost: f64,
    runs: usize,
    most: f64,
    most_runs: usize,
    /// Effort that is left to spend.
    effort: usize,
    /// Number of the last walk that visited each node.
    met: Vec<u32>,
    walks: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    resident: bool,
    pins: u32,
    /// Time at which the storage is needed next, as last computed. The time may be in the past for
    /// a storage that was not read recently.
    needed: u32,
}

/// Run waiting for its inputs.
struct Frame {
    /// Run to simulate; `None` for the end of the rehearsal, which reads all wanted storages.
    run: Option<u32>,
    /// Whether each input is pinned.
    pinned: SmallVec<[bool; 4]>,
}

impl<'a> Rehearsal<'a> {
    fn new(closure: &'a Closure, order: &[u32], room: u64, most: f64, most_runs: usize) -> Self {
        let mut due = vec![None; closure.runs.len()];
        for (at, &run) in (0..).zip(order) {
            due[run as usize] = Some(at);
        }
        let node = |storage: &Storage| Node { resident: storage.resident, pins: 0, needed: NEVER };
        let mut rehearsal = Self {
            closure,
            due,
            end: order.len() as u32,
            now: 0,
            nodes: closure.storages.iter().map(node).collect(),
            candidates: BTreeSet::new(),
            room,
            used: closure.resident().map(|n| closure.storages[n as usize].bytes).sum(),
            steps: Vec::new(),
            cost: 0.0,
            runs: 0,
            most,
            most_runs,
            effort: EFFORT.saturating_mul(order.len() + 16),
            met: vec![0; closure.storages.len()],
            walks: 0,
        };
        // Set the needs of evicted storages, newest runs first, because the readers of a storage
        // are newer than the storage.
        let mut by_age: Vec<u32> = (0..closure.runs.len() as u32).collect();
        by_age.sort_unstable_by_key(|&run| std::cmp::Reverse(closure.runs[run as usize].sequence));
        for run in by_age {
            for &node in &closure.runs[run as usize].outputs {
                rehearsal.nodes[node as usize].needed = rehearsal.next_need(node);
            }
        }
        for node in 0..closure.storages.len() as u32 {
            rehearsal.nodes[node as usize].needed = rehearsal.next_need(node);
            rehearsal.enlist(node);
        }
        rehearsal
    }

    /// Releases storages that are resident at the beginning and never needed.
    fn release_what_is_not_needed(&mut self) {
        let resident: Vec<u32> = self.closure.resident().collect();
        for node in resident {
            self.release_if_over(node);
        }
    }

    fn is_missing(&self, node: u32) -> bool {
        let Node { resident, needed, .. } = self.nodes[node as usize];
        !resident && needed != NEVER
    }

    fn inputs(&self, run: Option<u32>) -> &'a Positions {
        match run {
            Some(run) => &self.closure.runs[run as usize].inputs,
            None => &self.closure.wanted,
        }
    }

    /// Time at which a storage is needed next: by a due run that reads it, or for an evicted
    /// storage made from it.
    fn next_need(&self, node: u32) -> u32 {
        let storage = &self.closure.storages[node as usize];
        let wanted = if self.closure.wanted.contains(&node) { self.end } else { NEVER };
        storage.readers.iter().fold(wanted, |soonest, &run| {
            let need = match self.due[run as usize] {
                Some(due) if due >= self.now => due,
                _ => self.need_of_outputs(run),
            };
            soonest.min(need)
        })
    }

    /// Time at which a run has to be repeated because its evicted outputs are needed.
    fn need_of_outputs(&self, run: u32) -> u32 {
        let outputs = self.closure.runs[run as usize].outputs.iter();
        let evicted = outputs.map(|&output| self.nodes[output as usize]).filter(|n| !n.resident);
        evicted.map(|node| node.needed).min().unwrap_or(NEVER)
    }

    /// Advances the time by one after a due run, a run that has to run.
    fn pass(&mut self, run: u32) {
        self.now += 1;
        self.look_again_around(run);
    }

    /// Updates the time of need of each operand of a run that was just simulated.
    fn look_again_around(&mut self, run: u32) {
        let run = &self.closure.runs[run as usize];
        for &node in run.inputs.iter().chain(&run.outputs) {
            let needed = self.next_need(node);
            self.set_need(node, needed);
            self.release_if_over(node);
        }
    }

    fn set_need(&mut self, node: u32, needed: u32) {
        let before = std::mem::replace(&mut self.nodes[node as usize].needed, needed);
        if before != needed && self.candidates.remove(&(before, node)) {
            self.candidates.insert((needed, node));
        }
    }

    /// Adds a storage to the candidates if it can be evicted.
    fn enlist(&mut self, node: u32) {
        let Node { resident, pins, needed } = self.nodes[node as usize];
        let storage = &self.closure.storages[node as usize];
        // A storage without a producer could not be restored, so it stays as long as it is needed.
        if resident && pins == 0 && !storage.fixed && storage.producer.is_some() {
            self.candidates.insert((needed, node));
        }
    }

    fn pin(&mut self, node: u32) {
        let Node { pins, needed, .. } = &mut self.nodes[node as usize];
        *pins += 1;
        self.candidates.remove(&(*needed, node));
    }

    fn unpin(&mut self, node: u32) {
        self.nodes[node as usize].pins -= 1;
        self.enlist(node);
    }

    fn release_if_over(&mut self, node: u32) {
        let Node { resident, pins, needed } = self.nodes[node as usize];
        if resident && pins == 0 && needed == NEVER && !self.closure.storages[node as usize].fixed {
            self.evict(node);
        }
    }

    fn evict(&mut self, node: u32) {
        let needed = self.next_need(node);
        self.candidates.remove(&(self.nodes[node as usize].needed, node));
        self.nodes[node as usize] = Node { resident: false, pins: 0, needed };
        self.used -= self.closure.storages[node as usize].bytes;
        self.steps.push(Step::Release(node));
        self.tell_sources(node);
    }

    /// Updates the times of need of an evicted storage's sources, because restoring the storage
    /// reads them.
    fn tell_sources(&mut self, node: u32) {
        let mut stack: SmallVec<[u32; 8]> = SmallVec::from_elem(node, 1);
        while let Some(node) = stack.pop() {
            let needed = self.nodes[node as usize].needed;
            let Some(run) = self.closure.storages[node as usize].producer else { continue };
            for &source in &self.closure.runs[run as usize].inputs {
                self.effort = self.effort.saturating_sub(1);
                if self.nodes[source as usize].needed > needed {
                    self.set_need(source, needed);
                    if !self.nodes[source as usize].resident {
                        stack.push(source);
                    }
                }
            }
        }
    }

    /// Simulates all runs that the missing inputs of a run need, and then the run itself. For `run`
    /// = `None`, simulates only the runs that the wanted storages need. Returns `None` if the runs
    /// do not fit in memory or exceed the limits.
    fn run(&mut self, run: Option<u32>) -> Option<()> {
        let mut frames = vec![self.frame(run)];
        loop {
            let top = frames.last_mut().expect("the lowest frame returns");
            self.pin_inputs(top);
            let run = top.run;
            if let Some(missing) = self.next_missing(self.inputs(run)) {
                let producer = self.closure.storages[missing as usize].producer?;
                frames.push(self.frame(Some(producer)));
                continue;
            }
            let Some(run) = run else {
                self.unpin_all(frames.pop()?);
                return Some(());
            };
            if !self.make_room(run, &mut frames) {
                return None;
            }
            self.book(run)?;
            let done = frames.pop()?;
            if let Some(below) = frames.last_mut() {
                self.pin_inputs(below);
            }
            self.unpin_all(done);
            if frames.is_empty() {
                return Some(());
            }
            self.look_again_around(run);
        }
    }

    fn frame(&self, run: Option<u32>) -> Frame {
        Frame { run, pinned: SmallVec::from_elem(false, self.inputs(run).len()) }
    }

    /// Pins the inputs of a waiting run (frame) that are resident.
    fn pin_inputs(&mut self, frame: &mut Frame) {
        for (&node, pinned) in self.inputs(frame.run).iter().zip(&mut frame.pinned) {
            if !*pinned && self.nodes[node as usize].resident {
                self.pin(node);
                *pinned = true;
            }
        }
    }

    fn unpin_all(&mut self, frame: Frame) {
        for (&node, _) in self.inputs(frame.run).iter().zip(&frame.pinned).filter(|(_, p)| **p) {
            self.unpin(node);
        }
    }

    /// Missing input to restore first: the first input that takes several runs, or else the first
    /// missing input.
    fn next_missing(&self, inputs: &Positions) -> Option<u32> {
        let is_absent = |node: &u32| !self.nodes[*node as usize].resident;
        let waits = |node: &u32| {
            let producer = self.closure.storages[*node as usize].producer;
            producer.is_some_and(|run| self.closure.runs[run as usize].inputs.iter().any(is_absent))
        };
        let mut missing = inputs.iter().copied().filter(is_absent);
        missing.clone().find(waits).or_else(|| missing.next())
    }

    /// Evicts until memory suffices for a run with pinned inputs. Returns false if that is
    /// impossible.
    fn make_room(&mut self, run: u32, frames: &mut [Frame]) -> bool {
        let run = &self.closure.runs[run as usize];
        // A resident output must not be evicted to place another output.
        for &node in &run.outputs {
            self.pin(node);
        }
        let absent = run.outputs.iter().filter(|&&node| !self.nodes[node as usize].resident);
        let bytes = absent.map(|&node| self.closure.storages[node as usize].bytes);
        let wanted = bytes.fold(run.scratch, u64::saturating_add);
        while self.used.saturating_add(wanted) > self.room {
            self.effort = self.effort.saturating_sub(COMPARED);
            match self.victim() {
                Some(node) => self.evict(node),
                None if self.yield_pins(frames) => {}
                None => return false,
            }
        }
        for &node in &run.outputs {
            self.unpin(node);
        }
        self.effort > 0
    }

    /// Counts a run for which memory now suffices. Returns `None` if the limits are exceeded.
    fn book(&mut self, run: u32) -> Option<()> {
        self.steps.push(Step::Run(run));
        let run = &self.closure.runs[run as usize];
        self.cost += run.cost;
        self.runs += 1;
        for &node in &run.outputs {
            if !std::mem::replace(&mut self.nodes[node as usize].resident, true) {
                self.used += self.closure.storages[node as usize].bytes;
            }
            let needed = self.next_need(node);
            self.set_need(node, needed);
            self.enlist(node);
        }
        (self.cost <= self.most && self.runs <= self.most_runs).then_some(())
    }

    /// Releases the pins of waiting frames. Each waiting run checks its inputs again when it is on
    /// top of the stack.
    fn yield_pins(&mut self, frames: &mut [Frame]) -> bool {
        let waiting = frames.len() - 1;
        for frame in &mut frames[..waiting] {
            let inputs = self.inputs(frame.run);
            for (&node, pinned) in inputs.iter().zip(&mut frame.pinned) {
                if std::mem::take(pinned) {
                    self.unpin(node);
                }
            }
        }
        !self.candidates.is_empty()
    }

    /// Storage to evict. Among the storages needed last, the storage with the largest product of
    /// bytes and time until its need, divided by the cost to restore it.
    fn victim(&mut self) -> Option<u32> {
        // A time of need in the past is out of date, because the storage was not visited since:
        // compute it again.
        while let Some(&(needed, node)) = self.candidates.first()
            && needed < self.now
        {
            let needed = self.next_need(node).max(self.now);
            self.set_need(node, needed);
        }
        let last: SmallVec<[(u32, u32); COMPARED]> =
            self.candidates.iter().rev().take(COMPARED).copied().collect();
        let mut best: Option<(f64, u32)> = None;
        for (needed, node) in last {
            let bytes = self.closure.storages[node as usize].bytes as f64;
            let gain = bytes * (f64::from(needed.saturating_sub(self.now)) + 1.0);
            let score = gain / self.cost_to_recompute(node);
            if best.is_none_or(|(highest, _)| score > highest) {
                best = Some((score, node));
            }
        }
        best.map(|(_, node)| node)
    }

    /// Estimated cost of recomputing a storage now, with the evicted sources that a limited walk
    /// visits.
    fn cost_to_recompute(&mut self, node: u32) -> f64 {
        self.walks += 1;
        let mut stack: SmallVec<[u32; 16]> = SmallVec::from_elem(node, 1);
        let (mut cost, mut looked_at) = (f64::MIN_POSITIVE, 0);
        while let Some(node) = stack.pop() {
            let Some(run) = self.closure.storages[node as usize].producer else { continue };
            let run = &self.closure.runs[run as usize];
            cost += run.cost;
            looked_at += 1;
            if looked_at >= LOOKED_AT {
                break;
            }
            for &source in &run.inputs {
                let is_new =
                    std::mem::replace(&mut self.met[source as usize], self.walks) != self.walks;
                if is_new && !self.nodes[source as usize].resident {
                    stack.push(source);
                }
            }
        }
        self.effort = self.effort.saturating_sub(looked_at);
        cost
    }
}
