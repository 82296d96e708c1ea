//! Tests of a driver's duties other than executing commands.

use super::*;
use crate::command::Window;
use crate::command::{Apply, Consumed, RecordedOp};
use crate::cost::CostModelKind;
use crate::device::sim::{Sim, Speed};
use crate::engine::Settings;
use crate::evict::PolicyKind;
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::op::Outputs;
use crate::ops::{Accumulate, Contiguous, Op};
use crate::sync::{Mutex, lock};
use std::sync::Arc;

/// Regression test: on devices that own their memory, programs had to read values without the
/// driver, so recordings lacked the `get`.
#[test]
fn a_visit_is_a_get_to_whoever_looks_ahead_or_records() {
    let costs = CostModelKind::Flops.build();
    let engine = Engine::new(
        Sim::<Op, HostTensor>::cpu(1 << 20),
        Settings::default(),
        PolicyKind::DtrEq.build(0),
        costs,
    );
    let mut driver = Driver::new(engine.unwrap());
    let lines = Lines::default();
    driver.record_to(Box::new(lines.clone()), Window::of(4));
    let host = Arc::new(HostTensor::zeros(DType::F32, [2, 3]).unwrap());
    driver.execute(Command::Put { tensor: TensorId(0), host, leaf: false });
    driver.admit(&Command::Get(TensorId(0)));
    let storage = driver.engine().graph().storages().next().unwrap().0;
    assert_eq!(driver.engine().graph().future().next_read(storage), Some(1));
    let bytes = driver.visit(TensorId(0), |_, place| Ok(place.layout.bytes()));
    assert_eq!(bytes.unwrap(), 24);
    assert_eq!(driver.engine().graph().future().next_read(storage), None);
    let refused = driver.visit(TensorId(0), |_, _| Err::<(), _>(DeviceError::new("no")));
    assert!(matches!(refused, Err(Error::Device(_))));
    assert!(driver.visit(TensorId(7), |_, _| Ok(())).is_err(), "it means nothing");
    assert_eq!(*lock(&lines.0), ["put", "get", "get"]);
}

/// Names of the recorded commands.
#[derive(Clone, Debug, Default)]
struct Lines(Arc<Mutex<Vec<&'static str>>>);

impl Recorder for Lines {
    fn record(&mut self, entry: &Entry) {
        if let Entry::Did { command, .. } = entry {
            lock(&self.0).push(command.name());
        }
    }

    fn finish(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Regression test: a handle was made for the engine to consume, and stayed after the engine
/// refused the update. The engine's refusal was then reported again and again.
#[test]
fn an_update_that_the_engine_refuses_leaves_no_handle() {
    let costs = CostModelKind::Flops.build();
    let (device, settings) = (Sim::cpu(1 << 20), Settings::default());
    let engine = Engine::new(device, settings, PolicyKind::DtrEq.build(0), costs).unwrap();
    let mut driver = Driver::new(engine);
    let host = Arc::new(HostTensor::zeros(DType::F32, [2, 3]).unwrap());
    let call = |op: Op, input, outputs, made| Apply {
        op,
        inputs: [TensorId(input)].into_iter().collect(),
        consumed: Consumed::default(),
        outputs,
        made: TensorId(made),
    };
    let mut execute = |command| {
        driver.execute(command);
        let failure = driver.engine_mut().take_failure();
        assert!(driver.engine_mut().take_failure().is_none(), "it is told once");
        failure
    };
    let turned = Layout::contiguous(DType::F32, [2, 3]).permute(&[1, 0]).unwrap();
    let view = Outputs::view(0, turned);
    assert!(execute(Command::Put { tensor: TensorId(0), host, leaf: false }).is_none());
    assert!(execute(Command::Apply(call(Contiguous.into(), 0, view, 1))).is_none());
    // The engine refuses to update a tensor that is not contiguous while another handle holds the
    // old value.
    let update = |made| call(Accumulate.into(), 1, Outputs::updates(1), made);
    assert!(matches!(execute(Command::Apply(update(2))), Some(Error::Op(_))));
    assert!(matches!(execute(Command::UpdateAll(vec![update(3)])), Some(Error::Op(_))));
    assert_eq!(driver.engine_mut().stats().tensors, 4, "two of them are names of the view");
    for tensor in TensorId(0).and_next(4) {
        driver.execute(Command::Del(tensor));
    }
    assert_eq!(driver.engine_mut().stats().tensors, 0);
}

/// Regression test: the first op of a turn did not match its plan. The plan was entered again and
/// again until the stack was full.
#[test]
fn a_turn_whose_first_op_needs_other_workspace_runs_without_a_plan() {
    let costs = CostModelKind::Flops.build();
    let device = Sim::<RecordedOp, Layout>::new(1 << 20, Speed::GPU);
    let device = device.with_workspace(|op, _, _| op.workspace);
    let engine = Engine::new(device, Settings::default(), PolicyKind::DtrEq.build(0), costs);
    let mut driver = Driver::new(engine.unwrap());
    driver.plan_steps(Plan::Auto);
    let layout = Layout::raw(1 << 10);
    let x = TensorId(0);
    driver.execute(Command::Put { tensor: x, host: Arc::new(layout), leaf: true });
    driver.execute(Command::Step);
    let mut by_plan = Vec::new();
    for turn in 1..40 {
        let workspace = if turn % 13 == 0 { 1 << 9 } else { 1 << 8 };
        let op = RecordedOp { workspace, ..RecordedOp::new("f", 1.0) };
        let y = TensorId(turn);
        driver.execute(Command::Apply(Apply::new(op, &[x][..], Outputs::fresh([layout]), y)));
        driver.execute(Command::Get(y));
        driver.execute(Command::Del(y));
        driver.execute(Command::Step);
        assert!(driver.engine_mut().take_failure().is_none());
        by_plan.push(driver.stats().planned_steps);
    }
    let last = by_plan[by_plan.len() - 1];
    assert!(by_plan[11] > 0 && last > by_plan[25], "{by_plan:?}");
    assert_eq!(driver.stats().steps, 40);
}
