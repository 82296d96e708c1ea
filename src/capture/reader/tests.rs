//! Checks of small recordings as steps.

use super::*;
use crate::command::RecordedValue;
use crate::layout::Layout;
use crate::op::Outputs;
use remat_plan::Class;

fn bytes(bytes: usize) -> Layout {
    Layout::raw(bytes)
}

fn op(name: &str, attributes: &str) -> RecordedOp {
    RecordedOp { attributes: Some(attributes.into()), workspace: 7, ..RecordedOp::new(name, 2.0) }
}

/// A parameter and a statistic, then two steps. Each step has an upload, a forward op, a view and a
/// read by the host. Each step then updates the parameter in place, and makes a new value of the
/// statistic. The steps differ only in a learning rate and a cost.
fn training() -> RecordedProgram {
    let mut program = RecordedProgram::default();
    let mut w = program.put(RecordedValue::constant(100)).unwrap();
    let mut mean = program.put(RecordedValue::constant(30)).unwrap();
    program.put(RecordedValue::constant(5)).unwrap();
    program.push(Command::Step).unwrap();
    for step in 0..2 {
        let x = program.put(RecordedValue::new(60, f64::from(step))).unwrap();
        let outputs = Outputs::fresh([bytes(80), bytes(30)]);
        let y = program.apply(op("f", "{}"), &[w, x], outputs).unwrap();
        let looks = Outputs::view(0, bytes(40));
        let view = program.apply(RecordedOp::new("look", 0.0), &[y], looks).unwrap();
        program.push(Command::Del(y)).unwrap();
        program.push(Command::Get(view)).unwrap();
        let lr = format!(r#"{{"lr":0.{step},"momentum":0.9}}"#);
        w = program.update(op("sgd", &lr), &[w, view], Outputs::updates(1)).unwrap();
        let (value, made) = (y.plus(1), program.next());
        program.push(Command::Replace { target: mean, consumed: true, value, made }).unwrap();
        mean = made;
        for gone in [x, view, value] {
            program.push(Command::Del(gone)).unwrap();
        }
        program.push(Command::Step).unwrap();
    }
    program
}

#[test]
fn a_step_is_what_its_commands_do() {
    let program = training();
    let steps = program.steps();
    assert_eq!(steps.len(), 3);
    assert_eq!((steps[0].clone(), steps[2].end), (0..4, program.commands().len()));
    let capture = program.capture(steps[1].clone(), 16).unwrap();
    let names: Vec<&str> = capture.ops().iter().map(|op| &*op.name).collect();
    assert_eq!(names, ["put", "f", "get", "sgd"]);
    // Buffers in the order in which ops name them: x, w, y, the new mean. Then the buffers that no
    // op names: the old mean is first, because it is freed.
    let all = capture.buffers().iter().enumerate();
    let all: Vec<(u64, Class)> =
        all.map(|(number, buffer)| (buffer.bytes, capture.class(number))).collect();
    use Class::{Input, Kept, Result, Transient, Updated};
    assert_eq!(
        all,
        [(64, Input), (112, Updated), (80, Transient), (32, Result), (32, Input), (16, Kept)]
    );
    assert_eq!(capture.edges(), [(0, 1), (1, 2), (1, 3)]);
    let ops = capture.ops();
    assert_eq!((&ops[1].reads[..], &ops[1].makes[..]), (&[1, 0][..], &[2, 3][..]));
    assert_eq!((&ops[3].reads[..], &ops[3].updates[..]), (&[2][..], &[1][..]));
    assert!(ops[2].waits && !ops[1].waits && ops[1].workspace == 7);
    // The peak is while `f` runs. At the peak, all buffers are in memory except the old mean, which
    // was freed before.
    assert_eq!(capture.program().load(), 64 + 112 + 80 + 32 + 16 + 7);
}

#[test]
fn steps_that_repeat_are_the_same() {
    let program = training();
    let steps = program.steps();
    let [first, second] =
        [1, 2].map(|step: usize| program.capture(steps[step].clone(), 1).unwrap());
    assert_eq!(first.difference(&second), None);
    assert_eq!(first.signature(), second.signature());
    assert_ne!(first.cost(), second.cost());
    let shorter = program.capture(steps[1].start..steps[1].end - 8, 1).unwrap();
    let difference = first.difference(&shorter).unwrap().to_string();
    assert_eq!(difference, "op 2 differs: `get` and the end");
}

#[test]
fn an_update_is_in_place_where_nobody_else_holds_the_old_value() {
    for (consumed, held, whole) in (0..8).map(|bits| (bits & 1 > 0, bits & 2 > 0, bits & 4 > 0)) {
        let mut program = RecordedProgram::default();
        let mut w = program.put(RecordedValue::constant(64)).unwrap();
        let looks = Outputs::view(0, bytes(if whole { 64 } else { 32 }));
        let view = program.apply(RecordedOp::new("look", 0.0), &[w], looks).unwrap();
        if !held {
            program.push(Command::Del(w)).unwrap();
            w = view;
        }
        let begin = program.commands().len();
        let made = program.next();
        let target = if held { view } else { w };
        let call = Apply::new(op("sgd", "{}"), &[target][..], Outputs::updates(1), made);
        let consumed_inputs = (0..usize::from(consumed)).collect();
        program.push(Command::Apply(Apply { consumed: consumed_inputs, ..call })).unwrap();
        let capture = program.capture(begin..begin + 1, 1).unwrap();
        let in_place = consumed && !held && whole;
        assert_eq!(capture.ops()[0].updates.len(), usize::from(in_place));
        assert_eq!(capture.ops()[0].makes.len(), usize::from(!in_place));
    }
}

#[test]
fn a_granule_is_a_power_of_two() {
    let error = training().capture(0..4, 48).unwrap_err().to_string();
    assert!(error.contains("48") && error.contains("power of two"), "{error}");
}

#[test]
fn attributes_last_but_for_those_that_change() {
    for (given, lasts) in [
        ("", ""),
        ("no JSON", "no JSON"),
        (r#"{"axes":[1,2]}"#, r#"{"axes":[1,2]}"#),
        (r#"{"lr":0.1,"momentum":0.9}"#, r#"{,"momentum":0.9}"#),
        (r#"{"beta":0.5,"lr":0.1,"step":3}"#, r#"{"beta":0.5,,}"#),
        (r#"{"key":7,"counter":18446744073709551615}"#, r#"{"key":7,}"#),
        (r#"{"lr":"#, "{"),
    ] {
        assert_eq!(lasting(given), lasts);
    }
}

#[test]
fn several_updates_at_once_are_one_op() {
    let mut program = RecordedProgram::default();
    let weights = [40, 50].map(|size| program.put(RecordedValue::constant(size)).unwrap());
    let gradients = [40, 50].map(|size| program.put(RecordedValue::new(size, 1.0)).unwrap());
    // A view shares the bytes of the second parameter, so the update of the second parameter makes
    // a new buffer.
    let looks = Outputs::view(0, bytes(50));
    program.apply(RecordedOp::new("look", 0.0), &[weights[1]], looks).unwrap();
    let begin = program.commands().len();
    let made = program.next();
    let calls = (0..2).map(|at| {
        let inputs = [weights[at], gradients[at]];
        let workspace = 3 + at as u64;
        let op = RecordedOp { workspace, ..RecordedOp::new("sgd", 2.0) };
        let call = Apply::new(op, &inputs[..], Outputs::updates(1), made.plus(at));
        Apply { consumed: (0..1).collect(), ..call }
    });
    program.push(Command::UpdateAll(calls.collect())).unwrap();
    let capture = program.capture(begin..begin + 1, 1).unwrap();
    let [op] = capture.ops() else { panic!("{capture:?}") };
    assert_eq!((&*op.name, op.workspace, op.cost), ("update_all", 4, 4.0));
    // Buffers in the order in which the op names them: both gradients and the second parameter
    // (reads), the first parameter (update), the new value of the second parameter.
    let bytes = |list: &[usize]| -> Vec<u64> {
        list.iter().map(|&buffer| capture.buffers()[buffer].bytes).collect()
    };
    assert_eq!(bytes(&op.reads), [40, 50, 50]);
    assert_eq!((bytes(&op.updates), bytes(&op.makes)), (vec![40], vec![50]));
    assert_eq!(capture.program().load(), 40 + 50 + 40 + 50 + 50 + 4);
}

#[test]
fn a_step_becomes_a_program_that_is_the_same_step() {
    let program = training();
    for range in program.steps() {
        let capture = program.capture(range, 1).unwrap();
        let order = capture.program();
        let written = RecordedProgram::of_order(&order).unwrap();
        let again = written.capture_whole(1).unwrap().capture;
        assert_eq!((again.cost(), again.program().load()), (capture.cost(), order.load()));
        // Leave out attributes: they contain layouts, and the written program has other layouts
        // than the recorded program.
        let what = |capture: &Capture| -> Vec<_> {
            let ops = capture.ops().iter();
            ops.map(|op| {
                let lists = (op.reads.clone(), op.makes.clone(), op.updates.clone());
                (op.name.to_string(), lists, op.workspace, op.rematerializable, op.waits)
            })
            .collect()
        };
        assert_eq!(what(&again), what(&capture));
        let classes = |capture: &Capture| -> Vec<_> {
            let bytes = capture.buffers().iter().map(|buffer| buffer.bytes);
            bytes.enumerate().map(|(buffer, bytes)| (bytes, capture.class(buffer))).collect()
        };
        // Sort buffers before the comparison, because buffers that no op names are numbered by
        // size.
        let sorted = |capture: &Capture| {
            let mut classes = classes(capture);
            classes.sort_unstable();
            classes
        };
        assert_eq!(sorted(&again), sorted(&capture));
    }
}
