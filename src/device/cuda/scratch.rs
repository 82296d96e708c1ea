//! Workspace of a run, which is divided into parts.

use super::Operands;
use super::gpu::Gpu;
use super::launch::Ptr;
use crate::device::DeviceError;

/// Alignment of parts in bytes, which is also the alignment of tensors. cuBLAS requires this
/// alignment for its workspace.
pub(super) const ALIGNMENT: u64 = 256;

/// Size of a part of `bytes` bytes, rounded up to [`ALIGNMENT`].
pub(crate) const fn padded(bytes: u64) -> u64 {
    bytes.div_ceil(ALIGNMENT).saturating_mul(ALIGNMENT)
}

/// Part of a workspace that is still unused.
#[derive(Debug)]
pub(crate) struct Scratch {
    next: Ptr,
    left: u64,
}

impl Scratch {
    /// Starts with the whole workspace of a run.
    ///
    /// # Panics
    /// Panics if the workspace reaches outside the memory.
    pub(crate) fn of(gpu: &Gpu, run: &Operands<'_>) -> Self {
        let all = gpu.span(run.workspace.clone());
        Self { next: all.first(), left: all.bytes() }
    }

    /// Takes the next part of `bytes` bytes. The last part may end at any byte, because a workspace
    /// need not end at a multiple of [`ALIGNMENT`].
    pub(crate) fn take(&mut self, bytes: u64) -> Result<Ptr, DeviceError> {
        if bytes > self.left {
            return Err(DeviceError::new(format!(
                "cuda: {bytes} bytes of workspace are needed, but only {} are left",
                self.left
            )));
        }
        let part = self.next;
        let taken = padded(bytes).min(self.left);
        self.next = part.plus(taken);
        self.left -= taken;
        Ok(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_aligned_and_no_more_than_there_is() {
        let mut scratch = Scratch { next: Ptr(512), left: 1000 };
        assert_eq!(scratch.take(1).unwrap(), Ptr(512));
        assert_eq!(scratch.take(256).unwrap(), Ptr(768));
        assert!(scratch.take(489).is_err());
        assert_eq!(scratch.take(488).unwrap(), Ptr(1024));
        assert!(scratch.take(1).is_err());
        assert!(scratch.take(0).is_ok());
    }
}
