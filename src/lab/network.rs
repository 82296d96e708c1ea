//! Network between the ranks of a training, and the time of a recorded step on several ranks.
//!
//! A replay moves the clock of the computation. The clock of the network runs beside the clock of
//! the computation, and collectives follow one another on the network. The computation waits where
//! it reads a result that the network has not delivered yet:
//!
//! ```text
//! compute   backward of layer 2 │ backward of layer 1 │ (waits) │ update 2 │ (waits) │ update 1
//! network                       │ all-reduce 2 ──────────────── │ all-reduce 1 ──── │
//! ```
//!
//! A recording of one rank has no collectives. For a recording without collectives, each gradient
//! that an update reads is summed over all ranks as soon as the gradient is complete
//! (`gradients.rs`).

mod clock;
mod cluster;
mod exchanges;
mod gradients;

pub use cluster::{Cluster, ClusterError, OnRanks, StepTimes};

use crate::collective::Traffic;
use std::str::FromStr;

/// Speed of the network between ranks.
///
/// The time of a collective is the latency of its messages plus the time for its bytes:
/// `messages * latency + bytes / bandwidth`.
///
/// ```
/// use remat::unstable::lab::Network;
///
/// let network: Network = "100Gbit,5us".parse()?;
/// assert_eq!((network.bytes_per_second, network.overlaps), (12.5e9, None));
/// assert!((network.latency - 5e-6).abs() < 1e-12);
/// assert_eq!("12.5GB/s, 5us, blocking".parse(), Ok(Network { overlaps: Some(false), ..network }));
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Network {
    /// Bytes that a rank sends in a second.
    pub bytes_per_second: f64,
    /// Seconds that each message takes besides the time for its bytes.
    pub latency: f64,
    /// Whether the computation goes on during a collective, until its result is read. With `None`,
    /// the computation goes on during the sums of gradients, and waits for other collectives, as in
    /// the runtime.
    pub overlaps: Option<bool>,
}

impl Network {
    /// Seconds of a collective.
    pub(super) fn seconds(&self, traffic: Traffic) -> f64 {
        let Traffic { messages, bytes } = traffic;
        messages as f64 * self.latency + bytes as f64 / self.bytes_per_second
    }
}

/// Names and factors of units.
type Units = &'static [(&'static str, f64)];

/// Units of a bandwidth, in bytes per second.
const BANDWIDTHS: Units = &[
    ("bit", 1.0 / 8.0),
    ("kbit", 1e3 / 8.0),
    ("Kbit", 1e3 / 8.0),
    ("Mbit", 1e6 / 8.0),
    ("Gbit", 1e9 / 8.0),
    ("Tbit", 1e12 / 8.0),
    ("B", 1.0),
    ("kB", 1e3),
    ("KB", 1e3),
    ("MB", 1e6),
    ("GB", 1e9),
    ("TB", 1e12),
    ("KiB", 1024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
];

/// Units of a latency, in seconds. The letter for micro has two codes in Unicode.
const LATENCIES: Units =
    &[("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("\u{b5}s", 1e-6), ("\u{3bc}s", 1e-6), ("ns", 1e-9)];

/// Limits of a bandwidth: 1 kbit and 1000 Tbit per second, in bytes.
const BYTES_PER_SECOND: std::ops::RangeInclusive<f64> = 125.0..=1.25e14;

/// Limits of a latency in seconds.
const SECONDS: std::ops::RangeInclusive<f64> = 0.0..=60.0;

impl FromStr for Network {
    type Err = String;

    /// Reads bandwidth and latency, and whether collectives block, in any order.
    fn from_str(text: &str) -> Result<Self, String> {
        let help = "give bandwidth and latency, such as 100Gbit,5us";
        let (mut bandwidth, mut latency, mut overlaps) = (None, None, None);
        for part in text.split(',').map(str::trim) {
            let twice = match part {
                "" => return Err(help.to_owned()),
                "blocking" => overlaps.replace(false).is_some(),
                "overlap" => overlaps.replace(true).is_some(),
                _ => match Figure::of(part)? {
                    Figure::Bandwidth(figure) => bandwidth.replace(figure).is_some(),
                    Figure::Latency(figure) => latency.replace(figure).is_some(),
                },
            };
            if twice {
                return Err(format!("{part} comes second: {help}; add blocking or overlap once"));
            }
        }
        match (bandwidth, latency) {
            (Some(bytes_per_second), Some(latency)) => {
                Ok(Self { bytes_per_second, latency, overlaps })
            }
            (None, _) => Err(format!("the bandwidth is missing; {help}")),
            (_, None) => Err(format!("the latency is missing; {help}, or {text},0us for none")),
        }
    }
}

/// Number with a unit.
enum Figure {
    Bandwidth(f64),
    Latency(f64),
}

impl Figure {
    fn of(text: &str) -> Result<Self, String> {
        let is_number = |c: char| c.is_ascii_digit() || "+-.".contains(c);
        let end = text.find(|c| !is_number(c)).unwrap_or(text.len());
        let (number, unit) = (text[..end].parse::<f64>(), text[end..].trim_start());
        let unknown = || {
            format!(
                "{text} is no figure of a network; write a bandwidth in Mbit, Gbit, MB, GB, MiB or GiB per second, such \
                 as 100Gbit, and a latency in ns, us, ms or s, such as 5us"
            )
        };
        let number = number.map_err(|_| unknown())?;
        let among = |units: Units, unit: &str| units.iter().find(|(name, _)| *name == unit);
        if let Some((_, scale)) = among(LATENCIES, unit) {
            let seconds = number * scale;
            let fits = SECONDS.contains(&seconds);
            return if fits {
                Ok(Self::Latency(seconds))
            } else {
                Err(format!("a latency of {text} is out of range; give 0us to 60s"))
            };
        }
        let per_second = unit.strip_suffix("/s").unwrap_or(unit);
        // `Gbps` is the name of `Gbit/s`.
        let bits = unit.strip_suffix("bps").map(|scale| format!("{scale}bit"));
        match among(BANDWIDTHS, bits.as_deref().unwrap_or(per_second)) {
            None if per_second.ends_with('b') => {
                let scale = per_second.trim_end_matches('b');
                Err(format!(
                    "{text} may be bits or bytes; write {number}{scale}bit or {number}{scale}B"
                ))
            }
            None => Err(unknown()),
            Some((_, scale)) if BYTES_PER_SECOND.contains(&(number * scale)) => {
                Ok(Self::Bandwidth(number * scale))
            }
            Some(_) => {
                Err(format!("a bandwidth of {text} is out of range; give 1kbit to 1000Tbit"))
            }
        }
    }
}
#[cfg(test)]
mod tests;
