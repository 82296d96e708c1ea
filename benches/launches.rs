//! Measures whether the host stays ahead of an asynchronous device. In a chain of small ops, each
//! op takes a launch on the host and a short kernel on the device.
//!
//! ```text
//! caller:  apply(relu, x0) -> x1, drop(x0), apply(relu, x1) -> x2, ...            (sync at the end)
//! worker:  take, place, launch, books;  take, place, launch, books;  ...
//! stream:         kernel ......... kernel ......... kernel ...   idle where the launch came too late
//! ```
//!
//! Without a GPU, the stream is simulated in real time. A launch keeps the worker busy for about 2
//! us, as a launch by a real driver does. A kernel keeps the stream busy for the time in the row.
//!
//! The baseline of each row makes the same launches without a runtime, by calling the device's
//! `execute` in a loop. With a GPU (feature `cuda`), the benchmark also runs kernels on the GPU.
//! The argument `gpu` makes the exit code 1 if there is no GPU.

use remat::device::sim::{Sim, Speed};
use remat::device::{Call, Device, DeviceError, Memory, Place, Took};
use remat::op::Operation as _;
use remat::ops::Op;
use remat::unstable::ops::Unary;
use remat::{Builder, DType, HostTensor, Layout, Runtime};
use std::hint::spin_loop;
use std::process::ExitCode;
use std::time::{Duration, Instant};

const OPS: u32 = 20_000;
const ROUNDS: usize = 7;

/// Approximate host time of a launch with a current driver.
const LAUNCH: Duration = Duration::from_micros(2);

/// Simulated asynchronous device, in real time.
struct Stream {
    sim: Sim<Op, HostTensor>,
    kernel: Duration,
    /// Time at which the device will have done all its work.
    done: Instant,
}

impl Stream {
    fn new(bytes: u64, kernel: Duration) -> Self {
        Self { sim: Sim::new(bytes, Speed::GPU), kernel, done: Instant::now() }
    }
}

/// Waits until `then`, keeping a core busy as a driver does.
fn spin_until(then: Instant) {
    while Instant::now() < then {
        spin_loop();
    }
}

impl Device for Stream {
    type Op = Op;
    type Host = HostTensor;

    fn name(&self) -> &str {
        "stream"
    }

    fn memory(&self) -> Memory {
        self.sim.memory()
    }

    fn layout_of(host: &HostTensor) -> Layout {
        host.layout()
    }

    fn write(&mut self, host: &HostTensor, to: Place) -> Result<Took, DeviceError> {
        self.sim.write(host, to)
    }

    fn read(&mut self, from: Place) -> Result<HostTensor, DeviceError> {
        self.sync()?;
        self.sim.read(from)
    }

    fn copy(&mut self, from: u64, to: u64, bytes: u64) -> Result<(), DeviceError> {
        self.sim.copy(from, to, bytes)
    }

    fn execute(&mut self, _call: Call<'_, Op>) -> Result<Took, DeviceError> {
        let launched = Instant::now() + LAUNCH;
        spin_until(launched);
        self.done = self.done.max(launched) + self.kernel;
        Ok(Took::Unknown)
    }

    fn sync(&mut self) -> Result<(), DeviceError> {
        spin_until(self.done);
        Ok(())
    }
}

/// Seconds until all commands are issued, and until all are completed.
type Seconds = [f64; 2];

/// Result of the best of several rounds.
fn best(mut round: impl FnMut() -> Seconds) -> Seconds {
    let rounds: Vec<Seconds> = (0..=ROUNDS).map(|_| round()).collect();
    // The first round warms up.
    rounds[1..].iter().copied().min_by(|a, b| a[1].total_cmp(&b[1])).expect("there are some")
}

/// Runs the launches without a runtime.
fn bare<D: Device<Op = Op, Host = HostTensor>>(
    make: impl FnOnce(u64) -> Result<D, DeviceError>,
    elements: usize,
) -> Seconds {
    let layout = Layout::contiguous(DType::F32, [elements]);
    let bytes = layout.bytes().next_multiple_of(256);
    let mut device = make(2 * bytes).expect("there is memory");
    let places = [0, bytes].map(|storage| Place { storage, layout });
    let zeros = HostTensor::zeros(DType::F32, [elements]).expect("the host has room");
    device.write(&zeros, places[0]).expect("there is a place for it");
    let op = Op::from(Unary::Relu);
    assert!(op.infer(&[layout]).is_ok());
    best(|| {
        device.sync().expect("nothing failed");
        let start = Instant::now();
        for i in 0..OPS as usize {
            let (inputs, outputs) = ([places[i % 2]], [places[1 - i % 2]]);
            let call = Call {
                op: &op,
                inputs: &inputs,
                outputs: &outputs,
                flops: 0.0,
                workspace: 0..0,
                timed: false,
            };
            device.execute(call).expect("a relu runs");
        }
        let given = start.elapsed().as_secs_f64();
        device.sync().expect("nothing failed");
        [given, start.elapsed().as_secs_f64()]
    })
}

/// Runs the chain of ops through a runtime.
fn chain<D: Device<Op = Op, Host = HostTensor>>(
    make: impl FnOnce(u64) -> Result<D, DeviceError> + Send + 'static,
    elements: usize,
) -> Seconds {
    let builder: Builder = Runtime::builder().budget("256MiB");
    let runtime = builder.device(make).expect("the device starts");
    best(|| {
        let mut x = runtime.full(&[elements], 1.0).expect("a fill takes anything");
        runtime.sync().expect("nothing failed");
        let start = Instant::now();
        for _ in 0..OPS {
            x = x.relu().expect("relu takes anything");
        }
        // `stats` returns after the worker has issued every command.
        runtime.stats().expect("the worker lives");
        let given = start.elapsed().as_secs_f64();
        runtime.sync().expect("nothing failed");
        [given, start.elapsed().as_secs_f64()]
    })
}

fn row(name: &str, bare: Seconds, chain: Seconds) {
    let each = |seconds: f64| 1e6 * seconds / f64::from(OPS);
    println!(
        "{name:36} {:9.2} {:9.2} {:9.2} {:9.3}",
        each(bare[1]),
        each(chain[0]),
        each(chain[1]),
        chain[1] / bare[1]
    );
}

fn main() -> ExitCode {
    println!(
        "{:36} {:>9} {:>9} {:>9} {:>9}",
        "microseconds an op", "launches", "given", "done", "to bare"
    );
    for kernel in [1, 3, 5, 10] {
        let kernel = Duration::from_micros(kernel);
        let make = move |bytes| Ok(Stream::new(bytes, kernel));
        row(&format!("simulated, kernels of {kernel:?}"), bare(make, 1), chain(make, 1));
    }
    match gpu() {
        Err(reason) => {
            println!("no GPU: {reason}");
            ExitCode::from(u8::from(std::env::args().any(|arg| arg == "gpu")))
        }
        Ok(()) => ExitCode::SUCCESS,
    }
}

/// Measures on the GPU; an error if there is none.
#[cfg(feature = "cuda")]
fn gpu() -> Result<(), DeviceError> {
    use remat::device::cuda::Options;
    use remat::unstable::device::cuda::{Context, Cuda};
    let opened = Context::open(Options::default())?;
    for elements in [1 << 10, 1 << 16, 1 << 20] {
        let gpu = opened.clone();
        let name = format!("on the GPU, {elements} floats");
        let bare = bare(|bytes| Cuda::<Op>::of(&gpu, bytes), elements);
        row(&name, bare, chain(move |bytes| Cuda::<Op>::of(&gpu, bytes), elements));
    }
    Ok(())
}

#[cfg(not(feature = "cuda"))]
fn gpu() -> Result<(), DeviceError> {
    Err(DeviceError::new("built without the feature `cuda`"))
}
