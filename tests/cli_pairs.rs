//! `remat train` with each model and each option, and with each pair of options. Each run must
//! succeed, or be refused with a message that names the option.
//!
//! This file lists the expected refusals with their messages. The test fails at a refusal for
//! another reason, and at a run that should have been refused. Only every third pair and every
//! second option is tried; `.ci/release` tries all.

use crate::common::cells;
use crate::common::command::{folder, mnist, names, run, stderr};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// Topic of an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum About {
    /// Device, memory and speed.
    Running,
    /// Size of the network, and the data.
    Learning,
    /// Optimizer and schedule.
    Updating,
    /// Output and files.
    Writing,
}

use About::{Learning, Running, Updating, Writing};

/// Option with a value, and the options it needs. `FOLDER` stands for the run's own folder and
/// `DATA` for the folder of the data.
struct Opt {
    name: &'static str,
    about: About,
    given: &'static [&'static str],
}

const fn option(name: &'static str, about: About, given: &'static [&'static str]) -> Opt {
    Opt { name, about, given }
}

const OPTIONS: &[Opt] = &[
    option("device", Running, &["--device=cpu"]),
    option("threads", Running, &["--threads=1"]),
    option("tf32", Running, &["--tf32"]),
    option("budget", Running, &["--budget=80%"]),
    option("eviction-threshold", Running, &["--eviction-threshold=70%"]),
    option("policy", Running, &["--policy=megengine"]),
    option("learn", Running, &["--learn=ahead"]),
    option("learn-cache", Running, &["--learn-cache=FOLDER/cache"]),
    option("plan", Running, &["--plan=off"]),
    option("cost", Running, &["--cost=bytes"]),
    option("exponents", Running, &["--exponents=1,2,1", "--policy=megengine"]),
    option("own-cost", Running, &["--own-cost", "--policy=megengine"]),
    option("rerun-factor", Running, &["--rerun-factor=1.5", "--policy=megengine"]),
    option("allow-growth", Running, &["--allow-growth"]),
    option("split-rule", Running, &["--split-rule=tensorflow"]),
    option("min-evict-bytes", Running, &["--min-evict-bytes=64"]),
    option("sqrt-sampling", Running, &["--sqrt-sampling"]),
    option("dead", Running, &["--dead=drop"]),
    option("recompute-limit", Running, &["--recompute-limit=50"]),
    option("verify", Running, &["--verify"]),
    option("step-in-backward", Running, &["--step-in-backward"]),
    option("layers", Learning, &["--layers=2"]),
    option("width", Learning, &["--width=12"]),
    option("heads", Learning, &["--heads=4"]),
    option("context", Learning, &["--context=12"]),
    option("vocabulary", Learning, &["--vocabulary=256"]),
    option("tokenizer", Learning, &["--tokenizer=DATA/tokenizer.json"]),
    option("dropout", Learning, &["--dropout=0.25"]),
    option("image-size", Learning, &["--image-size=8x12"]),
    option("random-crop", Learning, &["--random-crop=1"]),
    option("random-flip", Learning, &["--random-flip"]),
    option("precision", Learning, &["--precision=bf16"]),
    option("data", Learning, &["--data=DATA/idx"]),
    option("batch", Learning, &["--batch=3"]),
    option("epochs", Learning, &["--epochs=1"]),
    option("steps", Learning, &["--steps=3"]),
    option("no-test", Learning, &["--no-test"]),
    option("eval-every", Learning, &["--eval-every=1"]),
    option("seed", Learning, &["--seed=7"]),
    option("optimizer", Updating, &["--optimizer=lion"]),
    option("lr", Updating, &["--lr=0.001"]),
    option("momentum", Updating, &["--momentum=0.5"]),
    option("nesterov", Updating, &["--nesterov"]),
    option("weight-decay", Updating, &["--weight-decay=0.1"]),
    option("schedule", Updating, &["--schedule=step"]),
    option("warmup", Updating, &["--warmup=1"]),
    option("clip", Updating, &["--clip=1"]),
    option("accumulate", Updating, &["--accumulate=2"]),
    option("save", Writing, &["--save=FOLDER/net"]),
    option("save-every", Writing, &["--save-every=1", "--save=FOLDER/net"]),
    option("resume", Writing, &["--resume=DATA/MODEL.safetensors"]),
    option("rename", Writing, &["--rename=nothing.*=*"]),
    option("skip", Writing, &["--skip=nothing"]),
    option("json", Writing, &["--json=FOLDER/result"]),
    option("log", Writing, &["--log=FOLDER/log.csv"]),
    option("plot", Writing, &["--plot=FOLDER/plot.svg"]),
    option("record", Writing, &["--record=FOLDER/run"]),
    option("record-steps", Writing, &["--record-steps=1", "--record=FOLDER/run"]),
    option("quiet", Writing, &["--quiet"]),
    option("color", Writing, &["--color=never"]),
    option("no-progress", Writing, &["--no-progress"]),
];

/// Model at a small size, with its arguments. An option under test replaces an argument of the same
/// name.
struct Model {
    name: &'static str,
    given: &'static [&'static str],
}

const fn model(name: &'static str, given: &'static [&'static str]) -> Model {
    Model { name, given }
}

const IMAGES: &[&str] = &["--data=images:DATA/images"];

const MODELS: &[Model] = &[
    model("mlp", IMAGES),
    model("resnet20", IMAGES),
    model("resnet32", IMAGES),
    model("resnet110", IMAGES),
    model("resnet1202", IMAGES),
    model("resnet18", IMAGES),
    model("resnet50", IMAGES),
    model("densenet121", IMAGES),
    model("inceptionv4", &["--data=images:DATA/images", "--image-size=75x75"]),
    model("vit", &["--data=images:DATA/images", "--layers=1", "--width=8", "--heads=2"]),
    model("gpt", &["--data=text:DATA/text", "--layers=1", "--width=8", "--heads=2", "--context=8"]),
    model(
        "gpt2",
        &["--data=text:DATA/text", "--layers=1", "--width=8", "--heads=2", "--context=8"],
    ),
    model("lstm", &["--data=text:DATA/text", "--layers=1", "--width=8", "--context=8"]),
    model("unet", IMAGES),
    model("treelstm", &["--data=trees"]),
    model("unrolled-gan", &["--data=ring"]),
];

fn model_of(name: &str) -> &'static Model {
    MODELS.iter().find(|model| model.name == name).expect("a model")
}

fn options_about(about: About) -> impl Iterator<Item = &'static Opt> {
    OPTIONS.iter().filter(move |option| option.about == about)
}

/// Folder of data: images in folders and in MNIST's format, a text, and a checkpoint of each model.
static DATA: LazyLock<PathBuf> = LazyLock::new(|| {
    let data = folder("pairs-data");
    for class in ["a", "b"] {
        std::fs::create_dir_all(data.join("images").join(class)).unwrap();
        for i in 0..6 {
            let pixel = |x: u32, y: u32| image::Rgb([i * 40, (x * 30) as u8, (y * 20) as u8]);
            let path = data.join("images").join(class).join(format!("{i}.png"));
            image::RgbImage::from_fn(8, 8, pixel).save(path).unwrap();
        }
    }
    std::fs::rename(mnist("pairs-idx", 8, [10, 3]), data.join("idx")).unwrap();
    let text: String = (0..240).map(|i| char::from(b' ' + (i * i % 90) as u8)).collect();
    std::fs::write(data.join("text"), text).unwrap();
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer.json");
    std::fs::copy(tokenizer, data.join("tokenizer.json")).unwrap();
    data
});

impl Model {
    fn is(&self, names: &[&str]) -> bool {
        names.contains(&self.name)
    }

    /// Value for the option `--data`. Models of images get a folder in MNIST's format, and all
    /// other models get their default data.
    fn other_data(&self) -> &'static str {
        match self.given[0] {
            text if text.starts_with("--data=text:") => "--data=text:DATA/text",
            "--data=trees" => "--data=trees",
            "--data=ring" => "--data=ring",
            // Images of the other sets are too small.
            text if self.is(&["inceptionv4"]) => text,
            _ => "--data=idx:DATA/idx",
        }
    }

    /// Arguments of a run with some options, in the folder `own`.
    fn arguments(&self, options: &[&Opt], own: &Path) -> Vec<String> {
        let usual = [
            "--budget=200%",
            "--batch=2",
            "--steps=2",
            "--no-test",
            "--schedule=constant",
            "--lr=0.01",
        ];
        let mut all: Vec<&str> = Vec::new();
        let given = options.iter().flat_map(|option| option.given);
        all.extend(given.map(|given| match *given {
            "--data=DATA/idx" => self.other_data(),
            // With all options together, a budget of 80 % is too small.
            "--budget=80%" if options.len() > 2 => "--budget=100%",
            "--eviction-threshold=70%" if options.len() > 2 => "--eviction-threshold=100%",
            given => given,
        }));
        let has = |name: &str| options.iter().any(|option| option.name == name);
        for &given in self.given.iter().chain(&usual) {
            let name = given.trim_start_matches("--").split('=').next().unwrap();
            let instead = match name {
                "steps" => has("epochs") || has("resume"),
                "no-test" => has("eval-every"),
                "budget" => false,
                // The checkpoint determines this value.
                _ => has("resume"),
            };
            if !has(name) && !instead {
                all.push(given);
            }
        }
        if has("resume") && !has("steps") && !has("epochs") {
            all.push("--steps=3");
        }
        if options.iter().any(|option| self.takes_long(option)) && !has("resume") {
            all.retain(|given| !given.starts_with("--batch"));
            all.push("--batch=8192");
        }
        let mut seen = BTreeSet::new();
        all.retain(|given| seen.insert(*given));
        let (own, data) = (own.display().to_string(), DATA.display().to_string());
        let place = |given: &str| {
            given.replace("FOLDER", &own).replace("DATA", &data).replace("MODEL", self.name)
        };
        ["train", self.name]
            .into_iter()
            .map(str::to_owned)
            .chain(all.into_iter().map(place))
            .collect()
    }

    /// Whether the option makes the model go through all examples. Models with generated data have
    /// many examples.
    fn takes_long(&self, option: &Opt) -> bool {
        self.is(&["treelstm", "unrolled-gan"]) && ["epochs", "eval-every"].contains(&option.name)
    }

    /// Messages with which the program may refuse these options. Empty if the run must succeed.
    fn refusals(&self, options: &[&Opt]) -> Vec<&'static str> {
        let has = |name: &str| options.iter().any(|option| option.name == name);
        let is_text = self.is(&["gpt", "gpt2", "lstm"]);
        let own = self.is(&["treelstm", "unrolled-gan", "unet"]);
        let sizes: &[&str] = match self.name {
            "gpt" | "gpt2" => &["layers", "width", "heads", "context", "vocabulary", "dropout"],
            "lstm" => &["layers", "width", "context", "vocabulary"],
            "vit" => &["layers", "width", "heads", "dropout"],
            _ => &[],
        };
        let is_lost = |size: &&str| has(size) && !sizes.contains(size);
        let of_folder = !is_text && !self.is(&["treelstm", "unrolled-gan"]) && !has("data");
        let of_megengine = ["policy", "exponents", "own-cost", "rerun-factor"];
        let other_policy = of_megengine.iter().any(|option| has(option));
        let all_sizes = ["layers", "width", "heads", "context", "vocabulary", "dropout"];
        // Options that change the bits of a run must be those of the checkpoint.
        let differs = |option: &&Opt| {
            let is_free = ["steps", "epochs", "no-test", "eval-every"].contains(&option.name);
            matches!(option.about, Learning | Updating) && !is_free
        };
        let rules = [
            (has("tf32"), "--tf32 needs --device cuda"),
            (all_sizes.iter().any(is_lost), " has no --"),
            (has("tokenizer") && !is_text, "--tokenizer is for text models"),
            (has("tokenizer") && has("vocabulary"), "--tokenizer has 320 tokens"),
            (has("image-size") && !of_folder, "--image-size needs --data images:DIR"),
            ((has("random-crop") || has("random-flip")) && is_text, "changes images"),
            (
                (has("random-crop") || has("random-flip")) && own,
                "is for networks that classify images",
            ),
            (has("precision") && own && self.name != "unet", "and --precision f32"),
            (has("learn") && other_policy, "--learn needs --policy learned"),
            (
                has("learn-cache") && (has("learn") || other_policy || self.name == "treelstm"),
                "--learn-cache needs --learn portfolio or search",
            ),
            (has("epochs") && has("steps"), "cannot be used with"),
            (has("nesterov") && (has("optimizer") || is_text), "--nesterov needs --optimizer sgd"),
            (has("momentum") && (has("optimizer") || is_text), "--momentum needs --optimizer sgd"),
            (has("clip") && has("step-in-backward"), "--clip needs all gradients"),
            (has("resume") && options.iter().any(differs), "in the run of"),
            (has("image-size") && self.is(&["inceptionv4"]), "at least 75"),
        ];
        rules.into_iter().filter(|(applies, _)| *applies).map(|(_, words)| words).collect()
    }

    /// Runs the model with some options. Fails unless it succeeds or is refused as expected.
    fn check(&self, options: &[&Opt], own: &Path) {
        let arguments = self.arguments(options, own);
        let all: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let (ran, what) = (run(&all), all.join(" "));
        let (told, code) = (stderr(&ran), ran.status.code());
        assert!(!told.contains("panicked"), "{what}: {told}");
        let refusals = self.refusals(options);
        let is_small = told.contains("is too small; --budget") && what.contains("--budget=80%");
        if code == Some(0) {
            assert!(refusals.is_empty(), "{what}: runs, and should be refused by {refusals:?}");
            let files = all
                .iter()
                .filter_map(|given| given.split_once('='))
                .map(|(_, value)| Path::new(value));
            for file in files.filter(|file| file.starts_with(own) && !file.ends_with("cache")) {
                let bytes = std::fs::metadata(file).map_or(0, |file| file.len());
                assert!(bytes > 0, "{what}: {} is empty or missing", file.display());
            }
        } else {
            assert_eq!(code, Some(2), "{what}: {told}");
            assert!(told.starts_with("error: ") || told.contains("\nerror: "), "{what}: {told}");
            let known = refusals.iter().any(|words| told.contains(words));
            assert!(known || refusals.is_empty() && is_small, "{what}: {refusals:?}: {told}");
        }
        for name in names(own) {
            assert!(!name.contains("partial"), "{what}: {name} is left");
            std::fs::remove_file(own.join(name)).unwrap();
        }
    }

    /// Writes the checkpoint from which runs of this model are resumed.
    fn prepare(&self) {
        let path = DATA.join(format!("{}.safetensors", self.name));
        let save = option("", Writing, &["--save=DATA/MODEL.safetensors"]);
        let arguments = self.arguments(&[&save], &DATA);
        let ran = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
        assert!(ran.status.success() && path.exists(), "{}: {}", self.name, stderr(&ran));
    }

    /// Runs the model with each option alone.
    fn with_each_option(&self) {
        self.prepare();
        let own = folder(&format!("pairs-{}", self.name));
        cells(OPTIONS, 2).for_each(|option| self.check(&[option], &own));
    }

    /// Runs the model with each refused option alone, and with all others in as few runs as
    /// possible.
    fn with_all_options(&self) {
        self.prepare();
        let own = folder(&format!("pairs-{}", self.name));
        let mut sets: Vec<Vec<&Opt>> = Vec::new();
        for option in OPTIONS {
            if !self.refusals(&[option]).is_empty() {
                self.check(&[option], &own);
                continue;
            }
            let fits =
                |set: &&mut Vec<&Opt>| self.refusals(&[&set[..], &[option]].concat()).is_empty();
            match sets.iter_mut().find(fits) {
                Some(set) => set.push(option),
                None => sets.push(vec![option]),
            }
        }
        assert!(sets.len() < 6, "{}: {}", self.name, sets.len());
        sets.iter().for_each(|set| self.check(set, &own));
    }
}

/// The largest models differ from others of their kind only in size, so few options are tried.
#[test]
fn the_largest_models_take_what_others_take() {
    let own = folder("pairs-large");
    let names = ["precision", "clip", "random-flip", "threads", "save", "log"];
    let options: Vec<&Opt> = OPTIONS.iter().filter(|option| names.contains(&option.name)).collect();
    for name in ["resnet1202", "inceptionv4"] {
        model_of(name).check(&options, &own);
    }
}

/// Runs all pairs of an option about `one` and an option about `other`, with the model that takes
/// most options.
fn pairs(one: About, other: About) {
    static PREPARED: LazyLock<()> = LazyLock::new(|| model_of("vit").prepare());
    LazyLock::force(&PREPARED);
    let own = folder(&format!("pairs-{one:?}-{other:?}"));
    let pairs = options_about(one).enumerate().flat_map(|(i, a)| {
        let from = if one == other { i + 1 } else { 0 };
        options_about(other).skip(from).map(move |b| [a, b])
    });
    let mut count = 0;
    for pair in cells(pairs, 3) {
        model_of("vit").check(&pair, &own);
        count += 1;
    }
    println!("{count} pairs of options about {one:?} and {other:?}");
}

macro_rules! pairs {
    ($($name:ident: $one:ident, $other:ident;)*) => {$(
        #[test]
        fn $name() {
            pairs($one, $other);
        }
    )*};
}

pairs! {
    options_about_running_go_together: Running, Running;
    options_about_running_and_learning_go_together: Running, Learning;
    options_about_running_and_updating_go_together: Running, Updating;
    options_about_running_and_writing_go_together: Running, Writing;
    options_about_learning_go_together: Learning, Learning;
    options_about_learning_and_updating_go_together: Learning, Updating;
    options_about_learning_and_writing_go_together: Learning, Writing;
    options_about_updating_go_together: Updating, Updating;
    options_about_updating_and_writing_go_together: Updating, Writing;
    options_about_writing_go_together: Writing, Writing;
}

macro_rules! models {
    ($way:ident: $($name:ident $model:literal;)*) => {$(
        #[test]
        fn $name() {
            model_of($model).$way();
        }
    )*};
}

models! {
    with_each_option:
    mlp_takes_or_refuses_each_option "mlp";
    resnet20_takes_or_refuses_each_option "resnet20";
    vit_takes_or_refuses_each_option "vit";
    gpt_takes_or_refuses_each_option "gpt";
    lstm_takes_or_refuses_each_option "lstm";
    unet_takes_or_refuses_each_option "unet";
}

// These models take longer, so their options share runs.
models! {
    with_all_options:
    resnet32_takes_or_refuses_all_options "resnet32";
    resnet110_takes_or_refuses_all_options "resnet110";
    resnet18_takes_or_refuses_all_options "resnet18";
    resnet50_takes_or_refuses_all_options "resnet50";
    densenet121_takes_or_refuses_all_options "densenet121";
    gpt2_takes_or_refuses_all_options "gpt2";
    treelstm_takes_or_refuses_all_options "treelstm";
    unrolled_gan_takes_or_refuses_all_options "unrolled-gan";
}

/// Options that need an MPI job: `mpi_program` runs them.
const OF_RANKS: [&str; 3] = ["distributed", "patience", "rank-buffer"];

/// Every model and every option that the help names is tested in this file.
#[test]
fn no_model_and_no_option_is_left_out() {
    let help = String::from_utf8(run(&["train", "--help"]).stdout).unwrap();
    let options: BTreeSet<&str> = help
        .lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("-q, ").unwrap_or(line).strip_prefix("--")?;
            let end =
                line.find(|c: char| !c.is_ascii_lowercase() && !c.is_ascii_digit() && c != '-');
            let (name, rest) = line.split_at(end.unwrap_or(line.len()));
            // A line of a description may begin with an option's name as well.
            (rest.is_empty() || rest.starts_with(" <") || rest.starts_with("[=")).then_some(name)
        })
        .filter(|name| *name != "help" && !OF_RANKS.contains(name))
        .collect();
    let known: BTreeSet<&str> = OPTIONS.iter().map(|option| option.name).collect();
    assert_eq!(options, known);
    let arguments = help.lines().take_while(|line| *line != "Options:");
    let models = arguments.filter_map(|line| line.trim_start().strip_prefix("- ")?.split_once(':'));
    let models: BTreeSet<&str> = models.map(|(name, _)| name).collect();
    let known: BTreeSet<&str> = MODELS.iter().map(|model| model.name).collect();
    assert_eq!(models, known);
    println!(
        "{} models x {} options, {} pairs of options",
        known.len(),
        OPTIONS.len(),
        OPTIONS.len() * (OPTIONS.len() - 1) / 2
    );
}
