//! One run of a kernel on placed operands.

use super::{Action, Store, Work};
use crate::cost::Run;
use crate::device::{Call, Device, Place, Took};
use crate::error::Error;
use crate::graph::StorageKey;
use crate::guard::guarded;
use crate::hint::cold;
use crate::layout::Layout;
use remat_memory::Held;

/// Operands, workspace and work of one run.
pub(crate) struct Launch<'a, D: Device> {
    pub work: &'a Work<D>,
    /// Op name, layouts of the operands, and flops.
    pub run: Run<'a>,
    /// Storage of each input. All inputs are resident.
    pub sources: &'a [StorageKey],
    /// Inputs that are read from a copy, each as input position and block of the copy.
    pub copies: &'a [(usize, Held)],
    /// Block of each output.
    pub blocks: &'a [Held],
    /// Workspace: the bytes needed, and the block.
    pub scratch: Option<(u64, Held)>,
    pub timed: bool,
}

impl<D: Device> Store<D> {
    /// Runs a kernel or an upload. Does nothing if the script says that the device has already done
    /// the run.
    #[inline(always)]
    pub fn launch(&mut self, launch: Launch<'_, D>) -> Result<Took, Error> {
        let Launch { work, run, sources, copies, blocks, scratch, timed } = launch;
        if self.tape.is_some() {
            // Pass a copy: a reference to `launch` would force it from registers into memory in
            // each run.
            self.write_down(&Launch { work, run, sources, copies, blocks, scratch, timed });
        }
        if self.is_done().map_err(cold)? {
            return Ok(Took::Unknown);
        }
        let Self { device, space, graph, places, .. } = self;
        // Read the offsets just before the launch, because blocks may have moved since they were
        // allocated.
        places.clear();
        for (&source, &layout) in sources.iter().zip(run.inputs) {
            let held = graph.held(source).expect("inputs are resident");
            places.push(Place { storage: space.offset(held), layout });
        }
        for &(input, copy) in copies {
            places[input].storage = space.offset(copy);
        }
        for (&block, &layout) in blocks.iter().zip(run.outputs) {
            places.push(Place { storage: space.offset(block), layout });
        }
        let (inputs, outputs) = places.split_at(sources.len());
        let workspace = scratch.map_or(0..0, |(bytes, held)| {
            let start = space.offset(held);
            start..start + bytes
        });
        match work {
            Work::Op(op) => guarded(run.op, || {
                device.execute(Call { op, inputs, outputs, flops: run.flops, workspace, timed })
            }),
            Work::Upload(host) => guarded(run.op, || device.write(host, outputs[0])),
        }
    }

    #[cold]
    fn write_down(&mut self, launch: &Launch<'_, D>) {
        let &Launch { work, run, sources, copies, blocks, scratch, .. } = launch;
        let (Some(tape), graph) = (&mut self.tape, &self.graph) else { return };
        tape.push(|record, again| {
            let mut operands = Vec::with_capacity(sources.len() + blocks.len());
            for (input, (&source, &layout)) in sources.iter().zip(run.inputs).enumerate() {
                let copy = copies.iter().find(|(copied, _)| *copied == input);
                let held = copy.map(|(_, held)| *held).or_else(|| graph.held(source));
                operands.push(record.operand(held.expect("inputs are resident"), layout));
            }
            for (&block, &layout) in blocks.iter().zip(run.outputs) {
                operands.push(record.operand(block, layout));
            }
            let workspace =
                scratch.map(|(bytes, held)| (record.operand(held, Layout::raw(0)).spot, bytes));
            match work {
                Work::Op(_) => Action::Run {
                    operands,
                    inputs: sources.len(),
                    workspace,
                    flops: run.flops,
                    again,
                },
                Work::Upload(_) => Action::Upload { to: operands[0], again },
            }
        });
    }
}
