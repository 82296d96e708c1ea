//! The machine that the program runs on.

use super::sync::thread;
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;
use sysinfo::{
    CpuRefreshKind, MemoryRefreshKind, ProcessRefreshKind, ProcessesToUpdate, RefreshKind, System,
};

/// Free memory that `--budget auto` leaves for what is not in the budget, images on the host and the
/// threads' buffers, and for others. More on a large machine: 5 %.
const MARGIN: u64 = 512 << 20;

/// Processor and memory; 0 or empty where unknown.
#[derive(Debug, Default)]
pub struct Machine {
    pub processor: String,
    pub threads: usize,
    pub memory_bytes: u64,
    /// Available memory: the page cache counts as free.
    pub free_bytes: u64,
}

impl Machine {
    /// As it is now. In a container with a limit, its memory is that limit.
    pub fn look() -> Self {
        let kinds = RefreshKind::nothing()
            .with_cpu(CpuRefreshKind::nothing())
            .with_memory(MemoryRefreshKind::nothing().with_ram());
        let Ok(mut system) = System::new_with_specifics(kinds) else {
            return Self { threads: cores(), ..Self::default() };
        };
        let (mut memory, mut free) = (system.total_memory(), system.available_memory());
        // Of this process's group and those above it, not of the system's root.
        let limits = sysinfo::get_current_pid().ok().and_then(|process| {
            let this = ProcessesToUpdate::Some(&[process]);
            system.refresh_processes_specifics(this, false, ProcessRefreshKind::nothing());
            system.process(process)?.cgroup_limits()
        });
        if let Some(limits) = limits {
            memory = memory.min(limits.total_memory);
            // Not the free memory of the group: there, files that were read count as used.
            free = free.min(limits.total_memory.saturating_sub(limits.rss));
        }
        let processor = system.cpus().first().map_or("", |cpu| cpu.brand().trim()).to_owned();
        Self { processor, threads: cores(), memory_bytes: memory, free_bytes: free }
    }

    /// What is free, less a margin. `None`: the system does not say.
    pub fn available_bytes(&self) -> Option<u64> {
        let free = self.free_bytes;
        (free > 0).then(|| free - MARGIN.max(free / 20).min(free / 2))
    }
}

/// As many threads as there are cores for this program.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// A device. What is not known, or makes no sense for it, is `None`.
#[derive(Debug, Serialize)]
pub struct Device {
    /// What `--device` takes.
    pub device: String,
    pub name: String,
    pub memory_bytes: Option<u64>,
    pub free_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_capability: Option<String>,
}

/// GPUs, and what is used on them.
#[derive(Debug, Serialize)]
pub struct Gpus {
    #[serde(skip)]
    pub rows: Vec<Device>,
    /// Newest CUDA that the driver knows.
    pub driver_cuda: String,
    /// Versions by name; `None` was not found.
    pub libraries: BTreeMap<&'static str, Option<String>>,
}

impl fmt::Display for Gpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "The driver knows CUDA up to {}. ", self.driver_cuda)?;
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
