//! `remat evaluate`: a test of a trained network.

use super::args::{TrainArgs, verifying};
use super::checkpoint;
use super::command::EvaluateArgs;
use super::distinct::{self, Input};
use super::failure::Failure;
use super::foreign;
use super::interrupt;
use super::output::{self, Output};
use super::rehearsal::{self, Blank};
use super::report::Verified;
use super::session::{Session, Setup};
use super::target::{About, Target};
use super::terminal::{Shows, show};
use super::train;
use super::training_loop::{self, Ending};
use super::values::Budget;
use super::words::{Counted, Seconds};
use remat::ByteSize;
use serde::Serialize;
use std::fmt;

/// Result of the test. The report is printed for people, and serialized for programs.
#[derive(Debug, Serialize)]
struct TestReport {
    model: String,
    data: String,
    /// Number of steps of the training; `None` for a network of another library.
    steps: Option<usize>,
    #[serde(flatten)]
    device: About,
    budget_bytes: u64,
    peak_bytes: u64,
    test_accuracy: f64,
    /// Mean loss, in nats.
    test_loss: f64,
    test_examples: usize,
    test_seconds: f64,
    #[serde(flatten)]
    verified: Option<Verified>,
    /// Hash of parameters and buffers.
    params_sha256: String,
    #[serde(skip)]
    told: String,
    #[serde(skip)]
    example: &'static str,
}

impl fmt::Display for TestReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { model, data, told, .. } = self;
        let tests = Counted(self.test_examples as u64, self.example);
        match self.steps {
            Some(steps) => {
                writeln!(f, "{model} on {data}, after {}", Counted(steps as u64, "step"))?
            }
            None => writeln!(f, "{model} on {data}")?,
        }
        writeln!(f, "  device      {}", self.device)?;
        writeln!(f, "  test        {told}; {tests} in {}", Seconds(self.test_seconds))?;
        let [peak, budget] = [self.peak_bytes, self.budget_bytes].map(ByteSize);
        writeln!(f, "  memory      peak {peak} of {budget}")?;
        if let Some(verified) = &self.verified {
            writeln!(f, "{verified}")?;
        }
        write!(f, "  parameters  sha256 {}", &self.params_sha256[..16])
    }
}

/// Divisor: the default budget is the peak plus the peak divided by `HOLES`. Holes between tensors
/// may make a test need more than its peak, even if nothing is evicted. Loading the network leaves
/// holes that no rehearsal has.
const HOLES: u64 = 16;

/// Loads a network, tests it, and reports the result.
pub fn run(args: &EvaluateArgs) -> Result<(), Failure> {
    let EvaluateArgs { checkpoint: path, device, .. } = args;
    if let Some(contradiction) = device.contradiction() {
        return Err(Failure::usage(contradiction));
    }
    interrupt::listen(args.quiet)?;
    // The checkpoint contains the options of its training, from which the network is made. Options
    // of this command replace options of the training.
    let saved = args.foreign.open(path)?;
    let mut instead = saved.instead(&args.foreign);
    if saved.takes_images() && args.data.is_none() {
        let path = path.display();
        let message =
            format!("{path} does not name data to test on; name images, as --data images:DIR");
        return Err(Failure::usage(message));
    }
    instead.extend(args.data.as_ref().map(|data| ("data", data.to_string())));
    instead.extend(args.batch.map(|batch| ("batch", batch.to_string())));
    let size = args.image_size.map(|[h, w]| ("image_size", format!("{h}x{w}")));
    instead.extend(size);
    let trained = checkpoint::arguments_of(&saved.options, path, &instead)?;
    let TrainArgs { model, memory, learning, optimizer, .. } = &*trained;
    // Check and open the output before the test, so that a file that cannot be written fails early.
    let beside = [learning.data.path(), learning.tokenizer.as_deref()].into_iter().flatten();
    let inputs = saved.file.files().chain([&**path]).chain(beside);
    distinct::check(&[("--json", &args.json)], &Input::kept(inputs))?;
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let target = Target::open(device, 1, args.quiet)?;
    let task = train::task(&trained)?;
    let fit = saved.fit(&*task, path)?;
    if saved.known.is_some() && !args.quiet {
        foreign::tell(&saved.file, &fit, path);
    }
    // A simulated test gives the peak. The default budget, 100 %, is the peak plus extra bytes for
    // holes.
    let setup = Setup::alone(&*task, learning.batch, optimizer);
    let shows = Shows::now(args.quiet);
    let full = rehearsal::peak(&target, &Blank::new(&setup, task.tests())?, memory)?;
    let full = full + full / HOLES;
    let budget = match args.budget {
        None => full,
        Some(Budget::Share(share)) => share.of(full),
        Some(Budget::Auto) => target.available_bytes()?,
    };
    // Load the network on the device and test it.
    let about = target.about();
    let builder = memory.builder().budget(budget).seed(learning.seed);
    let runtime = target.start(verifying(builder, args.verify))?;
    let loaded = Session::new(runtime, &setup).map_err(Failure::from).and_then(|mut session| {
        session.load_network(&saved.file).map_err(checkpoint::failure)?;
        Ok(session)
    });
    let mut session = loaded?;
    let (ending, test) = training_loop::test(&mut session, &setup, shows)?;
    let test = match (ending, test) {
        (_, Some(test)) => test,
        (Ending::Interrupted, None) => {
            return Err(Failure::interrupted("interrupted before the end of the test"));
        }
        (_, None) => {
            let path = path.display();
            return Err(Failure::new(format!(
                "the outputs of the network of {path} are not finite"
            )));
        }
    };
    let stats = session.runtime().stats()?;
    let report = TestReport {
        model: model.to_string(),
        data: learning.data.to_string(),
        steps: saved.kept.map(|kept| kept.done),
        device: about,
        budget_bytes: budget,
        peak_bytes: stats.peak_bytes,
        verified: args.verify.map(|_| Verified::from(&stats)),
        test_accuracy: test.score.accuracy(),
        test_loss: test.score.mean_loss(),
        test_examples: task.tests(),
        test_seconds: test.seconds.as_secs_f64(),
        params_sha256: session.digest()?,
        told: task.tell(&test.score),
        example: task.example(),
    };
    deliver(&report, args.quiet, json)
}

/// Prints and writes the result.
fn deliver(report: &TestReport, quiet: bool, json: Option<Output>) -> Result<(), Failure> {
    let stdout_is_taken = matches!(json, Some(Output::Stdout));
    let printed = if quiet { Ok(()) } else { show(report, stdout_is_taken) };
    output::all([printed, Output::deliver_to(json, || output::json(report))])
}
