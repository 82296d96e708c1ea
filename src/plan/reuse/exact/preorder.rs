//! Orders of trying buffers with the same lowest address.

use std::cmp::Reverse;

use super::sections::Part;

/// Properties compared first, second and third, all falling. W: length of life. A: length of life
/// times size. T: peak of the bytes alive during the life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preorder {
    Wat,
    Taw,
    Twa,
}

impl Preorder {
    /// Preorders in MiniMalloc's order.
    pub const ALL: [Self; 3] = [Self::Wat, Self::Taw, Self::Twa];

    /// Sorts the items of a part.
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
