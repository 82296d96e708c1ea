//! In which order a search tries buffers that could be put at the same address.

use std::cmp::Reverse;

use super::sections::Part;

/// What is compared first, second and third, all falling. W: how long a buffer lives; A: that times its size; T: the
/// largest number of bytes that are alive at once while it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preorder {
    Wat,
    Taw,
    Twa,
}

impl Preorder {
    /// In the order in which MiniMalloc tries them.
    pub const ALL: [Self; 3] = [Self::Wat, Self::Taw, Self::Twa];

    /// The items in this order.
    pub fn sort(self, part: &Part) -> Vec<usize> {
        let totals = part.totals();
        let mut order: Vec<usize> = (0..part.items.len()).collect();
        order.sort_by_cached_key(|&i| {
            let item = &part.items[i];
            let wide = u128::from(item.life);
            let area = wide * u128::from(item.size);
            let held = item.sections.iter().flat_map(|sections| &totals[sections.clone()]);
            let most = held.max().copied().unwrap_or(0);
            let total = u128::from(most);
            Reverse(match self {
                Self::Wat => [wide, area, total],
                Self::Taw => [total, area, wide],
                Self::Twa => [total, wide, area],
            })
        });
        order
    }
}
