use super::{Evictor, PolicyKind, Victim, View, Want};

/// Evictor that never evicts, as a baseline. A program that needs more memory than the budget ends
/// with an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NeverEvict;

impl Evictor for NeverEvict {
    fn next(&mut self, _want: Want, _view: View<'_>) -> Option<Victim> {
        None
    }

    fn evicts(&self) -> bool {
        false
    }

    fn kind(&self) -> Option<PolicyKind> {
        Some(PolicyKind::None)
    }
}
