//! Reduction of a million samples to a few hundred columns of pixels.

/// Keeps the first, the last, the lowest and the highest value of each pixel column.
///
/// The kept points draw the same pixels as all points. Positions must ascend. A column is one pixel
/// wide.
pub(super) fn extremes(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut kept = Vec::new();
    let mut column: Option<Column> = None;
    for (i, point) in points.into_iter().enumerate() {
        match &mut column {
            Some(current) if current.pixel == point.0.floor() => current.add(i, point),
            _ => {
                if let Some(full) = column.replace(Column::new(i, point)) {
                    full.keep(&mut kept);
                }
            }
        }
    }
    if let Some(full) = column {
        full.keep(&mut kept);
    }
    kept
}

/// Uppermost pixel that a step function reaches in each pixel column. Columns in which this pixel
/// does not change are left out.
///
/// A value holds until the next point, so the value at the beginning of a column also counts. A
/// line through the result stays thin even if the series rises and falls many times within a pixel.
/// A line through all points would become a dark band.
pub(super) fn upper_edge(points: impl IntoIterator<Item = (f64, f64)>) -> Vec<(f64, f64)> {
    let mut edge: Vec<(f64, f64)> = Vec::new();
    // The current column: its left side, its uppermost value, and the value at its end.
    let mut column: Option<(f64, f64, f64)> = None;
    let mut push = |x: f64, y: f64| {
        if edge.last().is_none_or(|(_, last)| *last != y) {
            edge.push((x, y));
        }
    };
    for (x, y) in points {
        let pixel = x.floor();
        column = match column {
            // Pixels are counted downwards, so the uppermost pixel has the smallest y.
            Some((left, top, _)) if left == pixel => Some((left, top.min(y), y)),
            Some((left, top, last)) => {
                push(left, top);
                if pixel > left + 1.0 {
                    push(left + 1.0, last);
                }
                Some((pixel, last.min(y), y))
            }
            None => Some((pixel, y, y)),
        };
    }
    if let Some((left, top, last)) = column {
        push(left, top);
        push(left + 1.0, last);
    }
    edge
}

/// Extreme points of one pixel column so far, each with its index.
struct Column {
    pixel: f64,
    first: (usize, (f64, f64)),
    last: (usize, (f64, f64)),
    lowest: (usize, (f64, f64)),
    highest: (usize, (f64, f64)),
}

impl Column {
    fn new(i: usize, point: (f64, f64)) -> Self {
        let it = (i, point);
        Self { pixel: point.0.floor(), first: it, last: it, lowest: it, highest: it }
    }

    fn add(&mut self, i: usize, point: (f64, f64)) {
        self.last = (i, point);
        if point.1 < self.lowest.1.1 {
            self.lowest = (i, point);
        }
        if point.1 > self.highest.1.1 {
            self.highest = (i, point);
        }
    }

    fn keep(self, kept: &mut Vec<(f64, f64)>) {
        let mut four = [self.first, self.lowest, self.highest, self.last];
        four.sort_by_key(|(i, _)| *i);
        let mut before = None;
        for (i, point) in four {
            if before.replace(i) != Some(i) {
                kept.push(point);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_points_all_stay() {
        let points = [(0.1, 5.0), (0.2, 1.0), (0.3, 9.0), (0.9, 4.0), (1.5, 7.0)];
        assert_eq!(extremes(points), points);
        assert_eq!(extremes([]), []);
    }

    #[test]
    fn many_points_keep_their_extremes() {
        let points: Vec<_> =
            (0..100_000).map(|i| (f64::from(i) / 1e4, f64::from(i * 7919 % 1000))).collect();
        let kept = extremes(points.iter().copied());
        assert!(kept.len() <= 40);
        for column in 0..10 {
            let of = |p: &&(f64, f64)| p.0.floor() == f64::from(column);
            assert!(kept.iter().filter(of).any(|p| p.1 == 999.0));
            assert!(kept.iter().filter(of).any(|p| p.1 == 0.0));
        }
        assert_eq!(kept.last(), points.last());
        assert!(kept.is_sorted_by(|a, b| a.0 <= b.0));
    }

    #[test]
    fn the_upper_edge_is_one_value_per_column() {
        // The series rises and falls within column 1, and falls in column 4. The edge falls at most
        // one column late.
        let points =
            [(0.2, 9.0), (1.2, 5.0), (1.3, 2.0), (1.4, 5.0), (4.5, 8.0), (4.6, 7.0), (9.0, 7.0)];
        let edge = upper_edge(points);
        assert_eq!(edge, [(0.0, 9.0), (1.0, 2.0), (2.0, 5.0), (5.0, 7.0)]);
        let swings = (0..100_000).map(|i| (f64::from(i) / 1e4, f64::from(i % 2)));
        assert_eq!(upper_edge(swings), [(0.0, 0.0), (10.0, 1.0)]);
        assert_eq!(upper_edge([]), []);
    }
}
