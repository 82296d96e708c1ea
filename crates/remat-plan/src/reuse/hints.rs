//! Placements made from hints. A search begins with placements made from hints.

use std::cmp::Reverse;

use super::gaps::{Fit, Gaps};
use crate::{Lifetimes, Limits, Placement, PlanError, Planned};

/// Better of two placements from hints; `None` if there are no hints. The first placement puts all
/// buffers at their hints. The first placement exists only if every buffer has a hint and the hints
/// are a valid placement. The second placement puts hinted buffers, in the order of their hints, at
/// the lowest free addresses. Buffers without hints then get the smallest gaps that are large
/// enough, the largest buffers first.
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
