//! `remat train --verify`, as a user runs it.

use crate::common::cells;
use crate::common::command::{folder, run, stderr, train};

#[test]
fn recomputed_values_are_verified_and_the_summary_counts_them() {
    let base = ["resnet20", "--batch", "16", "--steps", "8", "--budget", "85%", "--no-test"];
    let base = [&base[..], &["--learn", "ahead"]].concat();
    let cases = [("f32", "off"), ("f32", "auto"), ("bf16", "auto"), ("bf16", "off")];
    for (precision, plan) in cells(cases, 2) {
        let args = |more: &[&'static str]| {
            [&base[..], &["--precision", precision, "--plan", plan], more].concat()
        };
        let plain = train(&args(&[]));
        assert!(plain["verified_values"].is_null(), "{plain}");
        let [all, part] = ["--verify", "--verify=0.1"].map(|verify| train(&args(&[verify])));
        for report in [&all, &part] {
            for same in ["params_sha256", "final_loss", "evictions", "recomputed_ops"] {
                assert_eq!(report[same], plain[same], "{same} {precision} {plan}");
            }
            assert!(report["hashed_bytes"].as_u64() > Some(0), "{report}");
        }
        let of = |report: &serde_json::Value| {
            ["verified_values", "unverified_values"].map(|key| report[key].as_u64().unwrap())
        };
        let ([verified, others], [some, rest]) = (of(&all), of(&part));
        assert!(verified > 0 && others == 0, "{all}");
        assert!(some < verified && some + rest == verified, "{all} {part}");
    }
    let output = run(&[&["train"], &base[..], &["--verify"]].concat());
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.contains("\n  verified    ") && said.contains(", all with the same bits\n"),
        "{said}"
    );
    assert!(said.contains(" of host memory\n"), "{said}");
    assert!(said.lines().all(|line| line.len() <= 80), "{said}");
}

#[test]
fn a_test_verifies_too() {
    let saved = folder("verify").join("net.safetensors");
    let saved = saved.to_str().unwrap();
    let output = run(&["train", "mlp", "--steps", "2", "--no-test", "--verify", "--save", saved]);
    assert!(output.status.success(), "{}", stderr(&output));
    for (verify, told) in [(&["--verify"][..], true), (&["--verify=0.5"], true), (&[], false)] {
        let output = run(&[&["evaluate", saved, "--budget", "70%"], verify].concat());
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{}", stderr(&output));
        assert_eq!(said.contains("\n  verified    "), told, "{said}");
    }
}

#[test]
fn shares_that_make_no_sense_are_refused() {
    for share in ["2", "0", "-1", "nan", "inf", "half", ""] {
        let output = run(&["train", "mlp", "--steps", "1", &format!("--verify={share}")]);
        let said = stderr(&output);
        assert_eq!(output.status.code(), Some(2), "{share}: {said}");
        let help = "give a number above 0 and at most 1, such as 0.25; 1 is all";
        assert!(said.contains(help) || share.is_empty(), "{share}: {said}");
        assert!(said.contains("--verify"), "{share}: {said}");
    }
}
