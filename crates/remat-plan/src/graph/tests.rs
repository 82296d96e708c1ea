//! Checks of reading and writing, of in-place pairs, and of errors.

use super::*;
use crate::nnvm::{
    DataType, InPlace, MatchRange, MemoryPlan, NnvmGraph, NodeEntry, OpNode, TensorType,
};
use crate::order::{Reach, Scheduler as _, Sink};
use crate::{Class, Decoder, Limits};
use remat_rng::SplitMix64;

fn file(name: &str) -> Graph {
    let path = format!("{}/../../examples/graphs/{name}.json", env!("CARGO_MANIFEST_DIR"));
    Graph::read(&std::fs::read(path).unwrap()[..]).unwrap()
}

fn written(graph: &Graph) -> Vec<u8> {
    let mut bytes = Vec::new();
    graph.write(&mut bytes).unwrap();
    bytes
}

/// A random valid graph whose ops have updates, in-place pairs, workspaces and all other keys.
fn random(rng: &mut SplitMix64) -> Graph {
    let mut tensors: Vec<GraphTensor> = (0..1 + rng.below(3))
        .map(|number| GraphTensor {
            name: format!("in {number}"),
            bytes: rng.below(4) as u64 * 8,
            alignment: 1 << rng.below(4),
            before: true,
            after: rng.below(2) == 0,
        })
        .collect();
    let mut ops = Vec::new();
    for at in 0..rng.below(12) {
        let pick = |rng: &mut SplitMix64| tensors[rng.below(tensors.len())].name.clone();
        let inputs: Vec<String> = (0..rng.below(4)).map(|_| pick(rng)).collect();
        let updates: Vec<String> = (0..usize::from(rng.below(4) == 0)).map(|_| pick(rng)).collect();
        let outputs: Vec<String> = (0..1 + rng.below(2)).map(|it| format!("{at}.{it}")).collect();
        let pair =
            |rng: &mut SplitMix64| [&inputs, &outputs].map(|it| it[rng.below(it.len())].clone());
        let pairs = if inputs.is_empty() { 0 } else { rng.below(3) };
        let in_place = (0..pairs).map(|_| pair(rng)).collect();
        tensors.extend(outputs.iter().map(|name| GraphTensor {
            name: name.clone(),
            bytes: rng.below(4) as u64 * 8,
            alignment: 1,
            before: false,
            after: rng.below(4) == 0,
        }));
        ops.push(GraphOp {
            name: format!("op \"{at}\", \\ {}", ["f", "g"][at % 2]),
            inputs,
            outputs,
            updates,
            in_place,
            cost: rng.below(1000) as f64 / 7.0,
            workspace: rng.below(3) as u64,
            rematerializable: rng.below(4) > 0,
            waits: rng.below(8) == 0,
            attributes: ["", "{\"axis\":1}"][rng.below(2)].to_owned(),
        });
    }
    Graph::new(tensors, ops)
}

#[test]
fn written_graphs_are_read_back() {
    let mut rng = SplitMix64::new(1);
    for _ in 0..300 {
        let graph = random(&mut rng);
        assert_eq!(Graph::read(&written(&graph)[..]).unwrap(), graph);
    }
    for name in ["decoder", "nnvm"] {
        let graph = file(name);
        assert_eq!(Graph::read(&written(&graph)[..]).unwrap(), graph);
    }
    // The text may have one line or many lines. The text may begin with a byte order mark, as on
    // Windows.
    let graph = file("nnvm");
    let value: serde_json::Value = serde_json::from_slice(&written(&graph)).unwrap();
    for text in [value.to_string(), serde_json::to_string_pretty(&value).unwrap()] {
        assert_eq!(Graph::read(text.as_bytes()).unwrap(), graph);
        assert_eq!(Graph::read(format!("\u{feff}{text}").as_bytes()).unwrap(), graph);
    }
}

#[test]
fn a_step_that_is_written_as_a_graph_is_the_same_step() {
    let mut rng = SplitMix64::new(2);
    let mut steps: Vec<Capture> =
        (0..300).map(|_| random(&mut rng).capture().unwrap().capture).collect();
    steps.push(Decoder { layers: 3, width: 16, tokens: 8 }.capture().unwrap());
    for step in steps {
        let graph = Graph::read(&written(&Graph::of_capture(&step))[..]).unwrap();
        let again = graph.capture().unwrap();
        assert_eq!(step.difference(&again.capture), None);
        assert_eq!(step.buffers(), again.capture.buffers());
        assert_eq!(step.ops(), again.capture.ops());
        let names: Vec<String> = (0..step.buffers().len()).map(|it| format!("t{it}")).collect();
        assert_eq!(again.names, names);
    }
}

#[test]
fn the_articles_decoder_is_the_librarys() {
    let named = file("decoder").capture().unwrap();
    let step = named.capture;
    let own = Decoder { layers: 4, width: 64, tokens: 32 }.capture().unwrap();
    assert_eq!(step.difference(&own), None);
    assert_eq!((step.cost(), named.names[0].as_str()), (own.cost(), "0.qkv.master"));
    let sunk = Sink.order(&step, Reach::Offline, &Limits::none()).unwrap().load();
    assert!(sunk < step.program().load());
}

/// The port of NNVM's planner uses the same in-place pairs.
#[test]
fn pairs_are_taken_as_nnvm_takes_them() {
    let mut rng = SplitMix64::new(3);
    let mut graphs: Vec<Graph> = (0..2000).map(|_| random(&mut rng)).collect();
    graphs.push(file("nnvm"));
    let mut taken = 0;
    for mut graph in graphs {
        // The graphs are reduced to what NNVM allows. NNVM has no updates, does not overwrite
        // variables, and frees tensors without readers.
        for op in &mut graph.ops {
            op.updates.clear();
            op.in_place.retain(|[input, _]| {
                let tensor = graph.tensors.iter().find(|it| it.name == *input).unwrap();
                !tensor.before
            });
        }
        let reads = |name: &String| graph.ops.iter().any(|op| op.inputs.contains(name));
        let outputs: Vec<String> = graph.tensors.iter().map(|it| it.name.clone()).collect();
        let outputs: Vec<bool> = outputs.iter().map(|name| !reads(name)).collect();
        for (tensor, is_output) in graph.tensors.iter_mut().zip(outputs) {
            tensor.after |= is_output;
        }
        let mut nnvm = NnvmGraph::default();
        let mut entries: FxHashMap<String, NodeEntry> = FxHashMap::default();
        let kind = |tensor: &GraphTensor| TensorType::new(tensor.bytes, DataType::F32);
        for tensor in graph.tensors.iter().filter(|tensor| tensor.before) {
            let entry = nnvm.variable(&tensor.name, kind(tensor)).unwrap();
            entries.insert(tensor.name.clone(), entry);
        }
        for op in &graph.ops {
            let find = |name: &String| graph.tensors.iter().find(|it| it.name == *name).unwrap();
            let mut node = OpNode::new(
                op.inputs.iter().map(|name| entries[name]),
                op.outputs.iter().map(|name| kind(find(name))),
            );
            for [input, output] in &op.in_place {
                let place = |list: &[String], name| list.iter().position(|it| it == name).unwrap();
                let (input, output) = (place(&op.inputs, input), place(&op.outputs, output));
                node = node.in_place(InPlace { input, output, identity: false });
            }
            let node = nnvm.op(node).unwrap();
            for (output, name) in op.outputs.iter().enumerate() {
                entries.insert(name.clone(), NodeEntry { node, output });
            }
        }
        for tensor in graph.tensors.iter().filter(|tensor| tensor.after) {
            nnvm.output(entries[&tensor.name]).unwrap();
        }
        let plan = MemoryPlan::new(&nnvm, MatchRange::default());
        let step = graph.capture().unwrap();
        for op in &graph.ops {
            for [input, output] in &op.in_place {
                let over = plan.in_place(entries[output]).is_some_and(|it| op.inputs[it] == *input);
                let is_one = |names: &String| {
                    let names: Vec<&str> = names.split('+').collect();
                    names.windows(2).any(|pair| pair == [input.as_str(), output.as_str()])
                };
                // NNVM gives empty tensors no memory.
                if graph.tensors.iter().any(|it| it.name == *output && it.bytes > 0) {
                    assert_eq!(step.names.iter().any(is_one), over, "{input} {output} {graph:?}");
                    taken += usize::from(over);
                }
            }
        }
    }
    assert!(taken > 100, "{taken}");
}

#[test]
fn the_example_of_nnvm_takes_its_pairs() {
    let step = file("nnvm").capture().unwrap();
    let names = ["conv1+relu1", "conv2+sum+relu2", "pool+flat", "dense+softmax"];
    assert!(names.iter().all(|name| step.names.iter().any(|it| it == name)), "{:?}", step.names);
    let result = step.names.iter().position(|name| name == "dense+softmax").unwrap();
    assert_eq!(step.capture.class(result), Class::Result);
    // Without in-place pairs, the step needs one more buffer, which has the size of the pair's
    // tensors.
    let mut without = file("nnvm");
    without.ops.iter_mut().for_each(|op| op.in_place.clear());
    let without = without.capture().unwrap().capture;
    assert_eq!(step.capture.program().load() + 16 * 32 * 32 * 4, without.program().load());
}

#[test]
fn invalid_graphs_are_refused_with_their_op_and_tensor() {
    let graph = |tensors: &str, ops: &str| {
        let text = format!(
            r#"{{"format":"remat-graph","version":1,"tensors":[{tensors}],"ops":[{ops}]}}"#
        );
        let graph = Graph::read(text.as_bytes()).and_then(|graph| graph.capture());
        graph.map(|step| step.names).map_err(|error| error.to_string())
    };
    let (x, y) = (r#"{"name":"x","bytes":8,"before":true}"#, r#"{"name":"y","bytes":8}"#);
    let both = format!("{x},{y}");
    let f = r#"{"name":"f","inputs":["x"],"outputs":["y"]}"#;
    assert_eq!(graph(&both, f).unwrap(), ["x", "y"]);
    // A tensor may be listed twice among the inputs, or among both the inputs and the updates. The
    // step lists the tensor once.
    assert_eq!(
        graph(&both, r#"{"name":"f","inputs":["x","x"],"updates":["x"],"outputs":["y"]}"#).unwrap(),
        ["x", "y"]
    );
    for (tensors, ops, said) in [
        (
            &both[..],
            r#"{"name":"f","inputs":["z"]}"#,
            r#"op 0 ("f"): inputs: "z": no tensor has this name"#,
        ),
        (
            &both,
            r#"{"name":"f","inputs":["y"],"outputs":["y"]}"#,
            r#"op 0 ("f"): inputs: "y": the tensor does not exist yet"#,
        ),
        (
            &both,
            &format!(r"{f},{f}"),
            r#"op 1 ("f"): outputs: "y": the tensor exists already: make a new tensor"#,
        ),
        (
            &both,
            r#"{"name":"f","outputs":["x"]}"#,
            r#"op 0 ("f"): outputs: "x": the tensor exists already"#,
        ),
        (
            &both,
            r#"{"name":"f","outputs":["y","y"]}"#,
            r#"op 0 ("f"): outputs: "y": the tensor is named twice"#,
        ),
        (
            &both,
            r#"{"name":"f","updates":["x","x"]}"#,
            r#"op 0 ("f"): updates: "x": the tensor is named twice"#,
        ),
        (
            &both,
            r#"{"name":"f","updates":["y"]}"#,
            r#"op 0 ("f"): updates: "y": the tensor does not exist yet"#,
        ),
        (&both, "", r#"tensor "y" never exists: no op makes it"#),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"in_place":[["y","x"]]}"#,
            r#"op 0 ("f"): in_place: "y": the tensor is not an input of the op"#,
        ),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"in_place":[["x","x"]]}"#,
            r#"op 0 ("f"): in_place: "x": the tensor is not an output of the op"#,
        ),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"in_place":[["x"]]}"#,
            "the graph is invalid: invalid length 1",
        ),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"cost":-1}"#,
            r#"op 0 ("f"): cost is -1: expected a finite number from 0 up"#,
        ),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"cost":1e999}"#,
            "number out of range",
        ),
        (
            &both,
            r#"{"name":"f","inputs":["x"],"outputs":["y"],"costs":1}"#,
            "unknown field `costs`, expected one of `name`, `inputs`",
        ),
        (&both, r#"{"inputs":["x"]}"#, "missing field `name` at line 1"),
        (&format!("{both},{x}"), f, r#"two tensors are called "x": names must differ"#),
        (r#"{"name":"x","bytes":-8}"#, "", "invalid value: integer `-8`, expected u64 at line 1"),
        (r#"{"name":"x","bytes":8.5}"#, "", "invalid type: floating point `8.5`, expected u64"),
        (r#"{"name":"x","bytes":18446744073709551616}"#, "", "expected u64"),
        (
            r#"{"name":"x","bytes":8,"before":true,"alignment":12}"#,
            "",
            r#"tensor "x": alignment is 12: expected a power of two"#,
        ),
        (
            r#"{"name":"x","bytes":8,"before":true,"alignment":0}"#,
            "",
            r#"tensor "x": alignment is 0"#,
        ),
        (
            r#"{"name":"a,b","bytes":8,"before":true}"#,
            "",
            r#"tensor 0 is called "a,b": expected a name without commas"#,
        ),
        (r#"{"name":"","bytes":8,"before":true}"#, "", r#"tensor 0 is called "": expected a name"#),
        (
            r#"{"name":" x","bytes":8,"before":true}"#,
            "",
            r#"tensor 0 is called " x": expected a name"#,
        ),
        (
            r#"{"name":"x","bytes":18446744073709551615,"before":true},{"name":"z","bytes":1,"before":true}"#,
            "",
            "2^64 bytes or more",
        ),
    ] {
        let error = graph(tensors, ops).unwrap_err();
        assert!(error.contains(said), "{error}\n{said}");
    }
    for (text, said) in [
        ("", "the graph is invalid: EOF"),
        ("{", "the graph is invalid: EOF"),
        ("[]", "invalid length 0, expected struct Graph"),
        ("{}", "missing field `format`"),
        (
            r#"{"format":"onnx","version":1,"tensors":[],"ops":[]}"#,
            r#"format is "onnx": expected "remat-graph""#,
        ),
        (
            r#"{"format":"remat-graph","version":2,"tensors":[],"ops":[]}"#,
            "version is 2: this program reads version 1",
        ),
        (r#"{"format":"remat-graph","version":1,"tensors":[]}"#, "missing field `ops`"),
        (r#"{"format":"remat-graph","version":1,"tensors":[],"ops":[]} x"#, "trailing characters"),
    ] {
        let error = Graph::read(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(said), "{error}\n{said}");
    }
    let endless = std::io::BufReader::new(std::io::repeat(b' '));
    let error = Graph::read(endless).unwrap_err().to_string();
    assert_eq!(error, "the graph has more than 33554432 bytes, the most that can be read");
}
