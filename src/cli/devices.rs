//! `remat devices`: a list of the devices.

use super::command::DevicesArgs;
use super::failure::Failure;
use super::gpu;
use super::machine::{Device, Gpus, Machine};
use super::output::{self, Output};
use super::terminal::print_report;
use super::values::DeviceName;
use remat::ByteSize;
use serde::Serialize;
use std::fmt;

/// Lists the devices.
pub fn run(args: &DevicesArgs) -> Result<(), Failure> {
    let json = args.json.as_deref().map(Output::create).transpose()?;
    let list = List::new(Machine::look(), gpu::found());
    let Some(json) = json else { return print_report(&list.to_string()) };
    json.deliver(&output::json(&list)?)
}

/// All devices.
#[derive(Debug, Serialize)]
struct List {
    devices: Vec<Device>,
    #[serde(flatten)]
    gpus: Option<Gpus>,
    /// Reason why no GPU is listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpu: Option<String>,
}

impl List {
    fn new(machine: Machine, gpus: Result<Gpus, String>) -> Self {
        let known = |bytes: u64| (bytes > 0).then_some(bytes);
        let mut devices = vec![Device {
            device: DeviceName::Cpu.to_string(),
            name: machine.processor,
            memory_bytes: known(machine.memory_bytes),
            free_bytes: known(machine.free_bytes),
            threads: Some(machine.threads),
            compute_capability: None,
        }];
        match gpus {
            Ok(mut gpus) => {
                devices.append(&mut gpus.rows);
                Self { devices, gpus: Some(gpus), no_gpu: None }
            }
            Err(reason) => Self { devices, gpus: None, no_gpu: Some(reason) },
        }
    }
}

impl fmt::Display for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let size = |bytes: Option<u64>| {
            bytes.map_or_else(|| "unknown".to_owned(), |bytes| ByteSize(bytes).to_string())
        };
        let cells = |row: &Device| {
            let about = match (row.threads, &row.compute_capability) {
                (Some(1), _) => "1 thread".to_owned(),
                (Some(threads), _) => format!("{threads} threads"),
                (None, Some(capability)) => format!("compute capability {capability}"),
                (None, None) => String::new(),
            };
            let [memory, free] = [row.memory_bytes, row.free_bytes].map(size);
            [row.device.clone(), row.name.clone(), memory, free, about]
        };
        let head = ["device", "name", "memory", "free", ""].map(str::to_owned);
        let rows: Vec<[String; 5]> =
            [head].into_iter().chain(self.devices.iter().map(cells)).collect();
        let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
        let widths = [0, 1, 2, 3].map(|column| width(column).unwrap_or(0));
        for [device, name, memory, free, about] in &rows {
            let [a, b, c, d] = widths;
            let line = format!("{device:a$}  {name:b$}  {memory:>c$}  {free:>d$}  {about}");
            writeln!(f, "{}", line.trim_end())?;
        }
        match (&self.gpus, &self.no_gpu) {
            (Some(gpus), _) => write!(f, "\n{gpus}"),
            (None, Some(reason)) => write!(f, "\nNo GPU is listed: {reason}."),
            (None, None) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        Machine {
            processor: "A Processor".to_owned(),
            threads: 16,
            memory_bytes: 128 << 30,
            free_bytes: 100 << 30,
        }
    }

    fn gpu(number: usize, free_bytes: Option<u64>) -> Device {
        Device {
            device: format!("cuda:{number}"),
            name: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_bytes: Some(85_045_084_160),
            free_bytes,
            threads: None,
            compute_capability: Some("9.0".to_owned()),
        }
    }

    #[test]
    fn the_table_has_a_line_for_each_device() {
        let libraries = [("NVRTC", Some("12.8".to_owned())), ("cuDNN", None)].into();
        let rows = vec![gpu(0, Some(78 << 30)), gpu(1, None)];
        let gpus = Gpus { rows, driver_cuda: "12.9".to_owned(), libraries };
        let list = List::new(machine(), Ok(gpus));
        let expected = "\
device  name                       memory        free
cpu     A Processor            128.00 GiB  100.00 GiB  16 threads
cuda:0  NVIDIA H100 80GB HBM3   79.20 GiB   78.00 GiB  compute capability 9.0
cuda:1  NVIDIA H100 80GB HBM3   79.20 GiB     unknown  compute capability 9.0

The driver supports CUDA up to 12.9. Libraries: NVRTC 12.8, no cuDNN.";
        assert_eq!(list.to_string(), expected);
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!(json["devices"][1]["device"], "cuda:0");
        assert!(json["devices"][2]["free_bytes"].is_null());
        assert_eq!(json["libraries"]["NVRTC"], "12.8");
        assert!(json.get("no_gpu").is_none());
    }

    #[test]
    fn without_a_gpu_it_says_why() {
        let list = List::new(machine(), Err("there is no driver".to_owned()));
        let text = list.to_string();
        assert!(text.ends_with("16 threads\n\nNo GPU is listed: there is no driver."), "{text}");
        let json = serde_json::to_value(&list).unwrap();
        assert_eq!((&json["no_gpu"], json.get("libraries")), (&"there is no driver".into(), None));
    }
}
