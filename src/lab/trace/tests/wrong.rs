//! Errors of malformed and truncated traces.

use super::*;

/// Text to replace, its replacement, and the line and the message of the error.
type Case = (&'static str, &'static str, u64, &'static str);

#[test]
fn a_wrong_log_is_told_where_and_why() {
    let cases: &[Case] = &[
        (
            r#""MEMORY":"8""#,
            r#""MEMORY":"-8""#,
            12,
            r#"invalid value: string "-8", expected a whole number from 0"#,
        ),
        (
            r#""MEMORY":"8""#,
            r#""MEMORY":8.5"#,
            12,
            "invalid type: floating point `8.5`, expected a whole number from 0",
        ),
        (r#""MEMORY":"8""#, r#""MEMORY":"18446744073709551616""#, 12, "expected a whole number"),
        (r#""MEMORY":"8""#, r#""MEMORY":18446744073709551616"#, 12, "expected a whole number"),
        (r#""MEMORY":"8""#, r#""MEMORY":"18446744073709551615""#, 12, "more than any device has"),
        (r#""MEMORY":"8","#, "", 12, "MEMORY without MEMORY"),
        (r#""TIME":"10""#, r#""TIME":"-1""#, 14, "column 84: invalid value: string \"-1\""),
        (r#""INSTRUCTION":"CALL""#, r#""INSTRUCTION":"JUMP""#, 14, "`JUMP` is not an instruction"),
        (r#""INSTRUCTION":"CALL""#, r#""INSTRUCTION":5"#, 14, "invalid type: integer `5`"),
        (r#"["x","w2"]"#, r#"["y","w2"]"#, 14, "no line before this one made a tensor `y`"),
        (r#"["x","w2"]"#, r#"["early","w2"]"#, 14, "no line before this one made a tensor `early`"),
        (r#"["x","w2"]"#, r#"["v","w2"]"#, 14, "no line before this one made a tensor `v`"),
        (r#"["v","f"],"TIME""#, r#"["v","v"],"TIME""#, 14, "`v` is taken"),
        (r#"["v","f"],"TIME""#, r#"["x","f"],"TIME""#, 14, "`x` is taken"),
        (
            r#""MEMORY":"64","NAME":"v""#,
            r#""MEMORY":"64","NAME":"f""#,
            15,
            "expected MEMORY of `v`, found MEMORY of `f`",
        ),
        (
            r#"{"ALIAS":"1","#,
            r#"{"ALIAS":"2","#,
            16,
            "ALIAS refers to argument 2, counted from 0, but the op has 2",
        ),
        (r#"{"ALIAS":"1","#, r#"{"ALIAS":"-2","#, 16, "expected a whole number from -1"),
        (
            "{\"ALIAS\":\"1\",\"INSTRUCTION\":\"ALIAS\",\"NAME\":\"v\"}\n",
            "",
            16,
            "expected ALIAS of `v`, found MEMORY of `f`",
        ),
        (r#""MUTATE":[0]"#, r#""MUTATE":[2]"#, 19, "MUTATE refers to argument 2"),
        (r#""MUTATE":[0]"#, r#""MUTATE":[0,0]"#, 19, "changes one argument twice"),
        (r#""MUTATE":[0]"#, r#""MUTATE":[-1]"#, 19, "invalid value: integer `-1`"),
        (r#"["f"],"INSTR"#, r#"["w"],"NAME":"w","INSTR"#, 20, "duplicate field `NAME`"),
        (r#""SRC":"v""#, r#""SRC":"z""#, 21, "no line before this one made a tensor `z`"),
        (r#""NAME":"x"}"#, r#""NAME""#, 11, "column 32: EOF while parsing an object"),
        (
            r#"{"DST":"f","INSTRUCTION":"COPY_FROM""#,
            r#"{"DST":"f","INSTRUCTION":"COPY""#,
            21,
            "`f` is taken",
        ),
        (r#"{"DST":"w2""#, "\u{0}", 7, "column 1: expected value"),
    ];
    for &(there, instead, line, message) in cases {
        let text = LOG.replacen(there, instead, 1);
        assert_ne!(text, LOG, "`{there}` is in the log");
        let error = read(&text).expect_err(instead);
        assert_eq!(error.line, Some(line), "{instead}: {error}");
        assert!(error.to_string().contains(message), "{instead}: {error}");
        assert!(error.to_string().starts_with("some/small.jsonl.gz, line "), "{error}");
    }
    let gone = format!("{LOG}{}", r#"{"INSTRUCTION":"COPY","DST":"xx","SRC":"x"}"#);
    let error = read(&gone).unwrap_err().to_string();
    assert!(error.ends_with("line 23: `x` was released before"), "{error}");
    let cut = LOG.split_inclusive('\n').take(15).collect::<String>();
    let error = read(&cut).unwrap_err().to_string();
    assert!(error.ends_with("line 15: expected ALIAS of `v`, found the end"), "{error}");
}

#[test]
fn a_wrong_recording_is_told_where_and_why() {
    let cases: &[Case] = &[
        (
            r#""version":1"#,
            r#""version":6"#,
            1,
            "the trace is of version 6; this program reads versions 1 to 5",
        ),
        // The first line of a later version may have these fields.
        (r#""version":1,"cost_model":"flops""#, r#""version":9,"costs":{}"#, 1, "is of version 9"),
        (r#""version":1"#, r#""version":0"#, 1, "the trace is of version 0"),
        (r#""version":1"#, r#""version":2"#, 17, "the recording was cut off"),
        (r#"{"event":"step"}"#, r#"{"event":"end"}"#, 9, "continues after its end"),
        (
            r#""bytes":4,"cost":0.5"#,
            r#""bytes":-4,"cost":0.5"#,
            3,
            "invalid value: integer `-4`, expected u64",
        ),
        (
            r#""bytes":4,"cost":0.5"#,
            r#""bytes":4.5,"cost":0.5"#,
            3,
            "invalid type: floating point `4.5`, expected u64",
        ),
        (
            r#""bytes":4,"cost":0.5"#,
            r#""bytes":4,"cost":-0.5"#,
            3,
            "the cost is -0.5, expected a finite number from 0 up",
        ),
        (r#""bytes":4,"cost":0.5"#, r#""bytes":4,"cost":null"#, 3, "expected f64"),
        (r#""bytes":4,"cost":0.5"#, r#""bytes":4,"cost":1e999"#, 3, "number out of range"),
        (r#""bytes":4,"cost":0.5"#, r#""bytes":4"#, 3, "missing field `cost`"),
        (r#""tensor":11,"bytes":4"#, r#""tensor":10,"bytes":4"#, 3, "tensor 10 exists already"),
        (r#""inputs":[10,11]"#, r#""inputs":[10,12]"#, 4, "tensor 12 does not exist"),
        (r#"{"tensor":21"#, r#"{"tensor":20"#, 4, "tensor 20 exists already"),
        (r#""input":0"#, r#""input":7"#, 7, "an output refers to input 7, but the op has 2 inputs"),
        (r#""input":0"#, r#""input":4294967296"#, 7, "an output refers to input"),
        (r#""get","tensor":20"#, r#""get","tensor":10"#, 9, "tensor 10 does not exist"),
        (r#""event":"get""#, r#""event":"got""#, 9, "unknown variant `got`"),
        (
            r#"{"event":"step"}"#,
            r#"{"event":"begin","version":1,"cost_model":""}"#,
            8,
            "a second `begin`",
        ),
    ];
    for &(there, instead, line, message) in cases {
        told(RECORDING, there, instead, line, message);
    }
}

fn told(recording: &str, there: &str, instead: &str, line: u64, message: &str) {
    let text = recording.replacen(there, instead, 1);
    assert_ne!(text, recording, "`{there}` is in the recording");
    let error = read(&text).expect_err(instead);
    assert_eq!(error.line, Some(line), "{instead}: {error}");
    assert!(error.to_string().contains(message), "{instead}: {error}");
}

#[test]
fn a_wrong_recording_of_today_is_told_where_and_why() {
    const MOST: &str = "18446744073709551615";
    let cases: &[(&str, &str, u64, &str)] = &[
        (r#""version":5"#, r#""version":6"#, 1, "of version 6; this program reads versions 1 to 5"),
        (r#""budget":2048"#, r#""budget":-2048"#, 17, "invalid value: integer `-2048`"),
        (r#""enabled":false"#, r#""colour":"red""#, 22, "no variant of enum Setting"),
        (r#""commands":3"#, r#""commands":-3"#, 1, "invalid value: integer `-3`"),
        (r#""inputs":[10,11,12]"#, r#""inputs":[10,11,13]"#, 6, "tensor 13 does not exist"),
        (r#""tensor":11,"host""#, r#""tensor":10,"host""#, 3, "tensor 10 exists already"),
        (r#""tensor":10,"label""#, r#""tensor":20,"label""#, 5, "tensor 20 does not exist"),
        // The number of an output is already the number of an input, or of an updated tensor.
        (r#""made":20"#, r#""made":12"#, 6, "tensor 12 exists already"),
        (r#""made":30"#, r#""made":10"#, 7, "tensor 10 exists already"),
        (r#""made":31"#, r#""made":30"#, 7, "tensor 30 exists already"),
        (r#""made":32"#, r#""made":21"#, 9, "tensor 21 exists already"),
        (r#""made":20"#, &format!(r#""made":{MOST}"#), 6, "too few numbers are left"),
        (
            r#""targets":1"#,
            r#""targets":3"#,
            7,
            "an output refers to input 2, but the op has 2 inputs",
        ),
        (
            r#""targets":1"#,
            &format!(r#""targets":{MOST}"#),
            7,
            "an output refers to input 2, but the op has 2 inputs",
        ),
        (r#""consumed":[0]"#, r#""consumed":[-1]"#, 7, "invalid value: integer `-1`"),
        (r#""consumed":[0]"#, r#""consumed":[1048576]"#, 7, "no op has as many inputs"),
        (
            r#""inputs":[11,21],"#,
            r#""inputs":[10,21],"consumed":[0],"#,
            7,
            "updated by two outputs",
        ),
        (r#""value":21"#, r#""value":22"#, 9, "tensor 22 does not exist"),
        (r#""target":12"#, r#""target":99"#, 9, "tensor 99 does not exist"),
        (r#"{"del":21}"#, r#"{"del":20}"#, 10, "tensor 20 does not exist"),
        (r#"{"get":31}"#, r#"{"get":10}"#, 13, "tensor 10 does not exist"),
        (r#"{"get":31}"#, r#"{"get":12}"#, 13, "tensor 12 does not exist"),
        (r#"{"get":31}"#, r#"{"get":31,"del":31}"#, 13, "expected"),
        (r#""command":"sync""#, r#""command":"sink""#, 15, "unknown variant `sink`"),
        (r#""command":"sync","#, "", 15, "missing field `command`"),
        (r#""event":"did","command":"sync""#, r#""event":"sync""#, 15, "unknown variant `sync`"),
        (
            r#"{"event":"did","command":"sync","used":512}"#,
            r#"{"event":"end"}"#,
            16,
            "after its end",
        ),
        (
            r#""cost":2.0"#,
            r#""cost":-2.0"#,
            6,
            "the cost is -2, expected a finite number from 0 up",
        ),
        (r#""cost":1.5"#, r#""cost":-1.5"#, 2, "the cost is -1.5"),
        (r#""flops":99.0"#, r#""flops":-99.0"#, 6, "the number of flops is -99"),
        (r#""workspace":16"#, &format!(r#""workspace":{MOST}"#), 6, "more than any device has"),
        (r#""shape":[4]"#, r#""shape":[4,4]"#, 2, "expected a stride for each dimension"),
        (r#""shape":[4]"#, r#""shape":[72057594037927937]"#, 2, "more than any device has"),
        (r#""leaf":true"#, r#""leave":true"#, 2, "unknown field `leave`"),
        (r#""name":"f","#, "", 6, "missing field `name`"),
        (r#","used":256}"#, r#","used":256"#, 2, "EOF while parsing an object"),
    ];
    for &(there, instead, line, message) in cases {
        told(NOW, there, instead, line, message);
    }
}

#[test]
fn errors_for_other_files_name_the_expected_formats() {
    for text in ["", "\n\n  \n", "{}", "a,b,c", "[1]", "7", r#"{"event":"step"}"#, r#"{"a":1}"#] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("remat train --record") && error.contains("INSTRUCTION"), "{error}");
    }
    let nothing = r#"{"event":"begin","version":1,"cost_model":"flops"}"#;
    assert!(matches!(read(nothing).unwrap_err().problem, TraceProblem::NoInstructions));
    let missing = Trace::open("/nowhere/a.log").unwrap_err();
    assert!(
        missing.to_string().starts_with("/nowhere/a.log: the trace cannot be read"),
        "{missing}"
    );
    assert!(Trace::open("/").is_err());
}

fn packed(text: &str) -> Vec<u8> {
    use std::io::Write as _;
    let mut packer = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    packer.write_all(text.as_bytes()).unwrap();
    packer.finish().unwrap()
}

/// Reads recordings that are cut off at every position, as when the program is killed or the disk
/// is full.
#[test]
fn half_a_recording_never_looks_whole() {
    let old = RECORDING.replacen(r#""version":1"#, r#""version":2"#, 1) + "{\"event\":\"end\"}\n";
    assert_eq!(repeated(&old, 1), repeated(RECORDING, 1));
    for whole in [&old, NOW] {
        assert!(read(whole.trim_end()).is_ok(), "all but the last line end is all of it");
        for end in 0..whole.trim_end().len() {
            let half = &whole[..end];
            let error = read(half).expect_err(half);
            let lines = half.lines().count() as u64;
            assert!(error.line == Some(lines) || end == 0, "{error}");
            // If the text is cut between two lines, only the missing last line shows the cut.
            if half.ends_with('\n') {
                assert!(error.to_string().contains("cut off"), "{error}");
            }
        }
    }
}

/// Reads a gigabyte without instructions, packed into a megabyte.
#[test]
fn gigabytes_without_instructions_are_refused() {
    let bomb = |line: &str| packed(&line.repeat((1 << 20) / line.len())).repeat(1 << 10);
    for (line, message) in [
        ("\n", "blank bytes in a row"),
        ("   \r\n", "blank bytes in a row"),
        ("{\"INSTRUCTION\":\"ANNOTATE\",\"ANNOTATION\":\"FORWARD\"}\n", "without an instruction"),
        ("{\"INSTRUCTION\":\"RELEASE\"}\n", "without an instruction"),
    ] {
        let error = Trace::read(&*bomb(line), "bomb.gz").unwrap_err().to_string();
        assert!(error.contains(message) && error.contains("expected a trace of"), "{error}");
        // The blank bytes are inside a trace, and then after a trace.
        let (start, end) = LOG.split_at(LOG.find("{\"DST\"").unwrap());
        for text in [vec![packed(start), bomb(line), packed(end)], vec![packed(LOG), bomb(line)]] {
            let error = Trace::read(&*text.concat(), "bomb.gz").unwrap_err();
            assert!(error.line.is_some() && !error.to_string().contains("cut off"), "{error}");
        }
    }
}

#[test]
fn packed_files_are_known_by_their_content() {
    let read = |bytes: &[u8]| Trace::read(bytes, "a").map(|trace| narrate(trace.program()));
    let bytes = packed(LOG);
    assert_eq!(read(&bytes).unwrap(), repeated(LOG, 1));
    // Two packed files, one after the other, are one text.
    let (start, end) = LOG.split_at(700);
    assert_eq!(read(&[packed(start), packed(end)].concat()).unwrap(), repeated(LOG, 1));
    let error = read(&bytes[..bytes.len() - 9]).unwrap_err();
    assert!(error.to_string().contains("cut off"), "{error}");
    for length in 0..bytes.len() {
        assert!(read(&bytes[..length]).is_err(), "{length} bytes of {}", bytes.len());
    }
}

/// Damages a few bytes at a time: changes, removes or repeats them. The result is an error or a
/// trace, never a panic.
#[test]
fn damaged_files_are_errors() {
    let mut rng = remat_rng::SplitMix64::new(7);
    let mut below = move |n: usize| rng.below(n);
    let sources = [LOG, RECORDING, NOW].map(|text| text.as_bytes().to_vec());
    let sources = [&sources[..], &[packed(LOG)]].concat();
    let mut sound = 0;
    for turn in 0..8000 {
        let mut bytes = sources[turn % sources.len()].clone();
        for _ in 0..=below(2) {
            let at = below(bytes.len());
            let end = (at + below(40)).min(bytes.len());
            match below(5) {
                0 => bytes[at] ^= 1 << below(8),
                1 => bytes[at] = b"0123456789\"{}[]:,-.e"[below(20)],
                2 => bytes.truncate(at.max(1)),
                3 => drop(bytes.drain(at..end)),
                _ => {
                    let piece = bytes[at..end].to_vec();
                    let to = below(bytes.len());
                    bytes.splice(to..to, piece);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if let Ok(trace) = Trace::read(&*bytes, "damaged") {
            sound += 1;
            let _ = trace.repeat_step(3).map(|trace| narrate(trace.program()));
        }
    }
    assert!(sound > 50, "some are as good as before: {sound}");
}
