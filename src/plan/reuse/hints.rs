//! Placements from hints, where a search begins.

use std::cmp::Reverse;

use super::super::{Lifetimes, Limits, Placement, PlanError, Planned};
use super::gaps::{Fit, Gaps};

/// Better of two placements from hints; `None` without hints. In the first, all buffers are at
/// their hints, if that is a placement. In the second, each hinted buffer is as low as the buffers
/// hinted below it allow. Buffers without hints then fill the gaps between, the largest first.
pub(super) fn by_hints(
    lifetimes: &Lifetimes,
    limits: &Limits,
) -> Option<Result<Planned, PlanError>> {
    if !lifetimes.has_hints() {
        return None;
    }
    let count = lifetimes.len();
    let all: Option<Vec<u64>> = (0..count).map(|i| lifetimes.hint(i)).collect();
    let at_hints = all.filter(|hints| Placement::new(lifetimes, hints.clone()).is_ok());
    let at_hints = at_hints.map(|hints| Planned::new(lifetimes, hints));
    let mut order: Vec<usize> = (0..count).collect();
    order.sort_by_key(|&i| {
        let hint = lifetimes.hint(i);
        (hint.is_none(), hint, Reverse(lifetimes.buffers()[i].size), i)
    });
    let fit = |i: usize| if lifetimes.hint(i).is_some() { Fit::Lowest } else { Fit::Smallest };
    let lowered = Gaps::default().place(lifetimes, &order, fit, limits);
    match (at_hints, lowered) {
        (Some(Ok(hinted)), Ok(lowered)) if lowered.placement.bytes() < hinted.placement.bytes() => {
            Some(Ok(lowered))
        }
        (Some(hinted), _) => Some(hinted),
        (None, lowered) => Some(lowered),
    }
}
