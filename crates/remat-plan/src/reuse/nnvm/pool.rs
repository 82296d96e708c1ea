//! `SetupStorage`: addresses of storages, for one plan or for several plans that run in turn.

use std::collections::BTreeMap;

use super::graph::NodeEntry;
use super::{Home, StoragePlan};

/// Location of an entry in a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolView {
    /// Device of the pool.
    pub device: u32,
    /// Address of the first byte in the pool.
    pub offset: u64,
    /// Bytes of the entry. The storage of the entry may be larger.
    pub bytes: u64,
}

/// A pool of bytes on each device, for one or several plans. Only one plan runs at a time, for
/// example training or evaluation. GraphRuntime makes a pool for a single plan only.
///
/// Storages lie one after another. The variables of all plans come first; variables with the same
/// name share a storage of the largest size. All other storages follow; the storages of every plan
/// begin at the same address. Therefore, running a plan loses the values that other plans computed,
/// but keeps the values of variables.
#[derive(Clone, Debug)]
pub struct SharedPool {
    // Plan, node, output -> view; `None` if the entry is external or dynamic.
    views: Vec<Vec<Vec<Option<PoolView>>>>,
    // Device -> bytes of its pool.
    bytes: BTreeMap<u32, u64>,
}

impl SharedPool {
    /// Makes a pool for these plans, with each storage at a multiple of `align`. GraphRuntime's
    /// alignment is 4.
    ///
    /// # Errors
    ///
    /// [`PoolError`] if `align` is not a power of two, if a variable is on different devices in two
    /// plans, or if a pool has 2^64 bytes or more.
    pub fn new(plans: &[StoragePlan<'_>], align: u64) -> Result<Self, PoolError> {
        if !align.is_power_of_two() {
            return Err(PoolError::Alignment(align));
        }
        let mut kept = Stack { align, tops: BTreeMap::new() };
        let variables = variables(plans)?;
        let mut places = BTreeMap::new();
        for (name, (device, bytes)) in variables {
            places.insert(name, kept.push(device, bytes)?);
        }
        let mut pool = Self { views: Vec::new(), bytes: kept.tops.clone() };
        for plan in plans {
            let mut offsets = vec![None; plan.storages().len()];
            for (name, storage) in plan.variables() {
                offsets[*storage] = places.get(name).copied();
            }
            let mut stack = kept.clone();
            for (offset, storage) in offsets.iter_mut().zip(plan.storages()) {
                if offset.is_none() && storage.bytes > 0 {
                    *offset = Some(stack.push(storage.device, storage.bytes)?);
                }
            }
            for (device, top) in stack.tops {
                let bytes = pool.bytes.entry(device).or_default();
                *bytes = top.max(*bytes);
            }
            pool.views.push(views(plan, &offsets));
        }
        Ok(pool)
    }

    /// Total bytes of the pools of all devices, saturating.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.values().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// Bytes of the pool of a device.
    #[must_use]
    pub fn bytes_on(&self, device: u32) -> u64 {
        self.bytes.get(&device).copied().unwrap_or(0)
    }

    /// View of an entry. `plan` is the position of its plan among the plans of the pool. `None` if
    /// the plan or entry does not exist, or if the entry is external or dynamic.
    #[must_use]
    pub fn view(&self, plan: usize, entry: NodeEntry) -> Option<PoolView> {
        *self.views.get(plan)?.get(entry.node)?.get(entry.output)?
    }
}

/// Name of each variable -> device and bytes.
fn variables<'g>(plans: &[StoragePlan<'g>]) -> Result<BTreeMap<&'g str, (u32, u64)>, PoolError> {
    let mut variables = BTreeMap::new();
    for plan in plans {
        for (name, storage) in plan.variables() {
            let storage = plan.storages()[*storage];
            let (device, bytes) = variables.entry(*name).or_insert((storage.device, 0));
            if *device != storage.device {
                let devices = [*device, storage.device];
                return Err(PoolError::Devices { name: (*name).to_owned(), devices });
            }
            *bytes = storage.bytes.max(*bytes);
        }
    }
    Ok(variables)
}

fn views(plan: &StoragePlan<'_>, offsets: &[Option<u64>]) -> Vec<Vec<Option<PoolView>>> {
    let nodes = plan.graph().nodes().iter().enumerate();
    let views = nodes.map(|(node, it)| {
        let outputs = it.outputs().iter().enumerate();
        let view = outputs.map(|(output, tensor)| match plan.home(NodeEntry { node, output })? {
            Home::Storage(storage) => Some(PoolView {
                device: plan.storages()[storage].device,
                // Storages of 0 bytes are not placed, so any offset is valid for them.
                offset: offsets[storage].unwrap_or(0),
                bytes: tensor.bytes(),
            }),
            Home::None | Home::External | Home::Dynamic => None,
        });
        view.collect()
    });
    views.collect()
}

/// Places storages one after another, on each device.
#[derive(Clone)]
struct Stack {
    align: u64,
    tops: BTreeMap<u32, u64>,
}

impl Stack {
    fn push(&mut self, device: u32, bytes: u64) -> Result<u64, PoolError> {
        let top = self.tops.entry(device).or_default();
        let (offset, end) = behind(*top, bytes, self.align).ok_or(PoolError::TooLarge)?;
        *top = end;
        Ok(offset)
    }
}

/// Begin and end of a storage that is placed above `top`; `None` if the end is 2^64 or more.
pub(super) fn behind(top: u64, bytes: u64, align: u64) -> Option<(u64, u64)> {
    let offset = top.checked_next_multiple_of(align)?;
    Some((offset, offset.checked_add(bytes)?))
}

/// Errors of pools.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// The alignment is not a power of two.
    #[error("storages have an alignment of {0}: give a power of two")]
    Alignment(u64),
    /// A variable is on different devices in two plans.
    #[error("variable {name} is on device {} in one plan and on {} in another", .devices[0], .devices[1])]
    Devices {
        /// Name of the variable.
        name: String,
        /// Device in the first plan that has the variable, and in another plan.
        devices: [u32; 2],
    },
    /// A pool has 2^64 bytes or more.
    #[error("a pool would have 2^64 bytes or more")]
    TooLarge,
}
