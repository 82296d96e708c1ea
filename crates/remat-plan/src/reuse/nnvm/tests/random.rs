//! Checks of random graphs. A model machine runs a plan on bytes, and checks that each read finds
//! the expected byte.

use std::collections::HashMap;

use proptest::prelude::*;
use proptest::sample::Index;

use super::super::graph::Node;
use super::super::*;

/// Variables that all graphs have, as nodes 0 to 3.
fn variables() -> [TensorType; 4] {
    let tensor =
        |elements, bits| TensorType::new(elements, DataType { code: Code::Int, bits, lanes: 1 });
    [tensor(1, 8), tensor(2, 8), tensor(2, 8).on(1), tensor(1, 8).stored(StorageKind::External)]
}

/// Recipe for a random node. The numbers of a recipe are mapped to existing, suitable entries.
#[derive(Clone, Debug)]
enum Step {
    Op {
        inputs: Vec<Index>,
        outputs: Vec<TensorType>,
        pairs: Vec<Pair>,
        ignored: u8,
        pattern: Pattern,
    },
    Assign {
        variable: Index,
        value: Index,
    },
}

type Pair = (Index, Index, bool);

fn tensor() -> impl Strategy<Value = TensorType> {
    let dtype = (prop::sample::select(vec![Code::Int, Code::Int, Code::Uint]), 0..8_u8);
    let storage = prop_oneof![
        10 => Just(StorageKind::Planned),
        1 => Just(StorageKind::External),
        1 => Just(StorageKind::Dynamic),
    ];
    (0..4_u64, dtype, 0..8_u32, storage).prop_map(|(elements, (code, bits), device, storage)| {
        TensorType {
            elements,
            dtype: DataType { code, bits: if bits == 0 { 12 } else { 8 }, lanes: 1 },
            device: u32::from(device == 0),
            storage,
        }
    })
}

fn step() -> impl Strategy<Value = Step> {
    let pattern =
        prop::sample::select(vec![Pattern::Elementwise, Pattern::Broadcast, Pattern::Opaque]);
    let op = (
        prop::collection::vec(any::<Index>(), 0..4),
        prop::collection::vec(tensor(), 1..3),
        prop::collection::vec(any::<Pair>(), 0..4),
        any::<u8>(),
        pattern,
    )
        .prop_map(|(inputs, outputs, pairs, ignored, pattern)| Step::Op {
            inputs,
            outputs,
            pairs,
            ignored,
            pattern,
        });
    let assign =
        any::<(Index, Index)>().prop_map(|(variable, value)| Step::Assign { variable, value });
    prop_oneof![3 => op, 1 => assign]
}

fn graph(steps: &[Step], outputs: &[Index]) -> NnvmGraph {
    let mut graph = NnvmGraph::default();
    let mut entries = Vec::new();
    for (i, tensor) in variables().into_iter().enumerate() {
        entries.push(graph.variable(i.to_string(), tensor).unwrap());
    }
    for step in steps {
        match step {
            Step::Op { inputs, outputs, pairs, ignored, pattern } => {
                let inputs: Vec<_> = inputs.iter().map(|index| *index.get(&entries)).collect();
                let mut op = OpNode::new(inputs.clone(), outputs.clone()).of(*pattern);
                let mut same = vec![false; outputs.len()];
                for (input, output, identity) in pairs {
                    if !inputs.is_empty() {
                        let (input, output) =
                            (input.index(inputs.len()), output.index(outputs.len()));
                        // An output can be the unchanged value of at most one input.
                        let identity =
                            *identity && !std::mem::replace(&mut same[output], *identity);
                        op = op.in_place(InPlace { input, output, identity });
                    }
                }
                // One input in four is ignored.
                let ignored = ignored & (ignored >> 4);
                for input in (0..inputs.len()).filter(|input| ignored >> input & 1 == 1) {
                    op = op.ignoring(input);
                }
                let node = graph.op(op).unwrap();
                entries.extend((0..outputs.len()).map(|output| NodeEntry { node, output }));
            }
            Step::Assign { variable, value } => {
                let variable = entries[variable.index(variables().len())];
                let like =
                    |entry| graph.tensor(entry).map(|tensor| (tensor.elements, tensor.dtype));
                let fit: Vec<_> = entries
                    .iter()
                    .copied()
                    .filter(|&entry| like(entry) == like(variable))
                    .collect();
                entries.push(graph.assign(variable, *value.get(&fit)).unwrap());
            }
        }
    }
    for index in outputs {
        graph.output(*index.get(&entries)).unwrap();
    }
    graph
}

/// The variable to which the entry's node assigns; the entry itself if the node is no assignment.
fn root(graph: &NnvmGraph, entry: NodeEntry) -> NodeEntry {
    match &graph.nodes()[entry.node] {
        Node::Assign { entries: [variable, _], .. } => *variable,
        _ => entry,
    }
}

/// A byte of memory, in the pool of a device or in an entry that is not planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Cell {
    Pool(u32, u64),
    Own(NodeEntry, u64),
}

#[derive(Default)]
struct Machine {
    /// Byte of memory -> number of the value that the byte belongs to, and the index of the byte in
    /// the value.
    cells: HashMap<Cell, (u64, u64)>,
    /// Entry -> number of the value that it should hold. Variables keep their values from run to
    /// run.
    values: HashMap<NodeEntry, u64>,
    made: u64,
}

/// A plan that the machine runs, with its number in the pool.
struct Run<'a> {
    graph: &'a NnvmGraph,
    plan: &'a StoragePlan<'a>,
    pool: &'a SharedPool,
    number: usize,
}

impl Run<'_> {
    fn cells(&self, entry: NodeEntry) -> Vec<Cell> {
        let bytes = self.graph.tensor(entry).unwrap().bytes();
        let view = self.pool.view(self.number, entry);
        (0..bytes)
            .map(|i| match view {
                Some(view) => Cell::Pool(view.device, view.offset + i),
                None => Cell::Own(root(self.graph, entry), i),
            })
            .collect()
    }
}

impl Machine {
    fn value(&mut self) -> u64 {
        self.made += 1;
        self.made
    }

    fn write(&mut self, run: &Run<'_>, entry: NodeEntry, value: u64) {
        for (i, cell) in (0..).zip(run.cells(entry)) {
            self.cells.insert(cell, (value, i));
        }
    }

    fn check(&self, run: &Run<'_>, entry: NodeEntry, when: usize) -> Result<(), TestCaseError> {
        let value = self.values[&root(run.graph, entry)];
        for (i, cell) in (0..).zip(run.cells(entry)) {
            prop_assert_eq!(
                self.cells.get(&cell),
                Some(&(value, i)),
                "{:?} for {}: {:?}",
                entry,
                when,
                run.plan
            );
        }
        Ok(())
    }

    fn run(&mut self, run: &Run<'_>) -> Result<(), TestCaseError> {
        let graph = run.graph;
        self.values.retain(|entry, _| entry.node < variables().len());
        for (i, node) in graph.nodes().iter().enumerate() {
            match node {
                Node::Variable { .. } => {}
                Node::Op(op) => {
                    for entry in node.reads() {
                        self.check(run, entry, i)?;
                    }
                    let made: Vec<_> = (0..op.outputs.len())
                        .map(|output| self.result(graph, op, output))
                        .collect();
                    for (output, value) in made.into_iter().enumerate() {
                        let entry = NodeEntry { node: i, output };
                        self.values.insert(entry, value);
                        self.write(run, entry, value);
                    }
                }
                Node::Assign { entries: [variable, value], .. } => {
                    self.check(run, *value, i)?;
                    let new = self.values[&root(graph, *value)];
                    if run.plan.assigns()[i] == Assign::Copy {
                        self.write(run, *variable, new);
                    }
                    self.values.insert(*variable, new);
                    self.check(run, *variable, i)?;
                    self.check(run, NodeEntry { node: i, output: 0 }, i)?;
                }
            }
        }
        for &entry in graph.outputs() {
            self.check(run, entry, graph.len())?;
        }
        Ok(())
    }

    /// New value of an output. If a pair says that the output is the unchanged input, the output
    /// has the value of this input.
    fn result(&mut self, graph: &NnvmGraph, op: &OpNode, output: usize) -> u64 {
        let to = &op.outputs[output];
        let same = op.in_place.iter().find_map(|pair| {
            let from = graph.tensor(op.inputs[pair.input])?;
            let alike = (from.elements, from.dtype) == (to.elements, to.dtype);
            let given = pair.output == output && pair.identity && !op.ignored[pair.input];
            (alike && given).then_some(op.inputs[pair.input])
        });
        match same {
            Some(input) => self.values[&root(graph, input)],
            None => self.value(),
        }
    }
}

/// Checks properties of a single plan.
fn check_plan(graph: &NnvmGraph, plan: &MemoryPlan<'_>) -> Result<(), TestCaseError> {
    // Storage -> last node so far that used the storage, and so may have released it.
    let mut last: HashMap<usize, usize> = HashMap::new();
    let mut bytes = vec![0; plan.storages().len()];
    let mut planned = 0;
    for (i, node) in graph.nodes().iter().enumerate() {
        for (output, tensor) in node.outputs().iter().enumerate() {
            let entry = NodeEntry { node: i, output };
            let Some(Home::Storage(storage)) = plan.home(entry) else {
                let room = !node.is_variable() && tensor.storage == StorageKind::Planned;
                prop_assert!(!room, "{:?} has no room", entry);
                continue;
            };
            bytes[storage] = tensor.bytes().max(bytes[storage]);
            planned += tensor.bytes();
            prop_assert_eq!(plan.storages()[storage].device, tensor.device);
            let before = last.insert(storage, i);
            if let Some(before) = before.filter(|_| plan.in_place(entry).is_none()) {
                prop_assert_eq!(graph.nodes()[before].colour(), node.colour());
            }
        }
        for entry in node.reads() {
            if let Some(Home::Storage(storage)) = plan.home(entry) {
                last.insert(storage, i);
            }
        }
    }
    let sizes: Vec<_> = plan.storages().iter().map(|storage| storage.bytes).collect();
    prop_assert_eq!(&bytes, &sizes);
    prop_assert!(plan.bytes() <= planned);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn every_op_finds_what_it_reads(
        steps in prop::collection::vec(prop::collection::vec(step(), 0..14), 2..=2),
        outputs in prop::collection::vec(prop::collection::vec(any::<Index>(), 0..3), 2..=2),
        groups in 0..4_u32,
        range in prop::sample::select(vec![
            MatchRange::Auto, MatchRange::Times(0), MatchRange::Times(1), MatchRange::Times(16),
        ]),
        align in prop::sample::select(vec![1, 4, 64]),
    ) {
        let mut graphs = [0, 1].map(|i| graph(&steps[i], &outputs[i]));
        graphs[0].colour(groups);
        let memory = [0, 1].map(|i| MemoryPlan::new(&graphs[i], range));
        for (graph, plan) in graphs.iter().zip(&memory) {
            check_plan(graph, plan)?;
        }
        let plans = memory.map(StoragePlan::new);
        let pool = SharedPool::new(&plans, align).unwrap();

        let mut machine = Machine::default();
        let mut tops = [0, 0];
        let runs = [0, 1].map(|number| {
            Run { graph: &graphs[number], plan: &plans[number], pool: &pool, number }
        });
        for node in 0..variables().len() {
            let entry = NodeEntry { node, output: 0 };
            let value = machine.value();
            machine.values.insert(entry, value);
            machine.write(&runs[0], entry, value);
        }
        for number in [0, 1, 0] {
            machine.run(&runs[number])?;
        }
        for cell in machine.cells.keys() {
            if let Cell::Pool(device, byte) = *cell {
                let top = &mut tops[device as usize];
                *top = (byte + 1).max(*top);
            }
        }
        prop_assert_eq!([pool.bytes_on(0), pool.bytes_on(1)], tops);
    }
}
