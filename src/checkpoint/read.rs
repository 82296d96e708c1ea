use super::header::{Entry, Header};
use super::{CheckpointError, OPTIMIZER, VERSION, keys, rule_name, state_name};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout};
use crate::nn::{Module, State, parameters, state};
use crate::ops::Tensor;
use crate::optim::Optimizer;
use crate::runtime::Runtime;
use std::collections::BTreeSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// A file that was found to be whole, of which nothing but the header was read yet.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    header: Header,
    /// Where the elements begin.
    start: u64,
}

/// Something that a network of PyTorch has and needs for nothing: how many batches a batch norm saw.
const NEEDLESS: &str = "num_batches_tracked";

impl Checkpoint {
    /// Reads the header of a file, of this crate or another one that writes safetensors.
    ///
    /// # Errors
    /// If it cannot be read, is no safetensors file, is cut off, or is a checkpoint of another version.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref().to_owned();
        let read = || {
            let mut file = File::open(&path)?;
            let size = file.metadata()?.len();
            let mut start = [0; 8];
            if size < 8 {
                return Ok(Err(format!("it has {size} bytes: this is no safetensors file")));
            }
            file.read_exact(&mut start)?;
            let length = match Header::length(start, size) {
                Ok(length) => length,
                Err(message) => return Ok(Err(message)),
            };
            let mut text = vec![0; length as usize];
            file.read_exact(&mut text)?;
            let header = Header::decode(&text, size - 8 - length);
            Ok(header.map(|header| (header, 8 + length)))
        };
        let (header, start) = match read() {
            Err(error) => return Err(CheckpointError::Io { path, error }),
            Ok(Err(message)) => return Err(CheckpointError::Format { path, message }),
            Ok(Ok(found)) => found,
        };
        match header.metadata.get(keys::VERSION) {
            Some(found) if found != VERSION => {
                let found = found.clone();
                Err(CheckpointError::Version { path, found, known: VERSION })
            }
            _ => Ok(Self { path, header, start }),
        }
    }

    /// A text that was saved with [`Writer::with`](super::Writer::with).
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.header.metadata.get(name).map(String::as_str)
    }

    /// The names of all tensors in it, with their types and shapes; those of the optimizer begin with `optimizer/`. A type
    /// that this crate does not have is `None`.
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<Layout>)> {
        self.header.tensors.iter().map(|(name, entry)| (name.as_str(), entry.layout()))
    }

    /// Gives a module the parameters and buffers of the file. `num_batches_tracked` of PyTorch's batch norms is left out.
    ///
    /// # Errors
    /// If the names are not the same, or a type or shape differs: nothing has changed then. If the file cannot be read or
    /// the runtime fails, some tensors may be new and others old.
    pub fn load(&self, runtime: &Runtime, module: &mut dyn Module) -> Result<(), CheckpointError> {
        let found = state(module).into_iter().map(|(name, state)| match state {
            State::Parameter(tensor) | State::Buffer(tensor) => (name, tensor),
        });
        let found: Vec<(String, &mut Tensor)> = found.collect();
        let names: BTreeSet<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
        let in_file = self.header.tensors.keys().map(String::as_str);
        self.same_names(&names, in_file.filter(|name| !name.starts_with(OPTIMIZER)))?;
        for (name, tensor) in &found {
            self.fits(name, tensor.dtype(), tensor.shape())?;
        }
        let mut file = self.reopen()?;
        for (name, tensor) in found {
            *tensor = self.put(runtime, &mut file, &name)?;
        }
        Ok(())
    }

    /// Gives an optimizer what it kept for the parameters of a module. Where the file has nothing for a parameter, it was
    /// never updated.
    ///
    /// # Errors
    /// If the file is one without an optimizer, or of another kind of one; then as for [`Checkpoint::load`].
    pub fn load_optimizer(
        &self,
        runtime: &Runtime,
        module: &mut dyn Module,
        optimizer: &mut Optimizer,
    ) -> Result<(), CheckpointError> {
        let rule = rule_name(optimizer.rule());
        let found = self.get(keys::RULE).unwrap_or("none");
        if found != rule {
            return Err(self.differs("its optimizer", found, rule));
        }
        let states = optimizer.rule().states();
        let all: Vec<(String, &mut Tensor)> = parameters(module).collect();
        let kept: Vec<&(String, &mut Tensor)> = (all.iter())
            .filter(|(name, _)| self.header.tensors.contains_key(&state_name(name, "step")))
            .collect();
        let each = |name: &str| {
            let tensors = states.iter().map(|state| state_name(name, state)).collect::<Vec<_>>();
            [tensors, vec![state_name(name, "step")]].concat()
        };
        let names: Vec<String> = kept.iter().flat_map(|(name, _)| each(name)).collect();
        let names = names.iter().map(String::as_str).collect();
        let in_file = self.header.tensors.keys().map(String::as_str);
        self.same_names(&names, in_file.filter(|name| name.starts_with(OPTIMIZER)))?;
        for (name, parameter) in &kept {
            self.fits(&state_name(name, "step"), DType::I64, &[])?;
            for state in states {
                self.fits(&state_name(name, state), DType::F32, parameter.shape())?;
            }
        }
        let mut file = self.reopen()?;
        optimizer.forget();
        for (name, _) in kept {
            let steps = self.read(&mut file, &state_name(name, "step"))?;
            let steps = steps.as_slice::<i64>().and_then(|steps| steps.first().copied());
            let tensors =
                states.iter().map(|state| self.put(runtime, &mut file, &state_name(name, state)));
            let tensors = tensors.collect::<Result<_, _>>()?;
            optimizer.remember(name, steps.and_then(|n| n.try_into().ok()).unwrap_or(0), tensors);
        }
        Ok(())
    }

    /// Lets random numbers of a runtime go on where those of the run did that wrote the file.
    ///
    /// # Errors
    /// If the file does not say where, or the runtime has another seed.
    pub fn load_random(&self, runtime: &Runtime) -> Result<(), CheckpointError> {
        let number = |key| self.get(key).and_then(|text| text.parse::<u64>().ok());
        let (Some(seed), Some(position)) = (number(keys::SEED), number(keys::RANDOM)) else {
            let message = "it does not say where random numbers go on".to_owned();
            return Err(CheckpointError::Format { path: self.path.clone(), message });
        };
        let (expected, _) = runtime.random_position();
        if seed != expected {
            return Err(self.differs("its seed", seed, expected));
        }
        runtime.set_random_position(position);
        Ok(())
    }

    /// Fails if there are names in one of them alone.
    fn same_names<'a>(
        &'a self,
        wanted: &BTreeSet<&str>,
        in_file: impl Iterator<Item = &'a str>,
    ) -> Result<(), CheckpointError> {
        let is_needless = |name: &str| name.rsplit('.').next() == Some(NEEDLESS);
        let has: BTreeSet<&str> =
            in_file.filter(|name| wanted.contains(name) || !is_needless(name)).collect();
        let list = |names: &[&&str]| names.iter().map(|name| (**name).to_owned()).collect();
        let missing: Vec<&&str> = wanted.iter().filter(|name| !has.contains(*name)).collect();
        let extra: Vec<&&str> = has.iter().filter(|name| !wanted.contains(*name)).collect();
        if missing.is_empty() && extra.is_empty() {
            return Ok(());
        }
        let (path, missing, extra) = (self.path.clone(), list(&missing), list(&extra));
        Err(CheckpointError::Names { path, missing, extra })
    }

    /// Fails unless the file's tensor is of this type and shape.
    fn fits(&self, name: &str, dtype: DType, shape: &[usize]) -> Result<(), CheckpointError> {
        let expected = Layout::contiguous(dtype, Dims::new(shape));
        let entry = self.entry(name)?;
        match entry.layout() {
            Some(found) if found == expected => Ok(()),
            _ => Err(self.differs(&format!("`{name}`"), entry.describe(), expected)),
        }
    }

    fn entry(&self, name: &str) -> Result<&Entry, CheckpointError> {
        self.header.tensors.get(name).ok_or_else(|| CheckpointError::Names {
            path: self.path.clone(),
            missing: vec![name.to_owned()],
            extra: Vec::new(),
        })
    }

    fn differs(
        &self,
        what: &str,
        found: impl ToString,
        expected: impl ToString,
    ) -> CheckpointError {
        CheckpointError::Differs {
            path: self.path.clone(),
            what: what.to_owned(),
            found: found.to_string(),
            expected: expected.to_string(),
        }
    }

    fn reopen(&self) -> Result<File, CheckpointError> {
        File::open(&self.path).map_err(|error| self.io(error))
    }

    fn io(&self, error: std::io::Error) -> CheckpointError {
        CheckpointError::Io { path: self.path.clone(), error }
    }

    /// A tensor of the file, on its way to the device.
    fn put(
        &self,
        runtime: &Runtime,
        file: &mut File,
        name: &str,
    ) -> Result<Tensor, CheckpointError> {
        let tensor = runtime.put_leaf(self.read(file, name)?)?;
        runtime.label(&tensor, name)?;
        Ok(tensor)
    }

    /// The elements of a tensor of the file.
    fn read(&self, file: &mut File, name: &str) -> Result<HostTensor, CheckpointError> {
        let entry = self.entry(name)?;
        let layout = entry.layout().ok_or_else(|| {
            self.differs(&format!("`{name}`"), entry.describe(), "a type of this crate")
        })?;
        let [from, _] = entry.span();
        file.seek(SeekFrom::Start(self.start + from)).map_err(|error| self.io(error))?;
        let mut done = Ok(());
        let host = HostTensor::written(layout.dtype(), *layout.shape(), |bytes| {
            done = file.read_exact(bytes);
        });
        done.map_err(|error| self.io(error))?;
        Ok(host.map_err(crate::Error::from)?)
    }
}
