use super::{Draw, Operand, Sample, Sampled, floats, inside, repeated, turned};
use crate::layout::{Dims, Layout};
use crate::ops::{Attention, AttentionGrad, FLOAT, Op};

impl Sampled for Attention {
    fn samples(&self) -> Vec<Sample> {
        samples().map(|(op, q, k)| Sample::new(op, [q, k.clone(), k])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (op, [q, k, v], _) = drawn(draw);
        Sample::new(op, [q, k, v])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (op, [q, k]) = absurd(draw);
        (op.into(), vec![q, k, k])
    }
}

impl Sampled for AttentionGrad {
    fn samples(&self) -> Vec<Sample> {
        let sample = |(op, q, k): (Attention, Operand, Operand)| {
            let rows = floats(&q.seen.shape()[..3]);
            // Use a positive `lse`, because the probabilities `e^(score - lse)` would overflow with
            // a small `lse`.
            Sample::new(Self(op), [q.clone(), k.clone(), k, rows.clone().positive(), rows, q])
        };
        samples().map(sample).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let (op, [q, k, v], queries) = drawn(draw);
        let [lse, delta] = [(); 2].map(|()| draw.packed(Dims::new(&queries[..3])));
        let dy = draw.arranged(&queries);
        Sample::new(Self(op), [q, k, v, lse, delta, dy])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        let (op, [q, k]) = absurd(draw);
        let rows = Layout::contiguous(FLOAT, Dims::new(&q.shape()[..3]));
        (Self(op).into(), vec![q, k, k, rows, rows, q])
    }
}

/// Fixed samples: ops, with queries and keys.
///
/// Sizes lie near the sizes of tiles. Some samples have more queries than keys, some have fewer
/// queries than keys, and some have no queries.
fn samples() -> impl Iterator<Item = (Attention, Operand, Operand)> {
    let sizes = [
        [1, 1, 1, 1, 1],
        [2, 3, 5, 7, 4],
        [1, 2, 33, 129, 16],
        [2, 1, 300, 257, 20],
        [1, 1, 64, 64, 256],
        [3, 5, 128, 128, 32],
        [1, 3, 7, 700, 65],
        [1, 1, 1100, 3, 130],
        [0, 3, 4, 5, 6],
        [2, 2, 0, 5, 6],
        [2, 2, 4, 0, 6],
        [2, 2, 4, 5, 0],
    ];
    let packed = sizes.into_iter().enumerate().flat_map(|(i, [b, h, t, s, d])| {
        let scale = if i % 3 == 1 { Some(0.3) } else { None };
        let (q, k) = (floats(&[b, h, t, d]), floats(&[b, h, s, d]));
        [false, true].map(|causal| (Attention { causal, scale }, q.clone(), k.clone()))
    });
    let op = Attention { causal: true, scale: None };
    // Queries and keys have the layout that a matrix product gives them: all heads of a token lie
    // in one row.
    let beside = |n: usize| floats(&[2, n, 3, 40]).view(|x| x.permute(&[0, 2, 1, 3]));
    packed.chain([
        (op, beside(70), beside(200)),
        (op, turned(&[1, 2, 90, 35]), inside(&[1, 2, 40, 35])),
        (op, repeated(&[1, 2, 1, 8], &[2, 2, 50, 8]), repeated(&[2, 1, 60, 1], &[2, 2, 60, 8])),
    ])
}

/// Draws an op, `q`, `k` and `v` of any strides, and the shape of the queries.
fn drawn(draw: &mut Draw) -> (Attention, [Operand; 3], Dims) {
    let [b, h, t, d] = draw.sizes();
    let s = draw.size();
    let op = Attention {
        causal: draw.flip(),
        scale: if draw.flip() { Some(draw.float()) } else { None },
    };
    let [queries, keys] = [t, s].map(|n| Dims::from([b, h, n, d]));
    (op, [queries, keys, keys].map(|shape| draw.arranged(&shape)), queries)
}

/// Draws an op, and layouts of queries and keys whose sizes may overflow.
fn absurd(draw: &mut Draw) -> (Attention, [Layout; 2]) {
    let op = Attention {
        causal: draw.flip(),
        scale: if draw.flip() { Some(draw.absurd_number()) } else { None },
    };
    let ([b, h], [t, s], d) = (draw.absurd_pair(), draw.absurd_pair(), draw.absurd_size());
    (op, [t, s].map(|n| Layout::contiguous(FLOAT, [b, h, n, d])))
}
