//! Bytes that were read from the device, before a host value is made from them.

use crate::device::DeviceError;
use crate::device::pack::packed;
use crate::host::{HostError, HostTensor};
use crate::layout::Layout;

/// The bytes from the first to the last element of a tensor.
pub(super) struct Fetched {
    all: HostTensor,
    layout: Layout,
}

impl Fetched {
    /// Reads the bytes by calling `fetch`, which fills the buffer that it receives.
    pub(super) fn new(
        layout: &Layout,
        fetch: impl FnOnce(&mut [u8]) -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let count = if layout.elements() == 0 { 0 } else { layout.span() - layout.offset() };
        let mut fetched = Ok(());
        let all =
            HostTensor::written(layout.dtype(), [count].into(), |bytes| fetched = fetch(bytes));
        fetched?;
        Ok(Self { all: all.map_err(refused)?, layout: *layout })
    }

    /// Makes a host value from the elements of the tensor, in row-major order, without the bytes
    /// between the elements.
    pub(super) fn unpack(self) -> Result<HostTensor, DeviceError> {
        let Self { all, layout } = self;
        if layout.is_contiguous() {
            return all.reshaped(*layout.shape()).map_err(refused);
        }
        let pack = |out: &mut [u8]| packed(out, all.as_bytes(), &layout);
        HostTensor::written(layout.dtype(), *layout.shape(), pack).map_err(refused)
    }
}

fn refused(error: HostError) -> DeviceError {
    DeviceError::new(error.to_string())
}
