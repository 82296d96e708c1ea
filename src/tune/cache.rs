//! A file of forecasts, kept from run to run.

use super::{OptionNames, TuneError};
use crate::evict::Forecast;
use crate::files::{WholeFile, read_whole};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io::{self, Write as _};
use std::path::Path;

/// Forecasts in a file, with their origin. A forecast belongs to a step and a budget. With other
/// steps or budgets, the forecast is not used, and does no harm.
#[derive(Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Cache {
    #[serde(flatten)]
    origin: Origin,
    forecasts: Vec<Forecast>,
}

/// Limit on the file. A file has some hundred KiB after hundreds of runs.
const MOST_BYTES: u64 = 64 << 20;

/// Origin of forecasts. Forecasts of another origin are refused, because they are for other costs.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Origin {
    /// Version of this crate.
    remat: String,
    /// Name of the device, with its number of threads.
    device: String,
    cost_model: String,
}

impl Origin {
    pub fn here(device: &str, cost_model: &impl ToString) -> Self {
        Self {
            remat: env!("CARGO_PKG_VERSION").to_owned(),
            device: device.to_owned(),
            cost_model: cost_model.to_string(),
        }
    }

    fn told(&self, names: &OptionNames) -> String {
        let Self { remat, device, cost_model } = self;
        format!("remat {remat}, device {device}, {} {cost_model}", names.cost_model)
    }
}

impl Cache {
    /// Reads the file. A missing file is an empty cache.
    pub fn read(path: &Path, here: Origin, names: &OptionNames) -> Result<Self, TuneError> {
        let refused = |what: &dyn fmt::Display| {
            let name = names.cache;
            TuneError::Cache(format!(
                "{name} {}: {what}; delete the file, or choose another",
                path.display()
            ))
        };
        let bytes = match read_whole(path, "forecasts", MOST_BYTES) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self { origin: here, forecasts: Vec::new() });
            }
            // The path is not a regular file, or is not readable, so the message does not advise to
            // delete the file.
            bytes => bytes.map_err(|error| {
                TuneError::Cache(format!(
                    "{} {}: {error}; choose another",
                    names.cache,
                    path.display()
                ))
            })?,
        };
        let cache: Self = serde_json::from_slice(&bytes)
            .map_err(|error| refused(&format_args!("not a file of forecasts ({error})")))?;
        if cache.origin != here {
            let [found, here] = [&cache.origin, &here].map(|origin| origin.told(names));
            return Err(refused(&format_args!("made by {found}, but this is {here}")));
        }
        Ok(cache)
    }

    pub fn forecasts(&self) -> &[Forecast] {
        &self.forecasts
    }

    /// Adds forecasts, in place of older forecasts for the same steps and budgets. Returns whether
    /// anything changed.
    pub fn add(&mut self, found: &[Forecast]) -> bool {
        let before = self.forecasts.clone();
        let key = |forecast: &Forecast| (forecast.step, forecast.budget);
        self.forecasts.retain(|old| found.iter().all(|new| key(new) != key(old)));
        self.forecasts.extend_from_slice(found);
        self.forecasts.sort_unstable_by_key(key);
        self.forecasts != before
    }

    pub fn write(&self, path: &Path) -> io::Result<()> {
        let mut file = WholeFile::create(path)?;
        serde_json::to_writer(&mut file, self)?;
        file.write_all(b"\n")?;
        file.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evict::{Clock, Setting};

    const NAMES: OptionNames = OptionNames { cost_model: "--cost", ..OptionNames::WORDS };

    fn forecast(step: u64, budget: u64, time: f64) -> Forecast {
        Forecast {
            step,
            budget,
            clock: Clock::default(),
            setting: Setting { time, ..Setting::default() },
            factors: vec![1.0, 0.5],
            min_evict_bytes: None,
            excess: Some(0.1),
            least: None,
        }
    }

    #[test]
    fn kept_forecasts_are_read_again_and_foreign_or_corrupt_files_refused() {
        let folder = std::env::temp_dir().join(format!("remat-cache-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("forecasts.json");
        let here = || Origin::here("cpu, 2 threads", &"flops");
        let mut cache = Cache::read(&path, here(), &NAMES).unwrap();
        assert!(cache.add(&[forecast(7, 100, 0.5), forecast(3, 100, 0.5)]));
        assert!(!cache.add(&[forecast(7, 100, 0.5)]), "it is there");
        assert!(cache.add(&[forecast(7, 100, 0.25)]), "it is better");
        cache.write(&path).unwrap();
        assert_eq!(Cache::read(&path, here(), &NAMES).unwrap(), cache);
        assert_eq!(cache.forecasts(), [forecast(3, 100, 0.5), forecast(7, 100, 0.25)]);

        let refused = |here: Origin| {
            let error = Cache::read(&path, here, &NAMES).unwrap_err();
            format!("{error:?}")
        };
        let error = refused(Origin::here("cpu, 1 thread", &"flops"));
        assert!(
            error.contains("device cpu, 2 threads") && error.contains("cpu, 1 thread"),
            "{error}"
        );
        assert!(refused(Origin::here("cpu, 2 threads", &"bytes")).contains("--cost bytes"));
        let whole = std::fs::read(&path).unwrap();
        for bytes in [&whole[..whole.len() / 2], b"", b"{}", b"[1, 2]"] {
            std::fs::write(&path, bytes).unwrap();
            assert!(refused(here()).contains("delete the file, or choose another"));
        }
        std::fs::remove_dir_all(folder).unwrap();
    }
}
