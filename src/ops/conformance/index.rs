use super::{Arg, Rig, Rng, each_index};
use crate::device::Device;
use crate::host::HostTensor;
use crate::layout::Dims;
use crate::ops::{Concat, Contiguous, Flip, Gather, OneHot, Op, Pad, ScatterAdd};

/// Position of `index` in a packed tensor.
fn place(shape: &[usize], index: &[usize]) -> usize {
    shape.iter().zip(index).fold(0, |at, (size, i)| at * size + i)
}

fn with(index: &[usize], axis: usize, value: usize) -> Vec<usize> {
    let mut index = index.to_vec();
    index[axis] = value;
    index
}

pub fn taking_and_adding_entries<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(14);
    let mut cases: Vec<(Vec<usize>, usize, usize)> = (0..60)
        .map(|_| {
            let shape = [&*rng.shape(3, 5), &[rng.size(5)]].concat();
            let axis = rng.below(shape.len());
            let n = if shape[axis] == 0 { 0 } else { rng.below(9) };
            (shape, axis, n)
        })
        .collect();
    cases.extend([
        (vec![500, 64], 0, 1000),
        (vec![3, 400, 50], 1, 333),
        (vec![50, 1000], 1, 1200),
        (vec![90_000], 0, 70_000),
        // Case with many indices for each entry.
        (vec![3, 4], 1, 5000),
        (vec![2, 300, 3], 0, 3000),
    ]);
    for (shape, axis, n) in cases {
        let (x, index) = (rng.floats(Dims::new(&shape)), rng.numbers([n], shape[axis]));
        let (elements, numbers) = (x.elements(), index.elements());
        let taken = with(&shape, axis, n);
        let mut expected = Vec::new();
        each_index(&taken, |i| {
            expected.push(elements[place(&shape, &with(i, axis, numbers[i[axis]] as usize))])
        });
        rig.expect(&Gather { axis }.into(), &[x, index.clone()], &taken, &expected, 0.0);

        let classes = shape[axis].max(1);
        if n * classes <= 1_000_000 {
            let mut expected = vec![0.0; n * classes];
            numbers.iter().enumerate().for_each(|(i, &k)| expected[i * classes + k as usize] = 1.0);
            let op = OneHot { classes }.into();
            rig.expect(&op, std::slice::from_ref(&index), &[n, classes], &expected, 0.0);
        }

        let y = rng.floats(Dims::new(&taken));
        let elements = y.elements();
        // Add in f32 and in the order of the index, as the op does.
        let mut sums = vec![0f32; shape.iter().product()];
        each_index(&taken, |i| {
            sums[place(&shape, &with(i, axis, numbers[i[axis]] as usize))] +=
                elements[place(&taken, i)] as f32;
        });
        let expected: Vec<f64> = sums.into_iter().map(f64::from).collect();
        let op: Op = ScatterAdd { axis, size: shape[axis] }.into();
        rig.expect(&op, &[y, index], &shape, &expected, 0.0);
    }
}

pub fn numbers_out_of_range_are_refused<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(15);
    for bad in [-1, 3, i32::MAX] {
        let index = Arg::i32([4], vec![0, 2, bad, -7]);
        let message = format!("index {bad} at position 2 is out of range, expected 0..3");
        let error =
            rig.try_run(&OneHot { classes: 3 }.into(), std::slice::from_ref(&index)).unwrap_err();
        assert_eq!(error.to_string(), message);
        let args = [rng.floats([2, 3]), index.clone()];
        assert_eq!(
            rig.try_run(&Gather { axis: 1 }.into(), &args).unwrap_err().to_string(),
            message
        );
        let args = [rng.floats([2, 4]), index];
        assert_eq!(
            rig.try_run(&ScatterAdd { axis: 1, size: 3 }.into(), &args).unwrap_err().to_string(),
            message
        );
    }
}

pub fn joining_padding_and_packing<D: Device<Op = Op, Host = HostTensor>>(rig: &mut Rig<D>) {
    let mut rng = Rng::new(16);
    for round in 0..80 {
        let size = if round % 8 == 0 { 40 } else { 6 };
        let shape = [&*rng.shape(2, size), &[rng.size(size)]].concat();
        let axis = rng.below(shape.len());

        let (before, after) = (rng.below(4), rng.below(4));
        let x = rng.floats(Dims::new(&shape));
        let elements = x.elements();
        let padded = with(&shape, axis, before + shape[axis] + after);
        let mut expected = Vec::new();
        each_index(&padded, |i| {
            let inside = i[axis].checked_sub(before).filter(|&j| j < shape[axis]);
            expected.push(inside.map_or(0.0, |j| elements[place(&shape, &with(i, axis, j))]));
        });
        rig.expect(&Pad { axis, before, after }.into(), &[x], &padded, &expected, 0.0);

        let x = rng.floats(Dims::new(&shape));
        let elements = x.elements();
        let mut expected = Vec::new();
        each_index(&shape, |i| {
            expected.push(elements[place(&shape, &with(i, axis, shape[axis] - 1 - i[axis]))]);
        });
        rig.expect(&Flip { axis }.into(), &[x], &shape, &expected, 0.0);

        let parts: Vec<Arg> = (0..1 + rng.below(4))
            .map(|_| {
                let own = with(&shape, axis, rng.below(5));
                rng.floats(Dims::new(&own))
            })
            .collect();
        let joined = with(&shape, axis, parts.iter().map(|part| part.shape()[axis]).sum());
        let mut expected = Vec::new();
        each_index(&joined, |i| {
            let mut along = i[axis];
            let part = parts.iter().find(|part| {
                let own = part.shape()[axis];
                let found = along < own;
                along -= if found { 0 } else { own };
                found
            });
            let part = part.unwrap();
            expected.push(part.elements()[place(part.shape(), &with(i, axis, along))]);
        });
        rig.expect(&Concat { axis }.into(), &parts, &joined, &expected, 0.0);

        let x = rng.arranged(&Dims::new(&shape));
        let expected = x.elements();
        rig.expect(&Contiguous.into(), &[x], &shape, &expected, 0.0);
    }
    let numbers =
        rng.numbers([60], 1000).view(|l| l.reshape(&Dims::new(&[6, 10]))?.permute(&[1, 0]));
    let expected: Vec<i32> = numbers.elements().into_iter().map(|x| x as i32).collect();
    let found = rig.run(&Contiguous.into(), &[numbers]).remove(0);
    assert_eq!(found.as_i32().unwrap(), expected);
    let found =
        rig.run(&Concat { axis: 0 }.into(), &[found.clone().into(), found.into()]).remove(0);
    assert_eq!(found.as_i32().unwrap(), [&expected[..], &expected].concat());
}
