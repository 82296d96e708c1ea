//! Runs the engine with custom ops and custom memory.
//!
//! An op must compute the layouts of its outputs. A device must write, read, copy and run ops at
//! the offsets that the engine assigns. `08_your_own_op.rs` has a custom op for the devices of the
//! crate.
//!
//! `cargo run --release --example 04_your_own_device`

use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use remat::op::{OpError, Operation, Outputs};
use remat::unstable::engine::{Engine, Settings};
use remat::{CostModelKind, Layout, PolicyKind};
use std::sync::Arc;

/// Two ops on strings of bytes.
#[derive(Debug)]
enum Text {
    /// `(a) -> (a in capitals)`
    Shout,
    /// `(a, b) -> (a followed by b)`
    Join,
}

impl Operation for Text {
    fn name(&self) -> &str {
        match self {
            Self::Shout => "shout",
            Self::Join => "join",
        }
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Outputs, OpError> {
        match (self, inputs) {
            (Self::Shout, [a]) => Ok(Outputs::fresh([*a])),
            (Self::Join, [a, b]) => Ok(Outputs::fresh([Layout::raw(a.elements() + b.elements())])),
            _ => Err(OpError::new(self.name(), format!("does not take {} inputs", inputs.len()))),
        }
    }
}

/// Device whose memory is a vector.
struct Shelf(Vec<u8>);

impl Shelf {
    fn at(&mut self, place: &Place) -> &mut [u8] {
        &mut self.0[place.storage as usize..][..place.layout.elements()]
    }
}

impl Device for Shelf {
    type Op = Text;
    type Host = String;

    fn name(&self) -> &str {
        "shelf"
    }

    fn memory(&self) -> Memory {
        Memory::arena(self.0.len() as u64)
    }

    fn layout_of(host: &String) -> Layout {
        Layout::raw(host.len())
    }

    fn write(&mut self, host: &String, to: Place) -> Result<Took, DeviceError> {
        self.at(&to).copy_from_slice(host.as_bytes());
        Ok(Took::Unknown)
    }

    fn read(&mut self, from: Place) -> Result<String, DeviceError> {
        String::from_utf8(self.at(&from).to_vec()).map_err(|e| DeviceError::new(e.to_string()))
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.0.copy_within(from as usize..(from + bytes) as usize, to as usize);
        Ok(())
    }

    fn execute(&mut self, call: Call<'_, Text>) -> Result<Took, DeviceError> {
        let mut text: Vec<u8> =
            call.inputs.iter().flat_map(|input| self.at(input).to_vec()).collect();
        if let Text::Shout = call.op {
            text.make_ascii_uppercase();
        }
        self.at(&call.outputs[0]).copy_from_slice(&text);
        Ok(Took::Unknown)
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let policy = PolicyKind::Lru.build(0);
    let costs = CostModelKind::Bytes.build();
    // The engine's budget is the memory of its device.
    let mut engine = Engine::new(Shelf(vec![0; 1280]), Settings::default(), policy, costs)?;

    let hello = engine.put(Arc::new("hello, ".to_owned()));
    let world = engine.put(Arc::new("world".to_owned()));
    let joined = engine.apply(Text::Join, &[hello, world])?[0];
    let loud = engine.apply(Text::Shout, &[joined])?[0];
    let both = engine.apply(Text::Join, &[joined, loud])?[0];
    let more = engine.apply(Text::Join, &[both, both])?[0];

    // Six tensors take one granule (256 bytes) each, and five fit.
    let all = [hello, world, joined, loud, both, more];
    println!("resident: {:?}", all.map(|key| engine.is_resident(key)));
    for key in all {
        println!("{}", engine.get(key)?);
    }
    let stats = engine.stats();
    println!("{} evictions, {} ops run again", stats.evictions, stats.recomputed_ops);
    assert!(stats.recomputed_ops > 0);
    Ok(())
}
