//! Which of NVIDIA's libraries are there.

#![allow(unsafe_code)]

use cudarc::{cublas, cudnn, nvrtc};

/// A library that is looked for at run time.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Library {
    /// As its maker calls it.
    pub name: &'static str,
    /// Whether it was found.
    pub is_found: bool,
    /// Such as `12.8.4`. `None`: it does not say, or was not found.
    pub version: Option<String>,
}

/// NVRTC, cuBLAS and cuDNN, as they would be used. Needs no device.
#[must_use]
pub fn libraries() -> [Library; 3] {
    // SAFETY: loading a library runs its initializers; those of these have no preconditions.
    let [nvrtc, cublas, cudnn] = unsafe {
        [
            nvrtc::sys::is_culib_present(),
            cublas::sys::is_culib_present(),
            cudnn::sys::is_culib_present(),
        ]
    };
    [
        ("NVRTC", nvrtc, nvrtc.then(of_nvrtc)),
        ("cuBLAS", cublas, cublas.then(of_cublas)),
        ("cuDNN", cudnn, cudnn.then(of_cudnn)),
    ]
    .map(|(name, is_found, version)| Library { name, is_found, version: version.flatten() })
}

/// Whether a library that is there has a function. Calling one that is missed would be a panic, and who
/// only asks what there is should get an answer.
macro_rules! has {
    ($library:ident, $function:literal) => {{
        type Function = unsafe extern "C" fn();
        // SAFETY: the function is looked for, and not called.
        unsafe { $library::sys::culib().get::<Function>($function.to_bytes_with_nul()).is_ok() }
    }};
}

fn of_nvrtc() -> Option<String> {
    let [mut major, mut minor] = [0; 2];
    // SAFETY: the function is there, and writes to places that outlive the call.
    let told = has!(nvrtc, c"nvrtcVersion")
        .then(|| unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) });
    told.map(|_| format!("{major}.{minor}"))
}

fn of_cublas() -> Option<String> {
    use cublas::sys::libraryPropertyType_t::{MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL};
    has!(cublas, c"cublasGetProperty").then(|| {
        let parts = [MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL].map(|property| {
            let mut part = 0;
            // SAFETY: as for NVRTC.
            let _ = unsafe { cublas::sys::cublasGetProperty(property, &raw mut part) };
            part.to_string()
        });
        parts.join(".")
    })
}

fn of_cudnn() -> Option<String> {
    // SAFETY: the function is there, and only gives a number.
    has!(cudnn, c"cudnnGetVersion").then(|| dotted(unsafe { cudnn::sys::cudnnGetVersion() }))
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
