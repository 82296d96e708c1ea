/// The learning rate over a run: a short rise, then half a cosine down to nothing. Short and long runs
/// both end settled.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    /// The highest rate.
    pub peak: f32,
    /// Steps in the run.
    pub steps: usize,
}

impl Schedule {
    /// One step in so many is spent on the rise.
    const RISE: usize = 10;

    /// The rate of a step, counted from 0.
    pub fn rate(self, step: usize) -> f32 {
        let rise = self.steps / Self::RISE;
        if step < rise {
            return self.peak * (step + 1) as f32 / rise as f32;
        }
        let gone = (step - rise) as f64 / (self.steps - rise) as f64;
        self.peak * (0.5 + 0.5 * (std::f64::consts::PI * gone).cos()) as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_to_the_peak_and_falls_to_nothing() {
        let schedule = Schedule { peak: 0.1, steps: 100 };
        assert_eq!(schedule.rate(0), 0.01);
        assert_eq!((schedule.rate(9), schedule.rate(10)), (0.1, 0.1));
        assert!((11..100).all(|step| schedule.rate(step) < schedule.rate(step - 1)));
        assert!(schedule.rate(99) > 0.0);
        assert_eq!(Schedule { peak: 0.1, steps: 1 }.rate(0), 0.1);
    }
}
