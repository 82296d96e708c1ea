use super::*;
use crate::device::{DeviceError, cpu};
use crate::layout::{Dims, Layout};
use crate::ops::samples::{Draw, Sizes, each, samples};
use crate::ops::{
    Affine, BatchNorm, Broadcast, Conv2d, Conv2dGradInput, CrossEntropy, CrossEntropyGrad,
    Distribution, Fill, MatMul, Permute, Random, Reduce, Reduction, Reshape, SgdMomentum, Unary,
};
use remat_rng::SplitMix64;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Writes an op as text, makes an op from the text, and checks that the two ops are equal.
fn comes_back(library: &Library, op: &Op) {
    let text = op.attributes().unwrap();
    let again = library.op(op.name(), Some(&text)).unwrap();
    assert_eq!(format!("{again:?}"), format!("{op:?}"), "{text}");
    // Equal text means equal bits of all floats, as the tests of `attributes::float` show.
    assert_eq!(again.attributes().unwrap(), text);
    assert!(again == *op || text.contains("NaN"), "{op:?} as {text}");
}

/// Error for attributes that are not valid for the op.
fn unfit(name: &str, attributes: &str) -> String {
    let error = Library::default().op(name, Some(attributes)).expect_err(attributes).to_string();
    let prefix = format!("{name}: the attributes are invalid: ");
    error.strip_prefix(&prefix).expect(&error).to_owned()
}

#[test]
fn every_op_comes_back() {
    let library = Library::default();
    let names: BTreeSet<String> = each().iter().map(|op| op.name().to_owned()).collect();
    assert_eq!(format!("{library:?}"), format!("{names:?}"));
    samples().iter().for_each(|sample| comes_back(&library, &sample.op));
    for sizes in [Sizes::Few, Sizes::Small] {
        let mut draw = Draw::new(3, sizes);
        for _ in 0..200 {
            each().iter().for_each(|op| comes_back(&library, &draw.sample(op).op));
        }
    }
}

#[test]
fn absurd_attributes_come_back() {
    let library = Library::default();
    let mut draw = Draw::new(4, Sizes::Few);
    for _ in 0..1000 {
        each().iter().for_each(|op| comes_back(&library, &draw.absurd(op).0));
    }
    let nan = |bits: u32| f32::from_bits(bits);
    let floats = [f32::NAN, nan(0xffc0_0000), nan(0x7f80_0001), nan(0x7fff_ffff)]
        .into_iter()
        .chain([f32::INFINITY, f32::NEG_INFINITY, -0.0, f32::MAX, f32::from_bits(1), 0.1]);
    for x in floats {
        let shape = Dims::SCALAR;
        let random =
            |distribution| Random { distribution, shape, key: u64::MAX, counter: 1 << 63 }.into();
        let ops: [Op; 7] = [
            Affine { scale: x, shift: -x }.into(),
            BatchNorm { momentum: x, eps: x }.into(),
            SgdMomentum { lr: x, momentum: -x, weight_decay: x, nesterov: false }.into(),
            Fill { shape, value: x }.into(),
            random(Distribution::Uniform { low: x, high: x }),
            random(Distribution::Normal { mean: x, std: x }),
            random(Distribution::Bernoulli { p: x }),
        ];
        ops.iter().for_each(|op| comes_back(&library, op));
        let text = ops[3].attributes().unwrap();
        let Op::Fill(fill) = library.op("fill", Some(&text)).unwrap() else { panic!("{text}") };
        assert_eq!(fill.value.to_bits(), x.to_bits(), "{text}");
    }
    for rank in [0, 1, 6, 7, 100, Dims::MAX_LEN] {
        for size in [0, 1, usize::MAX] {
            let shape = Dims::from_fn(rank, |_| size);
            let axes = Dims::from_fn(rank, |axis| axis);
            let ops: [Op; 5] = [
                Fill { shape, value: 0.0 }.into(),
                Reshape { shape }.into(),
                Broadcast { shape }.into(),
                Permute { axes }.into(),
                Reduce { kind: Reduction::Mean, axes, keep_dims: true }.into(),
            ];
            ops.iter().for_each(|op| comes_back(&library, op));
        }
    }
}

#[test]
fn attributes_are_what_one_would_write() {
    let all: [(Op, &str); 8] = [
        (MatMul.into(), "{}"),
        (Unary::Relu.into(), "{}"),
        (BatchNorm { momentum: 0.1, eps: 0.001 }.into(), r#"{"momentum":0.1,"eps":0.001}"#),
        (Conv2d::new([2, 1], [1, 0]).into(), r#"{"stride":[2,1],"padding":[1,0]}"#),
        (
            Conv2d { dilation: [1, 2], groups: 3, ..Conv2d::default() }.into(),
            r#"{"stride":[1,1],"padding":[0,0],"dilation":[1,2],"groups":3}"#,
        ),
        (
            Reduce { kind: Reduction::Sum, axes: [0, 2].into(), keep_dims: true }.into(),
            r#"{"kind":"sum","axes":[0,2],"keep_dims":true}"#,
        ),
        (Fill { shape: [2].into(), value: f32::NAN }.into(), r#"{"shape":[2],"value":"NaN"}"#),
        (
            Random {
                distribution: Distribution::Uniform { low: -1.0, high: 1.0 },
                shape: [3].into(),
                key: 7,
                counter: u64::MAX,
            }
            .into(),
            r#"{"distribution":{"kind":"uniform","low":-1.0,"high":1.0},"shape":[3],"key":7,"counter":18446744073709551615}"#,
        ),
    ];
    for (op, text) in all {
        assert_eq!(op.attributes().as_deref(), Some(text));
        // Neither the order of attributes nor white space affects the op.
        let spaced = serde_json::to_string_pretty(&serde_json::from_str::<Value>(text).unwrap());
        let again = Library::default().op(op.name(), Some(&spaced.unwrap())).unwrap();
        assert_eq!(again.attributes().as_deref(), Some(text));
    }
}

/// Copies of `value`, each with one invalid part, and text that the error must contain.
fn spoiled(value: &Value) -> Vec<(Value, String)> {
    let wrong = match value {
        Value::Object(_) => vec![json!(null), json!(true), json!(1), json!("x"), json!([])],
        Value::Array(_) => vec![json!(null), json!(true), json!(1), json!("x"), json!({})],
        Value::Number(number) if number.is_u64() => {
            vec![json!(null), json!(true), json!(-1), json!(0.5), json!(1e30), json!("1")]
        }
        Value::Number(_) => vec![json!(null), json!(true), json!(1e39), json!("1"), json!([1.0])],
        Value::Bool(_) => vec![json!(null), json!(0), json!("true"), json!([true])],
        Value::String(_) => vec![json!(null), json!(3), json!("x"), json!(["sum"])],
        Value::Null => panic!("no attribute is null"),
    };
    let mut all: Vec<_> = wrong.into_iter().map(|wrong| (wrong, String::new())).collect();
    if let Value::Array(parts) = value {
        for (i, part) in parts.iter().enumerate() {
            for (wrong, expected) in spoiled(part) {
                let mut parts = parts.clone();
                parts[i] = wrong;
                all.push((parts.into(), expected));
            }
        }
    }
    if let Value::Object(fields) = value {
        for (name, part) in fields {
            let mut fewer = fields.clone();
            fewer.remove(name);
            all.push((fewer.into(), name.clone()));
            for (wrong, expected) in spoiled(part) {
                let mut fields = fields.clone();
                fields.insert(name.clone(), wrong);
                all.push((fields.into(), expected));
            }
        }
        let mut more = fields.clone();
        more.insert("surprise".to_owned(), json!(1));
        all.push((more.into(), "surprise".to_owned()));
    }
    all
}

#[test]
fn attributes_that_do_not_fit_are_errors() {
    let mut draw = Draw::new(5, Sizes::Small);
    for op in each().iter().flat_map(|op| [op.clone(), draw.sample(op).op]) {
        let text = op.attributes().unwrap();
        for end in 0..text.len() {
            unfit(op.name(), &text[..end]);
        }
        for more in ["{}", "}", "x", "\0"] {
            unfit(op.name(), &format!("{text}{more}"));
        }
        let whole: Value = serde_json::from_str(&text).unwrap();
        let has_defaults = Library::default().op(op.name(), Some("{}")).is_ok();
        let fields = |value: &Value| value.as_object().map(serde_json::Map::len);
        for (wrong, expected) in spoiled(&whole) {
            if has_defaults && fields(&wrong).is_some_and(|n| Some(n) < fields(&whole)) {
                continue;
            }
            // Some attributes were added after recordings existed, and may be missing from a
            // recording.
            let is_late = match op.name() {
                "sgd_momentum" => expected == "nesterov",
                "attention" | "attention_grad" => expected == "scale",
                name => name.starts_with("conv2d") && ["dilation", "groups"].contains(&&*expected),
            };
            if is_late {
                continue;
            }
            let error = unfit(op.name(), &wrong.to_string());
            assert!(error.contains(&expected), "{wrong}: {error}");
        }
    }
}

#[test]
fn recordings_from_before_an_op_had_attributes_are_read() {
    let ops: [Op; 2] = [CrossEntropy::default().into(), CrossEntropyGrad::default().into()];
    for op in ops {
        let read = Library::default().op(op.name(), Some("{}")).unwrap();
        assert_eq!(read.attributes(), op.attributes());
    }
    // Read attributes of recordings made before dilations and groups existed.
    let conv = Conv2d::new([2, 1], [1, 0]);
    for (op, text) in [
        (conv.into(), r#"{"stride":[2,1],"padding":[1,0]}"#),
        (
            Op::from(Conv2dGradInput { conv, input: [5, 6] }),
            r#"{"conv":{"stride":[2,1],"padding":[1,0]},"input":[5,6]}"#,
        ),
    ] {
        assert_eq!(op.attributes().as_deref(), Some(text));
        assert_eq!(Library::default().op(op.name(), Some(text)).unwrap(), op);
    }
    let attributes = r#"{"lr":0.1,"momentum":0.9,"weight_decay":0.0}"#;
    let read = Library::default().op("sgd_momentum", Some(attributes)).unwrap();
    let op = SgdMomentum { lr: 0.1, momentum: 0.9, weight_decay: 0.0, nesterov: false };
    assert_eq!(read, op.into());
    assert_eq!(read.attributes().as_deref(), Some(attributes));
}

#[test]
fn errors_say_what_does_not_fit() {
    let deep = "[".repeat(100_000);
    for (name, attributes, expected) in [
        ("concat", "", "not a JSON object"),
        ("concat", "[0]", "not a JSON object"),
        ("concat", "null", "not a JSON object"),
        ("concat", "{}", "missing field `axis` at line 1 column 2"),
        ("concat", r#"{"axis":-1}"#, "invalid value: integer `-1`, expected usize"),
        ("concat", r#"{"axis":1e400}"#, "number out of range"),
        ("concat", r#"{"axis":99999999999999999999}"#, "expected usize"),
        ("concat", r#"{"axis":0,"axis":1}"#, "duplicate field `axis`"),
        ("concat", &format!(r#"{{"axis":{deep}"#), "invalid type: sequence, expected usize"),
        ("fill", &format!(r#"{{"shape":[],"value":{deep}"#), "recursion limit exceeded"),
        ("fill", r#"{"shape":[],"value":1e39}"#, "1e+39 is not an f32"),
        ("affine", r#"{"scale":1,"shift":"0"}"#, r#""0" is not an f32"#),
        ("relu", "[]", "not a JSON object"),
        ("relu", r#"{"alpha":0.1}"#, "unknown field `alpha`, there are no fields"),
        ("conv2d", r#"{"stride":[1],"padding":[0,0]}"#, "invalid length 1"),
        ("conv2d", r#"{"stride":[1,1,1],"padding":[0,0]}"#, "trailing characters"),
        ("max", r#"{"kind":"sum","axes":[],"keep_dims":false}"#, "these are attributes of `sum`"),
        (
            "sum",
            r#"{"kind":"least","axes":[],"keep_dims":false}"#,
            "unknown variant `least`, expected one of `sum`, `mean`, `max`, `min`",
        ),
        (
            "normal",
            r#"{"distribution":{"kind":"bernoulli","p":0.5},"shape":[],"key":0,"counter":0}"#,
            "these are attributes of `bernoulli`",
        ),
        (
            "normal",
            r#"{"distribution":{"kind":"normal","mean":0,"var":1},"shape":[],"key":0,"counter":0}"#,
            "unknown field `var`, expected `mean` or `std`",
        ),
    ] {
        let error = unfit(name, attributes);
        assert!(error.contains(expected), "{name} {attributes}: {error}");
    }
    let error = Library::default().op("sum", None).unwrap_err().to_string();
    let expected = "sum: the op was recorded without attributes, probably by a build without the feature `serde`";
    assert_eq!(error, expected);
}

#[test]
fn whatever_is_read_is_an_op_or_an_error() {
    let (library, ops) = (Library::default(), each());
    let mut draw = Draw::new(6, Sizes::Small);
    let mut numbers = SplitMix64::new(7);
    let mut read = 0;
    for _ in 0..200_000 {
        let op = draw.sample(&ops[numbers.below(ops.len())]).op;
        let mut text = op.attributes().unwrap().into_bytes();
        for _ in 0..=numbers.below(2) {
            let at = numbers.below(text.len());
            const BYTES: &[u8] = b"0123456789-+.eE,:\"[]{} ntNif\\\xff";
            match numbers.below(3) {
                0 => text[at] = BYTES[numbers.below(BYTES.len())],
                1 => text.insert(at, BYTES[numbers.below(BYTES.len())]),
                _ if text.len() > 1 => drop(text.remove(at)),
                _ => {}
            }
        }
        let text = String::from_utf8_lossy(&text);
        if let Ok(op) = library.op(op.name(), Some(&text)) {
            read += 1;
            comes_back(&library, &op);
        }
    }
    assert!(read > 1000, "only {read} were read");
}

/// `x + by`; `by` is 1 if there are no attributes.
#[derive(Debug)]
struct Shift {
    name: String,
    by: f32,
}

impl CustomOp for Shift {
    fn name(&self) -> &str {
        &self.name
    }

    fn attributes(&self) -> Option<String> {
        Some(format!("by {}", self.by))
    }

    fn infer(&self, inputs: &[Layout]) -> Result<Vec<Layout>, String> {
        Ok(inputs.to_vec())
    }

    fn cpu(&self, mut run: cpu::Operands<'_>) -> Result<(), DeviceError> {
        let ([x], [y]) = (run.floats(), run.outputs());
        y.iter_mut().zip(x).for_each(|(y, x)| *y = x + self.by);
        Ok(())
    }
}

fn shift(name: &str, attributes: Option<&str>) -> Result<Shift, String> {
    let by = match attributes {
        None => 1.0,
        Some(text) => text
            .strip_prefix("by ")
            .and_then(|by| by.parse().ok())
            .ok_or_else(|| format!("`{text}` is not a shift"))?,
    };
    Ok(Shift { name: name.to_owned(), by })
}

#[test]
fn ops_of_ones_own_are_loaded_once_they_are_registered() {
    let mut library = Library::default();
    let op = Op::from(Shift { name: "shift".to_owned(), by: 0.25 });
    let attributes = op.attributes();
    let unknown = library.op("shift", attributes.as_deref()).unwrap_err();
    assert_eq!(
        unknown.to_string(),
        "no op is called `shift`: register it with Library::register before loading"
    );
    library.register("shift", |attributes| shift("shift", attributes)).unwrap();
    let before = library.clone();
    assert_eq!(library.op("shift", attributes.as_deref()).unwrap(), op);
    let wrong = library.op("shift", Some("0.25")).unwrap_err();
    assert_eq!(wrong.to_string(), "shift: `0.25` is not a shift");

    // An op that is recorded without attributes is loaded from `None`.
    let none = library.op("shift", None).unwrap();
    assert_eq!(none.attributes().as_deref(), Some("by 1"));

    for taken in ["shift", "relu", "sum"] {
        let name = taken.to_owned();
        let error = library.register(taken, move |_| shift(&name, None)).unwrap_err();
        let expected = format!("another op is called `{taken}`: choose another name");
        assert_eq!(error.to_string(), expected);
    }
    assert_eq!(library.op("shift", attributes.as_deref()).unwrap(), op);
    assert_eq!(library.op("relu", Some("{}")).unwrap(), Unary::Relu.into());

    library.register("move", |attributes| shift("shift", attributes)).unwrap();
    let error = library.op("move", None).unwrap_err().to_string();
    assert_eq!(error, "move: the op registered by this name has the name `shift`");
    assert!(before.op("move", None).is_err());
}

#[test]
fn an_op_says_nothing_of_its_attributes_unless_it_does() {
    #[derive(Debug)]
    struct Silent;
    impl CustomOp for Silent {
        fn name(&self) -> &str {
            "silent"
        }
        fn infer(&self, _inputs: &[Layout]) -> Result<Vec<Layout>, String> {
            Ok(Vec::new())
        }
        fn cpu(&self, _run: cpu::Operands<'_>) -> Result<(), DeviceError> {
            Ok(())
        }
    }
    assert_eq!(Op::from(Silent).attributes(), None);
    let mut library = Library::default();
    library.register("silent", |_| Ok(Silent)).unwrap();
    assert_eq!(library.op("silent", None).unwrap(), Silent.into());
}

/// Makes ops from their text, and executes the ops.
#[test]
fn loaded_ops_compute_the_same() {
    let mut library = Library::default();
    library.register("shift", |attributes| shift("shift", attributes)).unwrap();
    let runtime = crate::Runtime::builder().cpu().unwrap();
    let x = runtime.tensor(&[2, 3], vec![1.0_f32, -2.0, 3.0, 0.5, -0.25, 4.0]).unwrap();
    let ops: [Op; 5] = [
        Shift { name: "shift".to_owned(), by: 0.1 }.into(),
        Affine { scale: 0.1, shift: 1e-7 }.into(),
        Reduce { kind: Reduction::Mean, axes: [1].into(), keep_dims: false }.into(),
        Permute { axes: [1, 0].into() }.into(),
        Unary::Gelu.into(),
    ];
    for op in ops {
        let loaded = library.op(op.name(), op.attributes().as_deref()).unwrap();
        let [y, again] = [op, loaded].map(|op| {
            let y = runtime.apply(op, &[&x]).unwrap().swap_remove(0);
            (y.shape().to_vec(), y.to_vec::<f32>().unwrap())
        });
        assert_eq!(y, again);
    }
}
