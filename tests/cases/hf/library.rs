use super::files::{
    Made, fill, fixture, floats, folder, renamed, shapes, tensors, write, write_shards,
};
use half::{bf16, f16};
use remat::checkpoint::{Checkpoint, CheckpointError, Known, Names};
use remat::nn::{
    DenseNet, LanguageModel, Mode, Module, ResNet, Sequential, State, densenet, gpt, resnet, state,
};
use remat::prelude::*;
use remat::{DType, HostTensor};
use std::path::Path;

fn start() -> Runtime {
    Runtime::builder().budget("512MiB").seed(1).cpu().unwrap()
}

/// GPT with the sizes of the file.
fn gpt_of(runtime: &Runtime, saved: &Checkpoint) -> LanguageModel {
    let heads = fixture("gpt2")["heads"].as_u64().unwrap() as usize;
    gpt(runtime, &saved.known().unwrap().gpt(heads).unwrap()).unwrap()
}

fn load(
    runtime: &Runtime,
    path: &Path,
    network: impl FnOnce(&Runtime, &Checkpoint) -> LanguageModel,
) -> Result<LanguageModel, CheckpointError> {
    let saved = Checkpoint::open(path)?;
    let mut network = network(runtime, &saved);
    saved.named(&Names::gpt2())?.convert().load(runtime, &mut network)?;
    Ok(network)
}

fn near(found: &[f32], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (a, b) in found.iter().zip(expected) {
        assert!((f64::from(*a) - b).abs() < 1e-4, "{what}: {a}, expected {b}");
    }
}

/// Compares the logits of a text with those of the transformers library.
fn check_logits(runtime: &Runtime, network: &mut LanguageModel, what: &str) {
    let fixture = fixture("gpt2");
    let text: Vec<i32> = floats(&fixture["input"]).into_iter().map(|token| token as i32).collect();
    let text = runtime.tensor(&[1, text.len()], text).unwrap();
    let logits: Vec<f32> = network.forward(&text, Mode::Infer).unwrap().to_vec().unwrap();
    let rows = floats(&fixture["rows"]);
    let found: Vec<f32> =
        rows.iter().flat_map(|&row| logits[row as usize * 256..][..256].to_vec()).collect();
    near(&found, &floats(&fixture["output"]), what);
}

fn values(runtime: &Runtime, module: &mut dyn Module) -> Vec<(String, HostTensor)> {
    let each = state(module).into_iter().map(|(name, state)| {
        let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
        (name, runtime.get(tensor).unwrap())
    });
    each.collect()
}

/// Variants in which files hold GPT-2's tensors.
fn ways_of_gpt2(dtype: &'static str) -> Vec<(&'static str, Vec<Made>)> {
    let base = tensors("gpt2", dtype);
    let with = |prefix: &'static str| renamed(base.clone(), |name| format!("{prefix}{name}"));
    let head = || Made { name: "lm_head.weight".to_owned(), ..tied(&base) };
    let mut masks = with("transformer.");
    for i in 0..2 {
        let ones = [1.0; 64 * 64];
        let mask = |name: &str| format!("transformer.h.{i}.attn.{name}");
        masks.push(Made::new(&mask("bias"), "U8", &[1, 1, 64, 64], &ones));
        masks.push(Made::new(&mask("masked_bias"), "F32", &[], &[-1e4]));
    }
    let mut only_head: Vec<Made> = with("transformer.");
    only_head.retain(|tensor| tensor.name != "transformer.wte.weight");
    only_head.push(head());
    vec![
        ("as the model alone", base.clone()),
        ("with a head", with("transformer.")),
        ("with a head of its own, the same", [with("transformer."), vec![head()]].concat()),
        ("with a head in place of the embedding", only_head),
        ("data parallel and compiled", with("module._orig_mod.transformer.")),
        ("with masks", masks),
    ]
}

fn tied(tensors: &[Made]) -> Made {
    tensors.iter().find(|tensor| tensor.name == "wte.weight").unwrap().clone()
}

#[test]
fn a_gpt2_has_the_logits_of_the_transformers_library() {
    let names = fixture("gpt2")["names"].clone();
    for (i, kind) in [(0, "base"), (1, "lm_head")] {
        let mut here: Vec<String> =
            ways_of_gpt2("F32")[i].1.iter().map(|tensor| tensor.name.clone()).collect();
        here.sort();
        assert_eq!(names[kind], serde_json::json!(here), "{kind}");
    }
    let runtime = start();
    let folder = folder("logits");
    for dtype in ["F32", "F64"] {
        for (way, tensors) in ways_of_gpt2(dtype) {
            let file = folder.join("model.safetensors");
            write(&file, &tensors);
            let what = format!("{way}, {dtype}");
            check_logits(&runtime, &mut load(&runtime, &file, gpt_of).unwrap(), &what);
            // The path may be a folder with the file, and later a folder with its parts.
            check_logits(&runtime, &mut load(&runtime, &folder, gpt_of).unwrap(), &what);
            std::fs::remove_file(&file).unwrap();
            for count in [1, 2, 3, tensors.len()] {
                let index = write_shards(&folder, &tensors, count);
                for path in [&index, &folder] {
                    check_logits(&runtime, &mut load(&runtime, path, gpt_of).unwrap(), &what);
                }
            }
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn floats_of_any_type_are_converted_and_it_is_said_which_are_rounded() {
    let runtime = start();
    let folder = folder("types");
    let file = folder.join("model.safetensors");
    for (dtype, stored) in
        [("F64", DType::F64), ("F32", DType::F32), ("F16", DType::F16), ("BF16", DType::BF16)]
    {
        // Some tensors have another type, as after training in mixed precision.
        for every in [1, 3] {
            let mut all = tensors("gpt2", "F32");
            for tensor in all.iter_mut().step_by(every) {
                *tensor = Made::filled(&tensor.name, dtype, &tensor.shape);
            }
            write(&file, &all);
            let saved = Checkpoint::open(&file).unwrap();
            let mut network = gpt_of(&runtime, &saved);
            let before = values(&runtime, &mut network);
            let count = if stored == DType::F32 { 0 } else { all.len().div_ceil(every) };
            // Types are converted only on request.
            match saved.load(&runtime, &mut network) {
                Ok(()) => assert_eq!(stored, DType::F32),
                Err(CheckpointError::Tensors { missing, extra, differing, .. }) => {
                    assert!(missing.is_empty() && extra.is_empty());
                    assert_eq!(differing.len(), count);
                    assert!(differing.iter().all(|difference| difference.is_convertible));
                    assert!(values(&runtime, &mut network) == before);
                }
                Err(error) => panic!("{error}"),
            }
            let saved = saved.convert();
            let fit = saved.fit(&mut network).unwrap();
            assert_eq!(fit.tensors, all.len());
            let converted: Vec<_> =
                fit.conversions.iter().map(|c| (c.from, c.to, c.tensors)).collect();
            let expected = [(stored, DType::F32, count)];
            assert_eq!(converted, expected[..usize::from(count > 0)]);
            assert!(fit.conversions.iter().all(|c| c.rounds() == (stored == DType::F64)));
            saved.load(&runtime, &mut network).unwrap();
            for (name, host) in values(&runtime, &mut network) {
                let tensor = all.iter().find(|tensor| tensor.name == name).unwrap();
                let as_stored = |x: f64| match tensor.dtype {
                    "F16" => f16::from_f64(x).to_f32(),
                    "BF16" => bf16::from_f64(x).to_f32(),
                    _ => x as f32,
                };
                let expected = fill(&name, &tensor.shape).into_iter().map(as_stored);
                let expected: Vec<f32> = expected.collect();
                assert_eq!(host.as_f32().unwrap(), expected, "{name} of {dtype}");
            }
        }
    }
    // A number that the new type cannot hold must not become infinity.
    let mut all = tensors("gpt2", "F64");
    let last = all.len() - 1;
    let mut values = fill("wte.weight", &all[last].shape);
    values[3000] = 1e300;
    all[last] = Made::new("wte.weight", "F64", &[256, 32], &values);
    write(&file, &all);
    let said = load(&runtime, &file, gpt_of).unwrap_err().to_string();
    assert!(
        said.ends_with("an element of `wte.weight` is 1e300, expected a value that f32 can hold"),
        "{said}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

/// Compares the logits of an image, by a network with the sizes of the file.
fn of_images(of: &str, tensors: &[Made]) {
    let runtime = start();
    let folder = folder(of);
    let file = folder.join("model.safetensors");
    write(&file, tensors);
    let saved = Checkpoint::open(&file).unwrap();
    let known = saved.known().unwrap();
    let mut network: Sequential = match known {
        Known::ResNet { kind, channels, classes, stem: 7 } => {
            assert_eq!((kind, channels, classes), (ResNet::R18, 3, 10));
            resnet(&runtime, kind, channels, [64, 64], classes).unwrap()
        }
        Known::DenseNet { of, channels, classes, stem: 7 } => {
            assert_eq!((of, channels, classes), (DenseNet::D121, 3, 10));
            densenet(&runtime, of, channels, [64, 64], classes).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let saved = saved.named(&known.names()).unwrap();
    saved.load(&runtime, &mut network).unwrap();
    assert!(saved.skipped().all(|name| name.ends_with("num_batches_tracked")));
    let shape = [1, 3, 64, 64];
    let x = fill("input", &shape).into_iter().map(|x| x as f32).collect();
    let x = runtime.tensor(&shape, x).unwrap();
    let found: Vec<f32> = network.forward(&x, Mode::Infer).unwrap().to_vec().unwrap();
    near(&found, &floats(&fixture(of)["output"]), of);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn a_resnet18_has_the_logits_of_torchvision() {
    of_images("resnet18", &renamed(tensors("resnet18", "F32"), |name| format!("module.{name}")));
}

/// The published files have other names than the tensors of torchvision's class.
#[test]
fn a_densenet121_has_the_logits_of_torchvision_under_old_names_too() {
    let old = |name: &str| match name.contains("denselayer") {
        true => ["norm", "conv"].iter().fold(name.to_owned(), |name, layer| {
            name.replace(&format!(".{layer}1."), &format!(".{layer}.1."))
                .replace(&format!(".{layer}2."), &format!(".{layer}.2."))
        }),
        false => name.to_owned(),
    };
    let tensors = renamed(tensors("densenet121", "F32"), old);
    assert!(tensors.iter().any(|tensor| tensor.name.ends_with("denselayer16.norm.2.running_var")));
    of_images("densenet121", &tensors);
}

/// Writes a file of zeros that takes no space on disk.
fn write_sparse(path: &Path, shapes: &[(String, bool, Vec<usize>)]) {
    let mut header = serde_json::Map::new();
    let mut end = 0;
    for (name, is_integer, shape) in shapes {
        let (dtype, size) = if *is_integer { ("I64", 8) } else { ("F32", 4) };
        let span = [end, end + shape.iter().product::<usize>() * size];
        end = span[1];
        let entry = serde_json::json!({ "dtype": dtype, "shape": shape, "data_offsets": span });
        header.insert(name.clone(), entry);
    }
    let head = super::files::with_header(&serde_json::Value::Object(header).to_string(), &[]);
    std::fs::write(path, &head).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.set_len((head.len() + end) as u64).unwrap();
}

#[test]
fn resnets_that_are_ours_fit_and_others_are_refused_by_name() {
    let folder = folder("names");
    let file = folder.join("model.safetensors");
    // The simulated device only counts bytes.
    let sim = Runtime::builder().budget("1GiB").sim().unwrap();
    let known = |shapes: &[_]| {
        write_sparse(&file, shapes);
        let saved = Checkpoint::open(&file).unwrap();
        let known = saved.known()?;
        let mut network = match known {
            Known::ResNet { kind, channels, classes, stem } => {
                let side = if stem == 7 { 64 } else { 32 };
                resnet(&sim, kind, channels, [side; 2], classes).unwrap()
            }
            other => panic!("{other:?}"),
        };
        saved.named(&known.names())?.fit(&mut network)?;
        Ok::<_, CheckpointError>(known)
    };
    for (of, expected) in [("resnet18", ResNet::R18), ("resnet50", ResNet::R50)] {
        let found = known(&shapes(of)).unwrap();
        assert!(matches!(found, Known::ResNet { kind, .. } if kind == expected), "{found:?}");
    }
    // A ResNet-18 with the 3x3 stem of CIFAR networks and one channel is recognized.
    let mut small = shapes("resnet18");
    small[0].2 = vec![64, 1, 3, 3];
    let found = known(&small).unwrap();
    assert!(matches!(found, Known::ResNet { channels: 1, stem: 3, .. }), "{found:?}");
    let refused = |shapes: &[_], name: &str| {
        let said = known(shapes).unwrap_err().to_string();
        assert!(said.contains(name), "{said}");
        assert!(said.contains("supported are resnet18 and resnet50"), "{said}");
    };
    refused(&shapes("resnet34"), "torchvision's resnet34");
    let resnet50 = shapes("resnet50");
    let changed = |old: [usize; 4], new: [usize; 4]| {
        let mut shapes = resnet50.clone();
        for (_, _, shape) in shapes.iter_mut().filter(|(_, _, shape)| shape[..] == old) {
            *shape = new.to_vec();
        }
        shapes
    };
    let conv = [64, 64, 3, 3];
    refused(&changed(conv, [128, 4, 3, 3]), "torchvision's resnext50_32x4d");
    refused(&changed(conv, [128, 128, 3, 3]), "torchvision's wide_resnet50_2");
    let longer = |stage: usize, from: usize, to: usize| {
        let mut shapes = resnet50.clone();
        for i in from..to {
            let name = |what: &str| format!("layer{stage}.{i}.{what}");
            let block =
                resnet50.iter().filter(|(n, ..)| n.starts_with(&format!("layer{stage}.1.")));
            let block = block.map(|(n, is_integer, shape)| {
                (name(n.splitn(3, '.').nth(2).unwrap()), *is_integer, shape.clone())
            });
            shapes.extend(block);
        }
        shapes
    };
    refused(&longer(3, 6, 23), "torchvision's resnet101");
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn all_that_does_not_fit_is_listed_at_once() {
    let runtime = start();
    let folder = folder("misfits");
    let file = folder.join("model.safetensors");
    let mut all = renamed(tensors("gpt2", "F32"), |name| format!("transformer.{name}"));
    all.retain(|tensor| {
        !["h.0.ln_1.bias", "ln_f.bias"].iter().any(|name| tensor.name.ends_with(name))
    });
    let change = |all: &mut Vec<Made>, name: &str, made: Made| {
        let at =
            all.iter().position(|tensor| tensor.name == format!("transformer.{name}")).unwrap();
        all[at] = Made { name: all[at].name.clone(), ..made };
    };
    change(&mut all, "ln_f.weight", Made::new("", "F32", &[31], &[0.0; 31]));
    change(&mut all, "h.1.attn.c_attn.weight", Made::filled("", "F32", &[96, 32]));
    change(&mut all, "h.1.ln_1.weight", Made::new("", "I64", &[32], &[1.0; 32]));
    all.push(Made::new("score.weight", "F32", &[2, 32], &[0.0; 64]));
    write(&file, &all);
    let said = load(&runtime, &file, gpt_of).unwrap_err().to_string();
    for part in [
        "`h.0.ln_1.bias`, `ln_f.bias` are not in the file",
        "`score.weight` is not in the network",
        "`h.1.attn.c_attn.weight` is f32[96, 32], expected f32[32, 96]",
        "`h.1.ln_1.weight` is i64[32], expected f32[32]",
        "`ln_f.weight` is f32[31], expected f32[32]",
    ] {
        assert!(said.contains(part), "{part} in {said}");
    }
    // Tensors named by `skip` are left out, under either name. A tensor that the network needs is
    // then missing.
    for (skip, left) in [("score.*", 0), ("*.weight", 1)] {
        let saved = Checkpoint::open(&file).unwrap();
        let mut network = gpt_of(&runtime, &saved);
        let names = Names::new().skip(skip.parse().unwrap()).then(Names::gpt2());
        let saved = saved.named(&names).unwrap();
        assert!(saved.skipped().any(|name| name == "score.weight"));
        match saved.load(&runtime, &mut network) {
            Err(CheckpointError::Tensors { missing, extra, .. }) => {
                assert!(extra.is_empty());
                assert_eq!(
                    missing.iter().filter(|name| name.ends_with("weight")).count() > 0,
                    left > 0
                );
            }
            other => panic!("{other:?}"),
        }
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// A head whose weights differ from the embedding must not be ignored without an error.
#[test]
fn a_head_that_is_not_the_embedding_is_refused() {
    let runtime = start();
    let folder = folder("untied");
    let file = folder.join("model.safetensors");
    let base = renamed(tensors("gpt2", "F32"), |name| format!("transformer.{name}"));
    for at in [0, 4097, 256 * 32 - 1] {
        let mut values = fill("wte.weight", &[256, 32]);
        values[at] += 0.5;
        let head = Made::new("lm_head.weight", "F32", &[256, 32], &values);
        write(&file, &[&base[..], &[head]].concat());
        let said = load(&runtime, &file, gpt_of).unwrap_err().to_string();
        assert!(said.contains("`lm_head.weight` is not `wte.weight`"), "{said}");
    }
    let head = Made::filled("lm_head.weight", "F32", &[255, 32]);
    write(&file, &[&base[..], &[head]].concat());
    let said = load(&runtime, &file, gpt_of).unwrap_err().to_string();
    assert!(
        said.contains("`lm_head.weight` is f32[255, 32], but `wte.weight` is f32[256, 32]"),
        "{said}"
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn names_that_become_one_are_refused_and_rules_of_ones_own_are_taken() {
    let runtime = start();
    let folder = folder("renames");
    let file = folder.join("model.safetensors");
    let base = tensors("gpt2", "F32");
    let twice = [Made { name: "transformer.wte.weight".to_owned(), ..tied(&base) }];
    write(&file, &[&base[..], &twice].concat());
    let said = load(&runtime, &file, gpt_of).unwrap_err().to_string();
    let both = "`transformer.wte.weight` and `wte.weight` are both renamed to `wte.weight`";
    assert!(said.ends_with(both), "{said}");
    write(&file, &renamed(base, |name| format!("net/{}", name.replace("h.", "block_"))));
    let rules = ["net/*=*", "block_*=h.*"].map(|rule| rule.parse().unwrap());
    let names = rules.into_iter().fold(Names::new(), Names::rename);
    let saved = Checkpoint::open(&file).unwrap();
    assert!(saved.known().unwrap_err().to_string().contains("of no known network"));
    let saved = saved.named(&names).unwrap();
    let mut network = gpt_of(&runtime, &saved);
    saved.load(&runtime, &mut network).unwrap();
    check_logits(&runtime, &mut network, "renamed");
    std::fs::remove_dir_all(folder).unwrap();
}
