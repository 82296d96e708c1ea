use super::*;
use crate::cli::labels::Given;
use crate::cli::values::Share;

fn row(policy: &str, budget: u64, seed: u64, slowdown: Option<f64>) -> Row {
    Row {
        trace: "trace".to_owned(),
        policy: policy.to_owned(),
        dead: "drop",
        budget_ratio: budget as f64 / 1000.0,
        budget_bytes: budget,
        full_budget_bytes: 1000,
        unbudgeted_peak_bytes: 1000,
        threshold_bytes: None,
        seed,
        status: if slowdown.is_some() { Verdict::Ok } else { Verdict::Oom },
        slowdown,
        recompute_ratio: None,
        least_slowdown: None,
        peak_bytes: 0,
        ops: 0,
        recomputed_ops: 0,
        evictions: 0,
        score_evaluations: 0,
        max_regeneration_depth: 0,
        compactions: 0,
        moved_bytes: 0,
        search_seconds: 0.0,
        seconds: 0.0,
        step: None,
        marks: Vec::new(),
    }
}

fn print(rows: &[Row], width: usize) -> String {
    let mut given = Given::default();
    for row in rows {
        let share = Share::Percent(row.budget_bytes as f64 / 10.0);
        given.budgets.insert((row.trace.clone(), row.budget_bytes), share);
    }
    Matrix::new(rows, Labels::of(rows, &given), width).to_string()
}

#[test]
fn a_table_fits_any_width_and_shows_every_cell() {
    let policies = ["lru", "(own+exact)/((size+free)*stale^2)", "dtr-eq"];
    for budgets in [1, 2, 7, 10, 12, 19, 91] {
        let rows: Vec<Row> = policies
            .iter()
            .flat_map(|policy| {
                (1..=budgets).map(move |i| row(policy, 100 * i, 0, Some(1.0 + i as f64 / 1000.0)))
            })
            .collect();
        for width in 1..140 {
            let text = print(&rows, width);
            let table = text.split("\n\nSlowdown").next().unwrap();
            for line in table.lines() {
                // A table has at least one column of numbers, which is 6 characters wide.
                assert!(line.chars().count() <= width.max(6), "{width}: {line}");
            }
            for i in 1..=budgets {
                let cell = format!("{:.3}", 1.0 + i as f64 / 1000.0);
                assert_eq!(table.matches(&cell).count(), policies.len(), "{width}: {table}");
                assert!(table.contains(&format!(" {}%", 10 * i)), "{width}: {table}");
            }
            // Every block has its head and all its lines.
            let blocks: Vec<&str> = table.split("\n\n").collect();
            assert!(blocks.iter().all(|block| block.lines().count() == 4), "{table}");
            assert!(width < 120 || budgets > 12 || blocks.len() == 1, "{width}: {table}");
        }
    }
}

#[test]
fn several_seeds_are_their_median_and_their_range() {
    let rows = [
        row("lru", 500, 0, Some(1.3)),
        row("lru", 500, 1, Some(1.1)),
        row("lru", 500, 2, None),
        row("lru", 1000, 0, Some(1.0)),
        row("lru", 1000, 1, Some(1.0)),
        row("lru", 1000, 2, Some(1.0)),
        row("dtr", 500, 0, None),
        row("dtr", 500, 1, Some(1.5)),
        row("dtr", 500, 2, None),
        row("none", 500, 0, None),
        row("none", 500, 1, None),
        row("none", 500, 2, None),
    ];
    let text = print(&rows, 80);
    let lines: Vec<Vec<&str>> = text.lines().map(|l| l.split_whitespace().collect()).collect();
    assert_eq!(lines[0], ["trace", "50%", "100%"]);
    assert_eq!(lines[1], ["lru", "1.300", "1.000"]);
    assert_eq!(lines[2], ["range", "1.10-oom"]);
    assert_eq!(lines[3], ["dtr", "oom"]);
    assert_eq!(lines[4], ["range", "1.50-oom"]);
    assert_eq!(lines[5], ["none", "oom"]);
    assert!(text.ends_with("Medians of 3 seeds; a failed run counts as the worst."), "{text}");
    assert!(!print(&rows[..1], 80).contains("Medians"));
}
