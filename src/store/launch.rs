//! One run of a kernel on placed operands.

use super::{Store, Work};
use crate::device::{Call, Device, Place, Took};
use crate::error::Error;
use crate::guard::guarded;
use crate::layout::Layout;
use crate::memory::Held;

/// One run.
pub(crate) struct Launch<'a, D: Device> {
    pub work: &'a Work<D>,
    /// What is read, and how it is looked at.
    pub reads: &'a [Held],
    pub inputs: &'a [Layout],
    /// Where the outputs go, and what they look like.
    pub writes: &'a [Held],
    pub outputs: &'a [Layout],
    /// Bytes of workspace, and where.
    pub scratch: Option<(u64, Held)>,
    pub flops: f64,
    pub timed: bool,
}

impl<D: Device> Store<D> {
    /// Runs a kernel.
    #[inline(always)]
    pub fn launch(&mut self, launch: &Launch<'_, D>) -> Result<Took, Error> {
        let &Launch { work, reads, inputs, writes, outputs, scratch, flops, timed } = launch;
        // Offsets are read only now: making room may have moved blocks.
        let mut places = std::mem::take(&mut self.places);
        places.clear();
        for (blocks, layouts) in [(reads, inputs), (writes, outputs)] {
            for (&held, &layout) in blocks.iter().zip(layouts) {
                places.push(Place { storage: self.space.offset(held), layout });
            }
        }
        let (inputs, outputs) = places.split_at(reads.len());
        let workspace = scratch.map_or(0..0, |(bytes, held)| {
            let start = self.space.offset(held);
            start..start + bytes
        });
        let device = &mut self.device;
        let result = match work {
            Work::Op(op) => guarded(work.name(), || {
                device.execute(Call { op, inputs, outputs, flops, workspace, timed })
            }),
            Work::Upload(host) => guarded(work.name(), || device.write(host, outputs[0])),
        };
        self.places = places;
        result
    }
}
