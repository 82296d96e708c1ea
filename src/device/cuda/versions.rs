//! Versions of NVIDIA's libraries on this system.

#![allow(unsafe_code)]

use cudarc::{cublas, cudnn, nvrtc};
use std::fmt;

/// A library that is found at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// Product name of the library.
    pub name: &'static str,
    /// Version such as `12.8.4`. `None` if the library was not found.
    pub version: Option<String>,
}

/// NVRTC, cuBLAS and cuDNN, with the versions that a device would use. This function loads the
/// libraries, and needs neither a driver nor a device.
#[must_use]
pub fn libraries() -> [Library; 3] {
    // NVRTC does not report its patch level.
    let nvrtc = nvrtc().map(|Version(major, minor, _)| format!("{major}.{minor}"));
    let [cublas, cudnn] = [cublas(), cudnn()].map(|version| version.map(|v| v.to_string()));
    [("NVRTC", nvrtc), ("cuBLAS", cublas), ("cuDNN", cudnn)]
        .map(|(name, version)| Library { name, version })
}

/// Major, minor, patch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version(pub u32, pub u32, pub u32);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Version of NVRTC, the compiler of the kernels; `None` if NVRTC is not found.
pub(super) fn nvrtc() -> Option<Version> {
    // SAFETY: loading a library runs its initializers, and the initializers of NVRTC have no
    // preconditions.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return None;
    }
    let [mut major, mut minor] = [0; 2];
    // SAFETY: NVRTC writes two integers to `major` and `minor`, which outlive the call.
    unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) }.result().ok()?;
    Some(Version(major.unsigned_abs(), minor.unsigned_abs(), 0))
}

/// Version of cuBLAS, for matrix products; `None` if cuBLAS is not found.
pub(super) fn cublas() -> Option<Version> {
    use cublas::sys::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    // SAFETY: loading a library runs its initializers, and the initializers of cuBLAS have no
    // preconditions.
    if !unsafe { cublas::sys::is_culib_present() } {
        return None;
    }
    let part = |which| {
        let mut value = 0;
        // SAFETY: cuBLAS writes one integer to `value`, which outlives the call.
        unsafe { cublas::sys::cublasGetProperty(which, &raw mut value) }.result().ok()?;
        Some(value.unsigned_abs())
    };
    Some(Version(part(MAJOR_VERSION)?, part(MINOR_VERSION)?, part(PATCH_LEVEL)?))
}

/// Version of cuDNN, for convolutions; `None` if cuDNN is not found.
pub(super) fn cudnn() -> Option<Version> {
    // SAFETY: loading a library runs its initializers, and the initializers of cuDNN have no
    // preconditions.
    if !unsafe { cudnn::sys::is_culib_present() } {
        return None;
    }
    Some(cudnn_version(u32::try_from(cudnn::result::get_version()).unwrap_or(0)))
}

/// Decodes cuDNN's version number. In this number, the major version is multiplied by 1000 up to
/// version 8, and by 10000 from version 9 on.
const fn cudnn_version(number: u32) -> Version {
    let major = if number < 90_000 { 1_000 } else { 10_000 };
    Version(number / major, number % major / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_their_maker_writes_them() {
        assert_eq!(cudnn_version(91_002).to_string(), "9.10.2");
        assert_eq!(cudnn_version(90_100).to_string(), "9.1.0");
        assert_eq!(cudnn_version(8_907).to_string(), "8.9.7");
    }

    #[test]
    fn libraries_are_looked_for_on_any_machine() {
        let found = libraries();
        println!("{found:?}");
        assert_eq!(found.map(|library| library.name), ["NVRTC", "cuBLAS", "cuDNN"]);
    }
}
