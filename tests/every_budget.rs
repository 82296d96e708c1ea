//! Training under many budgets and policies ends with the same bits. The test is a separate crate,
//! so that running it in release builds no other test:
//! `cargo test --release --test every_budget -- --ignored`.

mod common;

use common::command::same_bits;

#[test]
#[ignore = "a minute in release: cargo test --release --test every_budget -- --ignored --nocapture"]
fn all_budgets_and_policies_give_the_same_bits() {
    let digits = ["resnet20", "--steps", "30", "--seed", "1"];
    let large = ["--data", "synthetic:3x32x32", "--batch", "32", "--steps", "3", "--seed", "1"];
    let budget = |budget, policy| ["--budget", budget, "--policy", policy];
    let cross = |budgets: &[&'static str], policies: &[&'static str]| -> Vec<[&str; 4]> {
        let pairs = budgets.iter().flat_map(|b| policies.iter().map(move |p| (b, p)));
        pairs.map(|(b, p)| budget(b, p)).collect()
    };
    let mut cases = cross(&["100%", "60%", "40%"], &["megengine", "dtr", "dtr-eq"]);
    cases.push(budget("60%", "lru"));
    cases.push(["--budget", "60%", "--eviction-threshold", "50%"]);
    cases.push(["--budget", "60%", "--threads", "1"]);
    cases.push(["--budget", "60%", "--threads", "2"]);
    same_bits(&digits, &cases.iter().map(|case| &case[..]).collect::<Vec<_>>());
    let cases = cross(&["100%", "60%", "40%", "30%", "25%"], &["dtr", "dtr-eq"]);
    same_bits(&large, &cases.iter().map(|case| &case[..]).collect::<Vec<_>>());
}
