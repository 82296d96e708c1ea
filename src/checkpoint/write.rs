//! Writing of checkpoints. A checkpoint is complete or absent, because
//! [`WholeFile`](crate::files::WholeFile) renames a finished file.

use super::header::Header;
use super::{CheckpointError, VERSION, keys, rule_name, state_name};
use crate::files::WholeFile;
use crate::host::HostTensor;
use crate::layout::{DType, Layout};
use crate::nn::{Module, State, state};
use crate::ops::Tensor;
use crate::optim::Optimizer;
use crate::runtime::Runtime;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::io::{self, Write as _};
use std::path::Path;

/// The contents of a checkpoint to write.
///
/// ```
/// use remat::checkpoint::Writer;
/// use remat::nn::Linear;
/// use remat::prelude::*;
///
/// # let path = format!("remat-writer-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(path);
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// let mut layer = Linear::new(&runtime, 4, 2)?;
/// Writer::of(&mut layer).with("epoch", 3).save(&runtime, &path)?;
/// assert!(path.exists());
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), remat::checkpoint::CheckpointError>(())
/// ```
#[must_use = "it is written by `save`"]
pub struct Writer<'a> {
    module: &'a mut dyn Module,
    optimizer: Option<&'a Optimizer>,
    metadata: BTreeMap<String, String>,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { optimizer, metadata, .. } = self;
        f.debug_struct("Writer")
            .field("optimizer", optimizer)
            .field("metadata", metadata)
            .finish_non_exhaustive()
    }
}

/// Source of a tensor's elements.
enum Part<'a> {
    Device(&'a Tensor),
    Host(HostTensor),
}

impl Part<'_> {
    fn layout(&self) -> Layout {
        match self {
            Self::Device(tensor) => Layout::contiguous(tensor.dtype(), *tensor.layout().shape()),
            Self::Host(host) => host.layout(),
        }
    }
}

impl<'a> Writer<'a> {
    /// Takes the parameters and buffers of a module.
    pub fn of(module: &'a mut dyn Module) -> Self {
        Self { module, optimizer: None, metadata: BTreeMap::new() }
    }

    /// Adds the state of an optimizer for the parameters of the module.
    pub const fn optimizer(mut self, optimizer: &'a Optimizer) -> Self {
        self.optimizer = Some(optimizer);
        self
    }

    /// Adds a text under a name, such as the number of the step. Names that begin with `remat.` are
    /// reserved.
    pub fn with(mut self, name: &str, value: impl Display) -> Self {
        self.metadata.insert(name.to_owned(), value.to_string());
        self
    }

    /// Writes the file. Waits for all earlier commands, and restores evicted tensors one at a time.
    ///
    /// ```
    /// use remat::checkpoint::{CheckpointError, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 4, 2)?;
    /// let error = Writer::of(&mut layer).save(&runtime, "network.safetensors.gz").unwrap_err();
    /// assert!(matches!(error, CheckpointError::Format { .. }));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file cannot be written, two tensors have the same name, or a tensor is lost or
    /// cannot be restored. On an error, an older file with the same name stays.
    pub fn save(self, runtime: &Runtime, path: impl AsRef<Path>) -> Result<(), CheckpointError> {
        let path = path.as_ref();
        let of_file = |error| CheckpointError::Io { path: path.to_owned(), error };
        if path.extension().is_some_and(|end| end.eq_ignore_ascii_case("gz")) {
            let message = "checkpoints are not compressed; name it without .gz".to_owned();
            return Err(CheckpointError::Format { path: path.to_owned(), message });
        }
        let Self { module, optimizer, mut metadata } = self;
        metadata.insert(keys::VERSION.to_owned(), VERSION.to_owned());
        let (seed, position) = runtime.random_position();
        metadata.insert(keys::SEED.to_owned(), seed.to_string());
        metadata.insert(keys::RANDOM.to_owned(), position.to_string());
        let mut parts: Vec<(String, Part<'_>)> = Vec::new();
        for (name, state) in state(module) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            parts.push((name, Part::Device(tensor)));
        }
        if let Some(optimizer) = optimizer {
            metadata.insert(keys::RULE.to_owned(), rule_name(optimizer.rule()).to_owned());
            let mut last = None;
            for (parameter, state, tensor) in optimizer.states() {
                if last != Some(parameter) {
                    let steps = optimizer.steps(parameter).try_into().unwrap_or(i64::MAX);
                    let steps = HostTensor::new::<i64>([], vec![steps]).expect("one number");
                    parts.push((state_name(parameter, "step"), Part::Host(steps)));
                    last = Some(parameter);
                }
                parts.push((state_name(parameter, state), Part::Device(tensor)));
            }
        }
        // Tensors with larger elements come first, so that the elements of all tensors are aligned.
        parts.sort_by_key(|(_, part)| std::cmp::Reverse(part.layout().dtype().bytes()));
        let header =
            Header::new(metadata, parts.iter().map(|(name, part)| (name.as_str(), part.layout())));
        if header.tensors.len() < parts.len() {
            let message = "two tensors have one name; name their modules apart".to_owned();
            return Err(CheckpointError::Format { path: path.to_owned(), message });
        }
        let mut file = WholeFile::create(path).map_err(of_file)?;
        file.write_all(&header.encode()).map_err(of_file)?;
        for (_, part) in parts {
            write(&mut file, runtime, part)?.map_err(of_file)?;
        }
        file.finish().map_err(of_file)
    }
}

/// Writes the elements of a tensor. The outer error is from the runtime, the inner error from the
/// file.
fn write(
    file: &mut WholeFile,
    runtime: &Runtime,
    part: Part<'_>,
) -> Result<io::Result<()>, CheckpointError> {
    let host = match part {
        Part::Device(tensor) => runtime.get(tensor)?,
        Part::Host(host) => host,
    };
    debug_assert!(host.dtype() != DType::Bool || host.as_bytes().iter().all(|&byte| byte < 2));
    Ok(file.write_all(host.as_bytes()))
}
