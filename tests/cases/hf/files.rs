//! Files as other libraries write them, with the names and shapes that `tests/fixtures/hf.py`
//! found.

use half::{bf16, f16};
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};

/// Tensor of a file.
#[derive(Clone, Debug)]
pub struct Made {
    pub name: String,
    /// Element type, as the format names it.
    pub dtype: &'static str,
    pub shape: Vec<usize>,
    pub bytes: Vec<u8>,
}

/// Entry of a network that the script wrote.
pub fn fixture(of: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("../../fixtures/hf.json")).unwrap();
    all[of].clone()
}

pub fn floats(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|x| x.as_f64().unwrap()).collect()
}

/// Makes an empty folder in the temporary directory, for a test.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("remat-hf-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Values of a tensor, as the script makes them.
pub fn fill(name: &str, shape: &[usize]) -> Vec<f64> {
    let hash = name
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let unit = |i: usize| {
        let mut x = (i as u32).wrapping_mul(2_654_435_761).wrapping_add(hash);
        x ^= x >> 15;
        x = x.wrapping_mul(2_246_822_519);
        x ^= x >> 13;
        f64::from(x >> 21) / 1024.0 - 1.0
    };
    let one = shape.len() == 1;
    let value = |unit: f64| match () {
        () if name.ends_with("running_var") || one && name.ends_with("weight") => 1.0 + unit / 4.0,
        () if one => unit / 4.0,
        () => {
            let inputs = match shape.len() {
                4 => shape[1..].iter().product(),
                _ => *shape.iter().min().unwrap(),
            };
            unit * (6.0 / inputs as f64).sqrt().log2().floor().exp2()
        }
    };
    (0..shape.iter().product()).map(|i| value(unit(i))).collect()
}

impl Made {
    pub fn new(name: &str, dtype: &'static str, shape: &[usize], values: &[f64]) -> Self {
        let bytes = values.iter().flat_map(|&x| match dtype {
            "F64" => x.to_le_bytes().to_vec(),
            "F32" => (x as f32).to_le_bytes().to_vec(),
            "F16" => f16::from_f64(x).to_le_bytes().to_vec(),
            "BF16" => bf16::from_f64(x).to_le_bytes().to_vec(),
            "I64" => (x as i64).to_le_bytes().to_vec(),
            "U8" | "BOOL" => vec![x as u8],
            other => panic!("{other}"),
        });
        let (name, shape, bytes) = (name.to_owned(), shape.to_vec(), bytes.collect());
        Self { name, dtype, shape, bytes }
    }

    /// Tensor filled as the script fills it.
    pub fn filled(name: &str, dtype: &'static str, shape: &[usize]) -> Self {
        let values = match dtype {
            "I64" => vec![0.0; shape.iter().product()],
            _ => fill(name, shape),
        };
        Self::new(name, dtype, shape, &values)
    }
}

/// Names and shapes of a network's tensors, each with whether its elements are integers.
pub fn shapes(of: &str) -> Vec<(String, bool, Vec<usize>)> {
    let fixture = fixture(of);
    let each = fixture["tensors"].as_array().unwrap().iter().map(|tensor| {
        let shape = floats(&tensor[2]).into_iter().map(|size| size as usize).collect();
        (tensor[0].as_str().unwrap().to_owned(), tensor[1] == "I64", shape)
    });
    each.collect()
}

/// Tensors of a network, with floats stored as `dtype`.
pub fn tensors(of: &str, dtype: &'static str) -> Vec<Made> {
    let made = |(name, is_integer, shape): &(String, bool, Vec<usize>)| {
        Made::filled(name, if *is_integer { "I64" } else { dtype }, shape)
    };
    shapes(of).iter().map(made).collect()
}

/// Tensors with names changed by `name`.
pub fn renamed(mut tensors: Vec<Made>, name: impl Fn(&str) -> String) -> Vec<Made> {
    for tensor in &mut tensors {
        tensor.name = name(&tensor.name);
    }
    tensors
}

/// Writes a file of these tensors.
pub fn write(path: &Path, tensors: &[Made]) {
    let mut header = Map::new();
    header.insert("__metadata__".to_owned(), json!({ "format": "pt" }));
    let mut end = 0;
    for Made { name, dtype, shape, bytes } in tensors {
        let span = [end, end + bytes.len()];
        end += bytes.len();
        let entry = json!({ "dtype": dtype, "shape": shape, "data_offsets": span });
        header.insert(name.clone(), entry);
    }
    let bytes: Vec<&[u8]> = tensors.iter().map(|tensor| &tensor.bytes[..]).collect();
    std::fs::write(path, with_header(&Value::Object(header).to_string(), &bytes.concat())).unwrap();
}

/// Bytes of a file with this header.
pub fn with_header(header: &str, rest: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), rest].concat()
}

/// Writes `count` files that share the tensors, and their index. Returns the path of the index.
pub fn write_shards(folder: &Path, tensors: &[Made], count: usize) -> PathBuf {
    let mut map = Map::new();
    for (i, part) in tensors.chunks(tensors.len().div_ceil(count)).enumerate() {
        let name = format!("model-{:05}-of-{count:05}.safetensors", i + 1);
        write(&folder.join(&name), part);
        map.extend(part.iter().map(|tensor| (tensor.name.clone(), name.clone().into())));
    }
    write_index(folder, &Value::Object(map))
}

pub fn write_index(folder: &Path, map: &Value) -> PathBuf {
    let path = folder.join("model.safetensors.index.json");
    let index = json!({ "metadata": { "total_size": 1 }, "weight_map": map });
    std::fs::write(&path, index.to_string()).unwrap();
    path
}
