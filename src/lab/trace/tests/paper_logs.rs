//! Tests that compare the paper's logs with the results of the paper's simulator.

use super::*;

/// Peak of the bytes in use when nothing is evicted.
pub(super) fn peak(program: &RecordedProgram) -> u64 {
    let mut storages: Vec<(u64, u32)> = vec![];
    let mut storage_of: Vec<usize> = vec![];
    let (mut live, mut peak) = (0, 0);
    let mut fresh = |bytes: u64, storages: &mut Vec<(u64, u32)>, live: &mut u64| {
        storages.push((bytes, 1));
        *live += bytes;
        peak = peak.max(*live);
        storages.len() - 1
    };
    for command in program.commands() {
        match command {
            Command::Put { host, .. } => {
                assert!(host.cost.is_none(), "logs know of no uploads");
                storage_of.push(fresh(host.layout.bytes(), &mut storages, &mut live));
            }
            Command::Apply(call) => match &call.outputs {
                Outputs::Fresh(layouts) => {
                    for layout in layouts {
                        storage_of.push(fresh(layout.bytes(), &mut storages, &mut live));
                    }
                }
                Outputs::Views(looks) => {
                    for look in looks {
                        let storage = storage_of[call.inputs[look.input].index()];
                        storages[storage].1 += 1;
                        storage_of.push(storage);
                    }
                }
                Outputs::Updates { .. } | Outputs::Over => panic!("logs have no such ops"),
            },
            Command::Del(tensor) => {
                let (bytes, tensors) = &mut storages[storage_of[tensor.index()]];
                *tensors -= 1;
                live -= if *tensors == 0 { *bytes } else { 0 };
            }
            Command::Commit(_) => {}
            other => panic!("logs have no {other:?}"),
        }
    }
    peak
}

/// Results of the simulator for each log: model, peak of the bytes in use, cost, number of ops.
fn reference(shared: &Path) -> Option<Vec<(String, u64, f64, u64)>> {
    let text = std::fs::read_to_string(shared.join("reference/simrd.jsonl")).ok()?;
    let rows = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let baselines = rows.filter(|row: &serde_json::Value| row["kind"] == "baseline");
    let row = |row: serde_json::Value| {
        let number = |key: &str| row[key].as_u64().unwrap();
        let model = row["model"].as_str().unwrap().to_owned();
        let compute = number("baseline_compute") as f64;
        (model, number("baseline_memory"), compute, number("n_ops"))
    };
    Some(baselines.map(row).collect())
}

#[test]
fn have_the_peak_and_the_cost_that_the_papers_simulator_finds() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared");
    let Some(reference) = reference(&shared) else {
        eprintln!("skipped, there is no ../shared/reference/simrd.jsonl");
        return;
    };
    let mut found = 0;
    for (model, memory, compute, ops) in reference {
        let path = shared.join(format!("data/traces/{model}.log.gz"));
        if !path.exists() {
            eprintln!("{model}: skipped, there is no {}", path.display());
            continue;
        }
        found += 1;
        let trace = Trace::open(&path).unwrap();
        let program = trace.program();
        assert_eq!(trace.name(), model);
        assert_eq!(peak(program), memory, "{model}");
        assert_eq!(program.base_cost(), compute, "{model}");
        // An op with views and new tensors as results is two ops here; the op that makes the views
        // has no cost.
        let constants = |c: &&RecordedCommand| matches!(c, Command::Put { .. });
        let constants = program.commands().iter().filter(constants).count();
        let counted = program.calls().filter(|call| call.op.cost > 0.0).count();
        assert_eq!((constants + counted) as u64, ops, "{model}");

        let thrice = trace.repeat_step(3).unwrap();
        assert_eq!(thrice.program().base_cost(), 3.0 * compute, "{model}");
        assert_eq!(peak(thrice.program()), memory, "{model}: a pass leaves nothing to the next");
    }
    assert!(found > 0, "there are logs where there is a reference");
}
