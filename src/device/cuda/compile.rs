//! From a kernel's source to code for one architecture: by NVRTC, once. The disk keeps it.

#![allow(unsafe_code)]

use super::kernels::{COMMON, Source};
use super::versions::{self, Version};
use crate::device::DeviceError;
use cudarc::nvrtc::{result, sys};
use etcetera::BaseStrategy as _;
use sha2::{Digest as _, Sha256};
use std::ffi::{CString, c_char};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Code for one architecture, ready for the driver.
#[derive(Debug)]
pub(super) struct Image(Vec<u8>);

impl Image {
    /// What the driver loads.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// Compiles for devices of one compute capability.
#[derive(Debug)]
pub(super) struct Compiler {
    /// Such as `sm_90`.
    architecture: String,
    /// Of NVRTC: another one may make better code.
    version: Version,
    /// `None`: there is no place to keep anything.
    folder: Option<PathBuf>,
}

impl Compiler {
    /// For devices of this compute capability. Code is kept in the user's cache folder: `REMAT_CACHE_DIR`,
    /// or `remat` where the system has such things.
    pub(super) fn new((major, minor): (u32, u32)) -> Result<Self, DeviceError> {
        let version = versions::nvrtc().ok_or_else(missing)?;
        let folder = std::env::var_os("REMAT_CACHE_DIR").map(PathBuf::from).or_else(|| {
            etcetera::choose_base_strategy().ok().map(|base| base.cache_dir().join("remat"))
        });
        let folder = folder.map(|folder| folder.join("kernels"));
        Ok(Self { architecture: format!("sm_{major}{minor}"), version, folder })
    }

    /// The code of a source: kept from before, or compiled now.
    pub(super) fn image(&self, source: &Source) -> Result<Image, DeviceError> {
        let kept = self.folder.as_ref().map(|folder| folder.join(self.file_name(source)));
        if let Some(image) = kept.as_ref().and_then(|path| std::fs::read(path).ok())
            && !image.is_empty()
        {
            return Ok(Image(image));
        }
        let image = compile(source, &self.architecture)?;
        if let Some(Err(error)) = kept.as_ref().map(|path| keep(path, &image)) {
            tracing::warn!(target: "remat", %error, source = source.name, "compiled code is not kept");
        }
        Ok(Image(image))
    }

    /// Forgets what is kept of a source: the driver could not read it.
    pub(super) fn forget(&self, source: &Source) {
        if let Some(folder) = &self.folder {
            let _ = std::fs::remove_file(folder.join(self.file_name(source)));
        }
    }

    fn file_name(&self, source: &Source) -> String {
        let mut hash = Sha256::new();
        for part in [COMMON, source.text, &OPTIONS.join(" "), &self.version.to_string()] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        let digits: String =
            hash.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{digits}-{}.cubin", source.name, self.architecture)
    }
}

/// Options but for the architecture.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Writes a file that is there as a whole or not at all, whoever else writes it at the same time.
fn keep(path: &Path, image: &[u8]) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    std::fs::create_dir_all(folder)?;
    // Threads of this process, and other processes, may be at it at the same time.
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let draft = path.with_extension(format!("{}-{number}.tmp", std::process::id()));
    let written = std::fs::write(&draft, image).and_then(|()| std::fs::rename(&draft, path));
    if written.is_err() {
        let _ = std::fs::remove_file(&draft);
    }
    written
}

/// Whether NVRTC is there.
pub(super) fn is_present() -> bool {
    // SAFETY: loading a library runs its initializers; NVRTC's have no preconditions.
    unsafe { sys::is_culib_present() }
}

fn missing() -> DeviceError {
    DeviceError::new(
        "NVRTC was not found, which compiles the kernels: the system has no libnvrtc.so.13 or \
         libnvrtc.so.12; install the CUDA toolkit, or the Python package nvidia-cuda-nvrtc with its \
         folder in LD_LIBRARY_PATH",
    )
}

/// Compiles a source for an architecture such as `sm_90`. Needs no device.
pub(super) fn compile(source: &Source, architecture: &str) -> Result<Vec<u8>, DeviceError> {
    if !is_present() {
        return Err(missing());
    }
    let failed = |error: result::NvrtcError| {
        DeviceError::new(format!("nvrtc: {} for {architecture}: {error}", source.name))
    };
    let wide = if source.wide { "#define WIDE\n" } else { "" };
    let text =
        CString::new(format!("{wide}{COMMON}\n#line 1 \"{}.cu\"\n{}", source.name, source.text))
            .map_err(|e| DeviceError::new(e.to_string()))?;
    let name = CString::new(format!("{}.cu", source.name)).unwrap_or_default();
    let program = result::create_program(&text, Some(&name)).map_err(failed)?;
    let mut options = OPTIONS.map(str::to_owned).to_vec();
    options.push(format!("--gpu-architecture={architecture}"));
    // SAFETY: the program was just made, and is destroyed below.
    let compiled = unsafe { result::compile_program(program, &options) };
    let image = compiled.and_then(|()| cubin(program)).map_err(|error| {
        // SAFETY: as above.
        let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        let log = String::from_utf8_lossy(&log);
        DeviceError::new(format!("{}\n{}", failed(error), log.trim()))
    });
    // SAFETY: made above, and used no more.
    let _ = unsafe { result::destroy_program(program) };
    image
}

fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the program is compiled; the size goes to a place that outlives the call.
    unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) }.result()?;
    let mut image = vec![0u8; size];
    // SAFETY: as many bytes as were asked for.
    unsafe { sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast::<c_char>()) }.result()?;
    Ok(image)
}
