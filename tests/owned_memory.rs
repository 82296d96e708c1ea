//! Device that owns its memory: buffers have numbers in place of offsets, each run makes new
//! buffers for its outputs, and the device can run out of memory by itself.

use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use remat::op::{OpError, Operation, Outputs};
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::graph::TensorKey;
use remat::{CostModelKind, DType, Error, Layout, PolicyKind};
use remat_rng::SplitMix64;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

#[derive(Clone, Debug)]
enum Fun {
    /// `(a, b) -> (3 a + b, a - b)`.
    Pair,
    /// `(a, b) -> (3 a + b, in place of a)`.
    AddTo,
    /// `(a) -> (second half of a)`, a view.
    Half,
}

impl Operation for Fun {
    fn name(&self) -> &str {
        "fun"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        Ok(match self {
            Self::Pair => {
                let layout = Layout::contiguous(DType::I64, *inputs[0].shape());
                Outputs::fresh([layout, layout])
            }
            Self::AddTo => Outputs::updates(1),
            Self::Half => {
                let n = inputs[0].elements();
                let layout = inputs[0].slice(0, n / 2, n - n / 2).unwrap();
                Outputs::view(0, layout)
            }
        })
    }
}

/// Device with its buffers by number, and the rules that numbers and memory must keep.
struct Owner {
    buffers: HashMap<u64, Vec<i64>>,
    /// Numbers given so far. Each is given once.
    seen: BTreeSet<u64>,
    budget: u64,
    available: u64,
    peak: u64,
    /// Index of an element of a pair's second output that is made one too large, if there is such
    /// an element.
    odd: Arc<AtomicUsize>,
}

impl Owner {
    fn new(budget: u64, available: u64) -> Self {
        let (buffers, seen, odd) = (HashMap::new(), BTreeSet::new(), Arc::new(usize::MAX.into()));
        Self { buffers, seen, budget, available, peak: 0, odd }
    }

    fn bytes(&self) -> u64 {
        self.buffers.values().map(|buffer| 8 * buffer.len() as u64).sum()
    }

    fn look(&self, place: &Place) -> Vec<i64> {
        let buffer = &self.buffers[&place.storage];
        let (offset, n) = (place.layout.offset(), place.layout.elements());
        buffer[offset..offset + n].to_vec()
    }

    fn make(&mut self, made: Vec<(u64, Vec<i64>)>) -> Result<(), DeviceError> {
        let more: u64 = made.iter().map(|(_, values)| 8 * values.len() as u64).sum();
        if self.bytes() + more > self.available {
            return Err(DeviceError::out_of_memory("no more"));
        }
        for (number, values) in made {
            assert!(self.seen.insert(number), "{number} was given before");
            self.buffers.insert(number, values);
        }
        self.peak = self.peak.max(self.bytes());
        Ok(())
    }
}

impl Device for Owner {
    type Op = Fun;
    type Host = Vec<i64>;

    fn name(&self) -> &str {
        "owner"
    }

    fn memory(&self) -> Memory {
        Memory::Owned { bytes: self.budget }
    }

    fn layout_of(host: &Vec<i64>) -> Layout {
        Layout::contiguous(DType::I64, [host.len()])
    }

    fn write(&mut self, host: &Vec<i64>, to: Place) -> Result<Took, DeviceError> {
        self.make(vec![(to.storage, host.clone())])?;
        Ok(Took::Unknown)
    }

    fn read(&mut self, from: Place) -> Result<Vec<i64>, DeviceError> {
        let values = self.look(&from);
        // Reading a part of a buffer needs memory for a packed copy.
        let packed = if from.layout.offset() > 0 { 8 * values.len() as u64 } else { 0 };
        if self.bytes() + packed > self.available {
            return Err(DeviceError::out_of_memory("no more to read"));
        }
        Ok(values)
    }

    fn has_bits(&self) -> bool {
        true
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        see(&self.look(&from).iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        Ok(())
    }

    fn copy(&mut self, _: u64, _: u64, _: u64) -> Result<(), DeviceError> {
        panic!("there are no offsets to move anything between")
    }

    fn duplicate(&mut self, from: Place, to: Place) -> Result<(), DeviceError> {
        let values = self.look(&from);
        self.make(vec![(to.storage, values)])
    }

    fn release(&mut self, storage: u64) {
        // A failed run may have made no buffer.
        self.buffers.remove(&storage);
    }

    fn execute(&mut self, call: Call<'_, Fun>) -> Result<Took, DeviceError> {
        let [a, b] = [0, 1].map(|i| self.look(&call.inputs[i.min(call.inputs.len() - 1)]));
        let add = || a.iter().zip(&b).map(|(a, b)| a.wrapping_mul(3).wrapping_add(*b)).collect();
        match call.op {
            Fun::Pair => {
                let odd = self.odd.load(Ordering::SeqCst);
                let mut less: Vec<i64> =
                    a.iter().zip(&b).map(|(a, b)| a.wrapping_sub(*b)).collect();
                less.get_mut(odd).into_iter().for_each(|element| *element += 1);
                let [x, y] = [0, 1].map(|i| call.outputs[i].storage);
                self.make(vec![(x, add()), (y, less)])?;
            }
            Fun::AddTo => {
                let sum = add();
                self.buffers.insert(call.outputs[0].storage, sum);
            }
            Fun::Half => unreachable!("views are not run"),
        }
        Ok(Took::Unknown)
    }
}

type OwnerEngine = Engine<Owner>;

fn engine(budget: u64, available: u64) -> OwnerEngine {
    let (policy, costs) = (PolicyKind::DtrEq.build(0), CostModelKind::Bytes.build());
    let mut settings = Settings::default();
    settings.min_evict_bytes = Some(0);
    settings.verify_recomputed = Some(1.0);
    Engine::new(Owner::new(budget, available), settings, policy, costs).unwrap()
}

const LENGTH: usize = 16;
const TENSOR: u64 = 8 * LENGTH as u64;

/// Runs random pairs, views and updates. Returns the values read.
fn play(engine: &mut OwnerEngine, seed: u64) -> Vec<Vec<i64>> {
    let mut numbers = SplitMix64::new(seed);
    let mut below = |n: usize| numbers.below(n);
    let mut held: Vec<TensorKey> =
        (0..2).map(|i| engine.put(Arc::new(vec![seed as i64 + i; LENGTH]))).collect();
    let mut read = vec![];
    for _ in 0..60 {
        let [i, j] = [below(held.len()), below(held.len())];
        match below(8) {
            0 if held.len() > 3 => engine.del(held.swap_remove(i)),
            1 => read.push(engine.get(held[i]).unwrap()),
            2 => {
                let half = engine.apply(Fun::Half, &[held[i]]).unwrap()[0];
                read.push(engine.get(half).unwrap());
                engine.del(half);
            }
            3 if below(4) == 0 => {
                // With a second handle, the old value may still be needed, so that the update works
                // on a copy.
                let target = if below(2) == 0 { engine.alias(held[i]).unwrap() } else { held[i] };
                let other = held[j];
                let made = engine.apply(Fun::AddTo, &[target, other]).unwrap()[0];
                if target == held[i] {
                    held[i] = made;
                } else {
                    held.push(made);
                }
                engine.step();
            }
            _ => held.extend(engine.apply(Fun::Pair, &[held[i], held[j]]).unwrap()),
        }
        while held.len() > 12 {
            engine.del(held.swap_remove(below(held.len())));
        }
        engine.check();
        let stats = engine.stats();
        assert_eq!(engine.device().bytes(), stats.used_bytes, "what is counted is what is there");
    }
    read.extend(held.iter().map(|&key| engine.get(key).unwrap()));
    held.into_iter().for_each(|key| engine.del(key));
    assert!(engine.take_failure().is_none());
    assert_eq!(engine.stats().host_bytes, 0);
    assert_eq!((engine.device().buffers.len(), engine.stats().used_bytes), (0, 0));
    read
}

#[test]
fn used_bytes_are_the_devices_bytes_and_the_bits_stay_the_same() {
    let (mut evictions, mut recomputed) = (0, 0);
    for seed in 0..30 {
        let mut plenty = engine(1 << 30, 1 << 30);
        let expected = play(&mut plenty, seed);
        for tensors in [17, 16] {
            // Either the engine's budget or the device's own memory is short.
            for (budget, available) in [(tensors, u64::MAX), (1 << 20, tensors)] {
                let mut tight = engine(budget * TENSOR, available.saturating_mul(TENSOR));
                assert_eq!(play(&mut tight, seed), expected, "{seed}: {tensors}");
                assert!(tight.device().peak <= tensors * TENSOR);
                evictions += tight.stats().evictions;
                recomputed += tight.stats().recomputed_ops;
            }
        }
    }
    assert!(evictions > 100 && recomputed > 100, "{evictions} evictions, {recomputed} runs again");
}

/// A rerun for one of two outputs also makes the other output, which may still be resident. The
/// second copy of this output takes memory.
#[test]
fn an_output_that_is_made_again_beside_another_is_counted() {
    for (tensors, fits) in [(5, true), (4, false)] {
        let mut engine = engine(tensors * TENSOR, u64::MAX);
        let x = engine.put(Arc::new(vec![1; LENGTH]));
        engine.commit(x).unwrap();
        let pair = engine.apply(Fun::Pair, &[x, x]).unwrap();
        assert!(engine.drop_now(pair[0]).unwrap());
        // x, the old pair[1] and the two new outputs are in memory during the run.
        engine.commit(x).unwrap();
        let ballast = engine.put(Arc::new(vec![7; LENGTH]));
        engine.commit(ballast).unwrap();
        let got = engine.get(pair[0]);
        assert_eq!(got.is_ok(), fits, "{got:?}");
        if fits {
            assert_eq!(got.unwrap(), vec![4; LENGTH]);
            assert_eq!(engine.stats().peak_bytes, 5 * TENSOR);
        }
        assert_eq!(engine.get(pair[1]).unwrap(), vec![0; LENGTH]);
        engine.check();
    }
}

#[test]
fn a_device_without_room_is_an_error_that_says_what_it_said() {
    let mut engine = engine(100 * TENSOR, 3 * TENSOR);
    let x = engine.put(Arc::new(vec![1; LENGTH]));
    engine.commit(x).unwrap();
    let y = engine.put(Arc::new(vec![2; LENGTH]));
    engine.commit(y).unwrap();
    let error = engine.apply(Fun::Pair, &[x, y]).unwrap_err();
    let Error::OutOfMemory(report) = &error else { panic!("{error}") };
    let bytes: Vec<u64> = report.holders.iter().map(|holder| holder.1).collect();
    assert!(!bytes.is_empty() && bytes.is_sorted_by(|a, b| a >= b), "{error}");
    let text = error.to_string();
    assert!(text.contains("the device itself is out of memory (no more)"), "{text}");
    engine.check();
    engine.del(y);
    engine.apply(Fun::Pair, &[x, x]).unwrap();
}

#[test]
fn a_read_that_takes_memory_of_the_device_evicts_for_it() {
    for (tensors, fits) in [(4, true), (3, true), (2, false)] {
        let mut engine = engine(100 * TENSOR, tensors * TENSOR);
        let x = engine.put(Arc::new(vec![1; LENGTH]));
        engine.commit(x).unwrap();
        let y = engine.put(Arc::new(vec![2; LENGTH]));
        let half = engine.apply(Fun::Half, &[x]).unwrap()[0];
        let (before, z) = (engine.stats().evictions, engine.put(Arc::new(vec![3; LENGTH])));
        if !fits {
            engine.commit(y).unwrap();
        }
        for key in [half, y, z, half] {
            match engine.get(key) {
                Ok(value) => assert_eq!(value.len(), if key == half { LENGTH / 2 } else { LENGTH }),
                Err(error) => {
                    assert!(!fits && matches!(error, Error::OutOfMemory(_)), "{error}");
                    if key == half {
                        let text = error.to_string();
                        assert!(text.contains("is out of memory (no more to read)"), "{text}");
                    }
                }
            }
            engine.check();
        }
        assert_eq!(engine.stats().evictions > before, tensors < 4);
        assert!(engine.device().peak <= tensors * TENSOR);
    }
}

/// If a rerun also makes an output that is still resident, the new bits are compared with the
/// resident ones.
#[test]
fn other_bits_are_found_whichever_of_two_outputs_was_evicted() {
    for which in [0, 1] {
        for element in [0, 7, LENGTH - 1] {
            let mut engine = engine(100 * TENSOR, u64::MAX);
            let x = engine.put(Arc::new(vec![5; LENGTH]));
            let pair = engine.apply(Fun::Pair, &[x, x]).unwrap();
            assert!(engine.drop_now(pair[which]).unwrap());
            engine.device().odd.store(element, Ordering::SeqCst);
            for key in [pair[which], pair[0], pair[1]] {
                let error = engine.get(key).unwrap_err();
                let Error::OtherBits(other) = &error else { panic!("{error}") };
                assert_eq!((other.output, other.step), (1, 1));
                assert_eq!((&other.elements, other.bits), (&(element..element + 1), Some([0, 1])));
                assert!(error.to_string().starts_with("fun(i64[16], i64[16]) gave other bits"));
                engine.check();
            }
            assert_eq!(engine.get(x).unwrap(), vec![5; LENGTH]);
            assert_eq!(engine.device().bytes(), TENSOR, "what is wrong went");
            assert!(engine.take_failure().is_none(), "it was told");
        }
    }
}
