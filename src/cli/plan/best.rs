//! The best placement found, which is written and drawn.

use super::super::failure::Failure;
use super::case::Case;
use remat::unstable::lab::plot::{Block, Blocks};
use remat::unstable::plan::{Lives, Part, Placement};
use std::cmp::Ordering;
use std::rc::Rc;

/// A placement for a case.
pub struct Best {
    case: Rc<Case>,
    planner: String,
    placement: Placement,
}

impl Best {
    /// Replaces `best` if `placement` is better. A placement that fits the budget is better than a
    /// placement that does not fit. Among placements that fit, less recomputation is better; with
    /// equal recomputation, fewer bytes are better. On a tie, `best` stays.
    pub fn see(best: &mut Option<Self>, case: &Rc<Case>, planner: &str, placement: Placement) {
        let is_better = best.as_ref().is_none_or(|best| {
            compared((case, &placement), (&best.case, &best.placement)) == Ordering::Less
        });
        if is_better {
            *best = Some(Self { case: Rc::clone(case), planner: planner.to_owned(), placement });
        }
    }

    /// Text with lines `id,lower,upper,size,offset`.
    pub fn csv(&self, lives: Lives) -> Result<String, Failure> {
        let broken = |error: &dyn std::fmt::Display| Failure::new(format!("--csv: {error}"));
        let mut text = Vec::new();
        let written = self.case.instance.write_placement(&self.placement, &mut text, lives);
        written.map_err(|e| broken(&e))?;
        String::from_utf8(text).map_err(|e| broken(&e))
    }

    /// Blocks that a drawing of the placement shows.
    pub fn blocks(&self, name: &str) -> Blocks {
        let case = &self.case;
        // A buffer that is in use during several separate intervals is drawn as several blocks,
        // because other buffers may have its address in between.
        let block = |part: Part| Block {
            name: case.instance.ids()[part.buffer].clone(),
            kind: case.kinds[part.buffer],
            time: part.lower..part.upper,
            offset: self.placement.offsets()[part.buffer] + part.begin,
            size: part.end - part.begin,
        };
        let title = [name, &case.title(), &self.planner];
        let title: Vec<&str> = title.into_iter().filter(|part| !part.is_empty()).collect();
        Blocks {
            title: title.join(", "),
            time: if case.order.is_some() { "time (ops)" } else { "time" }.to_owned(),
            size: self.placement.bytes(),
            load: case.load,
            budget: case.recomputed.as_ref().map(|one| one.budget),
            blocks: case.lifetimes().parts().into_iter().map(block).collect(),
        }
    }
}

fn compared(one: (&Case, &Placement), other: (&Case, &Placement)) -> Ordering {
    let rank = |(case, placement): (&Case, &Placement)| {
        let recomputed = case.recomputed.as_ref();
        let over = recomputed.is_some_and(|it| placement.bytes() > it.budget);
        let slowdown = recomputed.and_then(|it| it.slowdown).unwrap_or(1.0);
        (over, slowdown, placement.bytes())
    };
    let (one, other) = (rank(one), rank(other));
    one.0.cmp(&other.0).then(one.1.total_cmp(&other.1)).then(one.2.cmp(&other.2))
}
