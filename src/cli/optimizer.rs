//! Options for the optimizer and the learning rate, and the objects made from them.

use super::model::with_text;
use super::values;
use clap::builder::{PossibleValuesParser, TypedValueParser as _};
use clap::{Args, ValueEnum};
use remat::optim::{Group, Optimizer, Rule, Schedule};
use std::fmt;

/// Default momentum.
const MOMENTUM: f32 = 0.9;

/// Options for the optimizer, the learning rate and the gradients.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Optimizer")]
pub struct OptimizerArgs {
    /// Rule that updates the parameters
    ///
    /// [default for text models: adamw]
    #[arg(long, value_name = "NAME", default_value = "sgd", default_value_ifs = with_text("adamw"))]
    pub optimizer: OptimizerName,

    /// Peak learning rate [default: 0.1 with sgd, 0.001 with adamw, 0.0001 with lion]
    #[arg(long, value_parser = values::above_zero, allow_hyphen_values = true)]
    lr: Option<f32>,

    /// Momentum of sgd
    #[arg(long, value_name = "X", default_value_t = MOMENTUM, value_parser = values::below_one, allow_hyphen_values = true)]
    momentum: f32,

    /// With sgd: look ahead along the momentum
    #[arg(long)]
    nesterov: bool,

    /// Weight decay [default: 0.0005 with sgd, 0.01 with adamw, 0.1 with lion]
    ///
    /// An L2 penalty on all parameters with sgd. The others shrink weights apart from gradients,
    /// and leave norms and biases alone.
    #[arg(long, value_name = "X", value_parser = values::from_zero::<f32>, allow_hyphen_values = true)]
    weight_decay: Option<f32>,

    /// How the learning rate falls after the warm-up: to 0 along a cosine, not at all, or by steps
    #[arg(long, value_name = "NAME", default_value = "cosine")]
    schedule: ScheduleName,

    /// Steps in which the learning rate rises to its peak [default: a tenth of the run with cosine,
    /// else 0]
    #[arg(long, value_name = "STEPS", value_parser = values::from_no_steps, allow_hyphen_values = true)]
    warmup: Option<usize>,

    /// Scale gradients down if the norm of all of them together is above X
    ///
    /// This keeps all gradients in memory at once; see --step-in-backward.
    #[arg(long, value_name = "X", value_parser = values::above_zero, allow_hyphen_values = true)]
    clip: Option<f32>,

    /// Update each parameter as soon as its gradient is complete, and free the gradient [default:
    /// yes, unless --clip]
    ///
    /// With no, all gradients are in memory at once, and parameters are updated at the end, several
    /// at a time. The results have the same bits.
    // The heading "Memory" exempts the option from the check of `--resume` that options did not
    // change.
    #[arg(
        long,
        value_name = "WHETHER",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "yes",
        value_parser = PossibleValuesParser::new(["yes", "no"]).map(|given| given == "yes"),
        help_heading = "Memory"
    )]
    step_in_backward: Option<bool>,

    /// Add up the gradients of N batches for each step
    ///
    /// A step has the gradients of a batch N times as large, in the memory of one batch. Batch norm
    /// sees each batch by itself.
    #[arg(long, value_name = "N", default_value = "1", value_parser = values::parts, allow_hyphen_values = true)]
    pub accumulate: usize,
}

/// Name of a [`Rule`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OptimizerName {
    /// Stochastic gradient descent with momentum
    Sgd,
    /// Adam with decoupled weight decay
    #[value(name = "adamw")]
    AdamW,
    /// The sign of an average gradient: half of the memory of adamw
    Lion,
}

/// Name of a [`Schedule`] on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ScheduleName {
    /// Stays at its peak
    Constant,
    /// Falls to 0 along half a cosine
    Cosine,
    /// Falls to a tenth after each third of the run
    Step,
}

impl OptimizerArgs {
    /// Message about options that contradict each other; `None` if no options do.
    pub const fn contradiction(&self) -> Option<&'static str> {
        if self.nesterov && !matches!(self.optimizer, OptimizerName::Sgd) {
            return Some("--nesterov needs --optimizer sgd; choose that, or drop --nesterov");
        }
        // A checkpoint always stores a momentum, even of a run with an optimizer other than sgd.
        // The stored value is then the default, which is accepted here.
        if self.momentum != MOMENTUM && !matches!(self.optimizer, OptimizerName::Sgd) {
            return Some("--momentum needs --optimizer sgd; choose that, or drop --momentum");
        }
        if self.clip.is_some() && matches!(self.step_in_backward, Some(true)) {
            return Some(
                "--clip needs all gradients before the first update; drop --step-in-backward, or --clip",
            );
        }
        None
    }

    /// Peak learning rate.
    pub fn lr(&self) -> f32 {
        self.lr.unwrap_or(match self.optimizer {
            OptimizerName::Sgd => 0.1,
            OptimizerName::AdamW => 1e-3,
            OptimizerName::Lion => 1e-4,
        })
    }

    /// Makes an optimizer at its first step.
    pub fn build(&self) -> Optimizer {
        let mut optimizer = match self.optimizer {
            OptimizerName::Sgd => {
                let Self { momentum, nesterov, .. } = *self;
                let weight_decay = self.weight_decay.unwrap_or(5e-4);
                Optimizer::new(Rule::Sgd { momentum, nesterov }, 0.0, weight_decay)
            }
            OptimizerName::AdamW => Optimizer::adamw(0.0, self.weight_decay.unwrap_or(0.01))
                .group(Group::vectors().weight_decay(0.0)),
            OptimizerName::Lion => Optimizer::lion(0.0, self.weight_decay.unwrap_or(0.1))
                .group(Group::vectors().weight_decay(0.0)),
        };
        optimizer.max_norm = self.clip;
        optimizer.step_in_backward = self.step_in_backward.unwrap_or(true);
        optimizer
    }

    /// Learning rate over a run of `steps` steps.
    pub fn schedule(&self, steps: usize) -> Schedule {
        /// Number of steps of the run divided by the number of warm-up steps: the warm-up is a
        /// tenth of the run.
        const RISE: usize = 10;
        let rise = match self.schedule {
            ScheduleName::Cosine => steps / RISE,
            ScheduleName::Constant | ScheduleName::Step => 0,
        };
        let rise = self.warmup.unwrap_or(rise);
        let (lr, rest) = (self.lr(), steps.saturating_sub(rise));
        let schedule = match self.schedule {
            ScheduleName::Constant => Schedule::constant(lr),
            ScheduleName::Cosine => Schedule::cosine(lr, 0.0, rest),
            ScheduleName::Step => Schedule::steps(lr, 0.1, rest.div_ceil(3)),
        };
        match self.schedule {
            // The warm-up takes all steps of the run. A cosine over the remaining 0 steps would
            // give a rate of 0 in all steps.
            ScheduleName::Cosine if rest == 0 => Schedule::constant(lr).warmup(rise),
            _ => schedule.warmup(rise),
        }
    }
}

impl fmt::Display for OptimizerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.to_possible_value().expect("none is hidden").get_name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{CommandFactory as _, FromArgMatches as _, Parser};

    #[derive(Debug, Parser)]
    struct Only {
        #[command(flatten)]
        args: OptimizerArgs,
    }

    fn args(text: &str) -> OptimizerArgs {
        let matches = Only::command().get_matches_from(format!("x {text}").split_whitespace());
        Only::from_arg_matches(&matches).unwrap().args
    }

    #[test]
    fn each_optimizer_has_its_own_defaults() {
        for (text, lr, decay) in [
            ("", 0.1, 5e-4),
            ("--optimizer adamw", 1e-3, 0.01),
            ("--optimizer lion --weight-decay 0", 1e-4, 0.0),
            ("--optimizer adamw --lr 0.5", 0.5, 0.01),
        ] {
            let args = args(text);
            assert_eq!((args.lr(), args.build().weight_decay), (lr, decay), "{text}");
        }
        assert!(args("--optimizer lion --nesterov").contradiction().is_some());
        assert!(args("--optimizer adamw --momentum 0.5").contradiction().is_some());
        assert!(args("--optimizer adamw --momentum 0.9").contradiction().is_none());
        assert!(args("--momentum 0.5").contradiction().is_none());
        assert_eq!(args("--clip 2").build().max_norm, Some(2.0));
        for (text, is_on) in
            [("", true), ("--step-in-backward", true), ("--step-in-backward=no", false)]
        {
            assert_eq!(args(text).build().step_in_backward, is_on, "{text}");
        }
        assert!(args("--clip 2 --step-in-backward").contradiction().is_some());
        assert!(args("--clip 2 --step-in-backward=no").contradiction().is_none());
    }

    #[test]
    fn a_run_warms_up_and_settles() {
        let cosine = args("").schedule(100);
        assert_eq!((cosine.rate(0), cosine.rate(9), cosine.rate(10)), (0.01, 0.1, 0.1));
        assert!((11..100).all(|step| cosine.rate(step) < cosine.rate(step - 1)));
        assert!(cosine.rate(99) > 0.0);
        assert_eq!(args("").schedule(1).rate(0), 0.1);
        let constant = args("--schedule constant").schedule(100);
        assert!((0..100).all(|step| constant.rate(step) == 0.1));
        let warm = args("--schedule constant --warmup 200").schedule(100);
        assert_eq!(warm.rate(99), 0.05);
        let all_warm = args("--warmup 100").schedule(100);
        assert_eq!((all_warm.rate(0), all_warm.rate(99)), (0.001, 0.1));
        let stairs = args("--schedule step --warmup 10").schedule(100);
        for (step, rate) in [(9, 0.1), (39, 0.1), (40, 0.01), (99, 0.001)] {
            assert!((stairs.rate(step) - rate).abs() < 1e-8, "{step}");
        }
    }
}
