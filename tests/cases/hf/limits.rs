//! Numbers in a file must not make the program take more memory than the file, or lead it to
//! another file.

use super::files::{Made, folder, tensors, with_header, write, write_index, write_shards};
use remat::checkpoint::Checkpoint;
use serde_json::{Value, json};
use std::path::Path;

fn refused(path: &Path, part: &str) {
    let said = Checkpoint::open(path).expect_err(part).to_string();
    assert!(said.contains(part), "{said}, expected {part}");
    assert!(said.contains(path.parent().unwrap().to_str().unwrap()), "{said}");
    assert!(said.len() < 2000, "an error of {} bytes", said.len());
}

/// Entry of a header.
fn entry(dtype: &str, shape: &Value, from: u64, to: u64) -> String {
    json!({ "dtype": dtype, "shape": shape, "data_offsets": [from, to] }).to_string()
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let folder = folder("headers");
    let file = folder.join("model.safetensors");
    let f32s = |n: u64, from, to| entry("F32", &json!([n]), from, to);
    let two = |a: &str, b: &str| format!(r#"{{"a":{a},"b":{b}}}"#);
    let one = |a: &str| format!(r#"{{"a":{a}}}"#);
    let many = vec![1; 256];
    let control = "a\u{1b}[2J";
    for (header, bytes, part) in [
        (two(&f32s(1, 0, 4), &f32s(1, 0, 4)), 4, "tensors overlap"),
        (two(&f32s(2, 0, 8), &f32s(2, 4, 12)), 12, "tensors overlap"),
        (two(&f32s(1, 0, 4), &f32s(1, 8, 12)), 12, "no bytes may lie between"),
        (one(&f32s(1, 4, 8)), 8, "no bytes may lie between"),
        (one(&f32s(1, 4, 0)), 4, "takes bytes 4 to 0"),
        (one(&f32s(2, 0, 4)), 4, "is f32[2] of 8 bytes, but has 4"),
        (one(&f32s(1, 0, 4)), 8, "or has extra bytes"),
        (one(&f32s(2, 0, 8)), 4, "the file is cut off"),
        (one(&f32s(1 << 60, 0, 4)), 4, "but has 4"),
        (one(&entry("F32", &json!([u64::MAX, 4]), 0, 4)), 4, "but has 4"),
        (one(&f32s(1, 0, u64::MAX)), 4, "but has 18446744073709551615"),
        (one(&entry("U8", &json!(many), 0, 1)), 1, "more than 255 dimensions"),
        (one(&entry("F32", &json!([-1]), 0, 4)), 4, "not a safetensors header"),
        (one(&entry("F32", &json!([0.5]), 0, 4)), 4, "not a safetensors header"),
        (one(&entry(&"F".repeat(1 << 20), &json!([1]), 0, 4)), 4, "a name of 1048576 bytes"),
        (format!(r#"{{"a":{0},"a":{0}}}"#, f32s(1, 0, 4)), 4, "two tensors are called `a`"),
        (format!(r#"{{"a":{0},"a":{0}}}"#, f32s(0, 0, 0)), 0, "two tensors are called `a`"),
        (format!(r#"{{"{}":{}}}"#, "n".repeat(2000), f32s(1, 0, 4)), 4, "a name of 2000 bytes"),
        (json!({ control: Value::Null }).to_string(), 0, "control characters"),
        (r#"{"__metadata__":{},"__metadata__":{}}"#.to_owned(), 0, "duplicate field"),
        (r#"{"__metadata__":{"a":1}}"#.to_owned(), 0, "not a safetensors header"),
        ("[]".to_owned(), 0, "not a safetensors header"),
        ("{".repeat(100_000), 0, "not a safetensors header"),
    ] {
        std::fs::write(&file, with_header(&header, &vec![0; bytes])).unwrap();
        refused(&file, part);
    }
    // No memory is taken for these sizes.
    for (length, part) in [
        (u64::MAX, "cut off"),
        (1 << 40, "cut off"),
        (33 << 20, "headers have 34603008 bytes, more than 33554432"),
    ] {
        std::fs::write(&file, u64::to_le_bytes(length)).unwrap();
        std::fs::OpenOptions::new().write(true).open(&file).unwrap().set_len(1 << 32).unwrap();
        refused(&file, part);
    }
    let none = entry("F32", &json!([0]), 0, 0);
    let all: Vec<String> = (0..=1 << 18).map(|i| format!(r#""{i}":{none}"#)).collect();
    std::fs::write(&file, with_header(&format!("{{{}}}", all.join(",")), &[])).unwrap();
    refused(&file, "more than 262144 tensors");
    for magic in [&b"PK\x03\x04\x14\0\0\0\0\0"[..], b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j"] {
        std::fs::write(&file, magic).unwrap();
        refused(&file, "a file of torch.save");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn an_index_leads_to_files_of_its_folder_alone() {
    let folder = folder("index");
    let inner = folder.join("inner");
    std::fs::create_dir(&inner).unwrap();
    write(&folder.join("outside.safetensors"), &[Made::new("a", "F32", &[1], &[1.0])]);
    write(&inner.join("a.safetensors"), &[Made::new("a", "F32", &[1], &[1.0])]);
    write(&inner.join("b.safetensors"), &[Made::new("b", "F32", &[1], &[1.0])]);
    write(&inner.join("again.safetensors"), &[Made::new("a", "F32", &[1], &[1.0])]);
    let absolute = folder.join("outside.safetensors");
    let index = |map: Value| write_index(&inner, &map);
    let found = Checkpoint::open(index(json!({ "a": "a.safetensors", "b": "./b.safetensors" })));
    assert_eq!(found.unwrap().tensors().count(), 2);
    let found = Checkpoint::open(index(json!({ "a": "a.safetensors", "b": "b.safetensors" })));
    assert_eq!(found.unwrap().tensors().count(), 2);
    for outside in
        ["../outside.safetensors", absolute.to_str().unwrap(), "..", "/dev/zero", "", "x/../../y"]
    {
        refused(&index(json!({ "a": outside })), "which is not in its folder");
    }
    refused(&index(json!({ "a": "a.safetensors", "b": "again.safetensors" })), "`a` is in ");
    refused(
        &index(json!({ "a": "b.safetensors", "b": "a.safetensors" })),
        "which does not have this tensor; 1 more",
    );
    refused(&index(json!({ "c": "a.safetensors" })), "lists `c` in a.safetensors");
    refused(&index(json!({ "a": "missing.safetensors" })), "No such file");
    refused(&index(json!({ "a": "model.safetensors.index.json" })), "cut off");
    refused(&index(json!({ "a": 1 })), "not an index of safetensors files");
    refused(&index(json!({ "a\n": "a.safetensors" })), "control characters");
    let files = (0..=1024).map(|i| (i.to_string(), Value::from(format!("{i}.safetensors"))));
    refused(&index(Value::Object(files.collect())), "more than 1024 files");
    let path = inner.join("model.safetensors.index.json");
    let twice = r#"{"weight_map":{"a":"a.safetensors","a":"b.safetensors"}}"#;
    for (text, part) in [(twice, "`a` is listed twice"), ("{}", "weight_map"), ("", "not an index")]
    {
        std::fs::write(&path, text).unwrap();
        refused(&path, part);
    }
    std::fs::File::create(&path).unwrap().set_len(1 << 40).unwrap();
    refused(&path, "more than 33554432");
    std::fs::remove_file(&path).unwrap();
    refused(&folder.join("inner"), "has no model.safetensors");
    std::fs::remove_dir_all(folder).unwrap();
}

/// Names of blocks alone must not make a network of thousands of blocks.
#[test]
fn a_gpt2_of_names_alone_is_refused() {
    let folder = folder("names-alone");
    let file = folder.join("model.safetensors");
    let mut all = tensors("gpt2", "F32");
    let block = |i: usize| Made::new(&format!("h.{i}.attn.c_attn.weight"), "F32", &[0], &[]);
    all.extend((2..50_000).map(block));
    write(&file, &all);
    let said = Checkpoint::open(&file).unwrap().known().unwrap_err().to_string();
    assert!(said.contains("a GPT-2 of 50000 blocks, but most tensors are missing"), "{said}");
    // A file that lacks only some tensors is accepted, and its missing tensors are listed.
    all.truncate(28);
    all.remove(3);
    write(&file, &all);
    assert!(Checkpoint::open(&file).unwrap().known().is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}

/// Any byte of an index or of a header may have changed.
#[test]
fn damaged_files_are_refused_or_read_and_nothing_panics() {
    let folder = folder("damaged");
    let index = write_shards(&folder, &tensors("gpt2", "F16")[..6], 2);
    let first = folder.join("model-00001-of-00002.safetensors");
    for path in [&index, &first] {
        let bytes = std::fs::read(path).unwrap();
        let end = bytes.len().min(600);
        for at in 0..end {
            for byte in [0, b'9', b'"', b'{', b'/', bytes[at] ^ 1] {
                let mut changed = bytes.clone();
                changed[at] = byte;
                std::fs::write(path, &changed).unwrap();
                if let Ok(saved) = Checkpoint::open(&index) {
                    let _ = saved.known();
                }
            }
        }
        std::fs::write(path, &bytes).unwrap();
    }
    assert!(Checkpoint::open(&index).is_ok());
    std::fs::remove_dir_all(folder).unwrap();
}
