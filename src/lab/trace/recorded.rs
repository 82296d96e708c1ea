//! Traces of our own, as `remat train --record` writes them: one [`Entry`] a line.

use super::lines::Lines;
use super::{TraceProblem, check_number};
use crate::lab::history::{Historian, History, NoHistory, Unknown};
use crate::lab::plot::Timeline;
use crate::lab::{CostUnit, Made, OpInfo, Program, TensorId};
use crate::trace::{Entry, OutputEntry, Source, VERSION};
use rustc_hash::{FxHashMap, FxHashSet};
use std::io::BufRead;

/// What a file of entries says.
pub(super) struct Recorded {
    pub program: Program,
    /// Tensor of the program -> its number in the file.
    pub numbers: Vec<u64>,
    pub history: Result<History, NoHistory>,
}

/// Reads on from the line at hand, the first.
pub(super) fn read(lines: &mut Lines<impl BufRead>, name: &str) -> Result<Recorded, TraceProblem> {
    let (mut reader, version) = begin(lines.text(), name)?;
    while lines.advance()? {
        reader.entry(&serde_json::from_str(lines.text())?)?;
        lines.count();
    }
    match reader {
        // Earlier programs wrote no end.
        Reader { ended: false, .. } if version > 1 => Err(TraceProblem::CutOff),
        Reader { program, numbers, historian, .. } => {
            let history = historian.map(Historian::finish).ok_or(NoHistory::Unknown);
            Ok(Recorded { program, numbers, history })
        }
    }
}

fn begin(line: &str, name: &str) -> Result<(Reader, u32), TraceProblem> {
    /// What a first line of any version has.
    #[derive(serde::Deserialize)]
    struct Probe {
        event: String,
        version: u32,
    }
    if let Ok(Probe { event, version }) = serde_json::from_str(line)
        && event == "begin"
        && !(1..=VERSION).contains(&version)
    {
        return Err(TraceProblem::Version(version));
    }
    let Entry::Begin { version, cost_model, budget, eviction_threshold } =
        serde_json::from_str(line)?
    else {
        return Err(TraceProblem::NotATrace);
    };
    let unit = CostUnit::of_model(&cost_model);
    let historian = budget.filter(|_| version > 2).map(|budget| {
        Historian::new(Timeline {
            title: name.to_owned(),
            unit: unit.clone(),
            budget,
            threshold: eviction_threshold,
            ..Timeline::default()
        })
    });
    let reader = Reader {
        program: Program::new(unit),
        ended: false,
        tensors: FxHashMap::default(),
        numbers: vec![],
        known: FxHashSet::default(),
        historian,
    };
    Ok((reader, version))
}

struct Reader {
    program: Program,
    /// Whether the last event was read.
    ended: bool,
    /// Number in the file -> tensor, for each that may still be used.
    tensors: FxHashMap<u64, TensorId>,
    numbers: Vec<u64>,
    /// The same, to look them up: of deleted tensors, too.
    known: FxHashSet<u64>,
    /// While each line said what was in use.
    historian: Option<Historian>,
}

impl Reader {
    fn entry(&mut self, entry: &Entry) -> Result<(), TraceProblem> {
        if self.ended {
            return Err(TraceProblem::AfterEnd);
        }
        match *entry {
            Entry::Begin { .. } => return Err(TraceProblem::SecondBegin),
            Entry::Put { tensor, bytes, cost, .. } => {
                let made = self.program.put(bytes, cost)?;
                self.name(tensor, made)?;
            }
            Entry::Apply {
                ref op,
                ref inputs,
                ref outputs,
                workspace,
                cost,
                flops,
                rematerializable,
                ..
            } => {
                let info = OpInfo { name: op, cost, flops, workspace, rematerializable };
                self.apply(info, inputs, outputs)?;
            }
            Entry::Get { tensor, .. } => self.program.get(self.tensor(tensor)?)?,
            Entry::Del { tensor, .. } => {
                self.program.del(self.tensor(tensor)?)?;
                self.tensors.remove(&tensor);
            }
            Entry::Drop { tensor, .. } => self.program.drop(self.tensor(tensor)?)?,
            Entry::Commit { tensor, .. } => self.program.commit(self.tensor(tensor)?)?,
            Entry::Step { .. } => self.program.step(),
            // Replays are free to evict otherwise.
            Entry::Evict { tensor, .. } => self.check_known(tensor)?,
            Entry::Regenerate { tensor, cost, .. } => {
                self.check_known(tensor)?;
                check_number("the cost", cost)?;
            }
            Entry::End => self.ended = true,
        }
        if self.historian.as_mut().is_some_and(|historian| historian.on(entry) == Err(Unknown)) {
            self.historian = None;
        }
        Ok(())
    }

    fn apply(
        &mut self,
        info: OpInfo<'_>,
        inputs: &[u64],
        outputs: &[OutputEntry],
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

    fn check_known(&self, number: u64) -> Result<(), TraceProblem> {
        match self.known.contains(&number) {
            true => Ok(()),
            false => Err(TraceProblem::UnknownTensor(number)),
        }
    }

    fn name(&mut self, number: u64, tensor: TensorId) -> Result<(), TraceProblem> {
        self.numbers.push(number);
        self.known.insert(number);
        match self.tensors.insert(number, tensor) {
            None => Ok(()),
            Some(_) => Err(TraceProblem::TakenTensor(number)),
        }
    }
}

fn made(output: &OutputEntry) -> Made {
    // A position too large for the program is beyond all inputs, and the program says so.
    let position = |input| u32::try_from(input).unwrap_or(u32::MAX);
    match output.source {
        Source::Fresh => Made::Fresh { bytes: output.bytes },
        Source::View { input } => Made::View { input: position(input), bytes: output.bytes },
        Source::InPlace { input, consumed } => Made::InPlace { input: position(input), consumed },
    }
}
