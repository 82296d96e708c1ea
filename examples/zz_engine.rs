use remat::device::sim::Sim;
use remat::engine::{Engine, Settings};
use remat::ops::{Op, Unary};
use remat::{CostModelKind, HostTensor, Layout, PolicyKind, op::Op as _};
fn main() {
    let n: usize = std::env::args().nth(1).map_or(100_000, |s| s.parse().unwrap());
    let chain = std::env::args().nth(2).is_some();
    let mut e = Engine::new(
        Sim::<Op, HostTensor>::cpu(),
        Settings::new(1 << 30),
        PolicyKind::DtrEq.build(0),
        CostModelKind::Flops.build(),
    )
    .unwrap();
    let x = e.put(std::sync::Arc::new(HostTensor::scalar(1.0)));
    let l: Layout = e.layout(x).unwrap();
    let outputs = Op::Unary(Unary::Relu).infer(&[l]).unwrap();
    if chain {
        let mut cur = x;
        for i in 0..n {
            let y = e.issue(Op::Unary(Unary::Relu), &[cur], &outputs).unwrap()[0];
            if i % 100 != 0 || i == 0 {
                if cur != x {
                    e.del(cur);
                }
            } else {
                if cur != x {
                    e.del(cur);
                }
                e.del(y);
                cur = x;
                continue;
            }
            cur = y;
        }
    } else {
        for _ in 0..n {
            let y = e.issue(Op::Unary(Unary::Relu), &[x], &outputs).unwrap()[0];
            e.del(y);
        }
    }
}
