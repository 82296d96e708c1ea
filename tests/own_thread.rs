//! Code that runs on a runtime's own threads and waits for this runtime gets an error instead of
//! waiting forever. The runtime goes on.

use crate::common::say_nothing_of_what_is_on_purpose;
use remat::device::{DeviceError, cpu};
use remat::error::RuntimeError;
use remat::evict::View;
use remat::ops::CustomOp;
use remat::prelude::*;
use remat::unstable::event::Event;
use remat::{CostModel, Layout, Listener, Plan, Run};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

/// Runtime that its own ops and listeners can call, and the answers that they got.
#[derive(Clone, Debug, Default)]
struct Inside(Arc<State>);

#[derive(Debug, Default)]
struct State {
    runtime: OnceLock<Runtime>,
    tensor: OnceLock<Tensor>,
    told: Mutex<Vec<String>>,
}

impl Inside {
    /// Makes every call that waits for an answer. Does nothing before the runtime is known.
    fn ask(&self) {
        let (Some(runtime), Some(tensor)) = (self.0.runtime.get(), self.0.tensor.get()) else {
            return;
        };
        let answers = [
            runtime.stats().map(drop),
            runtime.sync(),
            runtime.get(tensor).map(drop),
            tensor.to_vec::<f32>().map(drop),
            runtime.set_budget(1u64 << 20),
            runtime.memory_map().map(drop),
            runtime.finish_recording(),
        ];
        let words = |answer: Result<(), Error>| match answer {
            Err(Error::Runtime(error)) if matches!(*error, RuntimeError::OwnThread) => {
                "own thread".to_owned()
            }
            other => format!("{other:?}"),
        };
        self.0.told.lock().unwrap().extend(answers.map(words));
    }
}

impl Listener for Inside {
    fn on(&mut self, event: &Event, _: View<'_>) {
        if matches!(event, Event::DidStep { .. }) {
            self.ask();
        }
    }
}

impl CostModel for Inside {
    fn cost(&mut self, _: Run<'_>) -> f64 {
        self.ask();
        1.0
    }
}

/// Custom op that makes these calls when its cost is computed, or when it runs: only on the worker,
/// or also on other threads of the pool.
#[derive(Debug)]
struct Asks(Inside, When);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    Flops,
    Kernel,
    SharedKernel,
}

impl CustomOp for Asks {
    fn name(&self) -> &str {
        "asks"
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(vec![Layout::contiguous(DType::F32, *inputs[0].shape())])
    }

    fn flops(&self, _: &[Layout], _: &[Layout]) -> f64 {
        if self.1 == When::Flops {
            self.0.ask();
        }
        1.0
    }

    fn cpu(&self, mut operands: cpu::Operands<'_>) -> Result<(), DeviceError> {
        match self.1 {
            When::Kernel => self.0.ask(),
            When::SharedKernel => drop(rayon::join(|| self.0.ask(), || self.0.ask())),
            When::Flops => {}
        }
        operands.write::<f32>(0).fill(3.0);
        Ok(())
    }
}

/// Runs `work` on another thread. Panics if it takes more than a minute.
fn within_a_minute(name: String, work: impl FnOnce() + Send + 'static) {
    let (done, wait) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        work();
        let _ = done.send(());
    });
    match wait.recv_timeout(Duration::from_secs(60)) {
        Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("{name} waits for ever"),
        _ => thread.join().unwrap(),
    }
}

fn loops(inside: &Inside, runtime: Runtime, op: Option<When>) {
    let x = runtime.ones(&[16]).unwrap();
    runtime.commit(&x).unwrap();
    runtime.sync().unwrap();
    inside.0.tensor.set(x.clone()).unwrap();
    inside.0.runtime.set(runtime.clone()).unwrap();
    for _ in 0..12 {
        let y = match op {
            Some(when) => Tensor::apply(Asks(inside.clone(), when), &[&x]).unwrap().swap_remove(0),
            None => x.add(&x).unwrap().add(&x).unwrap(),
        };
        assert_eq!(y.sum().unwrap().to_vec::<f32>().unwrap(), [48.0]);
        drop(y);
        runtime.step().unwrap();
    }
    runtime.sync().unwrap();
    let told = inside.0.told.lock().unwrap();
    assert!(told.len() >= 7, "{told:?}");
    assert!(told.iter().all(|told| told == "own thread"), "{told:?}");
}

#[test]
fn calls_that_would_wait_for_their_own_thread_are_errors() {
    for plan in [Plan::Off, Plan::Auto] {
        for threads in [1, 2] {
            let builder = move || Runtime::builder().budget("64KiB").threads(threads).plan(plan);
            for when in [When::Flops, When::Kernel, When::SharedKernel] {
                within_a_minute(format!("{when:?} {plan:?} {threads}"), move || {
                    loops(&Inside::default(), builder().cpu().unwrap(), Some(when));
                });
            }
            within_a_minute(format!("listener {plan:?} {threads}"), move || {
                let inside = Inside::default();
                loops(&inside, builder().listen(inside.clone()).cpu().unwrap(), None);
            });
            within_a_minute(format!("costs {plan:?} {threads}"), move || {
                let inside = Inside::default();
                loops(&inside, builder().cost_model(inside.clone()).cpu().unwrap(), None);
            });
        }
    }
}

/// Listener that sends more commands than the worker's queue holds, or more bytes than may be
/// queued.
#[derive(Debug)]
struct Floods(Inside, u64);

impl Listener for Floods {
    fn on(&mut self, event: &Event, _: View<'_>) {
        let Some(runtime) =
            self.0.0.runtime.get().filter(|_| matches!(event, Event::DidStep { .. }))
        else {
            return;
        };
        let values = |n: u64| vec![0.0; n as usize];
        let given = (0..5000).try_for_each(|_| {
            let host = HostTensor::f32([self.1 as usize], values(self.1))?;
            runtime.put(host).map(drop)
        });
        let words = given.map_or_else(|error| error.to_string(), |()| "all of it".to_owned());
        self.0.0.told.lock().unwrap().push(words);
    }
}

#[test]
fn a_listener_that_floods_its_own_queue_gets_an_error() {
    for floats in [1, 1 << 20] {
        within_a_minute(format!("{floats} floats"), move || {
            let inside = Inside::default();
            let floods = Floods(inside.clone(), floats);
            let runtime =
                Runtime::builder().budget("64MiB").threads(1).listen(floods).cpu().unwrap();
            inside.0.runtime.set(runtime.clone()).unwrap();
            runtime.step().unwrap();
            while inside.0.told.lock().unwrap().is_empty() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let told = inside.0.told.lock().unwrap().clone();
            assert!(told[0].contains("cannot wait for the runtime that calls it"), "{told:?}");
            runtime.sync().unwrap();
            assert_eq!(runtime.ones(&[2]).unwrap().to_vec::<f32>().unwrap(), [1.0, 1.0]);
        });
    }
}

/// If the worker drops the runtime's last handle together with an op, the worker must not wait for
/// its own end.
#[test]
fn the_last_handle_may_go_on_the_worker() {
    for threads in [1, 2] {
        within_a_minute(format!("{threads} threads"), move || {
            say_nothing_of_what_is_on_purpose();
            let inside = Inside::default();
            let runtime = Runtime::builder().budget("64KiB").threads(threads).cpu().unwrap();
            let x = runtime.ones(&[16]).unwrap();
            inside.0.runtime.set(runtime.clone()).unwrap();
            let op = Asks(inside, When::Flops);
            let y = Tensor::apply(op, &[&x]).unwrap().swap_remove(0);
            drop((runtime, x));
            drop(y);
        });
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_runtime_in_a_forked_process_is_an_error() {
    let runtime = Runtime::builder().budget("64KiB").threads(1).cpu().unwrap();
    let x = runtime.ones(&[16]).unwrap();
    x.to_vec::<f32>().unwrap();
    let forked =
        |error: Error| matches!(error, Error::Runtime(e) if matches!(*e, RuntimeError::Forked));
    // SAFETY: the child calls only code that waits for no other thread, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: `alarm` takes a number and sets a timer, which ends a child that hangs.
        unsafe { libc::alarm(30) };
        let is_told = x.to_vec::<f32>().is_err_and(forked) && runtime.sync().is_err_and(forked);
        let is_told = is_told && (0..5000).any(|_| runtime.step().is_err_and(forked));
        drop((x, runtime));
        // SAFETY: `_exit` ends the child at once and runs no code of the parent.
        unsafe { libc::_exit(i32::from(!is_told)) };
    }
    let mut status = 0;
    // SAFETY: `status` is a live local variable that `waitpid` writes to.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert!(libc::WIFEXITED(status), "it waited");
    assert_eq!(libc::WEXITSTATUS(status), 0, "it was told otherwise");
    assert_eq!(x.to_vec::<f32>().unwrap(), [1.0; 16]);
}
