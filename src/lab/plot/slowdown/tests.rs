use super::*;
use crate::lab::plot::{Line, Point, test_xml};

fn line(label: &str, points: &[(f64, Option<f64>)]) -> Line {
    let point = |&(budget_ratio, slowdown)| Point { budget_ratio, slowdown };
    Line { label: label.into(), points: points.iter().map(point).collect() }
}

fn panel(title: &str, lines: Vec<Line>) -> Panel {
    Panel { title: title.into(), lines, full_budget: None }
}

/// Path data of all elements of a class.
fn paths<'a>(svg: &'a str, class: &str) -> Vec<&'a str> {
    let class = format!("<path class=\"{class}\" ");
    let data = |rest: &'a str| rest.split_once("d=\"").unwrap().1.split('"').next().unwrap();
    svg.split(&class).skip(1).map(data).collect()
}

#[test]
fn nothing_to_plot_is_an_error() {
    for panels in [
        vec![],
        vec![panel("empty", vec![])],
        vec![panel("no points", vec![line("a", &[])])],
        vec![panel("no place", vec![line("a", &[(f64::NAN, Some(1.0)), (f64::INFINITY, None)])])],
    ] {
        let error = plot(&panels, 2.0).unwrap_err().to_string();
        assert!(error.contains("nothing to plot"), "{error}");
    }
    for limit in [1.0, f64::NAN, f64::INFINITY, -2.0] {
        let error = plot(&[panel("p", vec![line("a", &[(0.5, None)])])], limit).unwrap_err();
        assert!(error.to_string().contains("above 1"), "{error}");
    }
}

#[test]
fn every_point_and_every_failure_is_there() {
    let points = [(0.9, Some(1.0)), (0.5, Some(1.2)), (0.7, Some(1.1)), (0.2, None), (0.1, None)];
    let svg = plot(&[panel("p", vec![line("a", &points), line("b", &points[..2])])], 2.0).unwrap();
    test_xml::read(&svg);
    let lines = paths(&svg, "line");
    let vertices: Vec<_> = lines.iter().map(|d| d.matches(['M', 'L']).count()).collect();
    assert_eq!(vertices, [3, 2]);
    // Each failure is drawn as a circle, which is one subpath.
    let failures: Vec<_> = paths(&svg, "fails").iter().map(|d| d.matches('M').count()).collect();
    assert_eq!(failures, [2]);
    assert!(test_xml::read(&svg).texts.contains(&"fails".to_owned()));
}

#[test]
fn a_failure_between_two_successes_breaks_the_line() {
    let svg = plot(
        &[panel("p", vec![line("a", &[(0.2, Some(1.5)), (0.4, None), (0.6, Some(1.1))])])],
        2.0,
    );
    assert_eq!(paths(&svg.unwrap(), "line")[0].matches('M').count(), 2);
}

#[test]
fn failures_of_many_policies_do_not_hide_one_another() {
    let slowdown = |i: usize| Some(1.0 + i as f64 / 100.0);
    let lines = (0..12).map(|i| line(&format!("policy {i}"), &[(0.1, None), (0.9, slowdown(i))]));
    let svg = plot(&[panel("p", lines.collect())], 2.0).unwrap();
    let mut starts: Vec<_> = paths(&svg, "fails");
    assert_eq!(starts.len(), 12);
    starts.sort_unstable();
    starts.dedup();
    assert_eq!(starts.len(), 12);
}

#[test]
fn titles_and_labels_are_escaped() {
    let nasty = "</text><script>&\"'\u{0}";
    let svg = plot(&[panel(nasty, vec![line(nasty, &[(0.5, Some(1.0))])])], 2.0).unwrap();
    let picture = test_xml::read(&svg);
    assert!(!svg.contains("<script"));
    assert!(picture.texts.iter().any(|t| t.contains("&lt;script&gt;&amp;")));
}

#[test]
fn degenerate_points_make_a_picture() {
    let extreme = [f64::MAX, f64::MIN_POSITIVE, 0.0, -0.0, -1.0, f64::NAN, f64::INFINITY, 1e8, 1.0];
    let points: Vec<_> = extreme.iter().flat_map(|&r| extreme.map(|s| (r, Some(s)))).collect();
    let one = |p| vec![panel("p", vec![line("a", &[p])])];
    for panels in [
        vec![panel("all", vec![line("a", &points)])],
        one((0.5, Some(1.0))),
        one((0.0, Some(0.0))),
        one((1e8, Some(1e11))),
        one((0.5, None)),
        vec![panel("", vec![line("", &[(0.5, Some(1.0))])]), Panel::default()],
    ] {
        test_xml::read(&plot(&panels, 2.0).unwrap());
        test_xml::read(&plot(&panels, 1.0 + 1e-9).unwrap());
        test_xml::read(&plot(&panels, 1e9).unwrap());
    }
}

#[test]
fn points_above_the_limit_have_an_arrow_head() {
    let svg =
        plot(&[panel("p", vec![line("a", &[(0.2, Some(7.0)), (0.6, Some(1.1))])])], 2.0).unwrap();
    assert_eq!(paths(&svg, "above").len(), 1);
    // The line goes from the point where it crosses the limit to the point below the limit.
    let drawn = paths(&svg, "line")[0];
    assert_eq!((drawn.matches('M').count(), drawn.matches('L').count()), (1, 1), "{drawn}");
    let both = [(0.2, Some(7.0)), (0.4, Some(3.0))];
    let svg_of_both = plot(&[panel("p", vec![line("a", &both)])], 2.0).unwrap();
    test_xml::read(&svg_of_both);
    assert!(paths(&svg_of_both, "line").is_empty());
    assert!(test_xml::read(&svg).texts.contains(&"above 2".to_owned()));
}

#[test]
fn repeated_runs_show_their_range() {
    let svg =
        plot(&[panel("p", vec![line("a", &[(0.2, Some(1.3)), (0.2, Some(1.5))])])], 2.0).unwrap();
    assert_eq!(paths(&svg, "range").len(), 1);
    assert_eq!(paths(&svg, "line")[0].matches(['M', 'L']).count(), 1);
    let texts = test_xml::read(&svg).texts;
    assert!(texts.contains(&"range of repeated runs; lines are medians".to_owned()), "{texts:?}");
}

/// Two of three runs failed, so the median is a failure. No line is drawn, but the third run and
/// the failures are.
#[test]
fn a_median_that_failed_is_no_point() {
    let points = [(0.2, None), (0.2, Some(1.2)), (0.2, None), (0.5, Some(1.0))];
    let svg = plot(&[panel("p", vec![line("a", &points)])], 2.0).unwrap();
    assert_eq!(paths(&svg, "line")[0].matches(['M', 'L']).count(), 1);
    assert_eq!((paths(&svg, "range").len(), paths(&svg, "fails").len()), (1, 1));
    // The range ends at the strip of failures.
    let (low, top) = paths(&svg, "range")[0].split_once('V').unwrap();
    let low: f64 = low.split(' ').next_back().unwrap().parse().unwrap();
    let top: f64 = top.split('M').next().unwrap().parse().unwrap();
    let marker = paths(&svg, "fails")[0].split([' ', 'a', 'l']).nth(1).unwrap();
    let marker: f64 = marker.parse().unwrap();
    assert!(low > top && (0.0..20.0).contains(&(top - marker)), "{low} {top} {marker}");
}

#[test]
fn budgets_are_in_bytes_where_all_panels_know_them() {
    let lines = || vec![line("a", &[(0.25, Some(1.5)), (1.0, Some(1.0))])];
    let bytes = |full: u64| Panel { full_budget: Some(full), ..panel("p", lines()) };
    let texts = |panels: &[Panel]| test_xml::read(&plot(panels, 2.0).unwrap()).texts;
    let has = |texts: &[String], text: &str| texts.iter().any(|t| t == text);
    let one = texts(&[bytes(8 << 20)]);
    assert!(has(&one, "budget (MiB)") && has(&one, "2") && has(&one, "8"), "{one:?}");
    let two = texts(&[bytes(8 << 20), bytes(3 << 30)]);
    assert!(has(&two, "budget (GiB)") && has(&two, "3.0"), "{two:?}");
    let mixed = texts(&[bytes(8 << 20), panel("q", lines())]);
    assert!(has(&mixed, "budget (%; 100 evicts nothing)") && has(&mixed, "100"), "{mixed:?}");
}

#[test]
fn equal_lines_are_drawn_once_with_all_their_names() {
    let (x, y) = ([(0.2, Some(1.3)), (0.5, Some(1.0))], [(0.2, None), (0.5, Some(1.0))]);
    let lines = vec![line("a", &x), line("b", &y), line("c", &x), line("d", &x)];
    let svg = plot(&[panel("p", lines)], 2.0).unwrap();
    assert_eq!(paths(&svg, "line").len(), 2);
    let texts = test_xml::read(&svg).texts;
    for name in ["a", "= c", "= d", "b"] {
        assert!(texts.contains(&name.to_owned()), "{name}: {texts:?}");
    }
}

#[test]
fn any_number_of_panels_and_lines_has_a_place() {
    for panels in 1..=13 {
        let lines: Vec<_> = (0..panels)
            .map(|i| (format!("policy {i}"), Some(1.0 + i as f64 / 100.0)))
            .map(|(name, slowdown)| line(&name, &[(0.1, None), (0.9, slowdown)]))
            .collect();
        let panels: Vec<_> =
            (0..panels).map(|i| panel(&format!("trace {i}"), lines.clone())).collect();
        let svg = plot(&panels, 2.0).unwrap();
        let picture = test_xml::read(&svg);
        for panel in &panels {
            assert!(picture.texts.contains(&panel.title));
        }
        assert_eq!(paths(&svg, "line").len(), panels.len() * panels.len());
    }
}
