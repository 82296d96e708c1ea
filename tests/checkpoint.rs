//! Checkpoints are read back as they were written. A run that resumes from a checkpoint has the
//! bits of an uninterrupted run. A file is refused unless it is a complete checkpoint of the
//! network.

use remat::autograd::Tape;
use remat::checkpoint::{Checkpoint, CheckpointError, Writer};
use remat::nn::{Dropout, Mode, Module, Residual, Sequential, State, mlp, resnet, state};
use remat::nn::{Linear, ResNet};
use remat::optim::Optimizer;
use remat::{Error, HostTensor, Runtime, Tensor};
use safetensors::SafeTensors;
use std::path::PathBuf;

/// Path in a folder of these tests.
fn path(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("remat-checkpoint-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder.join(name)
}

fn start(budget: &str) -> Runtime {
    Runtime::builder().budget(budget).seed(5).threads(1).cpu().unwrap()
}

/// Network with batch norm and dropout. The random numbers of dropout must continue after a
/// checkpoint.
fn network(runtime: &Runtime) -> Sequential {
    Sequential::new()
        .then("body", resnet(runtime, ResNet::Cifar { n: 1 }, 1, [8, 8], 16).unwrap())
        .then("dropout", Dropout::new(0.5))
        .then("head", Linear::new(runtime, 16, 4).unwrap())
}

fn train(
    runtime: &Runtime,
    network: &mut Sequential,
    optimizer: &mut Optimizer,
    steps: std::ops::Range<usize>,
) -> Result<(), Error> {
    for step in steps {
        let pixel = |i: usize| ((i * 37 + step * 11) % 64) as f32 / 32.0 - 1.0;
        let x = runtime.tensor(&[32, 1, 8, 8], (0..2048).map(pixel).collect())?;
        let labels = runtime.tensor(&[32], (0..32).map(|i| ((i + step) % 4) as i32).collect())?;
        let tape = Tape::new(runtime);
        tape.watch(network);
        let loss = network.forward(&x, Mode::Train)?.cross_entropy(&labels)?;
        drop((x, labels));
        optimizer.minimize(tape, &loss, network)?;
        runtime.step()?;
    }
    Ok(())
}

fn values(runtime: &Runtime, module: &mut dyn Module) -> Vec<(String, HostTensor)> {
    let each = state(module).into_iter().map(|(name, state)| {
        let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
        (name, runtime.get(tensor).unwrap())
    });
    each.collect()
}

fn optimizers() -> [Optimizer; 3] {
    [Optimizer::sgd(0.1, 0.9, 1e-3), Optimizer::adamw(0.01, 0.1), Optimizer::lion(0.003, 0.1)]
}

#[test]
fn a_run_that_goes_on_has_the_bits_of_one_that_never_ended() {
    for kind in 0..3 {
        let optimizer = || optimizers().into_iter().nth(kind).unwrap();
        let runtime = start("64MiB");
        let (mut net, mut of_whole) = (network(&runtime), optimizer());
        train(&runtime, &mut net, &mut of_whole, 0..5).unwrap();
        let whole = values(&runtime, &mut net);
        let budget = runtime.stats().unwrap().peak_bytes * 75 / 100;
        for at in 0..5 {
            let path = path(&format!("goes-on-{kind}-{at}"));
            {
                let runtime = start("64MiB");
                let (mut net, mut optimizer) = (network(&runtime), optimizer());
                train(&runtime, &mut net, &mut optimizer, 0..at).unwrap();
                let writer = Writer::of(&mut net).optimizer(&optimizer).with("step", at);
                writer.save(&runtime, &path).unwrap();
                // Saving changes nothing in the run.
                train(&runtime, &mut net, &mut optimizer, at..5).unwrap();
                assert!(values(&runtime, &mut net) == whole);
            }
            // The resumed run has a budget in which it evicts.
            let runtime = start(&format!("{budget}B"));
            let (mut net, mut optimizer) = (network(&runtime), optimizer());
            let saved = Checkpoint::open(&path).unwrap();
            saved.load(&runtime, &mut net).unwrap();
            saved.load_optimizer(&runtime, &mut net, &mut optimizer).unwrap();
            saved.load_random(&runtime).unwrap();
            assert_eq!(saved.get("step"), Some(at.to_string().as_str()));
            train(&runtime, &mut net, &mut optimizer, at..5).unwrap();
            assert!(values(&runtime, &mut net) == whole, "optimizer {kind}, step {at}");
            let [found, expected] = [&optimizer, &of_whole].map(|optimizer| {
                let states = optimizer.states();
                states
                    .map(|(name, _, _)| (name.to_owned(), optimizer.steps(name)))
                    .collect::<Vec<_>>()
            });
            assert_eq!(found, expected);
            let stats = runtime.stats().unwrap();
            assert!(stats.peak_bytes <= budget && stats.evictions > 0);
        }
    }
}

#[test]
fn a_state_dict_of_pytorch_is_loaded_by_name() {
    let fixtures = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let text = std::fs::read_to_string(fixtures.join("block.json")).unwrap();
    let numbers: serde_json::Value = serde_json::from_str(&text).unwrap();
    let list = |name: &str| {
        let all = numbers[name].as_array().unwrap().iter();
        all.map(|x| x.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let runtime = start("1MiB");
    let mut block = Residual::basic(&runtime, 3, 4, 2).unwrap();
    let saved = Checkpoint::open(fixtures.join("block.safetensors")).unwrap();
    saved.load(&runtime, &mut block).unwrap();
    let x = list("input").iter().map(|&x| x as f32).collect();
    let x = runtime.tensor(&[2, 3, 6, 6], x).unwrap();
    let found = block.forward(&x, Mode::Infer).unwrap().to_vec::<f32>().unwrap();
    let expected = list("output");
    let largest = expected.iter().fold(0.0f64, |largest, x| largest.max(x.abs()));
    assert_eq!(found.len(), expected.len());
    for (a, b) in found.iter().zip(&expected) {
        assert!((f64::from(*a) - b).abs() <= 1e-5 * largest, "{a}, expected {b}");
    }
    // The checkpoint has no optimizer and no random numbers.
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    let said = saved.load_optimizer(&runtime, &mut block, &mut sgd).unwrap_err().to_string();
    assert!(said.ends_with("the optimizer is none, expected sgd"), "{said}");
    let said = saved.load_random(&runtime).unwrap_err().to_string();
    assert!(said.ends_with("does not contain the position of random numbers"), "{said}");
}

#[test]
fn checkpoints_are_read_by_the_safetensors_library() {
    let runtime = start("8MiB");
    let (mut net, mut adamw) = (network(&runtime), Optimizer::adamw(0.01, 0.1));
    train(&runtime, &mut net, &mut adamw, 0..2).unwrap();
    let path = path("format");
    Writer::of(&mut net)
        .optimizer(&adamw)
        .with("note", "one \"two\" é")
        .save(&runtime, &path)
        .unwrap();
    let bytes = std::fs::read(&path).unwrap();
    let (_, header) = SafeTensors::read_metadata(&bytes).unwrap();
    assert_eq!(header.metadata().as_ref().unwrap()["note"], "one \"two\" é");
    let all = SafeTensors::deserialize(&bytes).unwrap();
    let mut seen = 0;
    for (name, value) in values(&runtime, &mut net) {
        let tensor = all.tensor(&name).unwrap();
        assert_eq!((tensor.shape(), tensor.data()), (&**value.shape(), value.as_bytes()));
        assert!(tensor.data().as_ptr().addr() % 4 == bytes.as_ptr().addr() % 4);
        seen += 1;
    }
    for (name, state, tensor) in adamw.states() {
        let found = all.tensor(&format!("optimizer/{name}/{state}")).unwrap();
        assert_eq!(found.data(), runtime.get(tensor).unwrap().as_bytes());
        let step = all.tensor(&format!("optimizer/{name}/step")).unwrap();
        assert_eq!(step.data(), 2i64.to_le_bytes());
        seen += if state == "exp_avg" { 2 } else { 1 };
    }
    assert_eq!(all.len(), seen);
    // Saving again gives the same bytes.
    Writer::of(&mut net)
        .optimizer(&adamw)
        .with("note", "one \"two\" é")
        .save(&runtime, &path)
        .unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), bytes);
}

/// Writing a checkpoint regenerates evicted values, within the budget.
#[test]
fn evicted_values_are_written_within_the_budget() {
    struct Derived(Vec<Tensor>);
    impl Module for Derived {
        fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
            Ok(x.clone())
        }
        fn state<'a>(&'a mut self, _prefix: &str, found: &mut Vec<(String, State<'a>)>) {
            let each = self.0.iter_mut().enumerate();
            found.extend(each.map(|(i, x)| (i.to_string(), State::Parameter(x))));
        }
    }
    let runtime = start("64KiB");
    let x = runtime.normal(&[1024], 0.0, 1.0).unwrap();
    let each = (0..64).map(|i| x.affine(1.0, i as f32)).collect::<Result<_, _>>();
    let mut module = Derived(each.unwrap());
    assert!(runtime.stats().unwrap().evictions > 0);
    let path = path("evicted");
    Writer::of(&mut module).save(&runtime, &path).unwrap();
    assert!(runtime.stats().unwrap().peak_bytes <= 64 << 10);
    let again = start("1MiB");
    let mut loaded = Derived((0..64).map(|_| again.zeros(&[1024]).unwrap()).collect());
    Checkpoint::open(&path).unwrap().load(&again, &mut loaded).unwrap();
    assert!(values(&again, &mut loaded) == values(&runtime, &mut module));
}

/// Error of a file that cannot be loaded.
fn refused(
    path: &PathBuf,
    load: impl FnOnce(&Runtime, &Checkpoint) -> Result<(), CheckpointError>,
) -> String {
    let runtime = start("1MiB");
    let loaded = Checkpoint::open(path).and_then(|saved| load(&runtime, &saved));
    let said = loaded.expect_err("it is loaded").to_string();
    assert!(said.contains(path.to_str().unwrap()), "{said}");
    said
}

#[test]
fn another_network_is_refused_and_the_difference_named() {
    let runtime = start("1MiB");
    let mut net = mlp(&runtime, 4, &[8], 2).unwrap();
    let path = path("another");
    Writer::of(&mut net).save(&runtime, &path).unwrap();
    let into = |inputs, hidden: &'static [usize]| {
        refused(&path, move |runtime, saved| {
            let mut net = mlp(runtime, inputs, hidden, 2)?;
            let before = values(runtime, &mut net);
            let loaded = saved.load(runtime, &mut net);
            assert!(loaded.is_ok() || values(runtime, &mut net) == before, "something was changed");
            loaded
        })
    };
    let said = into(4, &[8, 8]);
    assert!(said.ends_with("`fc2.bias`, `fc2.weight` are not in the file"), "{said}");
    let said = into(4, &[]);
    assert!(said.ends_with("`fc1.bias`, `fc1.weight` are not in the network"), "{said}");
    let said = into(5, &[8]);
    assert!(said.ends_with("`fc1.weight` is f32[8, 4], expected f32[8, 5]"), "{said}");
    let said = refused(&path, |runtime, saved| {
        let mut net = resnet(runtime, ResNet::R18, 1, [8, 8], 2)?;
        saved.load(runtime, &mut net)
    });
    assert!(said.contains(" and ") && said.contains(" more are not in the file; "), "{said}");
}

#[test]
fn another_type_optimizer_seed_or_version_is_refused() {
    let runtime = start("1MiB");
    let mut net = mlp(&runtime, 4, &[8], 2).unwrap();
    let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    let path = path("settings");
    let tape = Tape::new(&runtime);
    tape.watch(&mut net);
    let loss = net.forward(&runtime.ones(&[1, 4]).unwrap(), Mode::Train).unwrap().sum().unwrap();
    sgd.minimize(tape, &loss, &mut net).unwrap();
    Writer::of(&mut net).optimizer(&sgd).save(&runtime, &path).unwrap();
    let said = refused(&path, |runtime, saved| {
        let mut net = mlp(runtime, 4, &[8], 2)?;
        saved.load_optimizer(runtime, &mut net, &mut Optimizer::adamw(0.1, 0.0))
    });
    assert!(said.ends_with("the optimizer is sgd, expected adamw"), "{said}");
    let said = refused(&path, |_, saved| {
        saved.load_random(&Runtime::builder().budget("1MiB").seed(6).cpu()?)
    });
    assert!(said.ends_with("the seed is 5, expected 6"), "{said}");
    let bytes = std::fs::read(&path).unwrap();
    let change = |from: &str, to: &str| {
        assert_eq!(from.len(), to.len());
        let at = bytes.windows(from.len()).position(|part| part == from.as_bytes()).unwrap();
        let mut changed = bytes.clone();
        changed[at..][..to.len()].copy_from_slice(to.as_bytes());
        std::fs::write(&path, changed).unwrap();
        refused(&path, |runtime, saved| saved.load(runtime, &mut mlp(runtime, 4, &[8], 2)?))
    };
    let said = change("\"remat.version\":\"1\"", "\"remat.version\":\"2\"");
    assert!(said.contains("of version 2") && said.contains("reads version 1"), "{said}");
    let said = change("\"fc1.bias\":{\"dtype\":\"F32\"", "\"fc1.bias\":{\"dtype\":\"U32\"");
    assert!(said.ends_with("`fc1.bias` is u32[8], expected f32[8]"), "{said}");
    let said = change("\"fc1.bias\":{\"dtype\":\"F32\"", "\"fc1.bias\":{\"dtype\":\"F8E\"");
    assert!(said.ends_with("`fc1.bias` is f8e[8], expected f32[8]"), "{said}");
    let said = change("\"fc1.bias\":{\"dtype\":\"F32\"", "\"fc1.bias\":{\"dtype\":\"F64\"");
    assert!(said.contains("`fc1.bias` is f64[8] of 64 bytes, but has 32"), "{said}");
}

#[test]
fn a_file_that_is_cut_off_or_damaged_is_refused_and_nothing_panics() {
    let runtime = start("1MiB");
    let mut net = mlp(&runtime, 2, &[2], 2).unwrap();
    let whole = path("whole");
    Writer::of(&mut net).save(&runtime, &whole).unwrap();
    let bytes = std::fs::read(&whole).unwrap();
    let damaged = path("damaged");
    let open = |bytes: &[u8]| {
        std::fs::write(&damaged, bytes).unwrap();
        Checkpoint::open(&damaged)
    };
    for end in 0..bytes.len() {
        assert!(matches!(open(&bytes[..end]), Err(CheckpointError::Format { .. })), "{end}");
    }
    assert!(open(&[&bytes[..], &[0]].concat()).is_err());
    for huge in [u64::MAX, 1 << 40, 99_999_999] {
        assert!(open(&[&huge.to_le_bytes()[..], &bytes[8..]].concat()).is_err());
    }
    let header = 8 + u64::from_le_bytes(bytes[..8].try_into().unwrap()) as usize;
    for at in 0..header {
        for byte in [0, b'9', b'"', b'{', bytes[at] ^ 1] {
            let mut changed = bytes.clone();
            changed[at] = byte;
            if let Ok(saved) = open(&changed) {
                let mut net = mlp(&runtime, 2, &[2], 2).unwrap();
                let _ = saved.load(&runtime, &mut net);
            }
        }
    }
    let said = Checkpoint::open(path("nowhere")).unwrap_err().to_string();
    assert!(said.contains("nowhere"), "{said}");
    let said = Writer::of(&mut net).save(&runtime, path("x.gz")).unwrap_err().to_string();
    assert!(said.ends_with("name it without .gz"), "{said}");
}

/// An old checkpoint stays until the new checkpoint is complete.
#[test]
fn a_checkpoint_that_cannot_be_written_leaves_the_old_one() {
    let runtime = start("1MiB");
    let mut net = mlp(&runtime, 2, &[2], 2).unwrap();
    let path = path("old");
    Writer::of(&mut net).with("which", "old").save(&runtime, &path).unwrap();
    struct Lost(Tensor);
    impl Module for Lost {
        fn forward(&mut self, x: &Tensor, _mode: Mode) -> Result<Tensor, Error> {
            Ok(x.clone())
        }
        fn state<'a>(&'a mut self, _prefix: &str, found: &mut Vec<(String, State<'a>)>) {
            found.push(("x".to_owned(), State::Parameter(&mut self.0)));
        }
    }
    let lost = runtime.full(&[1 << 20], 1.0).unwrap().sum().unwrap();
    let error = Writer::of(&mut Lost(lost)).save(&runtime, &path).unwrap_err();
    assert!(matches!(error, CheckpointError::Runtime(Error::OutOfMemory(_))), "{error}");
    assert_eq!(Checkpoint::open(&path).unwrap().get("which"), Some("old"));
}
