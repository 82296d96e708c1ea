//! `remat train` with steps that run by plan gives the same bits as without.

use crate::common::cells;
use crate::common::command::train;

#[test]
fn models_train_to_the_same_bits_with_plans_and_without() {
    let cases: [(&[&str], bool); 16] = [
        (&["mlp"], true),
        (&["resnet20", "--batch", "16"], true),
        (&["resnet20", "--batch", "16", "--threads", "1", "--optimizer", "adamw"], true),
        (&["resnet20", "--batch", "32", "--budget", "60%"], true),
        (&["resnet20", "--batch", "64", "--budget", "45%", "--threads", "1"], true),
        (&["vit", "--batch", "8", "--budget", "65%"], true),
        (&["gpt", "--layers", "2", "--width", "32", "--heads", "2", "--budget", "50%"], true),
        (&["lstm", "--width", "32", "--batch", "8", "--budget", "70%"], true),
        (&["unrolled-gan", "--budget", "60%"], true),
        (&["gpt", "--layers", "2", "--width", "32", "--heads", "2", "--batch", "4"], true),
        (&["gpt", "--layers", "2", "--width", "32", "--heads", "2", "--dropout", "0.1"], true),
        (&["lstm", "--width", "32", "--batch", "4"], true),
        (&["treelstm", "--batch", "8"], false),
        (&["unrolled-gan"], true),
        (&["mlp", "--eval-every", "3"], true),
        (&["resnet20", "--batch", "16", "--accumulate", "2", "--eval-every", "7"], true),
    ];
    for (args, plans) in cells(cases, 5) {
        let run = |plan: &str| {
            let budget: &[&str] =
                if args.contains(&"--budget") { &[] } else { &["--budget", "100%"] };
            train(&[args, &["--steps", "24", "--no-test", "--plan", plan], budget].concat())
        };
        let (off, auto) = (run("off"), run("auto"));
        assert_eq!(off["params_sha256"], auto["params_sha256"], "{args:?}");
        assert_eq!(off["final_loss"], auto["final_loss"], "{args:?}");
        assert_eq!(off["planned_steps"], 0, "{args:?}");
        assert_eq!(off["ops"], auto["ops"], "{args:?}");
        assert!(auto["peak_bytes"].as_u64() <= auto["budget_bytes"].as_u64(), "{args:?}");
        let planned = auto["planned_steps"].as_u64().unwrap();
        assert_eq!(planned > 5, plans, "{args:?}: {planned} ran by plan");
        for (report, planned) in [(&off, 0), (&auto, planned)] {
            for field in ["planned_seconds", "unplanned_seconds"] {
                let seconds = report[field].as_f64().unwrap();
                assert_eq!(seconds > 0.0, planned > 0, "{args:?}: {field} is {seconds}");
            }
        }
        println!("{args:?}: {planned}");
    }
}
