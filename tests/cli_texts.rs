//! `remat train` with transformers: texts, sizes, and combinations of options.

use crate::common::command::{folder, run, stderr, train};

const SMALL: [&str; 10] =
    ["--layers", "2", "--width", "32", "--heads", "2", "--context", "32", "--batch", "8"];

#[test]
fn a_budget_changes_no_bit_of_a_gpt() {
    let report = |budget| {
        let options = ["gpt", "--steps", "5", "--dropout", "0.1", "--no-test", "--budget", budget];
        let report = train(&[&options[..], &SMALL].concat());
        assert_eq!(report["data"], "moby-dick");
        assert_eq!(report["batch"], 8);
        assert!(report["peak_bytes"].as_u64() <= report["budget_bytes"].as_u64());
        (report["params_sha256"].to_string(), report["evictions"].as_u64().unwrap())
    };
    let ((ample, none), (tight, some)) = (report("200%"), report("60%"));
    assert_eq!(ample, tight);
    assert!(none == 0 && some > 0);
}

#[test]
fn a_gpt_learns_a_file_and_tells_bits_a_byte() {
    let folder = folder("texts");
    let file = folder.join("a text.txt");
    std::fs::write(&file, "she sells sea shells by the sea shore. ".repeat(200)).unwrap();
    let data = format!("text:{}", file.display());
    let options = ["train", "gpt", "--data", &data, "--steps", "60", "--optimizer", "adamw"];
    let rest = ["--lr", "0.003", "--no-progress"];
    let output = run(&[&options[..], &rest, &SMALL].concat());
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(said.contains(" bits a byte, "), "{said}");
    let bits = said.split(" bits a byte").next().unwrap().rsplit(' ').next().unwrap();
    // 256 equally likely bytes would take 8 bits.
    assert!(bits.parse::<f64>().unwrap() < 3.0, "{said}");
    assert!(stderr(&output).contains("windows"), "{}", stderr(&output));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_vit_learns_the_digits() {
    let options = ["vit", "--steps", "150", "--batch", "32", "--optimizer", "adamw"];
    let sizes = ["--lr", "0.004", "--layers", "2", "--width", "32", "--heads", "4"];
    let report = train(&[&options[..], &sizes].concat());
    assert_eq!(report["data"], "digits");
    // Chance would be one in ten.
    assert!(report["test_accuracy"].as_f64().unwrap() > 0.5, "{}", report["test_accuracy"]);
}

/// bf16 holds activations in half the bytes.
#[test]
fn a_gpt_takes_less_memory_in_bf16() {
    let peak = |precision| {
        let options = ["gpt", "--steps", "1", "--no-test", "--budget", "100%", "--precision"];
        let report = train(&[&options[..], &[precision], &SMALL].concat());
        report["peak_bytes"].as_u64().unwrap() as f64
    };
    let share = peak("bf16") / peak("f32");
    assert!(share < 0.8, "{share}");
}

#[test]
fn models_and_data_or_options_that_do_not_match_are_refused() {
    let folder = folder("short");
    let short = folder.join("short.txt");
    std::fs::write(&short, "Call me Ishmael.").unwrap();
    let broken = folder.join("broken.txt");
    std::fs::write(&broken, b"Call me \xff").unwrap();
    let (short, broken) =
        (format!("text:{}", short.display()), format!("text:{}", broken.display()));
    let cases: [(&[&str], i32, &str); 11] = [
        (&["gpt", "--data", "digits"], 2, "gpt learns from a text, but digits has images"),
        (&["gpt2", "--data", "synthetic:3x8x8"], 2, "gpt2 learns from a text"),
        (&["mlp", "--data", "moby-dick"], 2, "mlp learns from images, but moby-dick is a text"),
        (&["vit", "--data", &short], 2, "vit learns from images"),
        (&["mlp", "--layers", "3"], 2, "mlp has no --layers, because it comes in one size"),
        (&["vit", "--context", "3"], 2, "vit has no --context, because it has --layers, --width"),
        (&["gpt", "--width", "30"], 2, "--width 30 is not a multiple of --heads 4"),
        (&["gpt", "--data", &short], 2, "the text has 16 bytes"),
        (&["gpt", "--data", &broken], 1, "not UTF-8 at byte 8"),
        (&["gpt", "--data", "text:"], 2, "give the file, as text:FILE"),
        (&["gpt", "--random-flip"], 2, "--random-flip changes images, but moby-dick is a text"),
    ];
    for (args, code, message) in cases {
        let output = run(&[&["train", "--steps", "1"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        // On narrow terminals messages are wrapped.
        let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(message), "{args:?}: {said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_trained_gpt_writes_what_the_seed_says() {
    let folder = folder("generate");
    let file = |name: &str| folder.join(name).to_str().unwrap().to_owned();
    let (text, saved, images) = (file("a.txt"), file("a.safetensors"), file("b.safetensors"));
    std::fs::write(&text, "she sells sea shells by the sea shore. ".repeat(200)).unwrap();
    let data = format!("text:{text}");
    let options = ["gpt", "--data", &data, "--steps", "160", "--optimizer", "adamw"];
    let rest = ["--lr", "0.01", "--no-test", "--save", &saved];
    train(&[&options[..], &rest, &SMALL].concat());
    // Only the network is needed, not the text.
    std::fs::remove_file(&text).unwrap();
    let write = |options: &[&str]| {
        let output =
            run(&[&["generate", &saved, "she sells", "--length", "120"], options].concat());
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let found = write(&["--seed", "3", "--temperature", "0.8", "--top-k", "20"]);
    assert!(found.starts_with("she sells") && found.ends_with('\n'), "{found}");
    assert_eq!(write(&["--seed", "3", "--temperature", "0.8", "--top-k", "20"]), found);
    assert_eq!(
        write(&["--seed", "3", "--temperature", "0.8", "--top-k", "20", "--threads", "1"]),
        found
    );
    let likeliest = write(&["--temperature", "0"]);
    assert_eq!(write(&["--temperature", "0", "--seed", "9"]), likeliest);
    assert_eq!(likeliest.len(), 9 + 120 + 1);
    let words = ["she", "sells", "sea", "shells", "by", "the", "shore."];
    let right = likeliest.split_whitespace().filter(|word| words.contains(word)).count();
    assert!(right > 10, "{likeliest}");
    train(&["mlp", "--steps", "1", "--no-test", "--save", &images]);
    for (args, code, message) in [
        (&[saved.as_str(), ""][..], 2, "give at least one byte"),
        (&[&saved, "a", "--top-k", "0"], 2, "from 1 up"),
        (&[&images], 2, "is a mlp, which learns from images"),
    ] {
        let output = run(&[&["generate"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", stderr(&output));
        let said = stderr(&output).split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(said.contains(message), "{args:?}: {said}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}
