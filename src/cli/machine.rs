//! The machine that the program runs on: processor, memory, GPUs.

use super::sync::thread;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use sysinfo::{
    CpuRefreshKind, MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System,
};

/// Smallest margin of free memory that `--budget auto` leaves, in bytes. The margin is for memory
/// outside the budget (images on the host, buffers of threads) and for other programs. On a machine
/// with more than 10 GiB of free memory, the margin is 5 % of the free memory.
const MARGIN: u64 = 512 << 20;

/// Processor and memory. Unknown fields are 0 or empty.
#[derive(Debug, Default)]
pub struct Machine {
    pub processor: String,
    pub threads: usize,
    pub memory_bytes: u64,
    /// Available memory, in bytes. The page cache counts as available.
    pub free_bytes: u64,
}

impl Machine {
    /// Current state of the machine. In a container with a memory limit, the limit counts as the
    /// machine's memory.
    pub fn look() -> Self {
        let kinds = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let Ok(mut system) = System::new_with_specifics(kinds) else {
            return Self { threads: cores(), ..Self::default() };
        };
        let (mut memory, mut free) = (system.total_memory(), system.available_memory());
        // Memory limits of the control group of this process and of its parent groups, except the
        // root group.
        let limits = sysinfo::get_current_pid().ok().and_then(|process| {
            let this = ProcessesToUpdate::Some(&[process]);
            system.refresh_processes_specifics(this, false, ProcessRefreshKind::nothing());
            system.process(process)?.cgroup_limits()
        });
        if let Some(limits) = limits {
            memory = memory.min(limits.total_memory);
            // The control group's own count of free memory is not used, because it counts the cache
            // of files as used memory.
            free = free.min(limits.total_memory.saturating_sub(limits.rss));
        }
        let processor = system.cpus().first().map_or("", |cpu| cpu.brand().trim()).to_owned();
        Self { processor, threads: cores(), memory_bytes: memory, free_bytes: free }
    }

    /// Free bytes, less a margin; `None` if the system does not report them.
    pub fn available_bytes(&self) -> Option<u64> {
        let free = self.free_bytes;
        (free > 0).then(|| free - MARGIN.max(free / 20).min(free / 2))
    }
}

/// Number of cores available to the program.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Description of a device. A field is `None` if it is unknown, or does not apply to this kind of
/// device.
#[derive(Debug, Serialize)]
pub struct Device {
    /// Name for `--device`.
    pub device: String,
    pub name: String,
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
}

/// GPUs of the machine, and the libraries for them.
#[derive(Debug, Serialize)]
pub struct Gpus {
    #[serde(skip)]
    pub rows: Vec<Device>,
    /// Newest CUDA version supported by the driver.
    pub driver_cuda: String,
    /// Version of each library, by name; `None` if it was not found.
    pub libraries: BTreeMap<&'static str, Option<String>>,
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The driver supports CUDA up to {}. ", self.driver_cuda)?;
        let library = |(name, version): (&&str, &Option<String>)| match version {
            Some(version) => format!("{name} {version}"),
            None => format!("no {name}"),
        };
        let libraries: Vec<String> = self.libraries.iter().map(library).collect();
        write!(f, "Libraries: {}.", libraries.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_margin_is_left() {
        let available = |free_bytes| Machine { free_bytes, ..Machine::default() }.available_bytes();
        assert_eq!(available(0), None);
        assert_eq!(available(600 << 20), Some(300 << 20));
        assert_eq!(available(4 << 30), Some((4 << 30) - MARGIN));
        assert_eq!(available(100 << 30), Some(95 << 30));
    }

    #[test]
    fn this_machine_has_a_processor_and_memory() {
        let machine = Machine::look();
        println!("{machine:?}");
        assert!(machine.threads > 0);
        if cfg!(target_os = "linux") {
            assert!(machine.free_bytes > 0 && machine.free_bytes <= machine.memory_bytes);
        }
    }
}
