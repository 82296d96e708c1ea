//! What came from the device, on its way to a value.

use crate::device::DeviceError;
use crate::device::pack::packed;
use crate::host::{HostError, HostTensor};
use crate::layout::Layout;

/// All that lies from the first to the last element of a tensor, as a list of elements.
pub(super) struct Fetched {
    all: HostTensor,
    layout: Layout,
}

impl Fetched {
    /// As `fetch` writes it.
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

    /// The elements of the tensor alone, in their order.
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
