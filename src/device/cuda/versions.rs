//! Which of NVIDIA's libraries are there.

#![allow(unsafe_code)]

use cudarc::{cublas, cudnn, nvrtc};

/// A library that is found at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// As its maker calls it.
    pub name: &'static str,
    /// Such as `12.8.4`. `None`: it was not found.
    pub version: Option<String>,
}

/// NVRTC, cuBLAS and cuDNN, as they would be used. Needs no device.
#[must_use]
pub fn libraries() -> [Library; 3] {
    [("NVRTC", of_nvrtc()), ("cuBLAS", of_cublas()), ("cuDNN", of_cudnn())]
        .map(|(name, version)| Library { name, version })
}

fn of_nvrtc() -> Option<String> {
    let [mut major, mut minor] = [0; 2];
    // SAFETY: loading a library runs its initializers; NVRTC's have no preconditions.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return None;
    }
    // SAFETY: the library is there, and writes integers to places that outlive the call.
    let _ = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    Some(format!("{major}.{minor}"))
}

fn of_cublas() -> Option<String> {
    use cublas::sys::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    // SAFETY: as for NVRTC.
    if !unsafe { cublas::sys::is_culib_present() } {
        return None;
    }
    let [major, minor, patch] = [MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL].map(|property| {
        let mut part = 0;
        // SAFETY: as for NVRTC.
        let _ = unsafe { cublas::sys::cublasGetProperty(property, &raw mut part) };
        part
    });
    Some(format!("{major}.{minor}.{patch}"))
}

fn of_cudnn() -> Option<String> {
    // SAFETY: as for NVRTC. The version is a number, and nothing else is touched.
    unsafe { cudnn::sys::is_culib_present().then(|| cudnn::sys::cudnnGetVersion()) }.map(dotted)
}

/// cuDNN tells 9.10.2 as 91002, and 8.9.7 as 8907.
fn dotted(version: usize) -> String {
    let major = if version >= 10_000 { 10_000 } else { 1000 };
    format!("{}.{}.{}", version / major, version % major / 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_as_their_maker_writes_them() {
        assert_eq!(dotted(91_002), "9.10.2");
        assert_eq!(dotted(8907), "8.9.7");
    }

    #[test]
    fn libraries_are_looked_for_on_any_machine() {
        let found = libraries();
        println!("{found:?}");
        assert_eq!(found.map(|library| library.name), ["NVRTC", "cuBLAS", "cuDNN"]);
    }
}
