//! The program with files of other libraries.

use super::files::{
    Made, fill, fixture, folder, renamed, tensors, write, write_index, write_shards,
};
use crate::common::command::{run, stderr, train};
use image::{Rgb, RgbImage};
use serde_json::Value;
use std::path::{Path, PathBuf};

const TOKENIZER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/tokenizer.json");

/// Writes a GPT-2 of bytes. Returns the path.
fn gpt2(folder: &Path, dtype: &'static str) -> String {
    let path = folder.join("model.safetensors");
    write(&path, &renamed(tensors("gpt2", dtype), |name| format!("transformer.{name}")));
    path.to_str().unwrap().to_owned()
}

/// Writes the script's GPT-2 of 320 tokens. Returns the path.
fn gpt2_of_tokens(folder: &Path) -> String {
    let path = folder.join("tokens.safetensors");
    let mut all = tensors("gpt2", "F32");
    for tensor in all.iter_mut().filter(|tensor| tensor.name == "wte.weight") {
        let shape = [320, 32];
        let mut values = fill("wte.weight", &shape);
        for (i, value) in values.iter_mut().enumerate() {
            *value /= if (95..257).contains(&(i / 32)) { 4096.0 } else { 64.0 };
        }
        *tensor = Made::new("wte.weight", "F32", &shape, &values);
    }
    write(&path, &all);
    path.to_str().unwrap().to_owned()
}

/// Stdout of a command, and its stderr in one line.
fn told(args: &[&str]) -> (String, String) {
    let output = run(args);
    assert!(output.status.success(), "{args:?}: {}", stderr(&output));
    let said = in_one_line(&stderr(&output));
    (String::from_utf8(output.stdout).unwrap(), said)
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn refused(args: &[&str], code: i32, part: &str) {
    let output = run(args);
    let said = in_one_line(&stderr(&output));
    assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
    assert!(said.starts_with("error: ") && said.contains(part), "{args:?}: {said}");
}

fn config(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("config.json");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn a_gpt2_writes_a_text_and_it_is_said_what_was_done_to_its_tensors() {
    let folder = folder("generate");
    let file = gpt2(&folder, "F32");
    let options = ["--length", "16", "--temperature", "0", "--heads", "4"];
    let write_with = |args: &[&str]| told(&[&["generate"], args, &["Call me"], &options].concat());
    let (expected, said) = write_with(&[&file]);
    assert!(expected.starts_with("Call me"), "{expected}");
    assert!(said.contains("weights from") && said.contains(": 28 tensors"), "{said}");
    for (dtype, part) in [
        ("F64", "28 tensors of f64 rounded to f32"),
        ("F16", "28 tensors of f16 converted to f32, without loss"),
        ("BF16", "28 tensors of bf16 converted to f32, without loss"),
    ] {
        gpt2(&folder, dtype);
        let (text, said) = write_with(&[&file]);
        assert!(said.contains(part), "{said}");
        assert!(dtype != "F64" || text == expected, "{text}");
    }
    // Names may be the user's own, tensors may be superfluous, and the file may be in parts.
    std::fs::remove_file(&file).unwrap();
    let mut all = renamed(tensors("gpt2", "F32"), |name| format!("gpt/{name}"));
    all.push(Made::new("gpt/steps", "I64", &[], &[7.0]));
    let index = write_shards(&folder, &all, 3);
    let index = index.to_str().unwrap();
    for path in [index, folder.to_str().unwrap()] {
        let (text, said) = write_with(&[path, "--rename", "gpt/*=*", "--skip", "*/steps"]);
        assert_eq!(text, expected);
        assert!(said.contains("left out: gpt/steps"), "{said}");
    }
    let names = ["--rename", "gpt/*=*", "--heads", "4"];
    refused(&[&["generate", index][..], &names].concat(), 2, "`steps` is not in the network");
    refused(&["generate", index], 1, "the file is not from `remat train --save`");
    refused(&["generate", index, "--rename", "gpt/*=x"], 2, "expected the same number");
    write_index(&folder, &serde_json::json!({ "a": "../a.safetensors" }));
    refused(&["generate", index], 1, "`../a.safetensors`, which is not in its folder");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn heads_are_those_of_the_configuration_or_given() {
    let folder = folder("heads");
    let file = gpt2(&folder, "F32");
    let options = ["generate", &file, "Call me", "--length", "40"];
    let with = |more: &[&'static str]| [&options[..], more].concat();
    refused(&options, 2, "without a number of heads; add --heads N");
    refused(&with(&["--heads", "5"]), 2, "is not a multiple of 5 heads");
    let [four, two] = ["4", "2"].map(|heads| told(&with(&["--heads", heads])).0);
    assert_ne!(four, two);
    for (heads, expected) in [(4, &four), (2, &two)] {
        config(&folder, &format!("{{\"n_head\": {heads}, \"model_type\": \"gpt2\"}}"));
        assert_eq!(told(&options).0, *expected, "{heads}");
    }
    refused(&with(&["--heads", "4"]), 2, "n_head is 2, but --heads is 4");
    for (text, part) in [
        ("{\"n_head\": 4, \"activation_function\": \"relu\"}", "activation_function is \"relu\""),
        ("{\"n_head\": 4, \"layer_norm_epsilon\": 1e-6}", "layer_norm_epsilon is 0.000001"),
        ("{\"n_head\": 4, \"scale_attn_weights\": false}", "scale_attn_weights is false"),
        ("{\"scale_attn_by_inverse_layer_idx\": true}", "scale_attn_by_inverse_layer_idx is true"),
        ("{\"n_head\": 4, \"tie_word_embeddings\": false}", "tie_word_embeddings is false"),
        ("{\"n_head\": 0}", "not a multiple of 0 heads"),
        ("[]", "not a configuration of a GPT-2"),
    ] {
        config(&folder, text);
        refused(&options, 2, part);
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_tokenizer_makes_the_tokens_of_the_transformers_library() {
    let folder = folder("tokens");
    let file = gpt2_of_tokens(&folder);
    config(&folder, "{\"n_head\": 4}");
    let fixture = fixture("tokenizer");
    let cases = fixture["written"].as_array().unwrap();
    for [prompt, new] in cases.iter().map(|case| [&case[0], &case[1]].map(Value::as_str)) {
        let (prompt, new) = (prompt.unwrap(), new.unwrap());
        let options = ["--tokenizer", TOKENIZER, "--length", "24", "--temperature", "0"];
        let (text, _) = told(&[&["generate", &file, prompt], &options[..]].concat());
        assert_eq!(text, format!("{prompt}{new}\n"));
    }
    refused(
        &["generate", &file],
        2,
        "has 320 tokens, but a text without a tokenizer has 256 bytes; add --tokenizer",
    );
    refused(
        &["evaluate", &file],
        2,
        "has 320 tokens, but a text without a tokenizer has 256 bytes; add --tokenizer",
    );
    let bytes = gpt2(&folder, "F32");
    let with = |tokenizer: &str, code, part: &str| {
        refused(&["generate", &bytes, "--tokenizer", tokenizer], code, part);
    };
    with(TOKENIZER, 2, "--tokenizer has 320 tokens, but the network has 256");
    with(&bytes, 1, "not a tokenizer.json");
    with(folder.to_str().unwrap(), 1, "not a regular file");
    with("/dev/zero", 1, "not a regular file");
    with("nowhere", 1, "No such file");
    refused(
        &["train", "mlp", "--steps", "1", "--tokenizer", TOKENIZER],
        2,
        "--tokenizer is for text models, but mlp is not a text model",
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_run_of_ours_learns_tokens_too() {
    let folder = folder("own-tokens");
    let saved = folder.join("mine.safetensors");
    let saved = saved.to_str().unwrap();
    let text = folder.join("a.txt");
    std::fs::write(&text, "she sells sea shells by the sea shore. ".repeat(60)).unwrap();
    let data = format!("text:{}", text.display());
    let tokens = ["--data", &data, "--tokenizer", TOKENIZER, "--batch", "4", "--save", saved];
    let tokens = [&tokens[..], &["--steps", "2"]].concat();
    let sizes = ["--layers", "1", "--width", "16", "--context", "16"];
    for (model, vocabulary) in [("gpt", None), ("gpt", Some("512")), ("lstm", None)] {
        let vocabulary: Vec<&str> =
            vocabulary.into_iter().flat_map(|n| ["--vocabulary", n]).collect();
        let (report, _) = told(&[&["train", model], &tokens[..], &sizes, &vocabulary].concat());
        assert!(report.contains(" bits a token, "), "{report}");
        let (text, _) =
            told(&["generate", saved, "Call me", "--length", "4", "--temperature", "0"]);
        assert!(text.starts_with("Call me"), "{text}");
    }
    let few = ["--vocabulary", "300", "--tokenizer", TOKENIZER];
    refused(
        &[&["train", "gpt"], &few[..]].concat(),
        2,
        "--tokenizer has 320 tokens, but the network has 300",
    );
    refused(
        &["train", "gpt", "--vocabulary", "300"],
        2,
        "the network has 300 tokens, but a text without a tokenizer has 256",
    );
    refused(&["train", "mlp", "--vocabulary", "300"], 2, "mlp has no --vocabulary");
    std::fs::remove_dir_all(folder).unwrap();
}

/// A run that began with only the weights of a file is trained and saved. The new checkpoint can be
/// used without the original file.
#[test]
fn a_run_begins_with_weights_alone_and_says_so() {
    let folder = folder("resume");
    let file = gpt2_of_tokens(&folder);
    config(&folder, "{\"n_head\": 4}");
    let text = folder.join("a.txt");
    std::fs::write(&text, "she sells sea shells by the sea shore. ".repeat(60)).unwrap();
    let data = format!("text:{}", text.display());
    let saved = folder.join("mine.safetensors");
    let saved = saved.to_str().unwrap();
    let options = ["--data", &data, "--tokenizer", TOKENIZER, "--batch", "4"];
    let tuned = ["--steps", "30", "--optimizer", "adamw", "--lr", "0.01", "--save", saved];
    let (_, said) = told(&[&["train", "--resume", &file], &options[..], &tuned].concat());
    for part in [
        "gpt2 on text:",
        "weights from",
        ": 28 tensors",
        "optimizer, steps and random numbers begin anew",
        "step 30/30",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    let loss = |file: &str, more: &[&str]| {
        let args = [&["evaluate", file, "--json", "-", "--quiet"], more].concat();
        let report: Value = serde_json::from_str(&told(&args).0).unwrap();
        (report["test_loss"].as_f64().unwrap(), report["steps"].clone())
    };
    let (before, steps) = loss(&file, &options);
    assert_eq!(steps, Value::Null);
    let (after, steps) = loss(saved, &[]);
    assert_eq!(steps, 30);
    assert!(after < before, "{after} after, {before} before");
    // The saved file knows its sizes and its tokenizer, and its run can go on.
    let (written, _) = told(&["generate", saved, "she sells", "--length", "8"]);
    assert!(written.starts_with("she sells"), "{written}");
    let more = ["--steps", "30", "--save", saved, "--no-test"];
    let (_, said) = told(&[&["train", "--resume", saved], &more[..]].concat());
    assert!(said.contains("after 30 steps"), "{said}");
    refused(&["evaluate", saved, "--heads", "4"], 2, "already contains the number of heads");
    // Options beside the file must agree with the file.
    let resume = |more: &[&str], code, part: &str| {
        refused(&[&["train", "--resume", &file], &options[..], more].concat(), code, part);
    };
    resume(&["--width", "64"], 2, "--width is 64 here, but 32 in");
    resume(&["--layers", "3"], 2, "--layers is 3 here, but 2 in");
    resume(&["--heads", "2"], 2, "n_head is 4, but --heads is 2");
    resume(&["--save", &file], 2, "would overwrite");
    refused(&["train", "mlp", "--resume", &file], 2, "the model is mlp here, but");
    refused(&["train", "--resume", &file, "--data", &data], 2, "add --tokenizer");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn images_have_to_be_those_of_the_file() {
    let folder = folder("images");
    let file = folder.join("resnet18.safetensors");
    write(&file, &tensors("resnet18", "F16"));
    let file = file.to_str().unwrap();
    let photos = folder.join("photos");
    for class in 0..10 {
        let class_folder = photos.join(format!("class{class}"));
        std::fs::create_dir_all(&class_folder).unwrap();
        for i in 0..2 {
            let color = Rgb([20 * class, 90 * i, 200 - 20 * class]);
            RgbImage::from_pixel(72, 80, color)
                .save(class_folder.join(format!("{i}.png")))
                .unwrap();
        }
    }
    let data = format!("images:{}", photos.display());
    let base = ["evaluate", file, "--data", &data];
    let with = |more: &[&'static str]| [&base[..], more].concat();
    let (report, said) = told(&with(&["--image-size", "64x64", "--batch", "5", "--json", "-"]));
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!((&report["model"], &report["test_examples"]), (&"resnet18".into(), &10.into()));
    for part in
        ["122 tensors", "of f16 converted to f32", "left out: bn1.num_batches_tracked and 19 more"]
    {
        assert!(said.contains(part) || part == "122 tensors", "{part} in {said}");
    }
    refused(
        &["evaluate", file],
        2,
        "does not name data to test on; name images, as --data images:DIR",
    );
    refused(&with(&["--image-size", "32x32"]), 2, "takes images of at least 64 pixels each way");
    refused(
        &["evaluate", file, "--data", "digits"],
        2,
        "takes images of 3 channels, but the data has 1",
    );
    let report = train(&[
        "--resume",
        file,
        "--data",
        &data,
        "--steps",
        "1",
        "--no-test",
        "--image-size",
        "64x64",
    ]);
    assert_eq!(report["model"], "resnet18");
    std::fs::remove_dir_all(photos.join("class9")).unwrap();
    refused(&with(&["--image-size", "64x64"]), 2, "has 10 classes, but the data has 9");
    refused(&["generate", file], 2, "is a resnet18, which learns from images");
    refused(&["train", "resnet50", "--resume", file, "--data", &data], 2, "is a resnet18");
    std::fs::remove_dir_all(folder).unwrap();
}
