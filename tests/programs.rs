//! Steps as values. A program is checked when it is made, so it is always valid. A recorded step
//! can be loaded and executed, with the same bits.

use crate::common::custom::Clip;
use crate::common::training::Shared;
use remat::device::cpu::Cpu;
use remat::nn::{Mode, Module, ResNet, Sequential, mlp, resnet};
use remat::op::{Look, Outputs};
use remat::ops::{Library, LoadOpError};
use remat::optim::Optimizer;
use remat::prelude::{Error, HostTensor, Runtime, Tape, Tensor};
use remat::trace::{JsonLines, LoadProblem};
use remat::unstable::engine::{Engine, Settings};
use remat::unstable::lab::Trace;
use remat::unstable::program::{
    Apply, Command, Driver, Program, ProgramError, RecordedCommand, RecordedOp, RecordedProgram,
    RecordedValue, TensorId,
};
use remat::{CostModelKind, DType, Layout, Op, PolicyKind};
use std::collections::VecDeque;
use std::sync::Arc;

/// Recorded runtime, and the values put there, in order.
struct Recorded {
    runtime: Runtime,
    text: Shared,
    values: VecDeque<HostTensor>,
}

impl Recorded {
    fn new() -> Self {
        let text = Shared::default();
        let builder = Runtime::builder().budget("64MiB").seed(5);
        let runtime = builder.record(JsonLines::to(text.clone())).cpu().unwrap();
        Self { runtime, text, values: VecDeque::new() }
    }

    fn put(&mut self, host: HostTensor) -> Tensor {
        self.values.push_back(host.clone());
        self.runtime.put(host).unwrap()
    }

    fn trace(&self) -> Trace {
        self.runtime.finish_recording().unwrap();
        Trace::read(&**self.text.0.lock().unwrap(), "run").unwrap()
    }
}

fn numbers(shape: &[usize], seed: usize) -> HostTensor {
    let count: usize = shape.iter().product();
    let value = |i: usize| ((i * 7 + seed * 13) % 23) as f32 / 11.0 - 1.0;
    HostTensor::f32(remat::Dims::new(shape), (0..count).map(value).collect()).unwrap()
}

/// Trains for `steps` steps, recorded.
fn train(recorded: &mut Recorded, net: &mut Sequential, steps: usize) -> Result<(), Error> {
    let mut sgd = Optimizer::sgd(0.05, 0.9, 1e-3);
    for step in 0..steps {
        let images = recorded.put(numbers(&[96, 3, 8, 8], step));
        let labels: Vec<i32> = (0..96).map(|i| ((i * 3 + step) % 10) as i32).collect();
        let labels = recorded.put(HostTensor::i32([96], labels)?);
        let tape = Tape::new(&recorded.runtime);
        tape.watch(net);
        let loss = net.forward(&images.dropout(0.2)?, Mode::Train)?.cross_entropy(&labels)?;
        sgd.minimize(tape, &loss, net)?;
        recorded.runtime.get(&loss)?;
        recorded.runtime.label(&loss, "loss")?;
        recorded.runtime.step()?;
    }
    Ok(())
}

/// Executes a program in a budget of `share` percent of its peak. Returns the values of all tensors
/// held at the end.
fn execute(program: &Program<Op, HostTensor>, share: u64) -> Vec<HostTensor> {
    let run = |budget: u64| {
        let costs = CostModelKind::Flops.build();
        let device = Cpu::new(budget, Some(2)).unwrap();
        let mut settings = Settings::default();
        settings.min_evict_bytes = Some(0);
        let evictor = PolicyKind::DtrEq.build(0);
        let mut driver = Driver::new(Engine::new(device, settings, evictor, costs).unwrap());
        driver.run(program).unwrap();
        let keys: Vec<_> = program.alive().map(|tensor| driver.key(tensor).unwrap()).collect();
        let stats = driver.engine().stats();
        let engine = driver.engine_mut();
        let values = keys.into_iter().map(|key| engine.get(key).unwrap()).collect::<Vec<_>>();
        (values, stats)
    };
    let (expected, stats) = run(64 << 20);
    if share == 100 {
        return expected;
    }
    let (values, tight) = run(stats.peak_bytes * share / 100);
    assert!(tight.recomputed_ops > 0, "{share} % is tight");
    assert_eq!(values, expected);
    values
}

#[test]
fn a_recorded_step_is_executed_with_the_same_bits() {
    type Build = fn(&Runtime) -> Sequential;
    let nets: [(Build, [u64; 2]); 2] = [
        (|runtime| mlp(runtime, 192, &[64, 32, 32], 10).unwrap(), [100, 85]),
        (|runtime| resnet(runtime, ResNet::Cifar { n: 1 }, 3, [8, 8], 10).unwrap(), [100, 75]),
    ];
    for (build, shares) in nets {
        let mut recorded = Recorded::new();
        let mut net = build(&recorded.runtime);
        train(&mut recorded, &mut net, 3).unwrap();
        let mut held = Vec::new();
        for (_, tensor) in remat::nn::parameters(&mut net) {
            held.push(recorded.runtime.get(tensor).unwrap());
        }
        assert!(held.len() >= 8);
        let trace = recorded.trace();
        let puts = trace.program().commands().iter();
        let puts = puts.filter(|command| matches!(command, Command::Put { .. })).count();
        assert_eq!(puts, recorded.values.len());
        let mut values = recorded.values.clone();
        let load = |_, _: &Layout| Ok(values.pop_front().expect("as many as were put"));
        // A step is a value, which can be kept as text.
        let text = serde_json::to_string(trace.program()).unwrap();
        let kept: RecordedProgram = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&kept).unwrap(), text);
        let program = Library::default().program(&kept, load).unwrap();
        assert_eq!(program.commands().len(), trace.program().commands().len());
        for share in shares {
            let found = execute(&program, share);
            for (i, value) in held.iter().enumerate() {
                assert!(found.contains(value), "{share} %: tensor {i} of the network");
            }
        }
    }
}

#[test]
fn ops_of_ones_own_are_loaded_once_they_are_registered() {
    let mut recorded = Recorded::new();
    let x = recorded.put(numbers(&[30], 1));
    let y = Clip { low: -0.5, high: 0.25 }.of(&x).unwrap();
    let expected = recorded.runtime.get(&y).unwrap();
    let trace = recorded.trace();
    let value = || {
        let mut values = recorded.values.clone();
        move |_: TensorId, _: &Layout| Ok(values.pop_front().unwrap())
    };
    let mut library = Library::default();
    let error = library.program(trace.program(), value()).unwrap_err();
    assert_eq!(
        (error.at, matches!(error.problem, LoadProblem::Op(LoadOpError::Unknown { .. }))),
        (1, true)
    );
    let text = error.to_string();
    assert!(text.contains("command 1: no op is called `clip`: register it"), "{text}");
    library.register("clip", |_| Ok(Clip { low: -0.5, high: 0.25 })).unwrap();
    let program = library.program(trace.program(), value()).unwrap();
    assert!(execute(&program, 100).contains(&expected));
    // A value of another shape is refused, and so are outputs that the op does not make.
    let error = library.program(trace.program(), |_, _| Ok(HostTensor::scalar(1.0))).unwrap_err();
    assert!(error.to_string().contains("command 0: the value for tensor 0 is f32[]"), "{error}");
    let mut changed = RecordedProgram::default();
    for command in trace.program().commands() {
        let mut command = command.clone();
        if let Command::Apply(call) = &mut command {
            call.outputs = Outputs::fresh([Layout::raw(3), Layout::raw(4)]);
        }
        changed.push(command).unwrap();
    }
    let error = library.program(&changed, value()).unwrap_err();
    assert!(matches!(error.problem, LoadProblem::Outputs { .. }), "{error}");
}

fn call(inputs: &[u64], outputs: Outputs, made: u64) -> Apply<RecordedOp> {
    Apply {
        op: RecordedOp::new("op", 1.0),
        inputs: inputs.iter().copied().map(TensorId).collect(),
        consumed: Default::default(),
        outputs,
        made: TensorId(made),
    }
}

/// Update of a single input, whose handle the update consumes.
fn given_away(input: u64, made: u64) -> Apply<RecordedOp> {
    let mut update = call(&[input], Outputs::updates(1), made);
    update.consumed.insert(0);
    update
}

/// Update of the first input by the others.
fn apply_of(inputs: &[u64], made: u64) -> Apply<RecordedOp> {
    call(inputs, Outputs::updates(1), made)
}

/// Program that holds tensors 0 and 1, and has deleted 2.
fn small() -> RecordedProgram {
    let mut program = RecordedProgram::default();
    for bytes in [8, 16, 24] {
        program.put(RecordedValue::new(bytes, 1.0)).unwrap();
    }
    program.push(Command::Del(TensorId(2))).unwrap();
    program
}

#[test]
fn commands_that_make_no_sense_are_refused_and_change_nothing() {
    let fresh = || Outputs::fresh([Layout::raw(8)]);
    let view = |input| {
        let look = Look { input, layout: Layout::raw(4) };
        Outputs::Views([look].into_iter().collect())
    };
    let mut both = call(&[0, 0], Outputs::updates(2), 3);
    (0..2).for_each(|input| both.consumed.insert(input));
    let gone = ProgramError::Gone;
    let numbering =
        |found, next| ProgramError::Numbering { found: TensorId(found), next: TensorId(next) };
    let input = |input, count| ProgramError::Input { input, count };
    let cases: Vec<(RecordedCommand, ProgramError)> = vec![
        (Command::Del(TensorId(2)), gone.clone()),
        (Command::Get(TensorId(9)), gone.clone()),
        (Command::Commit(TensorId(u64::MAX)), gone.clone()),
        (Command::Label { tensor: TensorId(2), label: String::new() }, gone.clone()),
        (Command::Apply(call(&[0, 2], fresh(), 3)), gone.clone()),
        (Command::Apply(call(&[0], fresh(), 4)), numbering(4, 3)),
        (Command::Apply(call(&[0], fresh(), 0)), numbering(0, 3)),
        (Command::Apply(call(&[0], view(1), 3)), input(1, 1)),
        (Command::Apply(call(&[0], Outputs::updates(2), 3)), input(1, 1)),
        (Command::Apply(both), ProgramError::UpdatedTwice),
        (
            Command::UpdateAll(vec![
                call(&[0], Outputs::updates(1), 3),
                call(&[1], Outputs::updates(1), 3),
            ]),
            numbering(3, 4),
        ),
        // An earlier update in the same command consumed the input.
        (Command::UpdateAll(vec![given_away(0, 3), apply_of(&[1, 0], 4)]), gone.clone()),
        (
            Command::Replace {
                target: TensorId(0),
                consumed: true,
                value: TensorId(2),
                made: TensorId(3),
            },
            gone,
        ),
        (
            Command::Apply(call(&[], Outputs::fresh([Layout::raw(isize::MAX as usize)]), 3)),
            ProgramError::Size(isize::MAX as u64),
        ),
    ];
    for (command, expected) in cases {
        let mut program = small();
        let what = format!("{command:?}");
        assert_eq!(program.push(command), Err(expected), "{what}");
        assert_eq!((program.commands().len(), program.tensors()), (4, 3), "{what}");
        assert_eq!(program.alive().collect::<Vec<_>>(), [TensorId(0), TensorId(1)]);
    }
}

#[test]
fn programs_count_what_is_there() {
    let mut program = small();
    let mut update = call(&[0, 1], Outputs::updates(1), 3);
    update.consumed.insert(0);
    program.push(Command::Apply(update)).unwrap();
    program.push(Command::Apply(call(&[3], Outputs::view(0, Layout::raw(1)), 4))).unwrap();
    let effect = Apply { op: RecordedOp::elapse(2.5), ..call(&[], Outputs::default(), 99) };
    program.push(Command::Apply(effect)).unwrap();
    let replace = Command::Replace {
        target: TensorId(1),
        consumed: true,
        value: TensorId(4),
        made: TensorId(5),
    };
    program.push(replace).unwrap();
    program.push(Command::Step).unwrap();
    let alive: Vec<u64> = program.alive().map(|tensor| tensor.0).collect();
    assert_eq!((alive, program.tensors()), (vec![3, 4, 5], 6));
    assert_eq!((program.ops(), program.base_cost()), (4, 3.0 + 2.0 + 2.5));
    assert!(!program.has_flops());
    let next =
        program.apply(RecordedOp::new("f", 1.0), &[TensorId(5)], Outputs::default()).unwrap();
    assert_eq!(next, TensorId(6), "nothing was made");
    let updated = [TensorId(5), TensorId(3)];
    let made = program.update(RecordedOp::new("g", 1.0), &updated, Outputs::updates(2)).unwrap();
    let alive: Vec<TensorId> = program.alive().collect();
    assert_eq!((made, alive), (TensorId(6), [4, 6, 7].map(TensorId).to_vec()));
    let host =
        RecordedValue { layout: Layout::contiguous(DType::F16, [3]), ..RecordedValue::constant(0) };
    assert_eq!(program.put(Arc::new(host)).unwrap(), TensorId(8));
}

#[test]
fn a_program_that_makes_no_sense_as_text_is_refused_by_command() {
    let mut program = RecordedProgram::default();
    let x = program.put(RecordedValue {
        layout: Layout::contiguous(DType::F32, [4]),
        ..RecordedValue::constant(0)
    });
    program.push(Command::Get(x.unwrap())).unwrap();
    let commands = program.commands();
    for (order, at) in [(vec![1, 0], 0), (vec![0, 1, 0], 2)] {
        let order: Vec<_> = order.into_iter().map(|i: usize| &commands[i]).collect();
        let text = serde_json::to_string(&order).unwrap();
        let error = serde_json::from_str::<RecordedProgram>(&text).unwrap_err().to_string();
        assert!(error.contains(&format!("command {at}: ")), "{error}");
    }
}
