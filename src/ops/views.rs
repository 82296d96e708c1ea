//! Views: tensors that show the elements of another tensor with another layout. A view has no bytes
//! of its own, no kernel and no cost.

mod broadcast;
mod permute;
mod reshape;
mod slice;
mod split;

pub use broadcast::Broadcast;
pub use permute::Permute;
pub use reshape::Reshape;
pub use slice::Slice;
pub use split::Split;

use crate::layout::Layout;
use crate::op::Outputs;

/// Output that is a view of the only input, with the layout `layout`.
fn seen_as(layout: Layout) -> Outputs {
    Outputs::view(0, layout)
}
