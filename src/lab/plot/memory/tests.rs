use super::*;
use crate::lab::CostUnit;
use crate::lab::plot::test_xml;

/// Samples of training steps: memory rises in the forward pass, falls in the backward pass, and is
/// cut off at the budget.
fn sawtooth(samples: usize, steps: usize, budget: u64) -> Vec<Sample> {
    let per_step = samples / steps;
    (0..samples)
        .map(|i| {
            let at = (i % per_step) as f64 / per_step as f64;
            let rise = if at < 0.4 { at / 0.4 } else { (1.0 - at) / 0.6 };
            let wanted = (rise * 1.8 * budget as f64) as u64
                + budget / 10
                + (i as u64 * 7919 % 997) * 20_000;
            let used = wanted.min(budget - (i as u64 * 104_729 % 1009) * 60_000);
            let regenerated = if at > 0.4 && wanted > used { (wanted - used) / 200 } else { 0 };
            Sample { at: i as f64 * 21_000.0, used, evicted: wanted - used, regenerated }
        })
        .collect()
}

fn timeline(samples: Vec<Sample>) -> Timeline {
    Timeline {
        title: "ResNet-32, h_DTR".into(),
        unit: CostUnit::Nanoseconds,
        budget: 1 << 30,
        budgets: vec![],
        threshold: Some(1000 << 20),
        full_budget: Some(3 << 29),
        failure: None,
        samples,
    }
}

#[test]
fn a_million_samples_make_a_small_picture() {
    let svg = plot(&timeline(sawtooth(1_000_000, 12, 1 << 30))).unwrap();
    assert!(svg.len() < 300_000, "{}", svg.len());
    let picture = test_xml::read(&svg);
    for text in [
        "memory (GiB)",
        "time, recomputation included (s)",
        "budget",
        "1 GiB",
        "threshold",
        "1000 MiB",
        "100 %",
        "1.50 GiB",
        "in use",
    ] {
        assert!(picture.texts.iter().any(|t| t == text), "{text}");
    }
}

#[test]
fn the_worst_million_is_small_as_well() {
    // Samples alternate over the whole height, so rounding to a tenth of a pixel cannot merge them.
    let samples = (0..1_000_000u64)
        .map(|i| {
            let used = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 34;
            Sample { at: i as f64, used, evicted: used, regenerated: used }
        })
        .collect();
    let svg = plot(&timeline(samples)).unwrap();
    assert!(svg.len() < 300_000, "{}", svg.len());
}

#[test]
fn no_sample_is_an_error() {
    let at = |at| Sample { at, ..Sample::default() };
    for samples in [vec![], vec![at(f64::NAN), at(f64::INFINITY)]] {
        let error = plot(&timeline(samples)).unwrap_err().to_string();
        assert!(error.contains("nothing to plot"), "{error}");
    }
}

#[test]
fn degenerate_runs_make_a_picture() {
    let sample = |at, used, evicted| Sample { at, used, evicted, regenerated: evicted };
    for samples in [
        vec![sample(0.0, 0, 0)],
        vec![sample(5.0, 100, 0)],
        vec![sample(1e99, u64::MAX, u64::MAX), sample(-1e99, 0, 1)],
        vec![sample(1e18, 1, 1), sample(1e18 + 128.0, 2, 2)],
        vec![sample(3.0, 1, 0), sample(1.0, 2, 0), sample(f64::NAN, 3, 0)],
    ] {
        for budget in [0, 1, 1 << 40, u64::MAX] {
            for threshold in [None, Some(0), Some(budget)] {
                let mut run = timeline(samples.clone());
                (run.budget, run.threshold) = (budget, threshold);
                run.unit = match run.samples.len() % 3 {
                    0 => CostUnit::Other("".into()),
                    1 => CostUnit::Gigaflops,
                    _ => CostUnit::Other("<&>".into()),
                };
                run.full_budget = threshold.map(|bytes| bytes / 2);
                test_xml::read(&plot(&run).unwrap());
                run.failure = Some("out of memory: <op>".into());
                test_xml::read(&plot(&run).unwrap());
            }
        }
    }
}

#[test]
fn text_is_escaped() {
    let mut run = timeline(sawtooth(100, 2, 1 << 30));
    run.title = "<b>&\u{7}".into();
    run.unit = CostUnit::Other("</text>".into());
    run.failure = Some("</svg>".into());
    let picture = test_xml::read(&plot(&run).unwrap());
    assert!(picture.texts.iter().any(|t| t.contains("&lt;b&gt;&amp;")));
}

#[test]
fn regenerated_bytes_are_drawn_as_bars() {
    let mut samples = vec![Sample::default(); 100];
    for (i, sample) in samples.iter_mut().enumerate() {
        sample.at = i as f64;
    }
    samples[10].regenerated = 5 << 20;
    samples[70].regenerated = 1;
    let svg = plot(&timeline(samples)).unwrap();
    let bars = svg.split("class=\"bars\" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(bars.matches('M').count(), 2, "{bars}");
    assert!(test_xml::read(&svg).texts.contains(&"5 MiB".to_owned()));
}

#[test]
fn a_run_that_failed_has_a_cross_and_its_reason() {
    let mut run = timeline(sawtooth(1000, 2, 1 << 30));
    let done = plot(&run).unwrap();
    run.failure = Some("out of memory: conv2d".into());
    let failed = plot(&run).unwrap();
    let picture = test_xml::read(&failed);
    assert!(picture.texts.contains(&"fails: out of memory: conv2d".to_owned()));
    let crosses = |svg: &str| svg.matches("class=\"failed\"").count();
    assert_eq!((crosses(&done), crosses(&failed)), (0, 1));
}

/// Draws axes of 50 ms, 50 Gflop, 50 GB and 50 units of a user's own cost model, given in each unit
/// of cost. Every axis ends at 50.
#[test]
fn the_axis_counts_what_the_costs_do() {
    for (unit, most, name, last) in [
        (CostUnit::Nanoseconds, 50e6, "time, recomputation included (ms)", "50"),
        (CostUnit::Milliseconds, 50.0, "time, recomputation included (ms)", "50"),
        (
            CostUnit::Gigaflops,
            50.0,
            "work, recomputation included (Gflop; 10 flop per byte moved)",
            "50",
        ),
        (CostUnit::HundredMegabytes, 500.0, "bytes moved, recomputation included (GB)", "50"),
        (CostUnit::Other("mine".into()), 50.0, "cost by mine, recomputation included", "50"),
    ] {
        let samples =
            [0.0, most].map(|at| Sample { at, used: 1 << 20, ..Sample::default() }).to_vec();
        let timeline = Timeline { unit, samples, budget: 1 << 20, ..Timeline::default() };
        let texts = test_xml::read(&plot(&timeline).unwrap()).texts;
        assert!(texts.iter().any(|text| text == name), "{name}: {texts:?}");
        // The numbers on the axis begin at 0. The last number is `last`; there is no 60.
        assert!(
            texts.iter().any(|text| text == last) && !texts.contains(&"60".to_owned()),
            "{texts:?}"
        );
    }
}
