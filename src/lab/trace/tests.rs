//! Tests that read and repeat traces: small traces in this file, and the paper's logs if
//! `../shared` exists.

mod captures;
mod paper_logs;
mod wrong;

use super::*;
use crate::command::{Apply, Command, RecordedCommand, RecordedOp, TensorId};
use crate::driver::Setting;
use crate::lab::{Changed, CostUnit};
use crate::op::{Look, Outputs};

/// A log with a weight and a view of the weight. The log also has an op with a view and a new
/// tensor as results, an update in place, and an op without a result.
const LOG: &str = r#"
{"INSTRUCTION":"CONSTANT","NAME":"early"}
{"INSTRUCTION":"MEMORY","MEMORY":"1","NAME":"early"}
{"ANNOTATION":"START","INSTRUCTION":"ANNOTATE"}
{"INSTRUCTION":"CONSTANT","NAME":"w"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"w"}
{"DST":"w2","INSTRUCTION":"COPY","SRC":"w"}
{"INSTRUCTION":"RELEASE","NAME":"w"}
{"INSTRUCTION":"RELEASE","NAME":"w"}
{"INSTRUCTION":"RELEASE","NAME":"nobody"}
{"INSTRUCTION":"CONSTANT","NAME":"x"}
{"INSTRUCTION":"MEMORY","MEMORY":"8","NAME":"x"}
{"ANNOTATION":"BACKWARD","INSTRUCTION":"ANNOTATE"}
{"ARGS":["x","w2"],"INSTRUCTION":"CALL","NAME":"both","RESULT":["v","f"],"TIME":"10"}
{"INSTRUCTION":"MEMORY","MEMORY":"64","NAME":"v"}
{"ALIAS":"1","INSTRUCTION":"ALIAS","NAME":"v"}
{"INSTRUCTION":"MEMORY","MEMORY":"16","NAME":"f"}
{"ALIAS":"-1","INSTRUCTION":"ALIAS","NAME":"f"}
{"ARGS":["v","f"],"INSTRUCTION":"MUTATE","MUTATE":[0],"NAME":"add_","TIME":"5"}
{"ARGS":["f"],"INSTRUCTION":"CALL","NAME":"assert","RESULT":[],"TIME":"3"}
{"DST":"f","INSTRUCTION":"COPY_FROM","SRC":"v"}
{"INSTRUCTION":"RELEASE","NAME":"x"}
"#;

/// A recording with a parameter that is updated in place, a parameter that is replaced by a new
/// tensor, and a loss that is deleted one step later.
const RECORDING: &str = r#"{"event":"begin","version":1,"cost_model":"flops"}
{"event":"put","tensor":10,"bytes":64,"cost":1.5}
{"event":"put","tensor":11,"bytes":4,"cost":0.5}
{"event":"apply","op":"f","inputs":[10,11],"outputs":[{"tensor":20,"bytes":8,"source":"fresh"},{"tensor":21,"bytes":4,"source":"fresh"}],"workspace":16,"cost":2.0,"flops":99.0,"rematerializable":true}
{"event":"del","tensor":11}
{"event":"commit","tensor":21}
{"event":"apply","op":"sgd","inputs":[10,20],"outputs":[{"tensor":22,"bytes":64,"source":"in_place","input":0,"consumed":true}],"workspace":0,"cost":1.0,"rematerializable":false}
{"event":"step"}
{"event":"get","tensor":20}
{"event":"del","tensor":20}
{"event":"apply","op":"f","inputs":[22,21],"outputs":[{"tensor":30,"bytes":8,"source":"fresh"},{"tensor":31,"bytes":4,"source":"fresh"}],"workspace":16,"cost":2.0,"rematerializable":true}
{"event":"del","tensor":21}
{"event":"commit","tensor":31}
{"event":"apply","op":"sgd","inputs":[22,30],"outputs":[{"tensor":32,"bytes":64,"source":"in_place","input":0,"consumed":true}],"workspace":0,"cost":1.0,"rematerializable":false}
{"event":"step"}
{"event":"drop","tensor":31}
{"event":"apply","op":"view","inputs":[32],"outputs":[{"tensor":40,"bytes":128,"source":"view","input":0}],"workspace":0,"cost":0.0,"rematerializable":false}
"#;

/// A recording of version 5, with parameters updated together, a statistic that is replaced, a
/// leaf, a label, reads, and changed settings.
const NOW: &str = r#"{"event":"begin","version":5,"cost_model":"flops","budget":4096,"policy":"lru","window":{"commands":3,"put_bytes":512}}
{"event":"did","command":{"put":{"tensor":10,"host":{"layout":{"dtype":"f32","shape":[4],"strides":[1],"offset":0},"cost":1.5},"leaf":true}},"used":256}
{"event":"did","command":{"put":{"tensor":11,"host":{"layout":{"dtype":"f32","shape":[2],"strides":[1],"offset":0},"cost":0.5}}},"used":512}
{"event":"did","command":{"put":{"tensor":12,"host":{"layout":{"dtype":"f32","shape":[2],"strides":[1],"offset":0},"cost":0.5},"leaf":true}},"used":768}
{"event":"did","command":{"label":{"tensor":10,"label":"w"}},"used":768}
{"event":"did","command":{"apply":{"op":{"name":"f","attributes":"{}","cost":2.0,"flops":99.0,"workspace":16,"rematerializable":true},"inputs":[10,11,12],"outputs":{"fresh":[{"dtype":"f32","shape":[4],"strides":[1],"offset":0},{"dtype":"f32","shape":[2],"strides":[1],"offset":0}]},"made":20}},"used":1280}
{"event":"did","command":{"update_all":[{"op":{"name":"sgd","cost":1.0,"rematerializable":false},"inputs":[10,20],"consumed":[0],"outputs":{"updates":{"targets":1,"fresh":[]}},"made":30},{"op":{"name":"sgd","cost":1.0,"rematerializable":false},"inputs":[11,21],"outputs":{"updates":{"targets":1,"fresh":[]}},"made":31}]},"used":1536}
{"event":"did","command":{"del":20},"used":1280}
{"event":"did","command":{"replace":{"target":12,"consumed":true,"value":21,"made":32}},"used":1280}
{"event":"did","command":{"del":21},"used":1280}
{"event":"did","command":"confirm","used":1024}
{"event":"did","command":{"del":11},"used":768}
{"event":"did","command":{"get":31},"used":768}
{"event":"did","command":{"del":31},"used":512}
{"event":"did","command":"sync","used":512}
{"event":"did","command":"step","used":512,"peak":1552}
{"event":"set","budget":2048,"used":512}
{"event":"set","eviction_threshold":1024,"used":512}
{"event":"set","eviction_threshold":null,"used":512}
{"event":"set","policy":"dtr","used":512}
{"event":"set","policy":null,"used":512}
{"event":"set","enabled":false,"failed":true,"used":512}
{"event":"did","command":{"get":30},"used":512}
{"event":"end"}
"#;

fn read(text: &str) -> Result<Trace, TraceError> {
    Trace::read(text.as_bytes(), "some/small.jsonl.gz")
}

/// Commands in a short notation: `f(0 1) -> 2: 8 B, 3: 4 B; 10`.
fn narrate(program: &RecordedProgram) -> Vec<String> {
    let list = |tensors: &[TensorId]| {
        tensors.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    let output = |call: &Apply<RecordedOp>, output: usize| match &call.outputs {
        Outputs::Fresh(layouts) => format!("{} B", layouts[output].bytes()),
        Outputs::Views(looks) => {
            let Look { input, layout } = &looks[output];
            format!("view of {input}, {} B", layout.bytes())
        }
        Outputs::Updates { targets, .. } if output < *targets => {
            let kept = if call.consumed.contains(output) { "" } else { ", kept" };
            format!("{output} in place{kept}")
        }
        Outputs::Updates { targets, fresh } => format!("{} B", fresh[output - targets].bytes()),
        Outputs::Over => format!("over {output}"),
    };
    let call = |call: &Apply<RecordedOp>| {
        if call.elapses() {
            return format!("elapse {}", call.op.cost);
        }
        let made = call.outputs().enumerate();
        let made = made.map(|(i, tensor)| format!("{tensor}: {}", output(call, i)));
        let made = made.collect::<Vec<_>>().join(", ");
        format!("{}({}) -> {made}; {}", call.op.name, list(&call.inputs), call.op.cost)
    };
    let line = |command: &RecordedCommand| match command {
        Command::Put { tensor, host, leaf } => {
            let bytes = host.layout.bytes();
            let leaf = if *leaf { ", leaf" } else { "" };
            match host.cost {
                Some(cost) => format!("put {tensor}: {bytes} B, {cost}{leaf}"),
                None => format!("constant {tensor}: {bytes} B{leaf}"),
            }
        }
        Command::Apply(one) => call(one),
        Command::UpdateAll(calls) => {
            format!("all {}", calls.iter().map(call).collect::<Vec<_>>().join(" and "))
        }
        Command::Replace { target, consumed, value, made } => {
            let kept = if *consumed { "" } else { ", kept" };
            format!("replace {target}{kept} by {value} -> {made}")
        }
        Command::Label { tensor, label } => format!("label {tensor} {label}"),
        Command::Get(tensor)
        | Command::Del(tensor)
        | Command::Drop(tensor)
        | Command::Commit(tensor) => format!("{} {tensor}", command.name()),
        Command::Confirm | Command::Step | Command::Sync => command.name().to_owned(),
    };
    program.commands().iter().map(line).collect()
}

fn repeated(text: &str, times: usize) -> Vec<String> {
    narrate(read(text).unwrap().repeat_step(times).unwrap().program())
}

#[test]
fn a_log_means_what_the_papers_simulator_makes_of_it() {
    let trace = read(LOG).unwrap();
    assert_eq!((trace.name(), trace.unit()), ("small", &CostUnit::Nanoseconds));
    assert_eq!(trace.program().base_cost(), 18.0);
    let expected = [
        "constant 0: 64 B",
        "constant 1: 8 B",
        "both(1 0) -> 2: 16 B; 10",
        "both(1 0) -> 3: view of 1, 0 B; 0",
        // The view shares a storage of 64 bytes, and the new tensor takes over the name of the
        // view.
        "add_(3 2) -> 4: 64 B; 5",
        "del 3",
        "elapse 3",
        "del 2",
        "del 1",
        "commit 0",
        "commit 4",
    ];
    assert_eq!(narrate(trace.program()), expected);
}

#[test]
fn without_start_the_whole_log_counts() {
    let all = read(&LOG.replace("START", "FORWARD")).unwrap();
    assert_eq!(narrate(all.program())[0], "constant 0: 1 B");
    // If START follows, errors in the lines before START are ignored.
    let broken = format!("{}{LOG}", r#"{"INSTRUCTION":"COPY","DST":"a","SRC":"b"}"#);
    assert_eq!(narrate(read(&broken).unwrap().program()), repeated(LOG, 1));
    let error = read(&broken.replace("START", "FORWARD")).unwrap_err();
    assert_eq!(error.line, Some(1));
}

#[test]
fn a_log_is_repeated_with_its_constants() {
    let once = repeated(LOG, 1);
    let thrice = repeated(LOG, 3);
    let ops = once.len() - 2;
    // `w` is carried over to the next step. `x` was released and is made anew. The next step does
    // not use `v` and `f`.
    assert_eq!(thrice[..ops], once[..ops]);
    let second = [
        "commit 0",
        "del 4",
        "constant 5: 8 B",
        "both(5 0) -> 6: 16 B; 10",
        "both(5 0) -> 7: view of 1, 0 B; 0",
        "add_(7 6) -> 8: 64 B; 5",
        "del 7",
        "elapse 3",
        "del 6",
        "del 5",
        "commit 0",
        "del 8",
    ];
    assert_eq!(thrice[ops..ops + second.len()], second);
    assert_eq!(thrice[thrice.len() - 2..], ["commit 0", "commit 12"]);
    // A repeated log can be repeated again.
    let again = read(LOG).unwrap().repeat_step(2).unwrap().repeat_step(2).unwrap();
    assert_eq!(narrate(again.program()), thrice);
}

#[test]
fn a_recording_is_read_one_to_one() {
    let trace = read(RECORDING).unwrap();
    let program = trace.program();
    assert_eq!((trace.unit(), program.has_flops()), (&CostUnit::Gigaflops, false));
    let ops: Vec<&RecordedOp> = program.calls().map(|call| &call.op).collect();
    assert_eq!(ops[0].flops, Some(99.0));
    assert_eq!(ops[0].workspace, 16);
    assert!(!ops[1].rematerializable);
    assert_eq!(trace.window(), Window::default(), "which is what there was");
    let expected = [
        "put 0: 64 B, 1.5",
        "put 1: 4 B, 0.5",
        "f(0 1) -> 2: 8 B, 3: 4 B; 2",
        "del 1",
        "commit 3",
        "sgd(0 2) -> 4: 0 in place; 1",
        "step",
        "get 2",
        "del 2",
        "f(4 3) -> 5: 8 B, 6: 4 B; 2",
        "del 3",
        "commit 6",
        "sgd(4 5) -> 7: 0 in place; 1",
        "step",
        "drop 6",
        "view(7) -> 8: view of 0, 128 B; 0",
    ];
    assert_eq!(narrate(program), expected);
}

#[test]
fn an_op_that_writes_over_a_value_is_read_as_it_was() {
    let over = r#"{"event":"did","command":{"apply":{"op":{"name":"relu_","cost":3.0,"rematerializable":true},"inputs":[30],"consumed":[0],"outputs":"over","made":40}},"used":512}"#;
    let text = NOW.replace(r#"{"event":"end"}"#, &format!("{over}\n{{\"event\":\"end\"}}"));
    let trace = read(&text).unwrap();
    assert_eq!(narrate(trace.program()).last().unwrap(), "relu_(5) -> 8: over 0; 3");
}

#[test]
fn a_recording_of_today_is_read_one_to_one() {
    let trace = read(NOW).unwrap();
    let expected = [
        "put 0: 16 B, 1.5, leaf",
        "put 1: 8 B, 0.5",
        "put 2: 8 B, 0.5, leaf",
        "label 0 w",
        "f(0 1 2) -> 3: 16 B, 4: 8 B; 2",
        "all sgd(0 3) -> 5: 0 in place; 1 and sgd(1 4) -> 6: 0 in place, kept; 1",
        "del 3",
        "replace 2 by 4 -> 7",
        "del 4",
        "confirm",
        "del 1",
        "get 6",
        "del 6",
        "sync",
        "step",
        "get 5",
    ];
    assert_eq!(narrate(trace.program()), expected);
    let RunSettings { budget, eviction_threshold, policy, changes } = trace.settings();
    assert_eq!((*budget, *eviction_threshold, policy.as_deref()), (Some(4096), None, Some("lru")));
    let set = |setting| Changed { after: 15, setting, failed: false };
    let off = Changed { failed: true, ..set(Setting::Enabled(false)) };
    let name = |name: &str| Setting::Policy(Some(name.to_owned()));
    let set = [
        set(Setting::Budget(2048)),
        set(Setting::EvictionThreshold(Some(1024))),
        set(Setting::EvictionThreshold(None)),
        set(name("dtr")),
        set(Setting::Policy(None)),
        off,
    ];
    assert_eq!(*changes, set);
    // Version 4 has the same lines, but no settings.
    let fourth =
        NOW.replacen("\"version\":5", "\"version\":4", 1).replacen("\"policy\":\"lru\",", "", 1);
    let lines = fourth.lines().filter(|line| !line.contains("\"set\""));
    let fourth = read(&lines.collect::<Vec<_>>().join("\n")).unwrap();
    assert_eq!(narrate(fourth.program()), expected);
    let settings = RunSettings { budget: Some(4096), ..RunSettings::default() };
    assert_eq!(*fourth.settings(), settings);
    assert_eq!(trace.window(), Window { commands: 3, put_bytes: 512 });
    let calls: Vec<_> = trace.program().calls().collect();
    assert_eq!(calls.len(), 3);
    let RecordedOp { attributes, flops, workspace, rematerializable, .. } = &calls[0].op;
    assert_eq!((attributes.as_deref(), *flops, *workspace), (Some("{}"), Some(99.0), 16));
    assert!(rematerializable);
    let RecordedOp { attributes: None, flops: None, workspace: 0, rematerializable: false, .. } =
        calls[2].op
    else {
        panic!("{:?}", calls[2]);
    };
    assert_eq!(trace.program().base_cost(), 1.5 + 0.5 + 0.5 + 2.0 + 1.0 + 1.0);
    let history = trace.history().unwrap();
    assert_eq!((history.peak_bytes, history.steps, history.ops), (1552, 1, 6));
}

#[test]
fn a_recording_is_repeated_with_what_became_of_its_tensors() {
    let thrice = repeated(RECORDING, 3);
    assert_eq!(thrice[..14], repeated(RECORDING, 1)[..14]);
    let rest = [
        "get 5",
        "del 5",
        "f(7 6) -> 8: 8 B, 9: 4 B; 2",
        "del 6",
        "commit 9",
        "sgd(7 8) -> 10: 0 in place; 1",
        "step",
        "get 8",
        "del 8",
        "f(10 9) -> 11: 8 B, 12: 4 B; 2",
        "del 9",
        "commit 12",
        "sgd(10 11) -> 13: 0 in place; 1",
        "step",
        "drop 12",
        "view(13) -> 14: view of 0, 128 B; 0",
    ];
    assert_eq!(thrice[14..], rest);
    let again = read(RECORDING).unwrap().repeat_step(2).unwrap().repeat_step(2).unwrap();
    assert_eq!(narrate(again.program()), thrice);
}

#[test]
fn leftovers_of_a_step_are_deleted_before_the_next() {
    // Without the second `del`, the loss of the last step is alive at the end of the step.
    let one = RECORDING.lines().take(8).collect::<Vec<_>>().join("\n");
    let twice = repeated(&one, 2);
    assert_eq!(twice[7..10], ["del 2", "del 3", "del 4"]);
    assert_eq!(twice[10..12], ["put 5: 64 B, 1.5", "put 6: 4 B, 0.5"]);
    // A tensor that the recorded step only deletes need not exist in the next step.
    let leftover = RECORDING
        .replace(r#"{"event":"get","tensor":20}"#, "")
        .replacen(r#""op":"f""#, r#""op":"g""#, 1)
        .replace(r#""inputs":[22,21]"#, r#""inputs":[22]"#);
    let twice = repeated(&leftover, 2);
    assert_eq!(twice[13..15], ["del 5", "del 6"]);
}

#[test]
fn a_step_that_uses_up_what_it_does_not_make_cannot_be_repeated() {
    let used_up = RECORDING.replacen(r#""op":"f""#, r#""op":"g""#, 1);
    let error = read(&used_up).unwrap().repeat_step(2).unwrap_err();
    assert_eq!(error, RepeatError::UsedUp { tensor: 20, op: "g".to_owned() });
    assert!(read(&used_up).unwrap().repeat_step(1).is_ok());
    let no_step = RECORDING.replace("{\"event\":\"step\"}\n", "");
    assert_eq!(read(&no_step).unwrap().repeat_step(2).unwrap_err(), RepeatError::NoStep);
    assert_eq!(read(LOG).unwrap().repeat_step(0).unwrap_err(), RepeatError::Never);
    assert_eq!(read(LOG).unwrap().repeat_step(usize::MAX).unwrap_err(), RepeatError::TooLong);
}
