use super::{Draw, SHAPES, Sample, Sampled, arranged};
use crate::layout::Layout;
use crate::ops::{Cast, Op};

impl Sampled for Cast {
    fn samples(&self) -> Vec<Sample> {
        let all = SHAPES.iter().flat_map(|shape| arranged(shape));
        all.map(|x| Sample::new(*self, [x])).collect()
    }

    fn draw(&self, draw: &mut Draw) -> Sample {
        let shape = draw.shape(0, 4);
        Sample::new(*self, [draw.arranged(&shape)])
    }

    fn absurd(&self, draw: &mut Draw) -> (Op, Vec<Layout>) {
        ((*self).into(), vec![draw.absurd_layout()])
    }
}
