//! Transformers: names and sizes, masks, and the same bits under every budget.

use remat::autograd::Tape;
use remat::nn::{
    Gpt, Mode, Module, MultiheadAttention, Rotary, Sampling, TransformerBlock, Vit, generate, gpt,
    parameters, state, vit,
};
use remat::optim::Optimizer;
use remat::{Builder, Error, Runtime, Tensor};
use std::ops::ControlFlow;

const GPT: Gpt = Gpt { vocabulary: 37, context: 24, layers: 6, width: 32, heads: 4, dropout: 0.1 };

const VIT: Vit =
    Vit { image: [3, 12, 8], patch: 4, layers: 5, width: 32, heads: 4, classes: 5, dropout: 0.1 };

fn cpu(builder: Builder) -> Runtime {
    builder.seed(7).threads(2).cpu().unwrap()
}

fn free() -> Runtime {
    cpu(Runtime::builder().budget("256MiB"))
}

fn names(module: &mut dyn Module) -> Vec<String> {
    state(module).into_iter().map(|(name, _)| name).collect()
}

fn text(runtime: &Runtime, n: usize, t: usize, seed: usize) -> Tensor {
    let token = |i: usize| ((i * 31 + seed * 17 + i * i % 7) % GPT.vocabulary) as i32;
    runtime.tensor(&[n, t], (0..n * t).map(token).collect()).unwrap()
}

#[test]
fn names_and_sizes_are_those_of_gpt2() {
    // The simulator computes nothing.
    let runtime = Runtime::builder().budget("2GiB").sim().unwrap();
    let mut network = gpt(&runtime, &Gpt::gpt2()).unwrap();
    let count: usize = parameters(&mut network).map(|(_, p)| p.layout().elements()).sum();
    assert_eq!(count, 124_439_808);
    let shape = |network: &mut dyn Module, wanted: &str| {
        let found = parameters(network).find(|(name, _)| name == wanted);
        found.map(|(_, p)| p.shape().to_vec())
    };
    for (name, expected) in [
        ("wte.weight", vec![50_257, 768]),
        ("wpe.weight", vec![1024, 768]),
        ("h.0.ln_1.weight", vec![768]),
        ("h.0.ln_1.bias", vec![768]),
        ("h.0.attn.c_attn.weight", vec![768, 2304]),
        ("h.0.attn.c_attn.bias", vec![2304]),
        ("h.0.attn.c_proj.weight", vec![768, 768]),
        ("h.11.attn.c_proj.bias", vec![768]),
        ("h.11.ln_2.weight", vec![768]),
        ("h.11.mlp.c_fc.weight", vec![768, 3072]),
        ("h.11.mlp.c_fc.bias", vec![3072]),
        ("h.11.mlp.c_proj.weight", vec![3072, 768]),
        ("h.11.mlp.c_proj.bias", vec![768]),
        ("ln_f.weight", vec![768]),
        ("ln_f.bias", vec![768]),
    ] {
        assert_eq!(shape(&mut network, name), Some(expected), "{name}");
    }
    assert_eq!(names(&mut network).len(), 2 + 12 * 12 + 2);
}

#[test]
fn other_names_are_those_of_pytorch() {
    let runtime = free();
    let mut block = TransformerBlock::new(&runtime, 8, 2).unwrap();
    let mut expected = vec!["norm1.weight", "norm1.bias"];
    expected.extend(["self_attn.in_proj_weight", "self_attn.in_proj_bias"]);
    expected.extend(["self_attn.out_proj.weight", "self_attn.out_proj.bias"]);
    expected.extend(["norm2.weight", "norm2.bias", "linear1.weight", "linear1.bias"]);
    expected.extend(["linear2.weight", "linear2.bias"]);
    assert_eq!(names(&mut block), expected);
    let mut network = vit(&runtime, &Vit { layers: 1, ..VIT }).unwrap();
    let layer = "encoder.layers.encoder_layer_0";
    let mut expected: Vec<String> =
        ["class_token", "conv_proj.weight", "conv_proj.bias", "encoder.pos_embedding"]
            .map(str::to_owned)
            .into();
    expected.extend(
        [
            "ln_1.weight",
            "ln_1.bias",
            "self_attention.in_proj_weight",
            "self_attention.in_proj_bias",
            "self_attention.out_proj.weight",
            "self_attention.out_proj.bias",
            "ln_2.weight",
            "ln_2.bias",
            "mlp.0.weight",
            "mlp.0.bias",
            "mlp.3.weight",
            "mlp.3.bias",
        ]
        .map(|name| format!("{layer}.{name}")),
    );
    expected.extend(
        ["encoder.ln.weight", "encoder.ln.bias", "heads.head.weight", "heads.head.bias"]
            .map(str::to_owned),
    );
    assert_eq!(names(&mut network), expected);
}

#[test]
fn weights_begin_as_those_of_gpt2() {
    let runtime = free();
    let mut network = gpt(&runtime, &Gpt { layers: 8, width: 128, ..GPT }).unwrap();
    let mut spread = |wanted: &str| {
        let (_, p) = parameters(&mut network).find(|(name, _)| name == wanted).unwrap();
        let x = p.to_vec::<f32>().unwrap();
        (x.iter().map(|x| f64::from(x * x)).sum::<f64>() / x.len() as f64).sqrt()
    };
    for (name, expected) in [
        ("wte.weight", 0.02),
        ("h.3.attn.c_attn.weight", 0.02),
        ("h.3.attn.c_proj.weight", 0.005),
        ("h.3.mlp.c_fc.weight", 0.02),
        ("h.3.mlp.c_proj.weight", 0.005),
        ("h.3.mlp.c_proj.bias", 0.0),
    ] {
        let found = spread(name);
        assert!((found - expected).abs() <= 0.03 * expected, "{name}: {found}");
    }
}

/// Networks that read texts or images, each with an input.
fn networks(runtime: &Runtime) -> Vec<(Box<dyn Module>, Tensor)> {
    let rotary = Rotary::new(runtime, 10, 4, 10_000.0).unwrap();
    let attention = MultiheadAttention::new(runtime, 8, 2).unwrap().causal().rotary(rotary);
    let block = TransformerBlock::new(runtime, 8, 2).unwrap().dropout(0.1);
    let normal = |shape: &[usize]| runtime.normal(shape, 0.0, 1.0).unwrap();
    vec![
        (Box::new(gpt(runtime, &GPT).unwrap()), text(runtime, 2, 9, 1)),
        (Box::new(vit(runtime, &VIT).unwrap()), normal(&[2, 3, 12, 8])),
        (Box::new(attention), normal(&[2, 10, 8])),
        (Box::new(block), normal(&[2, 10, 8])),
    ]
}

#[test]
fn gradients_flow_to_every_parameter() {
    let runtime = free();
    for (mut network, x) in networks(&runtime) {
        let tape = Tape::new(&runtime);
        tape.watch(&mut *network);
        let y = network.forward(&x, Mode::Train).unwrap();
        let weights = runtime.normal(y.shape(), 0.0, 1.0).unwrap();
        let gradients = tape.backward(&y.mul(&weights).unwrap().sum().unwrap()).unwrap();
        for (name, parameter) in parameters(&mut *network) {
            let found = gradients.get(parameter).unwrap_or_else(|| panic!("{name}: none"));
            let found = found.to_vec::<f32>().unwrap();
            // Rows of tokens and positions that do not occur have zero gradients.
            assert!(found.iter().any(|&x| x != 0.0), "{name}");
            assert!(found.iter().all(|x| x.is_finite()), "{name}");
        }
    }
}

#[test]
fn later_tokens_change_no_earlier_logits() {
    let runtime = free();
    let mut network = gpt(&runtime, &GPT).unwrap();
    let tokens: Vec<i32> = (0..20).map(|i| i * 7 % 37).collect();
    let mut logits = |tokens: &[i32]| {
        let x = runtime.tensor(&[1, tokens.len()], tokens.to_vec()).unwrap();
        network.forward(&x, Mode::Infer).unwrap().to_vec::<f32>().unwrap()
    };
    let before = logits(&tokens);
    for at in [0, 1, 12, 19] {
        let mut changed = tokens.clone();
        changed[at] = (changed[at] + 1) % 37;
        let after = logits(&changed);
        let part = at * GPT.vocabulary;
        assert_eq!(before[..part], after[..part], "token {at}");
        assert_ne!(before[part..], after[part..], "token {at}");
    }
    // If later tokens are left out, earlier logits change by no more than rounding.
    let found = logits(&tokens[..5]);
    let near = found.iter().zip(&before).all(|(a, b)| (a - b).abs() < 1e-5);
    assert!(near, "{found:?}");
}

/// Rotary attention depends on the distance of rows, not on their positions.
#[test]
fn rotary_attention_is_relative() {
    let runtime = free();
    let rotary = Rotary::new(&runtime, 40, 4, 10_000.0).unwrap();
    let mut attention = MultiheadAttention::new(&runtime, 8, 2).unwrap().causal().rotary(rotary);
    let x = runtime.normal(&[1, 3, 8], 0.0, 1.0).unwrap();
    let all = runtime.normal(&[1, 7, 8], 0.0, 1.0).unwrap();
    let turned = Tensor::concat(&[&x.slice(1, 1..2).unwrap(), &x.slice(1, 0..1).unwrap()], 1);
    let two = |x: &Tensor, attention: &mut MultiheadAttention| {
        let y = attention.forward(x, Mode::Infer).unwrap();
        y.slice(1, 1..2).unwrap().to_vec::<f32>().unwrap()
    };
    let straight = two(&x.slice(1, 0..2).unwrap(), &mut attention);
    assert_ne!(straight, two(&turned.unwrap(), &mut attention));
    assert!(attention.forward(&all.repeat(&[1, 7, 1]).unwrap(), Mode::Infer).is_err());
}

/// Trains for ten steps. Returns the bits to compare.
fn train(runtime: &Runtime, images: bool) -> Result<Vec<Vec<f32>>, Error> {
    let mut network: Box<dyn Module> =
        if images { Box::new(vit(runtime, &VIT)?) } else { Box::new(gpt(runtime, &GPT)?) };
    let mut optimizer = Optimizer::sgd(0.05, 0.9, 1e-4);
    let mut losses = Vec::new();
    for step in 0..10 {
        let (x, labels) = if images {
            let labels = (0..16).map(|i| (i * 3 + step as i32) % 5).collect();
            (runtime.normal(&[16, 3, 12, 8], 0.0, 1.0)?, runtime.tensor(&[16], labels)?)
        } else {
            let labels = text(runtime, 8, 24, step + 1).reshape(&[8 * 24])?;
            (text(runtime, 8, 24, step), labels)
        };
        let tape = Tape::new(runtime);
        tape.watch(&mut *network);
        let y = network.forward(&x, Mode::Train)?;
        let classes = y.shape()[y.rank() - 1];
        let loss = y.reshape(&[labels.shape()[0], classes])?.cross_entropy(&labels)?;
        drop((x, labels, y));
        optimizer.minimize(tape, &loss, &mut *network)?;
        losses.push(loss.item()?);
        drop(loss);
        runtime.step()?;
    }
    let mut all = vec![losses];
    for (_, parameter) in parameters(&mut *network) {
        all.push(parameter.to_vec()?);
    }
    Ok(all)
}

fn bits(all: &[Vec<f32>]) -> Vec<Vec<u32>> {
    all.iter().map(|list| list.iter().map(|x| x.to_bits()).collect()).collect()
}

#[test]
fn ten_steps_have_the_same_bits_under_every_budget() {
    for images in [false, true] {
        let runtime = free();
        let expected = train(&runtime, images).unwrap();
        assert!(expected[0].iter().all(|loss| loss.is_finite()), "{:?}", expected[0]);
        let peak = runtime.stats().unwrap().peak_bytes;
        for percent in [100, 60, 40] {
            for threads in [1, 2] {
                let budget = peak * percent / 100;
                let builder = Runtime::builder().budget(budget).seed(7).threads(threads);
                let tight = builder.cpu().unwrap();
                let found = train(&tight, images).unwrap_or_else(|e| panic!("{percent} %: {e}"));
                assert!(bits(&found) == bits(&expected), "images: {images}, {percent} %");
                let stats = tight.stats().unwrap();
                assert!(stats.peak_bytes <= budget);
                assert!(percent == 100 || stats.evictions > 0, "{percent} %");
            }
        }
    }
}

#[test]
fn a_seed_says_what_is_generated() {
    let write = |budget: &str, sampling: Sampling| {
        let runtime = cpu(Runtime::builder().budget(budget));
        let mut network = gpt(&runtime, &GPT).unwrap();
        let mut found = Vec::new();
        generate(&runtime, &mut network, &[1, 2, 3], sampling, |token| {
            found.push(token);
            ControlFlow::Continue(())
        })
        .unwrap();
        found
    };
    let sampling = Sampling { length: 60, context: 24, temperature: 0.8, top_k: Some(20), seed: 3 };
    let found = write("64MiB", sampling);
    assert_eq!(found.len(), 60);
    assert!(found.iter().all(|token| (0..37).contains(token)));
    assert_eq!(write("64MiB", sampling), found);
    assert_eq!(write("1MiB", sampling), found);
    assert_ne!(write("64MiB", Sampling { seed: 4, ..sampling }), found);
    let greedy = Sampling { temperature: 0.0, ..sampling };
    assert_eq!(write("64MiB", greedy), write("64MiB", Sampling { seed: 9, ..greedy }));
}

#[test]
fn mismatched_shapes_and_sizes_are_refused_in_words() {
    let runtime = free();
    let said = |error: Result<(), Error>| error.unwrap_err().to_string();
    assert_eq!(
        said(gpt(&runtime, &Gpt { heads: 5, ..GPT }).map(drop)),
        "attention: width 32 is not a multiple of 5 heads"
    );
    assert_eq!(
        said(TransformerBlock::new(&runtime, 8, 0).map(drop)),
        "attention: width 8 is not a multiple of 0 heads"
    );
    assert_eq!(
        said(vit(&runtime, &Vit { patch: 5, ..VIT }).map(drop)),
        "vit: images of 12x8 are not a whole number of patches of 5x5"
    );
    let mut network = gpt(&runtime, &GPT).unwrap();
    assert_eq!(
        said(network.forward(&text(&runtime, 1, 25, 0), Mode::Infer).map(drop)),
        "gpt: x is i32[1, 25], expected [n, t] with t up to 24"
    );
    let x = runtime.ones(&[1, 3, 12, 9]).unwrap();
    let mut of_images = vit(&runtime, &VIT).unwrap();
    assert_eq!(
        said(of_images.forward(&x, Mode::Infer).map(drop)),
        "vit: x is f32[1, 3, 12, 9], expected [n, 3, 12, 8]"
    );
    let mut attention = MultiheadAttention::new(&runtime, 8, 2).unwrap();
    assert_eq!(
        said(attention.forward(&x, Mode::Infer).map(drop)),
        "attention: x is f32[1, 3, 12, 9], expected [n, t, 8]"
    );
    for (prompt, sampling, message) in [
        (&[][..], Sampling::default(), "the prompt is empty, expected at least 1 token"),
        (
            &[1],
            Sampling { temperature: -1.0, ..Sampling::default() },
            "temperature is -1, expected a finite number of at least 0",
        ),
        (
            &[1],
            Sampling { top_k: Some(0), ..Sampling::default() },
            "top_k is 0, expected at least 1",
        ),
        (&[1], Sampling { context: 0, ..Sampling::default() }, "context is 0, expected at least 1"),
    ] {
        let error =
            said(generate(&runtime, &mut network, prompt, sampling, |_| ControlFlow::Continue(())));
        assert_eq!(error, format!("generate: {message}"));
    }
    // Token 37 is outside the vocabulary.
    let go_on = |_| ControlFlow::Continue(());
    assert!(generate(&runtime, &mut network, &[37], Sampling::default(), go_on).is_err());
}
