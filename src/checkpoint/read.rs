use super::convert::{self, convert};
use super::error::Difference;
use super::names::Names;
use super::open::{DataFile, Opened, Place};
use super::{CheckpointError, OPTIMIZER, keys, rule_name, state_name};
use crate::host::HostTensor;
use crate::layout::{DType, Dims, Layout};
use crate::nn::{Module, State, parameters, state};
use crate::ops::Tensor;
use crate::optim::Optimizer;
use crate::runtime::Runtime;
use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// A checkpoint whose headers were read and found valid. The elements of the tensors have not been
/// read yet.
///
/// ```
/// use remat::checkpoint::{Checkpoint, Writer};
/// use remat::nn::Linear;
/// use remat::prelude::*;
///
/// let runtime = Runtime::builder().budget("1MiB").cpu()?;
/// # let path = format!("remat-read-{}.safetensors", std::process::id());
/// # let path = std::env::temp_dir().join(path);
/// Writer::of(&mut Linear::new(&runtime, 4, 2)?).save(&runtime, &path)?;
/// let names: Vec<String> =
///     Checkpoint::open(&path)?.tensors().map(|(name, _)| name.to_owned()).collect();
/// assert_eq!(names, ["bias", "weight"]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok::<(), remat::checkpoint::CheckpointError>(())
/// ```
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    files: Vec<DataFile>,
    metadata: BTreeMap<String, String>,
    tensors: BTreeMap<String, Place>,
    /// Original names of the tensors that [`Checkpoint::named`] left out.
    skipped: Vec<String>,
    ties: Vec<Tie>,
    converts: bool,
}

/// A tensor that must be equal to another tensor of the file.
#[derive(Debug)]
struct Tie {
    name: String,
    place: Place,
    of: &'static str,
}

/// Result of comparing a file with a network that can load the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Fit {
    /// Number of tensors of the network.
    pub tensors: usize,
    /// Conversions of tensors with another type in the file: one entry for each pair of types.
    pub conversions: Vec<Conversion>,
}

/// Conversion of the elements of some tensors from one type to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Conversion {
    /// The type in the file.
    pub from: DType,
    /// The type in the network.
    pub to: DType,
    /// Number of tensors.
    pub tensors: usize,
}

impl Conversion {
    /// Whether elements may be rounded, because the type in the network lacks some numbers of the
    /// type in the file.
    #[must_use]
    pub fn rounds(&self) -> bool {
        convert::rounds(self.from, self.to)
    }
}

/// Name of an unused buffer of PyTorch networks: the number of batches that a batch norm saw.
const NEEDLESS: &str = "num_batches_tracked";

/// Number of bytes that are read at a time to convert or compare elements.
const CHUNK: usize = 1 << 16;

impl Checkpoint {
    /// Reads the header of a safetensors file, of this crate or another library. For an index
    /// (`*.safetensors.index.json`), reads the headers of all listed files. For a folder, reads
    /// `model.safetensors` or its index.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, CheckpointError};
    ///
    /// # let path = format!("remat-open-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// std::fs::write(&path, "no safetensors").unwrap();
    /// assert!(matches!(Checkpoint::open(&path), Err(CheckpointError::Format { .. })));
    /// # std::fs::remove_file(path).unwrap();
    /// ```
    ///
    /// # Errors
    /// - If a file cannot be read, is not a safetensors file, is incomplete, or is a checkpoint of
    ///   another version.
    /// - If an index lists files outside its folder, or two files have a tensor with the same name.
    /// - If the checkpoint has more than 262,144 tensors or 1,024 files, or headers of more than 32
    ///   MiB.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        let path = path.as_ref().to_owned();
        let Opened { files, metadata, tensors } = Opened::read(&path)?;
        let (skipped, ties) = (Vec::new(), Vec::new());
        Ok(Self { path, files, metadata, tensors, skipped, ties, converts: false })
    }

    /// Renames tensors from the names of another library to the names of this crate's network.
    /// Tensors of an optimizer keep their names.
    ///
    /// ```no_run
    /// use remat::checkpoint::{Checkpoint, Names};
    /// use remat::nn::{Gpt, gpt};
    /// use remat::prelude::*;
    ///
    /// let runtime = Runtime::builder().budget("1GiB").cpu()?;
    /// let mut network = gpt(&runtime, &Gpt::gpt2())?;
    /// let saved = Checkpoint::open("gpt2/model.safetensors")?.named(&Names::gpt2())?.convert();
    /// saved.load(&runtime, &mut network)?;
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if two tensors have the same name after renaming.
    pub fn named(mut self, names: &Names) -> Result<Self, CheckpointError> {
        let mut tensors = BTreeMap::new();
        let mut olds: BTreeMap<String, String> = BTreeMap::new();
        for (old, place) in std::mem::take(&mut self.tensors) {
            if old.starts_with(OPTIMIZER) {
                tensors.insert(old, place);
                continue;
            }
            if names.skips(&old) {
                self.skipped.push(old);
                continue;
            }
            match tensors.entry(names.renamed(&old)) {
                Slot::Vacant(slot) => {
                    olds.insert(slot.key().clone(), old);
                    slot.insert(place);
                }
                Slot::Occupied(slot) => {
                    let name = slot.key();
                    let other = olds.get(name).unwrap_or(name);
                    let message = format!("`{other}` and `{old}` are both renamed to `{name}`");
                    return Err(CheckpointError::Format { path: self.path, message });
                }
            }
        }
        for &(name, of) in names.ties() {
            let Some(place) = tensors.remove(name) else { continue };
            if tensors.contains_key(of) {
                self.skipped.push(olds.remove(name).unwrap_or_else(|| name.to_owned()));
                self.ties.push(Tie { name: name.to_owned(), place, of });
            } else {
                tensors.insert(of.to_owned(), place);
            }
        }
        Ok(Self { tensors, ..self })
    }

    /// Allows conversions of tensors from a float type to the network's float type: `f64`, `f32`,
    /// `f16` or `bf16`. [`Fit`] lists the conversions.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Embedding;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-convert-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let half = runtime.ones(&[4, 2])?.cast(DType::BF16)?;
    /// Writer::of(&mut Embedding::of(half)).save(&runtime, &path)?;
    /// let mut table = Embedding::of(runtime.zeros(&[4, 2])?);
    /// assert!(Checkpoint::open(&path)?.load(&runtime, &mut table).is_err());
    /// Checkpoint::open(&path)?.convert().load(&runtime, &mut table)?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [1.0; 8]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    #[must_use]
    pub const fn convert(mut self) -> Self {
        self.converts = true;
        self
    }

    /// Files of the checkpoint: a single file, or all files of the index.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.iter().map(|file| &*file.path)
    }

    /// Original names of the tensors that [`Checkpoint::named`] left out.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Names, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-skipped-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// Writer::of(&mut Linear::new(&runtime, 4, 2)?).save(&runtime, &path)?;
    /// let names = Names::new().skip("bias".parse().unwrap());
    /// let checkpoint = Checkpoint::open(&path)?.named(&names)?;
    /// assert_eq!(checkpoint.skipped().collect::<Vec<_>>(), ["bias"]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    pub fn skipped(&self) -> impl Iterator<Item = &str> {
        self.skipped.iter().map(String::as_str)
    }

    /// A text that was saved with [`Writer::with`](super::Writer::with).
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-get-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 4, 2)?;
    /// Writer::of(&mut layer).with("step", 100).save(&runtime, &path)?;
    /// let checkpoint = Checkpoint::open(&path)?;
    /// assert_eq!((checkpoint.get("step"), checkpoint.get("epoch")), (Some("100"), None));
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(String::as_str)
    }

    /// Names and layouts of all tensors. Names of the optimizer's tensors begin with `optimizer/`.
    /// The layout is `None` if this crate does not support the type.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-tensors-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// Writer::of(&mut Linear::new(&runtime, 4, 2)?).save(&runtime, &path)?;
    /// let checkpoint = Checkpoint::open(&path)?;
    /// let (name, layout) = checkpoint.tensors().last().unwrap();
    /// assert_eq!((name, layout.unwrap().to_string()), ("weight", "f32[2, 4]".to_owned()));
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    pub fn tensors(&self) -> impl Iterator<Item = (&str, Option<Layout>)> {
        self.tensors.iter().map(|(name, place)| (name.as_str(), place.entry.layout()))
    }

    /// Loads the parameters and buffers of the file into a module. `num_batches_tracked` of
    /// PyTorch's batch norms is left out.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Embedding;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-load-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// Writer::of(&mut Embedding::of(runtime.ones(&[2, 2])?)).save(&runtime, &path)?;
    /// let mut table = Embedding::new(&runtime, 2, 2)?;
    /// Checkpoint::open(&path)?.load(&runtime, &mut table)?;
    /// assert_eq!(table.weight().to_vec::<f32>()?, [1.0; 4]);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if names, types or shapes differ. The error lists all tensors that differ, and the
    /// module is unchanged.
    ///
    /// Also fails if the file cannot be read, a number is too large for its new type, or the
    /// runtime fails. After such an error, some tensors of the module may be new and others old.
    pub fn load(&self, runtime: &Runtime, module: &mut dyn Module) -> Result<(), CheckpointError> {
        self.fit(module)?;
        for tie in &self.ties {
            self.check_tie(tie)?;
        }
        let mut files = OpenFiles::of(self);
        for (name, state) in state(module) {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            *tensor = self.put(runtime, &mut files, &name, tensor.dtype())?;
        }
        Ok(())
    }

    /// Checks whether [`Checkpoint::load`] can load the file, and returns the conversions. The call
    /// changes neither the file nor the network.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-fit-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// Writer::of(&mut Linear::new(&runtime, 4, 2)?).save(&runtime, &path)?;
    /// let checkpoint = Checkpoint::open(&path)?;
    /// assert_eq!(checkpoint.fit(&mut Linear::new(&runtime, 4, 2)?)?.tensors, 2);
    /// assert!(checkpoint.fit(&mut Linear::new(&runtime, 4, 3)?).is_err());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if names, types or shapes differ. The error lists all tensors that differ.
    pub fn fit(&self, module: &mut dyn Module) -> Result<Fit, CheckpointError> {
        let layouts = state(module).into_iter().map(|(name, state)| {
            let (State::Parameter(tensor) | State::Buffer(tensor)) = state;
            (name, Layout::contiguous(tensor.dtype(), Dims::new(tensor.shape())))
        });
        let in_file = self.tensors.keys().map(String::as_str);
        self.compare(&layouts.collect(), in_file.filter(|name| !name.starts_with(OPTIMIZER)))
    }

    /// Loads the state of an optimizer for the parameters of a module. A parameter that has no
    /// state in the file counts as never updated.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Linear;
    /// use remat::optim::Optimizer;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-optim-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").cpu()?;
    /// let mut layer = Linear::new(&runtime, 4, 2)?;
    /// let mut sgd = Optimizer::sgd(0.1, 0.9, 0.0);
    /// # let tape = Tape::new(&runtime);
    /// # tape.watch(&mut layer);
    /// # let loss = layer.forward(&runtime.ones(&[1, 4])?, Mode::Train)?.sum()?;
    /// sgd.minimize(tape, &loss, &mut layer)?;
    /// Writer::of(&mut layer).optimizer(&sgd).save(&runtime, &path)?;
    /// let mut again = Optimizer::sgd(0.1, 0.9, 0.0);
    /// Checkpoint::open(&path)?.load_optimizer(&runtime, &mut layer, &mut again)?;
    /// assert_eq!(again.steps("weight"), 1);
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file has no optimizer, or an optimizer of another kind. Also fails as
    /// [`Checkpoint::load`] does.
    pub fn load_optimizer(
        &self,
        runtime: &Runtime,
        module: &mut dyn Module,
        optimizer: &mut Optimizer,
    ) -> Result<(), CheckpointError> {
        let rule = rule_name(optimizer.rule());
        let found = self.get(keys::RULE).unwrap_or("none");
        if found != rule {
            return Err(self.differs("the optimizer", found, rule));
        }
        let states = optimizer.rule().states();
        let all: Vec<(String, &mut Tensor)> = parameters(module).collect();
        let kept: Vec<&(String, &mut Tensor)> = (all.iter())
            .filter(|(name, _)| self.tensors.contains_key(&state_name(name, "step")))
            .collect();
        let mut layouts = BTreeMap::new();
        for (name, parameter) in &kept {
            let layout = Layout::contiguous(DType::F32, Dims::new(parameter.shape()));
            layouts.extend(states.iter().map(|state| (state_name(name, state), layout)));
            layouts.insert(state_name(name, "step"), Layout::contiguous(DType::I64, []));
        }
        let in_file = self.tensors.keys().map(String::as_str);
        self.compare(&layouts, in_file.filter(|name| name.starts_with(OPTIMIZER)))?;
        let mut files = OpenFiles::of(self);
        optimizer.forget();
        for (name, _) in kept {
            let steps = self.read(&mut files, &state_name(name, "step"), DType::I64)?;
            let steps = steps.as_slice::<i64>().and_then(|steps| steps.first().copied());
            let mut tensor =
                |state| self.put(runtime, &mut files, &state_name(name, state), DType::F32);
            let tensors = states.iter().map(|state| tensor(state)).collect::<Result<_, _>>()?;
            optimizer.remember(name, steps.and_then(|n| n.try_into().ok()).unwrap_or(0), tensors);
        }
        Ok(())
    }

    /// Continues the random numbers of the run that wrote the file.
    ///
    /// ```
    /// use remat::checkpoint::{Checkpoint, Writer};
    /// use remat::nn::Linear;
    /// use remat::prelude::*;
    ///
    /// # let path = format!("remat-random-{}.safetensors", std::process::id());
    /// # let path = std::env::temp_dir().join(path);
    /// let runtime = Runtime::builder().budget("1MiB").seed(1).cpu()?;
    /// Writer::of(&mut Linear::new(&runtime, 4, 2)?).save(&runtime, &path)?;
    /// let next = Runtime::builder().budget("1MiB").seed(1).cpu()?;
    /// Checkpoint::open(&path)?.load_random(&next)?;
    /// assert_eq!(next.random_position(), runtime.random_position());
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok::<(), remat::checkpoint::CheckpointError>(())
    /// ```
    ///
    /// # Errors
    /// Fails if the file does not contain the position of random numbers, or the runtime has
    /// another seed.
    pub fn load_random(&self, runtime: &Runtime) -> Result<(), CheckpointError> {
        let number = |key| self.get(key).and_then(|text| text.parse::<u64>().ok());
        let (Some(seed), Some(position)) = (number(keys::SEED), number(keys::RANDOM)) else {
            let message = "the file does not contain the position of random numbers".to_owned();
            return Err(CheckpointError::Format { path: self.path.clone(), message });
        };
        let (expected, _) = runtime.random_position();
        if seed != expected {
            return Err(self.differs("the seed", seed, expected));
        }
        runtime.set_random_position(position);
        Ok(())
    }

    /// Compares the tensors `in_file` with the layouts in `wanted`. The error lists all tensors
    /// that are missing, superfluous, or of another type or shape.
    fn compare<'a>(
        &'a self,
        wanted: &BTreeMap<String, Layout>,
        in_file: impl Iterator<Item = &'a str>,
    ) -> Result<Fit, CheckpointError> {
        let is_needless = |name: &str| name.rsplit('.').next() == Some(NEEDLESS);
        let has: BTreeSet<&str> =
            in_file.filter(|name| wanted.contains_key(*name) || !is_needless(name)).collect();
        let missing: Vec<String> =
            wanted.keys().filter(|name| !has.contains(name.as_str())).cloned().collect();
        let extra = has.iter().filter(|name| !wanted.contains_key(**name));
        let extra: Vec<String> = extra.map(|name| (*name).to_owned()).collect();
        let mut differing = Vec::new();
        let mut fit = Fit::default();
        for (name, expected) in wanted {
            let Some(Place { entry, .. }) = self.tensors.get(name) else { continue };
            let (from, to) = (entry.dtype(), expected.dtype());
            let same_shape = entry.shape() == &expected.shape()[..];
            let is_convertible = same_shape
                && from.is_some_and(|from| from != to && convert::is_float(from))
                && convert::is_float(to);
            match from {
                Some(from) if from == to && same_shape => fit.tensors += 1,
                Some(from) if is_convertible && self.converts => fit.add(from, to),
                _ => differing.push(Difference {
                    name: name.clone(),
                    found: entry.describe(),
                    expected: expected.to_string(),
                    is_convertible,
                }),
            }
        }
        if missing.is_empty() && extra.is_empty() && differing.is_empty() {
            return Ok(fit);
        }
        Err(CheckpointError::Tensors { path: self.path.clone(), missing, extra, differing })
    }

    /// Checks that a tied tensor equals the tensor to which it is tied.
    fn check_tie(&self, Tie { name, place, of }: &Tie) -> Result<(), CheckpointError> {
        let other = self.place(of)?;
        let is_alike = place.entry.describe() == other.entry.describe();
        if is_alike && self.is_same(place, other)? {
            return Ok(());
        }
        let found = match is_alike {
            true => format!("not `{of}`"),
            false => {
                format!("{}, but `{of}` is {}", place.entry.describe(), other.entry.describe())
            }
        };
        Err(self.differs(
            &format!("`{name}`"),
            found,
            "the same elements, because the network has one tensor for both",
        ))
    }

    /// Whether two tensors have the same bytes.
    fn is_same(&self, a: &Place, b: &Place) -> Result<bool, CheckpointError> {
        let [mut first, mut second] = [a, b].map(|_| OpenFiles::of(self));
        let [from, to] = a.entry.span();
        let mut left = to - from;
        let (a, b) = (first.at(a)?, second.at(b)?);
        let mut chunks = [vec![0; CHUNK], vec![0; CHUNK]];
        while left > 0 {
            let size = left.min(CHUNK as u64) as usize;
            let [x, y] = chunks.each_mut().map(|chunk| &mut chunk[..size]);
            a.read_exact(x).and_then(|()| b.read_exact(y)).map_err(|error| self.io(error))?;
            if x != y {
                return Ok(false);
            }
            left -= size as u64;
        }
        Ok(true)
    }

    pub(super) fn place(&self, name: &str) -> Result<&Place, CheckpointError> {
        self.tensors.get(name).ok_or_else(|| CheckpointError::Tensors {
            path: self.path.clone(),
            missing: vec![name.to_owned()],
            extra: Vec::new(),
            differing: Vec::new(),
        })
    }

    /// Path of the file, index or folder.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// All tensors by name.
    pub(super) const fn places(&self) -> &BTreeMap<String, Place> {
        &self.tensors
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

    fn io(&self, error: io::Error) -> CheckpointError {
        CheckpointError::Io { path: self.path.clone(), error }
    }

    /// Uploads a tensor of the file.
    fn put(
        &self,
        runtime: &Runtime,
        files: &mut OpenFiles<'_>,
        name: &str,
        dtype: DType,
    ) -> Result<Tensor, CheckpointError> {
        let tensor = runtime.put_leaf(self.read(files, name, dtype)?)?;
        runtime.label(&tensor, name)?;
        Ok(tensor)
    }

    /// Reads the elements of a tensor of the file, converted to `dtype`.
    fn read(
        &self,
        files: &mut OpenFiles<'_>,
        name: &str,
        dtype: DType,
    ) -> Result<HostTensor, CheckpointError> {
        let place = self.place(name)?;
        let entry = &place.entry;
        let stored = entry.dtype().ok_or_else(|| {
            self.differs(&format!("`{name}`"), entry.describe(), "a type that remat supports")
        })?;
        let file = files.at(place)?;
        let mut done = Ok(None);
        let host = HostTensor::written(dtype, Dims::new(entry.shape()), |bytes| {
            done = match stored == dtype {
                true => file.read_exact(bytes).map(|()| None),
                false => read_as(file, stored, dtype, bytes),
            };
        });
        if let Some(lost) = done.map_err(|error| self.io(error))? {
            let what = format!("an element of `{name}`");
            return Err(self.differs(
                &what,
                format!("{lost:e}"),
                format!("a value that {dtype} can hold"),
            ));
        }
        Ok(host.map_err(crate::Error::from)?)
    }
}

/// Reads and converts elements, chunk by chunk. Returns the first element that the new type cannot
/// hold.
fn read_as(file: &mut File, from: DType, to: DType, bytes: &mut [u8]) -> io::Result<Option<f64>> {
    let most = CHUNK / from.bytes();
    let mut chunk = vec![0; CHUNK];
    for bytes in bytes.chunks_mut(most * to.bytes()) {
        let stored = &mut chunk[..bytes.len() / to.bytes() * from.bytes()];
        file.read_exact(stored)?;
        if let Err(lost) = convert(from, stored, to, bytes) {
            return Ok(Some(lost));
        }
    }
    Ok(None)
}

impl Fit {
    fn add(&mut self, from: DType, to: DType) {
        self.tensors += 1;
        match self.conversions.iter_mut().find(|found| (found.from, found.to) == (from, to)) {
            Some(found) => found.tensors += 1,
            None => self.conversions.push(Conversion { from, to, tensors: 1 }),
        }
    }
}

/// The currently open file of a checkpoint.
struct OpenFiles<'a> {
    of: &'a Checkpoint,
    /// Index of the open file among the files of the checkpoint, and the file.
    open: Option<(usize, File)>,
}

impl<'a> OpenFiles<'a> {
    const fn of(of: &'a Checkpoint) -> Self {
        Self { of, open: None }
    }

    /// Opens the file of a tensor, at the tensor's first element.
    fn at(&mut self, place: &Place) -> Result<&mut File, CheckpointError> {
        let DataFile { path, start } = &self.of.files[place.file];
        let io = |error| CheckpointError::Io { path: path.clone(), error };
        if self.open.as_ref().is_none_or(|(file, _)| *file != place.file) {
            self.open = Some((place.file, File::open(path).map_err(io)?));
        }
        let (_, file) = self.open.as_mut().expect("it was opened");
        let [from, _] = place.entry.span();
        file.seek(SeekFrom::Start(start + from)).map_err(io)?;
        Ok(file)
    }
}
