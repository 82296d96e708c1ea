//! A command never overwrites a file that it reads, and never waits for a special file. If an
//! output file cannot be written, the run goes on.
#![cfg(unix)]

use crate::common::cells;
use crate::common::command::{folder, names, remat, run, stderr, train};
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

const TEXT: &str =
    "Call me Ishmael. Some years ago, never mind how long precisely, I sailed about a little.\n";

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a shell script, in which `$0` is `remat`.
fn shell(script: &str) -> Output {
    let remat = env!("CARGO_BIN_EXE_remat");
    Command::new("bash").args(["-c", script, remat]).output().expect("there is bash")
}

/// Runs a command. Fails if it takes more than a minute.
fn ended(args: &[&str]) -> Output {
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", "60", env!("CARGO_BIN_EXE_remat")]).args(args);
    let output = limited.output().unwrap();
    assert!(output.status.code().is_some_and(|code| code != 137), "{args:?} waits for ever");
    output
}

/// Input file, with the command that reads it and that command's options for outputs.
struct Read {
    path: PathBuf,
    args: Vec<String>,
    options: &'static [&'static str],
}

/// Makes inputs of all kinds in an empty folder.
fn inputs(folder: &Path) -> Vec<Read> {
    let own = |args: &[&str]| args.iter().map(|&arg| arg.to_owned()).collect::<Vec<_>>();
    let novel = folder.join("novel");
    fs::write(&novel, TEXT.repeat(60)).unwrap();
    let saved = folder.join("saved");
    train(&["mlp", "--steps", "2", "--no-test", "--save", text(&saved)]);
    let recording = folder.join("recording");
    train(&["mlp", "--steps", "2", "--no-test", "--record", text(&recording)]);
    let buffers = folder.join("buffers");
    fs::write(&buffers, "id,lower,upper,size\na,0,2,8\nb,1,3,8\n").unwrap();
    let pictures = folder.join("pictures");
    for class in ["cat", "dog"] {
        fs::create_dir_all(pictures.join(class)).unwrap();
        for i in 0..5 {
            let picture = image::RgbImage::from_pixel(8, 8, image::Rgb([i * 40; 3]));
            picture.save(pictures.join(class).join(format!("{i}.png"))).unwrap();
        }
    }
    const TRAIN: &[&str] = &["--json", "--record", "--save", "--learn-cache", "--plot", "--log"];
    let learns = |data: String| {
        own(&["train", "gpt", "--layers", "1", "--width", "16", "--heads", "2", "--context", "8"])
            .into_iter()
            .chain(own(&[
                "--steps",
                "1",
                "--no-test",
                "--policy",
                "learned:search",
                "--data",
                &data,
            ]))
            .collect::<Vec<_>>()
    };
    let sees =
        ["train", "mlp", "--steps", "1", "--no-test", "--policy", "learned:search", "--data"];
    vec![
        Read { args: learns(format!("text:{}", novel.display())), path: novel, options: TRAIN },
        Read {
            args: [&sees[..], &[&format!("images:{}", pictures.display())]]
                .concat()
                .iter()
                .map(|&a| a.to_owned())
                .collect(),
            path: pictures.join("cat/0.png"),
            options: TRAIN,
        },
        Read {
            args: own(&[
                "train",
                "--quiet",
                "--policy",
                "learned:search",
                "--resume",
                text(&saved),
            ]),
            path: saved.clone(),
            options: &["--json", "--record", "--learn-cache", "--plot", "--log"],
        },
        Read { args: own(&["evaluate", text(&saved)]), path: saved, options: &["--json"] },
        Read {
            args: own(&["simulate", text(&recording), "--budget", "60%"]),
            path: recording.clone(),
            options: &["--json", "--plot"],
        },
        Read {
            args: own(&["sweep", text(&recording), "--budget", "60%", "--policy", "lru"]),
            path: recording.clone(),
            options: &["--json", "--csv", "--plot"],
        },
        Read {
            args: own(&["bound", text(&recording), "--budget", "60%"]),
            path: recording.clone(),
            options: &["--json", "--lp"],
        },
        Read {
            args: own(&["history", text(&recording)]),
            path: recording.clone(),
            options: &["--json", "--plot"],
        },
        Read {
            args: own(&["plan", text(&recording)]),
            path: recording,
            options: &["--json", "--csv", "--plot"],
        },
        Read {
            args: own(&["plan", text(&buffers)]),
            path: buffers,
            options: &["--json", "--csv", "--plot"],
        },
    ]
}

/// Ending that an option wants of a file name.
fn end(option: &str) -> &'static str {
    match option {
        "--plot" => ".svg",
        "--log" => ".csv",
        _ => "",
    }
}

#[test]
fn no_output_is_an_input_by_any_name() {
    let folder = folder("inputs");
    let links = folder.join("links");
    fs::create_dir(&links).unwrap();
    let mut tried = 0;
    for Read { path, args, options } in inputs(&folder) {
        let before = fs::read(&path).unwrap();
        for option in options {
            let named = |kind: &str| links.join(format!("{kind}{}", end(option)));
            let (symbolic, hard, until_whole) = (named("symbolic"), named("hard"), named("whole"));
            let partial = PathBuf::from(format!("{}.partial", until_whole.display()));
            let mut outputs = vec![symbolic.clone(), hard.clone(), until_whole];
            symlink(&path, &symbolic).unwrap();
            fs::hard_link(&path, &hard).unwrap();
            fs::hard_link(&path, &partial).unwrap();
            if end(option).is_empty() {
                outputs.push(path.clone());
                outputs.push(path.parent().unwrap().join(".").join(path.file_name().unwrap()));
            }
            for output in outputs {
                let args: Vec<&str> =
                    args.iter().map(String::as_str).chain([*option, text(&output)]).collect();
                let ended = ended(&args);
                let said = stderr(&ended);
                assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
                assert!(said.contains("is an input") && said.contains(option), "{args:?}: {said}");
                assert_eq!(fs::read(&path).unwrap(), before, "{args:?}");
                tried += 1;
            }
            fs::remove_dir_all(&links).unwrap();
            fs::create_dir(&links).unwrap();
        }
    }
    assert!(tried > 100, "{tried}");
}

#[test]
fn files_both_read_and_written_are_replaced_once_whole() {
    let folder = folder("both");
    let [saved, log, cache] = ["run", "log.csv", "cache"].map(|name| folder.join(name));
    let files = ["--save", text(&saved), "--log", text(&log), "--learn-cache", text(&cache)];
    let base = ["mlp", "--batch", "32", "--no-test", "--schedule", "constant", "--budget", "85%"];
    let searched = ["--policy", "learned:search"];
    train(&[&base[..], &searched, &files, &["--steps", "3"]].concat());
    let known = fs::read(&cache).unwrap().len();
    train(&[&["--resume", text(&saved), "--steps", "6"], &searched[..], &files].concat());
    let lines = fs::read_to_string(&log).unwrap();
    let steps: Vec<&str> =
        lines.lines().skip(1).map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(steps, ["1", "2", "3", "4", "5", "6"]);
    assert!(fs::read(&cache).unwrap().len() >= known, "what was known stays");
    let mut left = names(&folder);
    left.sort_unstable();
    assert_eq!(left, ["cache", "log.csv", "run"]);
}

/// Regression: a full disk under the log ended the run, so the checkpoint on another disk was never
/// written.
#[test]
fn a_log_that_does_not_fit_costs_no_run() {
    let folder = folder("full");
    let [saved, log] = ["run", "log.jsonl"].map(|name| folder.join(name));
    let base = ["mlp", "--batch", "8", "--no-test", "--budget", "100%"];
    train(&[&base[..], &["--steps", "2", "--save", text(&saved)]].concat());
    let bytes = fs::metadata(&saved).unwrap().len();
    fs::remove_file(&saved).unwrap();
    // A limit on file sizes stands for a full disk. The limit is large enough for a checkpoint.
    let (limit, steps) = (bytes / 1024 + 8, bytes / 100 + 200);
    for quiet in ["", "--quiet"] {
        let output = shell(&format!(
            "ulimit -f {limit}; exec \"$0\" train {} --steps {steps} {quiet} --save {} --log {}",
            base.join(" "),
            saved.display(),
            log.display()
        ));
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(3), "{said}");
        let warnings = usize::from(quiet.is_empty());
        assert_eq!(said.matches("continues without a log").count(), warnings, "{said}");
        assert!(said.contains("is incomplete: File too large"), "{said}");
        assert!(fs::metadata(&saved).unwrap().len() > 0);
        let written = fs::read_to_string(&log).unwrap();
        assert!(written.lines().count() > 10);
        fs::remove_file(&saved).unwrap();
    }
}

#[test]
fn a_checkpoint_that_does_not_fit_costs_nothing_else() {
    let folder = folder("no-room");
    let [saved, json] = ["run", "result"].map(|name| folder.join(name));
    let output = shell(&format!(
        "ulimit -f 8; exec \"$0\" train mlp --batch 8 --steps 6 --budget 100% --save-every 2 --save {} --json {}",
        saved.display(),
        json.display()
    ));
    let said = stderr(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.matches("; the run continues").count(), 2, "{said}");
    assert!(said.contains("error: ") && said.contains("File too large"), "{said}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("mlp on digits"));
    assert!(fs::read_to_string(&json).unwrap().contains("params_sha256"));
    assert_eq!(names(&folder), ["result"], "nothing half written");
}

/// Regression: large inputs under `ulimit -v` ended by SIGABRT.
#[test]
fn the_end_of_memory_is_an_error_wherever_it_comes() {
    let folder = folder("memory");
    let at = |name: &str| folder.join(name).into_os_string().into_string().unwrap();
    let [trace, saved, book, csv, out] = ["trace", "saved", "book", "rows.csv", "out"].map(at);
    let small = ["train", "mlp", "--batch", "8", "--budget", "100%", "--no-test", "--quiet"];
    let files = ["--steps", "30", "--schedule", "constant", "--record", &trace, "--save", &saved];
    let made = run(&[&small[..], &files[..]].concat());
    assert!(made.status.success(), "{}", stderr(&made));
    fs::write(&book, "a book ".repeat(1 << 21)).unwrap();
    let rows = (0..100_000).map(|i| format!("{i},{i},{},{}\n", i + 7, 1 + i % 999));
    fs::write(&csv, "id,lower,upper,size\n".to_owned() + &rows.collect::<String>()).unwrap();
    let pictures = folder.join("pictures/a");
    fs::create_dir_all(&pictures).unwrap();
    for i in 0..8 {
        let color = image::Rgb([i * 30, 0, 0]);
        image::RgbImage::from_pixel(8, 8, color).save(pictures.join(format!("{i}.png"))).unwrap();
    }
    let images = format!("images:{}", folder.join("pictures").display());
    let text_of_book = format!("text:{book}");
    let commands: [&[&str]; 8] = [
        &["train", "mlp", "--steps", "2", "--no-test", "--save", &out],
        &["train", "lstm", "--steps", "1", "--no-test", "--data", &text_of_book, "--json", &out],
        &["train", "mlp", "--steps", "1", "--data", &images, "--image-size", "1999x1999"],
        &["train", "mlp", "--steps", "31", "--resume", &saved, "--record", &out],
        &["simulate", &trace, "--budget", "100%"],
        &["sweep", &trace, "--budget", "60%", "--seeds", "5", "--policy", "random", "--csv", &out],
        &["bound", &trace, "--budget", "60%"],
        &["plan", &csv, "--time", "1"],
    ];
    let before = names(&folder);
    let (mut ended, mut done) = (0, 0);
    let limits = [60, 150, 300];
    let all = commands.iter().flat_map(|command| limits.map(|limit| (command, limit)));
    for (command, mebibytes) in cells(all, 4) {
        let case = format!("{mebibytes} MiB: {}", command.join(" "));
        let output = shell(&format!(
            "ulimit -v {}; exec timeout -s KILL 900 \"$0\" {}",
            mebibytes << 10,
            command.join(" ")
        ));
        let said = stderr(&output);
        match output.status.code() {
            Some(0) => done += 1,
            Some(1 | 2) => {
                assert!(said.contains("error: "), "{case}: {said}");
                ended += usize::from(said.contains("no more memory: an allocation of "));
            }
            // glibc aborts the process if memory ends while a thread registers what to drop at
            // its end. No program can prevent this.
            None if said.contains("failed to register TLS destructor: out of memory") => {}
            code => panic!("{case} ends with {code:?}: {said}"),
        }
        assert!(!said.contains("panicked"), "{case}: {said}");
        let _ = fs::remove_file(&out);
        assert_eq!(names(&folder), before, "{case} leaves nothing half written");
    }
    println!("{done} runs were done, {ended} ended where an allocation failed");
    assert!(done > 0 && ended > 0, "{done} done, {ended} ended");
}

#[test]
fn a_refused_command_leaves_the_log_as_it_is() {
    let folder = folder("refused");
    let log = folder.join("log.csv");
    for args in [
        &["mlp", "--budget", "1KiB"][..],
        &["mlp", "--data", "idx:/nowhere"],
        &["mlp", "--resume", "/nowhere"],
        &["mlp", "--image-size", "8x8"],
    ] {
        fs::write(&log, "mine").unwrap();
        let output = run(&[&["train", "--steps", "1", "--log", text(&log)], args].concat());
        assert!(!output.status.success(), "{args:?}");
        assert_eq!(fs::read(&log).unwrap(), b"mine", "{args:?}");
    }
}

#[test]
fn a_log_to_go_on_from_loses_nothing_that_is_not_remats() {
    let folder = folder("foreign");
    let [saved, csv, lines] = ["run", "log.csv", "log.jsonl"].map(|name| folder.join(name));
    let base = ["mlp", "--steps", "2", "--no-test", "--schedule", "constant"];
    train(&[&base[..], &["--save", text(&saved), "--log", text(&csv)]].concat());
    train(&[&base[..], &["--log", text(&lines)]].concat());
    for log in [csv, lines] {
        let ours = fs::read(&log).unwrap();
        let with = |more: &[u8]| [&ours[..], more].concat();
        let resume = |kept: &[u8]| {
            fs::write(&log, kept).unwrap();
            run(&[
                "train",
                "--quiet",
                "--resume",
                text(&saved),
                "--steps",
                "3",
                "--log",
                text(&log),
            ])
        };
        for foreign in [
            with(b"dear diary\n"),
            with(b"dear diary"),
            with(b"\xff\xfe\n"),
            with(b"{\"title\":1}\n"),
            with(b"7,seven\n"),
            b"name,age\nAda,36\n".to_vec(),
            b"\n".to_vec(),
        ] {
            let output = resume(&foreign);
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("is not a line of a log of remat train"), "{said}");
            assert_eq!(fs::read(&log).unwrap(), foreign);
        }
        // An incomplete line, which a killed program leaves, is removed.
        for cut in [&b""[..], &ours[..9]] {
            let output = resume(&with(cut));
            assert!(output.status.success(), "{}", stderr(&output));
            let after = fs::read(&log).unwrap();
            assert!(after.starts_with(&ours));
            assert_eq!(
                after.iter().filter(|&&byte| byte == b'\n').count(),
                ours.iter().filter(|&&byte| byte == b'\n').count() + 1
            );
        }
    }
}

/// Regression: each of these files made the program wait for ever, or write to a wrong place.
#[test]
fn special_files_are_refused_at_once() {
    let folder = folder("unusual");
    let [pipe, socket, other] = ["pipe", "socket", "other"].map(|name| folder.join(name));
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::write(&other, "mine").unwrap();
    let partial = folder.join("out.partial");
    symlink(&other, &partial).unwrap();
    let pictures = folder.join("pictures");
    fs::create_dir_all(pictures.join("a")).unwrap();
    assert!(Command::new("mkfifo").arg(pictures.join("a/0.png")).status().unwrap().success());
    let out = folder.join("out");
    let names = [&pipe, &socket, &folder, &out].map(|path| text(path).to_owned());
    let names = names.iter().map(String::as_str).chain(["/dev/full", "/dev/zero"]);
    for name in names {
        for option in ["--json", "--record", "--save", "--learn-cache"] {
            let args = ["train", "mlp", "--steps", "1", "--policy", "learned:search", option, name];
            let output = ended(&args);
            let said = stderr(&output);
            let is_cache = option == "--learn-cache" && name == text(&out);
            assert!(is_cache || matches!(output.status.code(), Some(1 | 2)), "{args:?}: {said}");
            assert!(said.contains(name), "{args:?}: {said}");
        }
        if name != text(&out) {
            for args in [&["evaluate", name][..], &["generate", name], &["train", "--resume", name]]
            {
                let output = ended(args);
                assert!(
                    matches!(output.status.code(), Some(1 | 2)),
                    "{args:?}: {}",
                    stderr(&output)
                );
            }
        }
    }
    let pictures = format!("images:{}", pictures.display());
    let output = ended(&["train", "mlp", "--steps", "1", "--data", &pictures]);
    assert!(stderr(&output).contains("0.png: not a regular file"), "{}", stderr(&output));
    assert_eq!(fs::read(&other).unwrap(), b"mine");
}

#[test]
fn an_empty_name_is_refused() {
    for option in ["--save", "--resume", "--json", "--record", "--log", "--plot", "--learn-cache"] {
        let output = run(&["train", "mlp", "--steps", "1", option, ""]);
        assert_eq!(output.status.code(), Some(2), "{option}");
        assert!(stderr(&output).contains(option), "{}", stderr(&output));
    }
}

#[test]
fn streams_stay_outputs() {
    let folder = folder("streams");
    let [copy, printed] = ["copy", "printed"].map(|name| folder.join(name));
    let train = "\"$0\" train mlp --steps 1 --no-test --json";
    for stdout in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1", "-"] {
        let output = shell(&format!("{train} {stdout} > {}", printed.display()));
        assert!(output.status.success(), "{stdout}: {}", stderr(&output));
        let json: serde_json::Value = serde_json::from_slice(&fs::read(&printed).unwrap()).unwrap();
        assert_eq!(json["steps"], 1, "{stdout}");
        assert!(stderr(&output).contains("mlp on digits"), "the summary goes to stderr");
    }
    let output = shell(&format!("{train} >(cat > {}); wait $!", copy.display()));
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(String::from_utf8_lossy(&output.stdout).contains("mlp on digits"));
    for _ in 0..100 {
        if fs::read_to_string(&copy).is_ok_and(|text| text.contains("params_sha256")) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(fs::read_to_string(&copy).unwrap().contains("params_sha256"));
    assert!(shell(&format!("{train} /dev/null")).status.success());
}

#[test]
fn a_cache_that_is_busy_or_cannot_be_written_is_no_error() {
    let folder = folder("busy");
    let cache = folder.join("cache");
    let partial = fs::File::create(folder.join("cache.partial")).unwrap();
    partial.lock().unwrap();
    let args = ["train", "mlp", "--batch", "32", "--steps", "2", "--no-test", "--budget", "85%"];
    let more = ["--policy", "learned:search", "--learn-cache", text(&cache)];
    let output = run(&[&args[..], &more].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(stderr(&output).contains("warning: --learn-cache"), "{}", stderr(&output));
    assert!(stderr(&output).contains("another program is writing"), "{}", stderr(&output));
    drop(partial);
    assert!(run(&[&args[..], &more].concat()).status.success());
    assert!(cache.exists(), "it is nobody's now");
}

#[test]
fn numbers_that_would_take_the_machine_are_refused() {
    let folder = folder("numbers");
    let recording = folder.join("recording");
    train(&["mlp", "--steps", "2", "--no-test", "--record", text(&recording)]);
    for (args, expected) in [
        (
            &["--seeds", "1000000000"][..],
            "recording would have 10,000,000,000 replays, but at most 1,048,576",
        ),
        (&["--seeds", "18446744073709551615"], "at most 1,048,576"),
        (
            &["--budget", "1%..100%:0.001%", "--eviction-threshold", "1%..100%:0.001%"],
            "at most 1,048,576",
        ),
    ] {
        let output = ended(&[&["sweep", text(&recording), "--policy", "random"], args].concat());
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(expected), "{args:?}: {said}");
    }
    let cache = folder.join("cache");
    fs::File::create(&cache).unwrap().set_len(1 << 40).unwrap();
    let args = ["train", "mlp", "--steps", "1", "--policy", "learned:search", "--learn-cache"];
    let output = ended(&[&args[..], &[text(&cache)]].concat());
    assert!(stderr(&output).contains("forecasts have at most 64.00 MiB"), "{}", stderr(&output));
    let output = remat(&["train", "mlp", "--steps", "1", "--threads", "1024"]).output().unwrap();
    assert!(output.status.success());
    assert!(stderr(&output).contains("--threads 1024: this program has "), "{}", stderr(&output));
}
