//! Traces of our own, as `remat train --record` writes them: one [`Event`] a line.

use super::TraceProblem;
use super::lines::Lines;
use crate::lab::{CostUnit, Made, OpInfo, Program, TensorId};
use crate::trace::{Event, OutputEvent, Source, VERSION};
use rustc_hash::FxHashMap;
use std::io::BufRead;

/// What a file of events says.
pub(super) struct Recorded {
    pub program: Program,
    /// Tensor of the program -> its number in the file.
    pub numbers: Vec<u64>,
}

/// Reads on from the line at hand, the first.
pub(super) fn read(lines: &mut Lines<impl BufRead>) -> Result<Recorded, TraceProblem> {
    let (program, version) = begin(lines.text())?;
    let mut reader =
        Reader { program, tensors: FxHashMap::default(), numbers: vec![], ended: false };
    while lines.advance()? {
        reader.event(serde_json::from_str(lines.text())?)?;
        lines.count();
    }
    match reader {
        // Earlier programs wrote no end.
        Reader { ended: false, .. } if version > 1 => Err(TraceProblem::CutOff),
        Reader { program, numbers, .. } => Ok(Recorded { program, numbers }),
    }
}

fn begin(line: &str) -> Result<(Program, u32), TraceProblem> {
    match serde_json::from_str(line)? {
        Event::Begin { version: version @ 1..=VERSION, cost_model } => {
            Ok((Program::new(CostUnit::of_model(&cost_model)), version))
        }
        Event::Begin { version, .. } => Err(TraceProblem::Version(version)),
        _ => Err(TraceProblem::NotATrace),
    }
}

struct Reader {
    program: Program,
    /// Whether the last event was read.
    ended: bool,
    /// Number in the file -> tensor, for each that may still be used.
    tensors: FxHashMap<u64, TensorId>,
    numbers: Vec<u64>,
}

impl Reader {
    fn event(&mut self, event: Event) -> Result<(), TraceProblem> {
        if self.ended {
            return Err(TraceProblem::AfterEnd);
        }
        match event {
            Event::Begin { .. } => return Err(TraceProblem::SecondBegin),
            Event::Put { tensor, bytes, cost } => {
                let made = self.program.put(bytes, cost)?;
                self.name(tensor, made)?;
            }
            Event::Apply { op, inputs, outputs, workspace, cost, flops, rematerializable } => {
                let info = OpInfo { name: &op, cost, flops, workspace, rematerializable };
                self.apply(info, &inputs, &outputs)?;
            }
            Event::Get { tensor } => self.program.get(self.tensor(tensor)?)?,
            Event::Del { tensor } => {
                self.program.del(self.tensor(tensor)?)?;
                self.tensors.remove(&tensor);
            }
            Event::Drop { tensor } => self.program.drop(self.tensor(tensor)?)?,
            Event::Commit { tensor } => self.program.commit(self.tensor(tensor)?)?,
            Event::Step => self.program.step(),
            Event::End => self.ended = true,
        }
        Ok(())
    }

    fn apply(
        &mut self,
        info: OpInfo<'_>,
        inputs: &[u64],
        outputs: &[OutputEvent],
    ) -> Result<(), TraceProblem> {
        let tensors =
            inputs.iter().map(|&input| self.tensor(input)).collect::<Result<Vec<_>, _>>()?;
        let made: Vec<Made> = outputs.iter().map(made).collect();
        let first = self.program.apply(info, &tensors, &made)?.start;
        for output in &made {
            if let Made::InPlace { input, consumed: true } = *output {
                self.tensors.remove(&inputs[input as usize]);
            }
        }
        for (tensor, output) in (first..).zip(outputs) {
            self.name(output.tensor, tensor)?;
        }
        Ok(())
    }

    fn tensor(&self, number: u64) -> Result<TensorId, TraceProblem> {
        self.tensors.get(&number).copied().ok_or(TraceProblem::UnknownTensor(number))
    }

    fn name(&mut self, number: u64, tensor: TensorId) -> Result<(), TraceProblem> {
        self.numbers.push(number);
        match self.tensors.insert(number, tensor) {
            None => Ok(()),
            Some(_) => Err(TraceProblem::TakenTensor(number)),
        }
    }
}

fn made(output: &OutputEvent) -> Made {
    // A position too large for the program is beyond all inputs, and the program says so.
    let position = |input| u32::try_from(input).unwrap_or(u32::MAX);
    match output.source {
        Source::Fresh => Made::Fresh { bytes: output.bytes },
        Source::View { input } => Made::View { input: position(input), bytes: output.bytes },
        Source::InPlace { input, consumed } => Made::InPlace { input: position(input), consumed },
    }
}
