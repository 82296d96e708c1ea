/// Learning rate over a run, as a function of the step's number alone. A resumed run therefore has
/// the same rates as an uninterrupted run.
///
/// ```
/// use remat::optim::Schedule;
///
/// let schedule = Schedule::cosine(0.1, 0.0, 90).warmup(10);
/// assert_eq!(schedule.rate(0), 0.01);
/// assert_eq!(schedule.rate(10), 0.1);
/// assert_eq!(schedule.rate(100), 0.0);
///
/// // The schedule of the paper on residual networks.
/// let steps = Schedule::constant(0.01).then(400, Schedule::steps(0.1, 0.1, 32_000));
/// assert_eq!((steps.rate(399), steps.rate(400)), (0.01, 0.1));
/// assert!((steps.rate(32_400) - 0.01).abs() < 1e-8);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule(Shape);

#[derive(Clone, Debug, PartialEq)]
enum Shape {
    Constant(f32),
    /// Half a cosine wave from `from` to `to`; afterwards the rate is `to`.
    Cosine {
        from: f32,
        to: f32,
        steps: usize,
    },
    /// A straight line from `from` to `to`; afterwards the rate is `to`.
    Linear {
        from: f32,
        to: f32,
        steps: usize,
    },
    /// Rate `from`, multiplied by `factor` after each `every` steps.
    Steps {
        from: f32,
        factor: f32,
        every: usize,
    },
    /// A linear rise over the given number of steps, in equal increments, up to the first rate of
    /// the schedule that follows.
    Warmup(usize, Box<Schedule>),
    /// The first schedule for the given number of steps, then the second schedule, with steps
    /// counted from 0.
    Then(Box<Schedule>, usize, Box<Schedule>),
}

impl Schedule {
    /// A constant rate.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// assert_eq!(Schedule::constant(0.1).rate(1_000_000), 0.1);
    /// ```
    #[must_use]
    pub const fn constant(rate: f32) -> Self {
        Self(Shape::Constant(rate))
    }

    /// Falls from one rate to another in `steps` steps along half a cosine, and stays at the second
    /// rate (Loshchilov and Hutter, ICLR 2017).
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::cosine(1.0, 0.0, 4);
    /// assert_eq!([0, 2, 4, 5].map(|step| schedule.rate(step)), [1.0, 0.5, 0.0, 0.0]);
    /// ```
    #[must_use]
    pub const fn cosine(from: f32, to: f32, steps: usize) -> Self {
        Self(Shape::Cosine { from, to, steps })
    }

    /// Changes linearly from one rate to another in `steps` steps, and stays at the second rate.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::linear(1.0, 0.0, 4);
    /// assert_eq!([0, 1, 4, 5].map(|step| schedule.rate(step)), [1.0, 0.75, 0.0, 0.0]);
    /// ```
    #[must_use]
    pub const fn linear(from: f32, to: f32, steps: usize) -> Self {
        Self(Shape::Linear { from, to, steps })
    }

    /// Multiplies the rate by `factor` after each `every` steps. If `every` is 0, the rate is
    /// constant.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::steps(1.0, 0.5, 10);
    /// assert_eq!([9, 10, 20].map(|step| schedule.rate(step)), [1.0, 0.5, 0.25]);
    /// ```
    #[must_use]
    pub const fn steps(from: f32, factor: f32, every: usize) -> Self {
        Self(Shape::Steps { from, factor, every })
    }

    /// Adds a warmup of `steps` steps before this schedule, in which the rate rises linearly to the
    /// schedule's first rate.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::constant(1.0).warmup(4);
    /// assert_eq!([0, 1, 3, 4].map(|step| schedule.rate(step)), [0.25, 0.5, 1.0, 1.0]);
    /// ```
    #[must_use]
    pub fn warmup(self, steps: usize) -> Self {
        if steps == 0 { self } else { Self(Shape::Warmup(steps, Box::new(self))) }
    }

    /// Uses this schedule for `steps` steps, and `next` afterwards.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::constant(3.0).then(2, Schedule::linear(1.0, 0.0, 2));
    /// assert_eq!([0, 1, 2, 3, 4].map(|step| schedule.rate(step)), [3.0, 3.0, 1.0, 0.5, 0.0]);
    /// ```
    #[must_use]
    pub fn then(self, steps: usize, next: Self) -> Self {
        Self(Shape::Then(Box::new(self), steps, Box::new(next)))
    }

    /// Learning rate of a step, counted from 0.
    ///
    /// ```
    /// use remat::optim::Schedule;
    ///
    /// let schedule = Schedule::linear(0.0, 1.0, 2);
    /// let rates: Vec<f32> = (0..4).map(|step| schedule.rate(step)).collect();
    /// assert_eq!(rates, [0.0, 0.5, 1.0, 1.0]);
    /// ```
    #[must_use]
    pub fn rate(&self, step: usize) -> f32 {
        let part = |steps: usize| (step.min(steps) as f64) / steps.max(1) as f64;
        match &self.0 {
            Shape::Constant(rate) => *rate,
            Shape::Cosine { to, steps, .. } | Shape::Linear { to, steps, .. } if step >= *steps => {
                *to
            }
            Shape::Cosine { from, to, steps } => {
                let wave = 0.5 + 0.5 * (std::f64::consts::PI * part(*steps)).cos();
                to + (from - to) * wave as f32
            }
            Shape::Linear { from, to, steps } => to + (from - to) * (1.0 - part(*steps)) as f32,
            Shape::Steps { from, every: 0, .. } => *from,
            Shape::Steps { from, factor, every } => {
                let times = i32::try_from(step / every).unwrap_or(i32::MAX);
                (f64::from(*from) * f64::from(*factor).powi(times)) as f32
            }
            Shape::Warmup(steps, next) if step < *steps => {
                next.rate(0) * (step + 1) as f32 / *steps as f32
            }
            Shape::Warmup(steps, next) => next.rate(step - steps),
            Shape::Then(first, steps, _) if step < *steps => first.rate(step),
            Shape::Then(_, steps, next) => next.rate(step - steps),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rises_to_the_peak_and_falls_to_nothing() {
        let schedule = Schedule::cosine(0.1, 0.0, 90).warmup(10);
        assert_eq!(schedule.rate(0), 0.01);
        assert_eq!((schedule.rate(9), schedule.rate(10)), (0.1, 0.1));
        assert!((11..100).all(|step| schedule.rate(step) < schedule.rate(step - 1)));
        assert!(schedule.rate(99) > 0.0);
        assert_eq!((schedule.rate(100), schedule.rate(1000)), (0.0, 0.0));
        assert_eq!(Schedule::cosine(0.1, 0.0, 1).rate(0), 0.1);
        assert_eq!(Schedule::cosine(0.1, 0.02, 0).rate(0), 0.02);
    }

    #[test]
    fn shapes_follow_one_another() {
        let line = Schedule::linear(1.0, 0.0, 4);
        let rates: Vec<f32> = (0..6).map(|step| line.rate(step)).collect();
        assert_eq!(rates, [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]);
        let stairs = Schedule::steps(1.0, 0.5, 2).warmup(2);
        let rates: Vec<f32> = (0..7).map(|step| stairs.rate(step)).collect();
        assert_eq!(rates, [0.5, 1.0, 1.0, 1.0, 0.5, 0.5, 0.25]);
        assert_eq!(Schedule::steps(0.3, 0.5, 0).rate(usize::MAX), 0.3);
        assert_eq!(Schedule::steps(0.3, 0.5, 1).rate(usize::MAX), 0.0);
        let all = Schedule::constant(3.0).then(1, line.clone().then(2, stairs));
        let rates: Vec<f32> = (0..5).map(|step| all.rate(step)).collect();
        assert_eq!(rates, [3.0, 1.0, 0.75, 0.5, 1.0]);
    }
}
