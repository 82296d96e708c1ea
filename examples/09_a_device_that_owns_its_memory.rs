//! A device that owns its buffers, as those of frameworks do. The buffers of this example are boxed
//! values in a map.
//!
//! The engine assigns no offsets for a device that owns its buffers. The engine counts bytes, and
//! calls the device to free buffers. If the device itself runs out of memory, the engine evicts a
//! tensor and tries again.
//!
//! `cargo run --release --example 09_a_device_that_owns_its_memory`

use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use remat::op::{OpError, Operation, Outputs};
use remat::unstable::engine::{Engine, Settings};
use remat::{CostModelKind, DType, Layout, PolicyKind};
use std::collections::HashMap;
use std::sync::Arc;

/// Op of the framework: a function.
#[derive(Debug)]
struct Function {
    name: &'static str,
    run: fn(&[&[f64]]) -> Vec<f64>,
}

impl Operation for Function {
    fn name(&self) -> &str {
        self.name
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        let first = inputs.first().ok_or_else(|| OpError::new(self.name, "reads something"))?;
        Ok(Outputs::fresh([*first]))
    }
}

/// Device with numbered buffers.
struct Framework {
    buffers: HashMap<u64, Box<[f64]>>,
    budget: u64,
    /// Bytes of the machine's memory that other programs leave free, which may be fewer than the
    /// budget.
    available: u64,
    refusals: u32,
}

impl Framework {
    fn add(&mut self, place: &Place, values: Vec<f64>) -> Result<(), DeviceError> {
        let used: u64 = self.buffers.values().map(|buffer| 8 * buffer.len() as u64).sum();
        if used + 8 * values.len() as u64 > self.available {
            self.refusals += 1;
            return Err(DeviceError::out_of_memory("the machine is full"));
        }
        self.buffers.insert(place.storage, values.into());
        Ok(())
    }
}

impl Device for Framework {
    type Op = Function;
    type Host = Vec<f64>;

    fn name(&self) -> &str {
        "framework"
    }

    fn memory(&self) -> Memory {
        Memory::Owned { bytes: self.budget }
    }

    fn layout_of(host: &Vec<f64>) -> Layout {
        Layout::contiguous(DType::F64, [host.len()])
    }

    fn write(&mut self, host: &Vec<f64>, to: Place) -> Result<Took, DeviceError> {
        self.add(&to, host.clone())?;
        Ok(Took::Unknown)
    }

    fn read(&mut self, from: Place) -> Result<Vec<f64>, DeviceError> {
        Ok(self.buffers[&from.storage].to_vec())
    }

    fn has_bits(&self) -> bool {
        true
    }

    fn bits(&mut self, from: Place, see: &mut dyn FnMut(&[u8])) -> Result<(), DeviceError> {
        let values = self.buffers[&from.storage].iter();
        see(&values.flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>());
        Ok(())
    }

    fn copy(&mut self, _: u64, _: u64, _: u64) -> Result<(), DeviceError> {
        unreachable!("nothing is moved where there are no offsets")
    }

    fn release(&mut self, storage: u64) {
        self.buffers.remove(&storage);
    }

    fn execute(&mut self, call: Call<'_, Function>) -> Result<Took, DeviceError> {
        let inputs: Vec<&[f64]> =
            call.inputs.iter().map(|input| &*self.buffers[&input.storage]).collect();
        let values = (call.op.run)(&inputs);
        self.add(&call.outputs[0], values)?;
        Ok(Took::Unknown)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    const LENGTH: usize = 1000;
    // Six buffers fit in the budget, but only four in the machine's memory.
    let framework = Framework {
        buffers: HashMap::new(),
        budget: 6 * 8 * LENGTH as u64,
        available: 4 * 8 * LENGTH as u64,
        refusals: 0,
    };
    let (policy, costs) = (PolicyKind::DtrEq.build(0), CostModelKind::Bytes.build());
    // Each recomputed value must have the same bits.
    let mut settings = Settings::default();
    settings.verify_recomputed = Some(1.0);
    let mut engine = Engine::new(framework, settings, policy, costs)?;

    let next = || Function { name: "next", run: |x| x[0].iter().map(|x| x + 1.0).collect() };
    let mut kept = vec![engine.put(Arc::new(vec![0.0; LENGTH]))];
    for i in 0..10 {
        let made = engine.apply(next(), &[kept[i]])?[0];
        kept.push(made);
    }
    for (i, &key) in kept.iter().enumerate() {
        // The value is read in place, without a copy.
        let sum = engine.visit(key, |framework, place| {
            Ok(framework.buffers[&place.storage].iter().sum::<f64>())
        })?;
        assert_eq!(sum, (i * LENGTH) as f64);
    }
    let stats = engine.stats();
    let Framework { buffers, refusals, .. } = engine.device();
    println!("{} tensors in {} buffers", stats.tensors, buffers.len());
    println!(
        "{} evictions, {refusals} of them for the machine's sake; {} ops run again",
        stats.evictions, stats.recomputed_ops
    );
    println!("{} values were recomputed, all with the same bits", stats.verified_values);
    assert!(stats.verified_values > 0 && stats.unverified_values == 0);
    assert!(buffers.len() <= 4 && *refusals > 0 && stats.recomputed_ops > 0);
    Ok(())
}
