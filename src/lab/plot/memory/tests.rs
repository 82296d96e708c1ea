use super::*;
use crate::lab::plot::test_xml;

/// Steps of training: memory rises through forward, falls through backward, and is cut at the budget.
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
        time_unit: "ns".into(),
        budget: 1 << 30,
        threshold: Some(1000 << 20),
        samples,
    }
}

#[test]
fn a_million_samples_make_a_small_picture() {
    let svg = plot(&timeline(sawtooth(1_000_000, 12, 1 << 30))).unwrap();
    assert!(svg.len() < 300_000, "{}", svg.len());
    let picture = test_xml::read(&svg);
    for text in ["memory (GiB)", "time (s)", "budget", "1 GiB", "threshold", "1000 MiB", "in use"] {
        assert!(picture.texts.iter().any(|t| t == text), "{text}");
    }
}

#[test]
fn the_worst_million_is_small_as_well() {
    // Every sample at the other end, far from what one tenth of a pixel can merge.
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
                run.time_unit = ["", "ns", "<&>"][run.samples.len() % 3].into();
                test_xml::read(&plot(&run).unwrap());
            }
        }
    }
}

#[test]
fn text_is_escaped() {
    let mut run = timeline(sawtooth(100, 2, 1 << 30));
    run.title = "<b>&\u{7}".into();
    run.time_unit = "</text>".into();
    let picture = test_xml::read(&plot(&run).unwrap());
    assert!(picture.texts.iter().any(|t| t.contains("&lt;b&gt;&amp;")));
}

#[test]
fn what_was_brought_back_is_in_the_bars() {
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
