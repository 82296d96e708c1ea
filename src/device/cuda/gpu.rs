//! The device on which kernels run: one stream, one range of memory, and the loaded code.

#![allow(unsafe_code)]

use super::compile::{Compiler, Image};
use super::context::Context;
use super::driver::failed;
use super::fault::{Numbers, Report};
use super::kernels::Source;
use super::launch::{Kernel, Loaded, Ptr};
use super::libraries::Libraries;
use super::memory::{Memory, Span};
use crate::device::{DeviceError, Place};
use cudarc::driver::CudaStream;
use cudarc::driver::result;
use cudarc::driver::sys::{self, CUresult};
use rustc_hash::FxHashMap;
use std::collections::hash_map::Entry;
use std::ffi::CString;
use std::ops::Range;
use std::sync::Arc;

/// Key of a source: see [`key`].
type Key = (usize, usize, bool);

/// A device with its memory and its loaded code. A `Gpu` must be used on the thread that made it.
pub struct Gpu {
    /// Context, current on the calling thread.
    context: Context,
    /// Maps a source to its loaded module.
    modules: FxHashMap<Key, sys::CUmodule>,
    /// Maps a source and a kernel's name to the loaded kernel.
    functions: FxHashMap<(Key, &'static str), Loaded>,
    /// Number of the last launch that could report a fault, such as an invalid index. After an
    /// overflow, the numbers start again at 1.
    reports: u32,
    memory: Memory,
}

impl Gpu {
    /// Allocates `bytes` bytes of memory for tensors, and makes the context current on the calling
    /// thread.
    pub(super) fn new(context: Context, bytes: u64) -> Result<Self, DeviceError> {
        context.enter()?;
        let memory = Memory::new(context.events().clone(), bytes)?;
        Ok(Self {
            context,
            modules: FxHashMap::default(),
            functions: FxHashMap::default(),
            reports: 0,
            memory,
        })
    }

    /// The open GPU whose memory the device uses.
    pub(super) const fn context(&self) -> &Context {
        &self.context
    }

    /// Stream of the GPU, to record events in.
    pub(crate) const fn events(&self) -> &Arc<CudaStream> {
        self.context.events()
    }

    /// Stream of the GPU, as a handle for the driver.
    pub(crate) fn stream(&self) -> sys::CUstream {
        self.context.stream()
    }

    /// Handles of cuBLAS, and of cuDNN if it was found.
    pub(crate) const fn libraries(&self) -> &Arc<Libraries> {
        self.context.libraries()
    }

    /// Memory of the device.
    pub(crate) const fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Range of bytes from a tensor's first to its last element.
    pub(crate) fn range_of(&self, place: &Place) -> Result<Range<u64>, DeviceError> {
        let Place { storage, layout } = place;
        let element = layout.dtype().bytes() as u64;
        if !storage.is_multiple_of(element) {
            return Err(DeviceError::new(format!(
                "{layout} is at byte {storage}, which is not a multiple of {element} bytes, the size of an element"
            )));
        }
        let at =
            |elements: usize| storage.saturating_add((elements as u64).saturating_mul(element));
        let range = match layout.elements() {
            0 => *storage..*storage,
            _ => at(layout.offset())..at(layout.span()),
        };
        self.within(&range).map_err(|error| DeviceError::new(format!("{layout}: {error}")))?;
        Ok(range)
    }

    /// Fails unless a range of bytes lies within the memory.
    pub(crate) fn within(&self, range: &Range<u64>) -> Result<(), DeviceError> {
        let bytes = self.memory().all().bytes();
        if range.start <= range.end && range.end <= bytes {
            return Ok(());
        }
        let message = format!("bytes {range:?} are not within the {bytes} reserved bytes");
        Err(DeviceError::new(message))
    }

    /// Span of memory from a tensor's first to its last element.
    pub(crate) fn span_of(&self, place: &Place) -> Result<Span<'_>, DeviceError> {
        Ok(self.memory().all().part(self.range_of(place)?))
    }

    /// Span of memory for a range of offsets.
    ///
    /// # Panics
    /// Panics if the range reaches outside the memory.
    pub(crate) fn span(&self, range: Range<u64>) -> Span<'_> {
        self.memory().all().part(range)
    }

    /// Address of the tensor's first element.
    ///
    /// # Panics
    /// Panics if the tensor reaches outside the memory.
    pub(crate) fn first(&self, place: &Place) -> Ptr {
        let element = place.layout.dtype().bytes() as u64;
        let end = place.storage + place.layout.span() as u64 * element;
        self.span(place.storage..end).first().plus(place.layout.offset() as u64 * element)
    }

    /// Fills a contiguous tensor with zeros.
    pub(crate) fn zero(&self, place: &Place) -> Result<(), DeviceError> {
        self.memory().zero(self.span_of(place)?)
    }

    /// Makes a parameter for the next launch, through which the kernel reports numbers outside
    /// `0..limit`. `numbers` says what the numbers mean.
    pub(crate) fn report(&mut self, numbers: Numbers, limit: usize) -> Report {
        self.reports = self.reports.checked_add(1).unwrap_or(1);
        let fault = self.memory().faults().first();
        Report { fault, limit: limit as u64, numbers, launch: self.reports }
    }

    /// Loads a kernel. The first kernel of a source loads the whole source.
    pub(crate) fn function(&mut self, kernel: Kernel) -> Result<&Loaded, DeviceError> {
        match self.functions.entry((key(kernel.source), kernel.name)) {
            Entry::Occupied(found) => Ok(found.into_mut()),
            Entry::Vacant(place) => {
                let module = module(&mut self.modules, self.context.compiler(), kernel.source)?;
                let name =
                    CString::new(kernel.name).map_err(|e| DeviceError::new(e.to_string()))?;
                // SAFETY: the module was loaded by `module`, and is unloaded only when `self` is
                // dropped.
                let handle = unsafe { result::module::get_function(module, name) }
                    .map_err(|e| failed(kernel.name, e))?;
                Ok(place.insert(Loaded::new(handle)?))
            }
        }
    }
}

/// Key of a source: address and length of its text, and whether its kernels count in 64 bits. The
/// name is not part of the key, because two sources may have the same name.
fn key(source: Source) -> Key {
    (source.text.as_ptr().addr(), source.text.len(), source.wide)
}

/// Returns the module of a source, and loads the module if it is not loaded yet.
fn module(
    modules: &mut FxHashMap<Key, sys::CUmodule>,
    compiler: &Compiler,
    source: Source,
) -> Result<sys::CUmodule, DeviceError> {
    if let Some(&module) = modules.get(&key(source)) {
        return Ok(module);
    }
    let load = |image: &Image| {
        // SAFETY: the image is unchanged code from NVRTC. An image from a file is unchanged, too,
        // because the cache checks the digest of the file, and that no other user can write to the
        // file.
        unsafe { result::module::load_data(image.bytes().as_ptr().cast()) }
    };
    let module = load(&compiler.image(&source)?).or_else(|error| match error.0 {
        // The error means that the image kept on disk was made for another driver, so compile the
        // source again.
        CUresult::CUDA_ERROR_INVALID_IMAGE
        | CUresult::CUDA_ERROR_NO_BINARY_FOR_GPU
        | CUresult::CUDA_ERROR_INVALID_SOURCE
        | CUresult::CUDA_ERROR_INVALID_PTX => {
            compiler.forget(&source);
            load(&compiler.image(&source)?).map_err(|e| compiler.not_loaded(&source, e))
        }
        _ => Err(compiler.not_loaded(&source, error)),
    })?;
    modules.insert(key(source), module);
    Ok(module)
}

impl std::fmt::Debug for Gpu {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gpu").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Ignore a failure: a destructor cannot report it, and it has no consequences.
        let _ = self.context.enter();
        let _ = self.context.events().synchronize();
        for &module in self.modules.values() {
            // SAFETY: the module was loaded by `module`. The stream was synchronized above, so no
            // kernel of the module is running.
            let _ = unsafe { result::module::unload(module) };
        }
    }
}
