//! Memory that kernels take beside the budget.
//!
//! An op may use its operands and the workspace that it requested. In addition, each thread has a
//! packing buffer of fixed size for matrix products, and a few bytes distribute work among threads.
//! Therefore no shape makes the process exceed the budget by more.

#[path = "common/counting.rs"]
mod counting;

use counting::peak_during;
use remat::device::cpu;
use remat::device::{Call, Device, Place};
use remat::op::Operation as _;
use remat::ops::Op;
use remat::unstable::device::cpu::Kernels as _;
use remat::unstable::ops::samples::{Operand, Sample, each, samples};
use remat::{DType, HostTensor, Layout};
use std::collections::BTreeSet;

/// Bytes for queues of the thread pool, lists of operands and the like.
const LITTLE: usize = 64 << 10;

/// Bytes for tensors. The largest sample takes two thirds of these bytes.
const BYTES: u64 = 192 << 20;

/// Device that runs one op at a time.
struct Rig<D> {
    device: D,
    /// Bytes of heap that a matrix product may take.
    packing: usize,
    /// Number of allocations outside the heap so far.
    elsewhere: Box<dyn Fn() -> usize>,
}

impl<D: Device<Op = Op, Host = HostTensor>> Rig<D> {
    fn new(device: D, packing: usize, elsewhere: impl Fn() -> usize + 'static) -> Self {
        Self { device, packing, elsewhere: Box::new(elsewhere) }
    }

    /// Runs a sample, if there is anything to run. Returns a text if the run takes too much memory.
    fn run(&mut self, sample: &Sample) -> Option<String> {
        let Sample { op, operands } = sample;
        let seen = sample.layouts();
        let outputs = op.infer(&seen).unwrap_or_else(|e| panic!("{e}"));
        let mut front = 0;
        let mut place = |bytes: u64| {
            let storage = front;
            front = (front + bytes).next_multiple_of(256);
            assert!(front <= BYTES, "too little room for {op:?} of {seen:?}");
            storage
        };
        let mut read = Vec::new();
        for operand in operands {
            let storage = place(operand.stored.bytes());
            // The values of floats do not matter.
            if let Some(numbers) = numbers(operand) {
                self.device.write(&numbers, Place { storage, layout: operand.stored }).unwrap();
            }
            read.push(Place { storage, layout: operand.seen });
        }
        let (targets, fresh) = outputs.written()?;
        let mut written = read[..targets].to_vec();
        for &layout in fresh {
            written.push(Place { storage: place(layout.bytes()), layout });
        }
        let made: Vec<Layout> = written.iter().map(|place| place.layout).collect();
        let scratch = self.device.workspace(op, &seen, &made);
        let workspace = place(scratch);
        let call = || Call {
            op,
            inputs: &read,
            outputs: &written,
            flops: 0.0,
            workspace: workspace..workspace + scratch,
            timed: false,
        };
        let allowed = LITTLE + if matches!(op, Op::MatMul(_)) { self.packing } else { 0 };
        let mut excess = || {
            let before = (self.elsewhere)();
            let (peak, result) = peak_during(|| self.device.execute(call()));
            result
                .and_then(|_| self.device.sync())
                .unwrap_or_else(|e| panic!("{op:?} of {seen:?}: {e}"));
            let times = (self.elsewhere)() - before;
            let text = || {
                format!("{} KiB, and {times} times elsewhere: {op:?} of {operands:?}", peak >> 10)
            };
            (peak > allowed || times > 0).then(text)
        };
        // The first run may allocate memory that stays allocated, such as code for a GPU. If the
        // first run takes too much, a second run decides.
        excess().and_then(|_| excess())
    }
}

/// Elements for the whole storage, if they are integers.
fn numbers(operand: &Operand) -> Option<HostTensor> {
    if operand.stored.dtype() != DType::I32 {
        return None;
    }
    let number = |i: usize| operand.values.integer(i, i.wrapping_mul(7919)).expect("integers");
    let numbers = (0..operand.stored.elements()).map(number).collect();
    Some(HostTensor::i32(*operand.stored.shape(), numbers).expect("as many"))
}

fn check<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>, samples: &[Sample], what: &str) {
    let over: Vec<String> = samples.iter().filter_map(|sample| rig.run(sample)).collect();
    assert!(over.is_empty(), "{what}: too much on the heap:\n{}", over.join("\n"));
}

/// All checks are in a single test, so that no other test allocates at the same time.
#[test]
fn kernels_take_no_memory_that_grows_with_the_shapes() {
    let samples = samples();
    let sampled: BTreeSet<&str> = samples.iter().map(|sample| sample.op.name()).collect();
    let each = each();
    let all: BTreeSet<&str> = each.iter().map(Op::name).collect();
    assert_eq!(sampled, all, "ops without a sample, or samples of no op");

    scratch_is_a_small_part_of_the_operands(&samples);
    for threads in 1..=3 {
        let samples = if threads == 2 { samples.clone() } else { some(&samples, 3) };
        let packing = threads * cpu::PACKING_BYTES;
        let mut rig = Rig::new(cpu::Cpu::<Op>::new(BYTES, Some(threads)).unwrap(), packing, || 0);
        check(&mut rig, &samples, &format!("cpu, {threads} threads"));
    }
    #[cfg(feature = "cuda")]
    match remat::unstable::device::cuda::Context::open(remat::device::cuda::Options::default()) {
        Ok(gpu) => {
            let device = remat::unstable::device::cuda::Cuda::<Op>::of(&gpu, BYTES).unwrap();
            let mut rig = Rig::new(device, 0, gpu_allocations());
            assert_ne!((rig.elsewhere)(), 0, "not even memory for tensors was counted");
            check(&mut rig, &some(&samples, 7), "cuda");
        }
        Err(reason) => println!("skipped on cuda: {reason}"),
    }
}

/// One sample of each op, and every `n`th sample.
fn some(samples: &[Sample], n: usize) -> Vec<Sample> {
    let mut seen = BTreeSet::new();
    let wanted = |(i, sample): &(usize, &Sample)| {
        seen.insert(sample.op.name().to_owned()) || i.is_multiple_of(n)
    };
    samples.iter().enumerate().filter(wanted).map(|(_, sample)| sample.clone()).collect()
}

/// Number of allocations of device memory and of pinned memory so far. Only a pretend GPU reports
/// them.
#[cfg(feature = "cuda")]
fn gpu_allocations() -> impl Fn() -> usize {
    type Tell = unsafe extern "C" fn(*mut usize, *mut usize);
    // SAFETY: loading the driver has no side effect, since it is loaded already. `Tell` is the type
    // of the pretend GPU's function; a real driver has no symbol of this name.
    let tell = unsafe {
        let driver = libloading::Library::new("libcuda.so.1").unwrap();
        let tell = driver.get::<Tell>(b"pretendGpuAllocations").ok().map(|tell| *tell);
        std::mem::forget(driver);
        tell
    };
    if tell.is_none() {
        println!("a real GPU: nobody counts what is taken there");
    }
    move || {
        let (mut device, mut pinned) = (1, 0);
        if let Some(tell) = tell {
            // SAFETY: the function writes one number through each pointer, and both variables live
            // here.
            unsafe { tell(&raw mut device, &raw mut pinned) };
        }
        device + pinned
    }
}

/// Compares the workspaces of the cpu, which count towards the budget, with the operands.
///
/// Convolutions pack whole strips of images, and have a test of their own.
fn scratch_is_a_small_part_of_the_operands(samples: &[Sample]) {
    for sample in samples {
        let (op, seen) = (&sample.op, sample.layouts());
        let made = op.infer(&seen).unwrap().written().map_or(vec![], |(_, fresh)| fresh.to_vec());
        let convolves = op.name().starts_with("conv2d");
        let scratch = op.cpu_workspace(&seen, &made);
        let operands = seen.iter().chain(&made).map(Layout::bytes).sum::<u64>();
        // Attention packs keys and values of up to sixteen heads in whole vectors, which adds much
        // for few heads and little for many.
        let attends = op.name().starts_with("attention");
        // An LSTM packs the weight in whole vectors, and keeps its product with some sequences at a
        // time.
        let recurs = op.name().starts_with("lstm");
        let share = match () {
            () if attends => 3 * operands + (8 << 10),
            () if recurs => 5 * operands,
            () => operands / 4,
        };
        assert!(convolves || scratch <= share + 64, "{scratch} of {operands}: {op:?} of {seen:?}");
    }
}
