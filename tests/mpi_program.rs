//! `remat train --distributed mpi` gives the bits of one rank with `--accumulate`, over a grid of
//! options that users vary. A job ends whatever happens to a rank.

use remat_rng::SplitMix64;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time after which a job counts as hung.
const HANG: Duration = Duration::from_secs(120);

/// Networks, and the smallest percentage of the full budget that is tried.
const MODELS: [(&str, u32); 4] = [
    ("resnet20 --data synthetic:3x8x8 --batch 24", 70),
    ("gpt --dropout 0.1 --layers 2 --width 32 --heads 2 --context 32 --batch 8", 55),
    ("lstm --context 24 --width 24 --batch 4", 88),
    ("treelstm --batch 4", 80),
];

const PROGRAM: &str = env!("CARGO_BIN_EXE_remat");

/// Whether there is an MPI to run jobs.
fn has_mpi() -> bool {
    let found = Command::new("mpirun").arg("--version").output().is_ok();
    if !found {
        println!("skipped: there is no mpirun");
    }
    found
}

/// Folder of a test, empty.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("remat-mpi-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Job of one process for each list of arguments.
fn job(folder: &Path, ranks: &[String]) -> Command {
    let mut command = Command::new("mpirun");
    command.arg("--oversubscribe").current_dir(folder);
    for (i, args) in ranks.iter().enumerate() {
        command.args((i > 0).then_some(":"));
        command.args(["-n", "1", PROGRAM, "train"]).args(args.split_whitespace());
    }
    for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
        command.env(name, "1");
    }
    command.env("OMPI_MCA_mpi_yield_when_idle", "1");
    command
}

/// Waits for a job that must not hang.
fn end(mut child: Child, what: &str) -> Output {
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > HANG {
            child.kill().unwrap();
            panic!("{what} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    child.wait_with_output().unwrap()
}

/// Starts a job whose output is read when it ends.
fn start(command: &mut Command) -> Child {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Runs a job. Returns its exit code, and all that it printed.
fn run(folder: &Path, ranks: &[String]) -> (Option<i32>, String) {
    let what = format!("{ranks:?}");
    let output = end(start(&mut job(folder, ranks)), &what);
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// Settings that runs of several ranks vary, each as an index.
#[derive(Clone, Copy, Debug)]
struct Case([usize; 6]);

const SIZES: [usize; 6] = [MODELS.len(), 4, 4, 3, 2, 2];

impl Case {
    /// Pairs of values in the case.
    fn pairs(self) -> impl Iterator<Item = [usize; 4]> {
        (0..6).flat_map(move |i| (0..i).map(move |j| [i, self.0[i], j, self.0[j]]))
    }

    /// Cases with each pair of values at least once.
    fn all() -> Vec<Self> {
        let count: usize = (0..6).map(|i| (0..i).map(|j| SIZES[i] * SIZES[j]).sum::<usize>()).sum();
        let mut numbers = SplitMix64::new(48);
        let (mut seen, mut cases) = (BTreeSet::new(), Vec::new());
        while seen.len() < count {
            let candidates = (0..200).map(|_| Self(SIZES.map(|size| numbers.below(size))));
            let gain = |case: &Self| case.pairs().filter(|pair| !seen.contains(pair)).count();
            let best = candidates.max_by_key(gain).unwrap();
            seen.extend(best.pairs());
            cases.push(best);
        }
        cases
    }
}

#[test]
fn ranks_have_the_bits_of_one_rank_that_accumulates() {
    if !has_mpi() {
        return;
    }
    let folder = folder("bits");
    let mut expected: HashMap<(usize, usize), (Value, Value)> = HashMap::new();
    let (mut recomputed, cases) = (0, Case::all());
    println!("{} runs", cases.len());
    for case in cases {
        let Case([model, more, budget, policy, plan, buffer]) = case;
        let (ranks, (args, least)) = (more + 1, MODELS[model]);
        let args = format!("{args} --steps 3 --no-test --threads 1");
        let (sha256, loss) = expected.entry((model, ranks)).or_insert_with(|| {
            let alone = format!("{args} --accumulate {ranks} --budget 100% --json one.json");
            let (code, text) = run(&folder, &[alone]);
            assert_eq!(code, Some(0), "{text}");
            let report = report(&folder.join("one.json"));
            (report["params_sha256"].clone(), report["final_loss"].clone())
        });
        let of_rank = |rank: usize| match budget {
            0 => 100,
            1 => [100, least][rank % 2],
            2 => [least, 100][rank % 2],
            _ => [100, least, (100 + least) / 2, least + 3][rank],
        };
        let budgets: Vec<String> = (0..ranks).map(|rank| format!("{}%", of_rank(rank))).collect();
        let policies = ["learned:portfolio", "dtr", "ancestors", "lru"];
        let jobs: Vec<String> = (0..ranks)
            .map(|rank| {
                format!(
                    "{args} --distributed mpi --budget {} --policy {} --plan {} --rank-buffer {} --json many.json",
                    budgets.join(","),
                    // A policy for each rank, or one for all.
                    if policy == 2 { policies[rank] } else { policies[policy] },
                    ["auto", "off"][plan],
                    ["4KiB", "16MiB"][buffer],
                )
            })
            .collect();
        let (code, text) = run(&folder, &jobs);
        assert_eq!(code, Some(0), "{case:?} {jobs:?}\n{text}");
        let report = report(&folder.join("many.json"));
        assert_eq!(report["params_sha256"], *sha256, "{jobs:?}");
        assert_eq!(report["final_loss"], *loss, "{jobs:?}");
        let none = Vec::new();
        let of_ranks = report["ranks"].as_array().unwrap_or(&none);
        assert_eq!(of_ranks.len(), if ranks == 1 { 0 } else { ranks }, "{report}");
        for rank in of_ranks {
            assert_eq!(rank["params_sha256"], *sha256, "{jobs:?}");
            assert!(rank["peak_bytes"].as_u64() <= rank["budget_bytes"].as_u64(), "{rank}");
            recomputed += rank["recomputed_ops"].as_u64().unwrap();
        }
    }
    assert!(recomputed > 500, "{recomputed} ops recomputed");
    fs::remove_dir_all(folder).unwrap();
}

/// Forecasts with which the recording of a rank began.
fn forecasts(recording: &Path) -> Value {
    let text = fs::read_to_string(recording).unwrap();
    let begin: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    begin["forecasts"].clone()
}

/// Ranks with equal options share one search, and get the forecasts that each rank would have found
/// alone.
#[test]
fn ranks_share_the_search_of_one_of_them() {
    if !has_mpi() {
        return;
    }
    let folder = folder("shared");
    for (model, policies) in [
        (MODELS[0].0, ["learned:portfolio", "learned:search:100"]),
        (MODELS[1].0, ["learned:portfolio", "learned"]),
    ] {
        for policy in policies {
            // Searching ranks and forecasts of a job whose ranks have these budgets and limits.
            let found = |ranks: &[(&str, u32)]| {
                let job: Vec<String> = ranks
                    .iter()
                    .map(|(budget, limit)| {
                        format!(
                            "{model} --steps 2 --no-test --distributed mpi --budget {budget} --recompute-limit {limit} \
                             --policy {policy} --json many.json --record run.{{rank}}.jsonl"
                        )
                    })
                    .collect();
                let (code, text) = run(&folder, &job);
                assert_eq!(code, Some(0), "{job:?}\n{text}");
                let report = report(&folder.join("many.json"));
                let by =
                    report["ranks"].as_array().unwrap().iter().map(|of| of["learned_by"].as_u64());
                let all = (0..ranks.len())
                    .map(|rank| forecasts(&folder.join(format!("run.{rank}.jsonl"))));
                by.zip(all).collect::<Vec<_>>()
            };
            // No run comes near the recompute limits, but a rank with a different limit searches
            // alone.
            let alone = found(&[("75%", 99), ("75%", 98), ("85%", 97), ("75%", 96)]);
            let shared = found(&[("75%", 99), ("75%", 99), ("85%", 99), ("75%", 99)]);
            println!("{policy}: {} bytes of forecasts", alone[0].1.to_string().len());
            let by = |all: &[(Option<u64>, Value)]| all.iter().map(|of| of.0).collect::<Vec<_>>();
            match alone[0].0 {
                Some(_) => {
                    assert_eq!(by(&alone), [0, 1, 2, 3].map(Some), "{model} by {policy}");
                    assert_eq!(by(&shared), [Some(0), Some(0), Some(2), Some(0)]);
                    assert!(alone[0].1.as_array().is_some_and(|found| !found.is_empty()));
                }
                // A policy that only looks ahead may be best without forecasts.
                None => assert_eq!(policy, "learned"),
            }
            for (rank, (shared, alone)) in shared.iter().zip(&alone).enumerate() {
                assert!(shared.1 == alone.1, "rank {rank}, {model} by {policy}");
            }
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

/// The other ranks do not wait for a rank whose search fails or ends.
#[test]
fn a_rank_that_does_not_end_its_search_ends_all() {
    if !has_mpi() || !cfg!(target_os = "linux") {
        return;
    }
    let folder = folder("search-ends");
    for signal in ["-TERM", "-INT", "-KILL"] {
        for rank in 0..2 {
            let args = format!(
                "{} --steps 1000000 --no-test --distributed mpi --budget 75% --threads 1 --patience 20 \
                 --policy learned:search:100000 --json r.json",
                MODELS[0].0
            );
            let mut child = start(&mut job(&folder, &[args.clone(), args]));
            // Rank 0 prints a line when its search begins. From then on, both ranks handle signals.
            let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
            let begins = said.by_ref().any(|line| line.unwrap().contains("learning what to evict"));
            assert!(begins, "no search");
            let ids = children(child.id());
            let kill = Command::new("kill").args([signal, &ids[rank].to_string()]).status();
            assert!(kill.unwrap().success());
            let rest = std::thread::spawn(move || said.map_while(Result::ok).collect::<Vec<_>>());
            let what = format!("{signal} to rank {rank}");
            let output = end(child, &what);
            let said = rest.join().unwrap().join("\n");
            match signal {
                "-KILL" => assert!(!output.status.success(), "{what}: {said}"),
                _ => assert_eq!(output.status.code(), Some(130), "{what}: {said}"),
            }
        }
    }
    fs::remove_dir_all(folder).unwrap();
}

/// With a small buffer, two ranks need little more memory than one rank with the batch of one.
#[test]
fn a_small_buffer_costs_little_memory() {
    if !has_mpi() {
        return;
    }
    let folder = folder("small-buffer");
    for model in [
        "resnet20 --data synthetic:3x16x16 --batch 32",
        "gpt --layers 2 --width 64 --heads 4 --context 64 --batch 8",
        "lstm --context 24 --width 24 --batch 4",
    ] {
        let args = format!("{model} --steps 3 --no-test --threads 1 --policy dtr --plan off");
        let (code, text) = run(&folder, &[format!("{args} --budget 1%")]);
        assert_eq!(code, Some(2), "{text}");
        // The refusal names a budget that passes: `--budget 35% (5.09 MiB) passes`.
        let named = text.split(" passes").next().and_then(|text| text.rsplit('(').next());
        let named: remat::ByteSize = named.unwrap().trim_end_matches(')').parse().unwrap();
        let buffer = 4 << 10;
        let budget = (named.0 as f64 * 1.05) as u64 + buffer;
        let ranks = format!("{args} --distributed mpi --rank-buffer {buffer} --budget {budget}");
        let (code, text) = run(&folder, &[ranks.clone(), ranks]);
        assert_eq!(code, Some(0), "{model} in {budget}, one rank in {named}: {text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

/// Options of a small training.
const SMALL: &str = "mlp --batch 16 --threads 1 --no-test --distributed mpi";

fn small(more: &str) -> String {
    format!("{SMALL} {more}")
}

#[test]
fn what_differs_among_ranks_is_told_once() {
    if !has_mpi() {
        return;
    }
    let folder = folder("differs");
    for (ranks, code, told) in [
        (
            ["--steps 3 --lr 0.1", "--steps 3 --lr 0.2"],
            2,
            "ranks differ: --lr is 0.1 on rank 0, but 0.2 on rank 1",
        ),
        (["--steps 3", "--steps 4"], 2, "ranks differ: --steps is 3 on rank 0, but 4 on rank 1"),
        (["--steps 3", "--steps 3 --nesterov"], 2, "--nesterov is not given on rank 0"),
        (["--steps 3", "--steps 3 --seed 1"], 2, "--seed is 0 on rank 0, but 1 on rank 1"),
        (["--steps 3 --budget 100%,40%,40%"; 2], 2, "--budget has 3 values for 2 ranks"),
        (["--steps 3 --record run.jsonl"; 2], 2, "write {rank} in the name"),
        (["--steps 3 --budget 100%,1%"; 2], 2, "rank 1: a budget of 1%"),
        (["--steps 3 --batch 1000"; 2], 2, "a step of 2 ranks takes 2,000 images"),
        (["--steps 3 --device cuda"; 2], 2, "--distributed needs --device cpu"),
        (["--steps 3 --resume none"; 2], 1, "none: "),
        (["--steps 3 --json /dev/full"; 2], 1, "rank 0: /dev/full: it is a device"),
        (["--steps 3 --lr 1e9 --clip 1e30"; 2], 1, "the loss is"),
    ] {
        let all = ranks.map(|rank| {
            small(rank).replacen("--batch 16 ", "", usize::from(rank.contains("--batch")))
        });
        let (found, text) = run(&folder, &all);
        assert_eq!(found, Some(code), "{ranks:?}: {text}");
        assert_eq!(text.matches(told).count(), 1, "{ranks:?}: not `{told}` once in\n{text}");
        assert!(!text.contains("panicked"), "{text}");
    }
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn files_are_written_by_rank_0_or_by_each_rank() {
    if !has_mpi() {
        return;
    }
    let folder = folder("files");
    let args = small(
        "--steps 4 --budget 100%,95% --json r.json --log l.csv --plot p.svg --save s.safetensors --record run.{rank}.jsonl",
    );
    let (code, text) = run(&folder, &[args.clone(), args]);
    assert_eq!(code, Some(0), "{text}");
    let mut names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(names, ["l.csv", "p.svg", "r.json", "run.0.jsonl", "run.1.jsonl", "s.safetensors"]);
    assert!(text.contains("4 steps of 32 images on 2 ranks in"), "{text}");
    assert!(text.contains("rank 1      peak"), "{text}");
    for rank in 0..2 {
        let recording = folder.join(format!("run.{rank}.jsonl"));
        let simulated = Command::new(PROGRAM).arg("simulate").arg(recording).output().unwrap();
        assert!(simulated.status.success(), "{simulated:?}");
    }
    // Four steps in one run, and in two. The second rank has no file to resume.
    fs::create_dir(folder.join("elsewhere")).unwrap();
    let more = "--schedule constant --json r.json --save s.safetensors";
    let (code, text) =
        run(&folder, &[small(&format!("{more} --steps 4")), small(&format!("{more} --steps 4"))]);
    assert_eq!(code, Some(0), "{text}");
    let whole = report(&folder.join("r.json"))["params_sha256"].clone();
    let (code, text) =
        run(&folder, &[small(&format!("{more} --steps 2")), small(&format!("{more} --steps 2"))]);
    assert_eq!(code, Some(0), "{text}");
    let resume = format!("{more} --steps 4 --resume s.safetensors");
    let mut parts = job(&folder, &[small(&resume), small(&resume)]);
    let mut args: Vec<_> = parts.get_args().map(ToOwned::to_owned).collect();
    let second = args.iter().position(|arg| arg == ":").unwrap() + 1;
    args.splice(second..second, ["-wdir".into(), folder.join("elsewhere").into_os_string()]);
    let mut there = Command::new("mpirun");
    there.args(args).current_dir(&folder);
    parts.get_envs().for_each(|(name, value)| _ = there.env(name, value.unwrap()));
    parts = there;
    let output = end(start(&mut parts), "resumed");
    assert!(output.status.success(), "{output:?}");
    assert_eq!(report(&folder.join("r.json"))["params_sha256"], whole);
    // With another number of ranks, the examples would have another order.
    let (code, text) = run(&folder, &[small(&resume)]);
    assert!(code == Some(2) && text.contains("trained on 2 ranks, but this run has 1"), "{text}");
    fs::remove_dir_all(folder).unwrap();
}

/// Processes that `mpirun` has started, in the order of their ranks.
fn children(mpirun: u32) -> Vec<u32> {
    let path = format!("/proc/{mpirun}/task/{mpirun}/children");
    let text = fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace().map(|id| id.parse().unwrap()).collect()
}

#[test]
fn a_signal_to_one_rank_ends_all() {
    if !has_mpi() || !cfg!(target_os = "linux") {
        return;
    }
    let folder = folder("signals");
    for signal in ["-TERM", "-INT", "-KILL", "-STOP"] {
        for rank in 0..2 {
            let log = folder.join("log.csv");
            let _ = fs::remove_file(&log);
            let args = small(
                "--steps 1000000 --log log.csv --json r.json --save s.safetensors --patience 5",
            );
            let child = start(&mut job(&folder, &[args.clone(), args]));
            // Until the third step is done.
            let began = Instant::now();
            while fs::read_to_string(&log).map_or(0, |text| text.lines().count()) < 4 {
                assert!(began.elapsed() < HANG, "no step");
                std::thread::sleep(Duration::from_millis(20));
            }
            let ids = children(child.id());
            assert_eq!(ids.len(), 2);
            let kill = Command::new("kill").args([signal, &ids[rank].to_string()]).status();
            assert!(kill.unwrap().success());
            let what = format!("{signal} to rank {rank}");
            let output = end(child, &what);
            let text =
                String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            match signal {
                "-TERM" | "-INT" => {
                    assert_eq!(output.status.code(), Some(130), "{what}: {text}");
                    assert!(text.contains("interrupted after"), "{what}: {text}");
                    let report = report(&folder.join("r.json"));
                    assert_eq!(report["ending"], "interrupted");
                    assert_eq!(report["ranks"].as_array().unwrap().len(), 2);
                    assert!(folder.join("s.safetensors").exists());
                }
                _ => assert!(!output.status.success(), "{what}: {text}"),
            }
            if signal == "-STOP" {
                assert!(text.contains("has waited for the other ranks for 5 s"), "{text}");
            }
            for id in ids {
                let gone = !Path::new(&format!("/proc/{id}/exe")).exists();
                assert!(gone || fs::read_link(format!("/proc/{id}/exe")).is_err(), "{what}");
            }
        }
    }
    fs::remove_dir_all(folder).unwrap();
}
