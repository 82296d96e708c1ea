//! Orders in which buffers with the same lowest possible address are tried.

use std::cmp::Reverse;

use super::sections::Part;

/// The letters name the properties that are compared first, second and third. Larger values come
/// first. W is the length of life, A is the length of life times the size, and T is the peak of the
/// bytes alive during the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preorder {
    Wat,
    Taw,
    Twa,
}

impl Preorder {
    /// All preorders, in the order in which MiniMalloc tries them.
    pub const ALL: [Self; 3] = [Self::Wat, Self::Taw, Self::Twa];

    /// Indices of the items of a part, sorted by this preorder.
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
