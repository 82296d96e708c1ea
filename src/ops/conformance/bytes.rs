use super::{Rig, Rng};
use crate::device::{Device, Place, Reading};
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::ops::Op;

fn numbers(len: usize, seed: u64) -> HostTensor {
    let mut rng = Rng::new(seed);
    HostTensor::i32([len], (0..len).map(|_| rng.next() as i32).collect()).unwrap()
}

/// Moves blocks by any distance, up and down, with and without overlap.
pub fn moves_may_overlap<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    const MIB: usize = 1 << 20;
    let words = 3 * MIB;
    let place = |offset: usize, len: usize| Place {
        storage: 4 * offset as u64,
        layout: Layout::contiguous(DType::I32, [len]),
    };
    for (i, (from, to, len)) in [
        (0, 64, 1000),
        (64, 0, 1000),
        (64, 64, 1000),
        (0, 2 * MIB, MIB),
        (2 * MIB, MIB, MIB),
        (0, 64, 2 * MIB),
        (64, 0, 2 * MIB),
        (0, MIB / 2 + 1, 2 * MIB),
        (MIB / 2 + 1, 0, 2 * MIB),
        (MIB - 1, 0, 2 * MIB),
        (100, 0, 0),
    ]
    .into_iter()
    .enumerate()
    {
        let all = numbers(words, i as u64);
        rig.device.write(&all, place(0, words)).unwrap();
        rig.device.copy(4 * from as u64, 4 * to as u64, 4 * len as u64).unwrap();
        let mut expected = all.as_i32().unwrap().to_vec();
        expected.copy_within(from..from + len, to);
        let found = rig.device.read(place(0, words)).unwrap();
        // Use `assert`, because `assert_eq` would print three million numbers.
        assert!(found.as_i32().unwrap() == expected, "{len} words from {from} to {to}");
    }
}

/// Writes host values of many sizes to the device, and reads the values back. Each host value is
/// dropped right after it was written.
pub fn values_go_there_and_back<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut front = 0;
    let mut kept = Vec::new();
    for (i, len) in [1, 0, 77, 5_000_000, 64, 1, 3_000_001, 4096].into_iter().enumerate() {
        let host = numbers(len, 100 + i as u64);
        let place = Place { storage: front, layout: host.layout() };
        front += (4 * len as u64).next_multiple_of(256);
        rig.device.write(&host, place).unwrap();
        kept.push((host.clone(), place));
        drop(host);
    }
    for (host, place) in kept.iter().chain(&kept) {
        assert!(rig.device.read(*place).unwrap() == *host, "{:?}", host.layout());
    }
    rig.device.sync().unwrap();
}

/// Reads a strided view. The elements must come in the row-major order of the view.
pub fn views_are_read_packed<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let host = numbers(6 * 70, 7);
    let all = host.as_i32().unwrap();
    let layout = Layout::contiguous(DType::I32, [6, 70]);
    rig.device.write(&host, Place { storage: 512, layout: host.layout() }).unwrap();
    let turned = layout.slice(1, 3, 50).unwrap().slice(0, 2, 4).unwrap().permute(&[1, 0]).unwrap();
    let found = rig.device.read(Place { storage: 512, layout: turned }).unwrap();
    assert_eq!(**found.shape(), [50, 4]);
    for (i, &value) in found.as_i32().unwrap().iter().enumerate() {
        assert_eq!(value, all[(2 + i % 4) * 70 + 3 + i / 4]);
    }
}

/// Reads values without waiting. Each read must return the value that the device memory held at the
/// time of the call.
pub fn reads_that_do_not_wait<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut expected = Vec::new();
    let mut found = Vec::new();
    // Start more small and large reads than a device can have unfinished at once. Before each read,
    // a new value overwrites the previous value.
    for i in 0..100 {
        let host = numbers(if i % 7 == 0 { 40_000 } else { 1 + 37 * i }, i as u64);
        let place = Place { storage: 256, layout: host.layout() };
        rig.device.write(&host, place).unwrap();
        match rig.device.read_later(place).unwrap() {
            Reading::Done(value) => assert!(value == host, "number {i}"),
            Reading::Later => expected.push(host),
        }
        found.extend(rig.device.take_read());
    }
    rig.device.sync().unwrap();
    // The device has finished all work, but it may report finished reads a little later.
    while found.len() < expected.len() {
        found.extend(rig.device.take_read());
    }
    assert!(rig.device.take_read().is_none());
    for (i, (found, expected)) in found.into_iter().zip(expected).enumerate() {
        assert!(found.unwrap() == expected, "number {i} of those that came later");
    }
}
