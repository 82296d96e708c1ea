//! Checks of plans for graphs written by hand.

use super::super::*;

const F16: DataType = DataType { code: Code::Float, bits: 16, lanes: 1 };
const I32: DataType = DataType { code: Code::Int, bits: 32, lanes: 1 };
const OVER: InPlace = InPlace { input: 0, output: 0, identity: false };
const SAME: InPlace = InPlace { identity: true, ..OVER };

fn tensor(elements: u64) -> TensorType {
    TensorType::new(elements, DataType::F32)
}

fn entry(node: usize) -> NodeEntry {
    NodeEntry { node, output: 0 }
}

impl NnvmGraph {
    fn op_of(&mut self, op: OpNode) -> NodeEntry {
        entry(self.op(op).unwrap())
    }

    /// Adds an op with these inputs and one output of `elements` elements.
    fn make(&mut self, inputs: &[NodeEntry], elements: u64) -> NodeEntry {
        self.op_of(OpNode::new(inputs.iter().copied(), [tensor(elements)]))
    }

    /// Adds an op with the in-place pair `pair`. The output of the op has the type of its first
    /// input.
    fn make_over(&mut self, inputs: &[NodeEntry], pair: InPlace) -> NodeEntry {
        let like = *self.tensor(inputs[0]).unwrap();
        self.op_of(OpNode::new(inputs.iter().copied(), [like]).in_place(pair))
    }

    fn wanted(mut self, outputs: &[NodeEntry]) -> Self {
        for &entry in outputs {
            self.output(entry).unwrap();
        }
        self
    }
}

fn plan(graph: &NnvmGraph) -> MemoryPlan<'_> {
    MemoryPlan::new(graph, MatchRange::default())
}

fn homes(plan: &MemoryPlan<'_>, entries: &[NodeEntry]) -> Vec<Home> {
    entries.iter().map(|&entry| plan.home(entry).unwrap()).collect()
}

/// A graph whose only variable, x, has 10 elements.
fn with_x() -> (NnvmGraph, NodeEntry) {
    let mut graph = NnvmGraph::default();
    let x = graph.variable("x", tensor(10)).unwrap();
    (graph, x)
}

#[test]
fn a_chain_takes_two_storages_by_turns() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[a], 10);
    let c = graph.make(&[b], 10);
    let graph = graph.wanted(&[c]);
    let plan = plan(&graph);
    assert_eq!(plan.home(x), Some(Home::None));
    assert_eq!(homes(&plan, &[a, b, c]), [0, 1, 0].map(Home::Storage));
    assert_eq!(plan.bytes(), 80);
    assert_eq!((plan.home(entry(4)), plan.home(NodeEntry { node: 1, output: 1 })), (None, None));
}

#[test]
fn a_chain_in_place_takes_one_storage() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make_over(&[a], OVER);
    let c = graph.make_over(&[b], OVER);
    let graph = graph.wanted(&[c]);
    let plan = plan(&graph);
    assert_eq!(homes(&plan, &[a, b, c]), [0; 3].map(Home::Storage));
    assert_eq!([a, b, c].map(|entry| plan.in_place(entry)), [None, Some(0), Some(0)]);
}

#[test]
fn nothing_is_written_over_what_is_read_again_nor_over_variables() {
    let (mut graph, x) = with_x();
    let a = graph.make_over(&[x], OVER);
    let b = graph.make_over(&[a], OVER);
    let c = graph.make_over(&[b, b], OVER);
    let graph = graph.wanted(&[a, c]);
    let plan = plan(&graph);
    assert_eq!(homes(&plan, &[a, b, c]), [0, 1, 2].map(Home::Storage));
    assert!([a, b, c].iter().all(|&entry| plan.in_place(entry).is_none()));
}

#[test]
fn an_output_that_nothing_reads_is_not_written_in_place() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make_over(&[a], OVER);
    assert_eq!(homes(&plan(&graph), &[a, b]), [0, 1].map(Home::Storage));
}

#[test]
fn an_identity_shares_with_others_who_read_its_input() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make_over(&[a], SAME);
    // c does not overwrite b: b shares its bytes with a, which d reads later.
    let c = graph.make_over(&[b], OVER);
    let d = graph.make_over(&[a], OVER);
    let graph = graph.wanted(&[c, d]);
    let plan = plan(&graph);
    assert_eq!(homes(&plan, &[a, b, c, d]), [0, 0, 1, 0].map(Home::Storage));
}

#[test]
fn in_place_needs_as_many_elements_of_the_same_size_on_one_device() {
    let over = |to: TensorType, pair| {
        let (mut graph, x) = with_x();
        let a = graph.make(&[x], 10);
        let b = graph.op_of(OpNode::new([a], [to]).in_place(pair));
        // If the pair is an identity, a is also an output, so that its storage has another read.
        let again = if pair.identity { vec![a, b] } else { vec![b] };
        let graph = graph.wanted(&again);
        plan(&graph).in_place(b).is_some()
    };
    assert!(over(tensor(10), OVER));
    assert!(over(TensorType::new(10, I32), OVER));
    assert!(!over(TensorType::new(10, F16), OVER));
    assert!(!over(TensorType::new(20, F16), OVER));
    assert!(!over(tensor(9), OVER));
    assert!(!over(tensor(10).on(1), OVER));
    assert!(over(tensor(10), SAME));
    assert!(!over(TensorType::new(10, I32), SAME));
}

#[test]
fn each_input_is_written_over_once_and_pairs_are_tried_in_order() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[x], 10);
    let pair = |input, output| InPlace { input, output, identity: false };
    let op = OpNode::new([a, b], [tensor(10), tensor(10)]);
    let op = op.in_place(pair(1, 0)).in_place(pair(1, 1)).in_place(pair(0, 0)).in_place(pair(0, 1));
    let c = graph.op_of(op);
    let d = NodeEntry { output: 1, ..c };
    let graph = graph.wanted(&[c, d]);
    let plan = plan(&graph);
    assert_eq!([c, d].map(|entry| plan.in_place(entry)), [Some(1), Some(0)]);
    assert_eq!(plan.bytes(), 80);
}

#[test]
fn of_two_outputs_that_are_both_the_input_one_shares_with_it() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let op = OpNode::new([a], [tensor(10), tensor(10)]).in_place(SAME);
    let b = graph.op_of(op.in_place(InPlace { output: 1, ..SAME }));
    let c = NodeEntry { output: 1, ..b };
    let graph = graph.wanted(&[b, c]);
    assert_eq!([b, c].map(|entry| plan(&graph).in_place(entry)), [Some(0), None]);
}

#[test]
fn inputs_that_are_ignored_hold_nothing() {
    let sizes = |ignoring| {
        let (mut graph, x) = with_x();
        let a = graph.make(&[x], 10);
        let b = graph.make(&[a], 10);
        // At this point the storage of a is free, unless the last op reads a.
        let c = graph.make(&[b], 10);
        let op = OpNode::new([c, a], [tensor(10)]);
        let last = graph.op_of(if ignoring { op.ignoring(1) } else { op });
        let graph = graph.wanted(&[last]);
        plan(&graph).bytes()
    };
    assert_eq!((sizes(true), sizes(false)), (80, 120));
}

#[test]
fn nothing_is_written_over_an_input_that_is_ignored() {
    // When the op before the last could overwrite a, one read of a remains. The op before the last
    // does not read a, because this op ignores a.
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[x], 10);
    let op = OpNode::new([a, b], [tensor(10)]).ignoring(0);
    let c = graph.op_of(op.in_place(OVER).in_place(SAME));
    let d = graph.make(&[a, c], 10);
    let graph = graph.wanted(&[d]);
    assert_eq!(plan(&graph).in_place(c), None);
}

#[test]
fn the_largest_output_is_asked_for_first() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[a], 1);
    // The 40 bytes of a are free.
    let op = OpNode::new([b], [tensor(9), tensor(10), TensorType::new(18, F16)]);
    let c = graph.op_of(op);
    let [d, e] = [1, 2].map(|output| NodeEntry { output, ..c });
    let graph = graph.wanted(&[c, d, e]);
    // The largest output gets the bytes of a. d and e have equal bytes, so d comes before e,
    // although e has more elements.
    assert_eq!(homes(&plan(&graph), &[a, c, d, e]), [0, 2, 0, 3].map(Home::Storage));
}

#[test]
fn an_output_that_nothing_reads_is_released_at_once() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[x], 10);
    assert_eq!(homes(&plan(&graph), &[a, b]), [0, 0].map(Home::Storage));
}

#[test]
fn external_and_dynamic_entries_take_no_bytes_of_the_pool() {
    let (mut graph, x) = with_x();
    let y = graph.variable("y", tensor(10).stored(StorageKind::External)).unwrap();
    let a = graph.op_of(OpNode::new([x, y], [tensor(10).stored(StorageKind::External)]));
    let b = graph.op_of(OpNode::new([a], [tensor(10).stored(StorageKind::Dynamic)]).in_place(OVER));
    let c = graph.make_over(&[b], OVER);
    let graph = graph.wanted(&[c]);
    let memory = plan(&graph);
    assert_eq!(homes(&memory, &[a, b]), [Home::External, Home::Dynamic]);
    let storages = StoragePlan::new(memory);
    assert_eq!(storages.home(y), Some(Home::External));
    let pool = SharedPool::new(&[storages], 4).unwrap();
    // Only x takes bytes. c is dynamic, because it has the type of a dynamic input.
    assert_eq!(pool.bytes(), 40);
    assert_eq!([y, a, b, c].map(|entry| pool.view(0, entry)), [None; 4]);
}

#[test]
fn devices_share_nothing() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.op_of(OpNode::new([x], [tensor(10).on(1)]));
    let graph = graph.wanted(&[]);
    let memory = plan(&graph);
    assert_eq!(homes(&memory, &[a, b]), [0, 1].map(Home::Storage));
    let pool = SharedPool::new(&[StoragePlan::new(memory)], 4).unwrap();
    assert_eq!((pool.bytes_on(0), pool.bytes_on(1), pool.bytes_on(2)), (80, 40, 0));
    assert_eq!(pool.view(0, b), Some(PoolView { device: 1, offset: 0, bytes: 40 }));
}

#[test]
fn auto_keeps_the_smallest_plan() {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 100);
    let b = graph.make(&[a], 10);
    let c = graph.make(&[b], 10);
    let d = graph.make(&[c], 100);
    let graph = graph.wanted(&[c, d]);
    // With a range of 16, c takes the 400 bytes of a, and the 40 bytes of b grow for d. With a
    // range of 1, c has a new storage, and d takes the storage of a.
    assert_eq!(plan(&graph).bytes(), 800);
    let auto = MemoryPlan::new(&graph, MatchRange::Auto);
    assert_eq!((auto.bytes(), auto.range()), (480, 1));
    let none = MemoryPlan::new(&graph, MatchRange::Times(0));
    assert_eq!(none.bytes(), 880);
}

/// Two branches of different lengths that begin at x, and an op that reads both ends.
fn branches() -> (NnvmGraph, Vec<NodeEntry>) {
    let (mut graph, x) = with_x();
    let a = graph.make(&[x], 10);
    let b = graph.make(&[a], 1);
    let c = graph.make(&[x], 10);
    let d = graph.make(&[c], 1);
    let e = graph.make(&[d], 10);
    let f = graph.make(&[b, e], 1);
    (graph.wanted(&[f]), vec![a, b, c, d, e, f])
}

#[test]
fn colours_are_those_of_longest_paths() {
    let (mut graph, all) = branches();
    let colours = |graph: &NnvmGraph| -> Vec<u32> {
        all.iter().map(|entry| graph.nodes()[entry.node].colour()).collect()
    };
    graph.colour(1);
    assert_eq!(colours(&graph), [0; 6]);
    graph.colour(2);
    assert_eq!(colours(&graph), [1, 1, 0, 0, 0, 0]);
    // If there are more groups than paths, the colours are the same.
    graph.colour(u32::MAX);
    assert_eq!(colours(&graph), [1, 1, 0, 0, 0, 0]);
    graph.colour(0);
    assert_eq!(colours(&graph), [0; 6]);
}

#[test]
fn colours_keep_storages_apart() {
    let (mut graph, all) = branches();
    let [a, c] = [all[0], all[2]];
    assert_eq!(plan(&graph).home(a), plan(&graph).home(c));
    // a, b and d have their own storages. c and e reuse the storage of a. f reuses the storage of
    // d.
    assert_eq!(plan(&graph).bytes(), 40 + 4 + 4);
    graph.colour(2);
    let plan = plan(&graph);
    assert_ne!(plan.home(a), plan.home(c));
    // a, b, c and d have their own storages. e reuses the storage of c. f has the same colour as c,
    // d and e, and reuses the storage of d.
    assert_eq!(plan.bytes(), 40 + 4 + 40 + 4);
}

/// A graph with a variable w. An op of this pattern makes a value from x, and the value is assigned
/// to w.
fn assigned(pattern: Pattern) -> (NnvmGraph, [NodeEntry; 4]) {
    let (mut graph, x) = with_x();
    let w = graph.variable("w", tensor(10)).unwrap();
    let value = graph.op_of(OpNode::new([x], [tensor(10)]).of(pattern));
    let new = graph.assign(w, value).unwrap();
    (graph, [x, w, value, new])
}

#[test]
fn assignments_of_what_is_made_for_them_do_nothing() {
    for pattern in [Pattern::Elementwise, Pattern::Broadcast] {
        let (graph, [x, w, value, new]) = assigned(pattern);
        assert_eq!(graph.assigns(), [Assign::No, Assign::No, Assign::No, Assign::Nothing]);
        let memory = plan(&graph);
        assert_eq!(memory.bytes(), 80);
        let plan = StoragePlan::new(memory);
        let home = plan.home(w).unwrap();
        assert_eq!([value, new].map(|entry| plan.home(entry)), [Some(home); 2]);
        assert_ne!(plan.home(x), Some(home));
        assert_eq!(plan.in_place(new), Some(0));
        // Only the storages of x and w have bytes. The storages that the value and the assignment
        // had are empty.
        assert_eq!(plan.bytes(), 80);
        let pool = SharedPool::new(&[plan], 4).unwrap();
        assert_eq!(pool.bytes(), 80);
        assert_eq!(pool.view(0, value), pool.view(0, w));
    }
}

#[test]
fn other_assignments_copy() {
    for pattern in [Pattern::Injective, Pattern::Reduce, Pattern::Opaque] {
        let (graph, [_, w, value, new]) = assigned(pattern);
        assert_eq!(graph.assigns()[new.node], Assign::Copy);
        let plan = StoragePlan::new(plan(&graph));
        assert_eq!(plan.home(new), plan.home(w));
        assert_ne!(plan.home(value), plan.home(w));
        assert_eq!(plan.bytes(), 120);
    }
}

#[test]
fn assigned_values_read_by_others_and_variables_are_copied() {
    let (graph, [_, _, value, new]) = assigned(Pattern::Elementwise);
    let graph = graph.wanted(&[value]);
    assert_eq!(graph.assigns()[new.node], Assign::Copy);

    let (mut graph, [x, w, _, new]) = assigned(Pattern::Elementwise);
    let other = graph.assign(w, x).unwrap();
    let again = graph.assign(x, new).unwrap();
    assert_eq!(graph.assigns()[other.node], Assign::Copy);
    assert_eq!(graph.assigns()[again.node], Assign::Copy);
}

#[test]
fn a_variable_that_is_still_to_be_read_is_not_written_early() {
    let (mut graph, x) = with_x();
    let w = graph.variable("w", tensor(10)).unwrap();
    let value = |graph: &mut NnvmGraph, from| {
        graph.op_of(OpNode::new([from], [tensor(10)]).of(Pattern::Elementwise))
    };
    // The value is made from the variable that it overwrites. Overwriting the variable is correct,
    // because the op is elementwise.
    let first = value(&mut graph, w);
    let new = graph.assign(w, first).unwrap();
    let second = value(&mut graph, x);
    let old = graph.make(&[new], 10);
    let third = graph.assign(w, second).unwrap();
    let graph = graph.wanted(&[old]);
    assert_eq!(graph.assigns()[new.node], Assign::Nothing);
    assert_eq!(graph.assigns()[third.node], Assign::Copy);
}

#[test]
fn writes_over_a_value_moved_to_a_variable_are_no_longer_in_place() {
    let (mut graph, x) = with_x();
    let w = graph.variable("w", tensor(10)).unwrap();
    let a = graph.make(&[x], 10);
    let op = OpNode::new([a], [tensor(10)]).of(Pattern::Elementwise).in_place(OVER);
    let value = graph.op_of(op);
    let new = graph.assign(w, value).unwrap();
    let last = graph.make_over(&[new], OVER);
    let graph = graph.wanted(&[last]);
    let memory = plan(&graph);
    assert_eq!([value, last].map(|entry| memory.in_place(entry)), [Some(0); 2]);
    let plan = StoragePlan::new(memory);
    assert_eq!([value, last].map(|entry| plan.in_place(entry)), [None; 2]);
    assert_ne!(plan.home(last), plan.home(w));
}

#[test]
fn training_and_evaluation_share_a_pool() {
    // Both graphs have the variables w and x; x has a different size in each.
    let graph = |elements, temps: &[u64]| {
        let mut graph = NnvmGraph::default();
        let x = graph.variable("x", tensor(elements)).unwrap();
        let w = graph.variable("w", tensor(5)).unwrap();
        let mut made: Vec<_> = temps.iter().map(|&size| graph.make(&[x, w], size)).collect();
        made.extend([x, w]);
        graph.wanted(&made)
    };
    let train = graph(10, &[100, 1]);
    let evaluate = graph(12, &[60, 60]);
    let plans = [&train, &evaluate].map(|graph| StoragePlan::new(plan(graph)));
    let alone = plans.clone().map(|plan| SharedPool::new(&[plan], 4).unwrap().bytes());
    assert_eq!(alone, [4 * (10 + 5 + 101), 4 * (12 + 5 + 120)]);
    let pool = SharedPool::new(&plans, 64).unwrap();
    // Variables are sorted by name: w, then x at the next multiple of 64. The storages that are not
    // variables follow from 128 on. Evaluation needs 256 + 240 bytes for storages that are not
    // variables; training needs only 448 + 4.
    assert_eq!(pool.bytes(), 128 + 256 + 240);
    let offset = |plan, node| pool.view(plan, entry(node)).unwrap().offset;
    assert_eq!([offset(0, 0), offset(1, 0), offset(0, 1), offset(1, 1)], [64, 64, 0, 0]);
    assert_eq!([offset(0, 2), offset(0, 3)], [128, 128 + 448]);
    assert_eq!([offset(1, 2), offset(1, 3)], [128, 128 + 256]);
    assert_eq!(pool.view(0, entry(0)).unwrap().bytes, 40);
    assert_eq!(pool.view(2, entry(0)), None);
}

#[test]
fn pools_that_cannot_be_are_refused() {
    let mut graphs = [NnvmGraph::default(), NnvmGraph::default()];
    for (device, graph) in (0..).zip(&mut graphs) {
        graph.variable("w", tensor(1).on(device)).unwrap();
    }
    let plans = [0, 1].map(|i| StoragePlan::new(plan(&graphs[i])));
    let differ = PoolError::Devices { name: "w".to_owned(), devices: [0, 1] };
    assert_eq!(SharedPool::new(&plans, 4).err(), Some(differ));
    assert_eq!(SharedPool::new(&plans[..1], 6).err(), Some(PoolError::Alignment(6)));
    assert_eq!(SharedPool::new(&[], 4).unwrap().bytes(), 0);
    let mut graph = NnvmGraph::default();
    for (name, elements) in [("a", 1), ("b", u64::MAX / 4 - 1)] {
        graph.variable(name, tensor(elements)).unwrap();
    }
    let plans = [StoragePlan::new(plan(&graph))];
    assert!(SharedPool::new(&plans, 4).is_ok());
    assert_eq!(SharedPool::new(&plans, 64).err(), Some(PoolError::TooLarge));
}

#[test]
fn invalid_nodes_are_refused_and_leave_the_graph_unchanged() {
    let (mut graph, x) = with_x();
    let missing = entry(1);
    assert_eq!(graph.op(OpNode::new([missing], [])), Err(GraphError::Missing(missing)));
    assert_eq!(graph.output(missing), Err(GraphError::Missing(missing)));
    assert_eq!(graph.assign(x, missing), Err(GraphError::Missing(missing)));
    let op = OpNode::new([x], [tensor(1)]);
    for pair in [InPlace { input: 1, ..OVER }, InPlace { output: 1, ..OVER }] {
        assert_eq!(graph.op(op.clone().in_place(pair)), Err(GraphError::Pair(pair)));
    }
    assert_eq!(graph.variable("x", tensor(1)), Err(GraphError::Name("x".to_owned())));
    assert_eq!(graph.variable("y", tensor(u64::MAX / 2)), Err(GraphError::TooLarge));
    assert_eq!(graph.variable("y", tensor(u64::MAX / 4)), Err(GraphError::TooLarge));
    assert_eq!(graph.len(), 1);
    let y = graph.make(&[x], 1);
    let z = graph.op_of(OpNode::new([x], [TensorType::new(10, I32)]));
    for (variable, value) in [(x, y), (x, z), (y, y)] {
        assert_eq!(graph.assign(variable, value), Err(GraphError::Assign { variable, value }));
    }
    assert_eq!(graph.len(), 3);
    assert!(graph.assign(x, x).is_ok());
}

#[test]
fn elements_take_whole_bytes() {
    let bytes = |bits, lanes| DataType { code: Code::Uint, bits, lanes }.bytes();
    assert_eq!([bytes(1, 1), bytes(4, 4), bytes(32, 4), bytes(12, 1)], [1, 2, 16, 2]);
}
