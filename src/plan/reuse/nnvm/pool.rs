//! `SetupStorage`: the bytes behind storages, for one plan or for several that take turns.

use std::collections::BTreeMap;

use super::graph::NodeEntry;
use super::{Home, StoragePlan};

/// Bytes of a pool that an entry is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PoolView {
    /// Of which device's pool.
    pub device: u32,
    /// Where they begin there, in bytes.
    pub offset: u64,
    /// As many as the entry has; its storage may have more.
    pub bytes: u64,
}

/// Bytes for one or several plans of which one runs at a time, such as training and evaluation. One for a single plan is
/// what GraphRuntime makes; to share it goes beyond NNVM.
///
/// Storages lie one behind another: first the variables of all plans, those of one name being one storage, of the size of
/// the largest; then, at the same place for every plan, all others. What a plan computes thus holds until another runs,
/// and what the variables hold stays.
#[derive(Clone, Debug)]
pub struct SharedPool {
    // By plan, node and output; none for what is not planned.
    views: Vec<Vec<Vec<Option<PoolView>>>>,
    // By device.
    bytes: BTreeMap<u32, u64>,
}

impl SharedPool {
    /// Room for all of these, each storage at a multiple of `align`. GraphRuntime's is 4.
    ///
    /// # Errors
    ///
    /// `align` is no power of two, a variable is on one device in one plan and on another in another, or a pool has 2^64
    /// bytes or more.
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

    /// Of the pools of all devices together, at most `u64::MAX`.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes.values().fold(0, |sum, &bytes| sum.saturating_add(bytes))
    }

    /// Of that device's pool.
    #[must_use]
    pub fn bytes_on(&self, device: u32) -> u64 {
        self.bytes.get(&device).copied().unwrap_or(0)
    }

    /// Where an entry of that plan, by its number in the order given, is; nowhere if the plan or the entry is not there
    /// or others find room for it.
    #[must_use]
    pub fn view(&self, plan: usize, entry: NodeEntry) -> Option<PoolView> {
        *self.views.get(plan)?.get(entry.node)?.get(entry.output)?
    }
}

/// Device and bytes of each variable, by name.
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
                // One of 0 bytes needs no room.
                offset: offsets[storage].unwrap_or(0),
                bytes: tensor.bytes(),
            }),
            Home::None | Home::External | Home::Dynamic => None,
        });
        view.collect()
    });
    views.collect()
}

/// Storages one behind another, on each device.
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

/// Where a storage begins that comes after `top`, and where it ends; nothing if that is beyond all addresses.
pub(super) fn behind(top: u64, bytes: u64, align: u64) -> Option<(u64, u64)> {
    let offset = top.checked_next_multiple_of(align)?;
    Some((offset, offset.checked_add(bytes)?))
}

/// Why there is no pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// No power of two.
    #[error("storages are to be aligned to {0}: that must be a power of two")]
    Alignment(u64),
    /// It would have to be on both.
    #[error("variable {name} is on device {} in one plan and on {} in another", .devices[0], .devices[1])]
    Devices {
        /// Which variable.
        name: String,
        /// Where it is in the first plan that has it, and in another.
        devices: [u32; 2],
    },
    /// More bytes than there are addresses.
    #[error("a pool would have 2^64 bytes or more")]
    TooLarge,
}
