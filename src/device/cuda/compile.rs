//! Compilation of a kernel's source for one architecture by NVRTC. The compiled code is kept on
//! disk.

#![allow(unsafe_code)]

use super::cache::Cache;
use super::driver::{driver_version, failed};
use super::kernels::{COMMON, Source};
use super::libraries::too_new;
use super::versions::{self, Version};
use crate::device::DeviceError;
use cudarc::driver::DriverError;
use cudarc::driver::sys::CUresult;
use cudarc::nvrtc::{result, sys};
use etcetera::BaseStrategy as _;
use sha2::{Digest as _, Sha256};
use std::ffi::{CString, c_char};
use std::path::PathBuf;

/// Compiled code for one architecture, which the driver can load.
#[derive(Debug)]
pub(super) struct Image(Vec<u8>);

impl Image {
    /// Bytes that the driver loads.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A compiler for devices of one compute capability.
#[derive(Debug)]
pub(super) struct Compiler {
    /// Architecture such as `sm_90`, or `compute_90` for PTX that the driver compiles further.
    architecture: String,
    /// Version of NVRTC. The version is part of the file name, so that code from another version,
    /// which may be worse, is not reused.
    version: Version,
    kept: Cache,
}

impl Compiler {
    /// Makes a compiler for devices of the given compute capability. Code is kept in the folder
    /// `REMAT_CACHE_DIR`, or in `remat` in the system's folder for caches.
    pub(super) fn new(capability: (u32, u32)) -> Result<Self, DeviceError> {
        let version = versions::nvrtc().ok_or_else(missing)?;
        let architecture = architecture(capability, &known()?).ok_or_else(|| {
            let (major, minor) = capability;
            DeviceError::new(format!(
                "NVRTC {version} cannot compile for compute capability {major}.{minor} or older; put the folder of \
                 another libnvrtc.so first in LD_LIBRARY_PATH"
            ))
        })?;
        let folder = std::env::var_os("REMAT_CACHE_DIR").map(PathBuf::from).or_else(|| {
            etcetera::choose_base_strategy().ok().map(|base| base.cache_dir().join("remat"))
        });
        let kept = Cache::open(folder.map(|folder| folder.join("kernels")));
        Ok(Self { architecture, version, kept })
    }

    /// Returns the code of a source: the image kept on disk, or a newly compiled image.
    pub(super) fn image(&self, source: &Source) -> Result<Image, DeviceError> {
        let name = self.file_name(source);
        if let Some(image) = self.kept.get(&name) {
            return Ok(Image(image));
        }
        let image = compile(source, &self.architecture)?;
        self.kept.keep(&name, &image);
        Ok(Image(image))
    }

    /// Removes the kept image of a source. The caller found that the driver cannot read the image.
    pub(super) fn forget(&self, source: &Source) {
        self.kept.forget(&self.file_name(source));
    }

    /// Makes the error of a source whose image the driver does not load. The error tells if NVRTC is
    /// too new for the driver.
    pub(super) fn not_loaded(&self, source: &Source, error: DriverError) -> DeviceError {
        let why = driver_version().map(|driver| self.too_new(error.0, driver)).unwrap_or_default();
        DeviceError::new(format!("{}{why}", failed(source.name, error)))
    }

    /// End of the error `error` of a driver that supports CUDA up to version `driver`; empty if the
    /// version of NVRTC is not the reason.
    fn too_new(&self, error: CUresult, driver: (u32, u32)) -> String {
        use CUresult::*;
        let Version(major, minor, _) = self.version;
        let (newest, newest_minor) = driver;
        match error {
            // A driver loads the machine code of any NVRTC of its major version, but no PTX of a
            // newer NVRTC.
            CUDA_ERROR_UNSUPPORTED_PTX_VERSION if major == newest => format!(
                "; NVRTC is for CUDA {major}.{minor}, but the driver supports CUDA up to {newest}.{newest_minor}: put \
                 the folder of an older libnvrtc.so first in LD_LIBRARY_PATH, or update the driver"
            ),
            CUDA_ERROR_INVALID_IMAGE
            | CUDA_ERROR_NO_BINARY_FOR_GPU
            | CUDA_ERROR_INVALID_SOURCE
            | CUDA_ERROR_INVALID_PTX
            | CUDA_ERROR_UNSUPPORTED_PTX_VERSION => too_new("libnvrtc", self.version, driver),
            _ => String::new(),
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
        let wide = if source.wide { "_wide" } else { "" };
        format!("{}{wide}-{digits}-{}", source.name, self.architecture)
    }
}

/// Compiler options, without the architecture.
const OPTIONS: [&str; 1] = ["--std=c++17"];

/// Architectures for which NVRTC can compile, as numbers such as 90.
pub(super) fn known() -> Result<Vec<u32>, DeviceError> {
    let asked = || -> Result<_, result::NvrtcError> {
        let mut count = 0;
        // SAFETY: NVRTC writes one integer to `count`, which outlives the call.
        unsafe { sys::nvrtcGetNumSupportedArchs(&raw mut count) }.result()?;
        let mut known = vec![0; usize::try_from(count).unwrap_or(0)];
        // SAFETY: the call above returned `count`, the number of integers that NVRTC writes, and
        // `known` has `count` elements.
        unsafe { sys::nvrtcGetSupportedArchs(known.as_mut_ptr()) }.result()?;
        Ok(known.into_iter().filter_map(|number| u32::try_from(number).ok()).collect())
    };
    asked().map_err(|error| {
        DeviceError::new(format!(
            "nvrtc does not say which GPU architectures it compiles for: {error}"
        ))
    })
}

/// Architecture to compile for. The first choice is code for the device's architecture. If NVRTC
/// does not know the device's architecture, the function takes an earlier architecture of the same
/// generation, whose code the device can also run. The second choice is PTX for an earlier
/// generation, which the driver compiles. Returns `None` if NVRTC supports later architectures
/// only.
fn architecture((major, minor): (u32, u32), known: &[u32]) -> Option<String> {
    let newest = known.iter().copied().filter(|&number| number <= 10 * major + minor).max()?;
    let kind = if newest / 10 == major { "sm" } else { "compute" };
    Some(format!("{kind}_{newest}"))
}

/// Whether NVRTC can be loaded.
pub(super) fn is_present() -> bool {
    // SAFETY: loading a library runs its initializers, and the initializers of NVRTC have no
    // preconditions.
    unsafe { sys::is_culib_present() }
}

fn missing() -> DeviceError {
    DeviceError::new(
        "NVRTC, which compiles the kernels, was not found: the system has no libnvrtc.so.13 or libnvrtc.so.12; \
         install the CUDA toolkit, or the Python package nvidia-cuda-nvrtc with its \
         folder in LD_LIBRARY_PATH",
    )
}

/// Compiles a source for an architecture such as `sm_90`, or to PTX for an architecture such as
/// `compute_90`. Compiling needs no device.
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
    // SAFETY: the program was just made, and is not destroyed before the end of this function.
    let compiled = unsafe { result::compile_program(program, &options) };
    let take = if architecture.starts_with("sm_") { cubin } else { ptx };
    let image = compiled.and_then(|()| take(program)).map_err(|error| {
        // SAFETY: the program was made above, and is not destroyed before the end of this function.
        let log = unsafe { result::get_program_log(program) }.unwrap_or_default();
        let log: Vec<u8> = log.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
        let log = String::from_utf8_lossy(&log);
        DeviceError::new(format!("{}\n{}", failed(error), log.trim()))
    });
    // SAFETY: the program was made above, and is not used again.
    let _ = unsafe { result::destroy_program(program) };
    image
}

fn cubin(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    let mut size = 0;
    // SAFETY: the caller passes a compiled program; NVRTC writes one size to `size`, which outlives
    // the call.
    unsafe { sys::nvrtcGetCUBINSize(program, &raw mut size) }.result()?;
    let mut image = vec![0u8; size];
    // SAFETY: the call above returned `size`, the number of bytes that NVRTC writes, and `image`
    // has `size` bytes.
    unsafe { sys::nvrtcGetCUBIN(program, image.as_mut_ptr().cast::<c_char>()) }.result()?;
    Ok(image)
}

/// PTX of a compiled program, with a 0 at its end.
fn ptx(program: sys::nvrtcProgram) -> Result<Vec<u8>, result::NvrtcError> {
    // SAFETY: the caller passes a compiled program.
    let text = unsafe { result::get_ptx(program) }?;
    Ok(text.into_iter().map(|c| c as u8).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_for_the_device_or_for_the_driver_to_make() {
        let known = [75, 80, 86, 90, 100];
        for (capability, expected) in [
            ((7, 5), Some("sm_75")),
            ((8, 9), Some("sm_86")),
            ((9, 0), Some("sm_90")),
            ((10, 3), Some("sm_100")),
            ((12, 0), Some("compute_100")),
            ((7, 0), None),
        ] {
            assert_eq!(architecture(capability, &known).as_deref(), expected, "{capability:?}");
        }
        assert_eq!(architecture((9, 0), &[]), None);
    }
    #[test]
    fn an_nvrtc_that_is_too_new_for_the_driver_is_told() {
        let version = Version(12, 9, 0);
        let compiler = Compiler { architecture: "sm_90".into(), version, kept: Cache::open(None) };
        let told = |error, driver| compiler.too_new(error, driver);
        let [image, ptx] =
            [CUresult::CUDA_ERROR_INVALID_IMAGE, CUresult::CUDA_ERROR_UNSUPPORTED_PTX_VERSION];
        for error in [image, ptx] {
            assert!(told(error, (11, 8)).contains("up to 11.8: put the folder of libnvrtc.so.11"));
        }
        assert!(
            told(ptx, (12, 4)).starts_with("; NVRTC is for CUDA 12.9, but the driver supports")
        );
        assert_eq!(told(image, (12, 4)), "");
        assert_eq!(told(image, (13, 0)), "");
        assert_eq!(told(CUresult::CUDA_ERROR_OUT_OF_MEMORY, (11, 8)), "");
    }
}
