//! Compiles `shim`, which knows PyTorch's insides, against the PyTorch that is installed.

use std::process::Command;

/// Prints the include folder of Python, the folder of PyTorch, and PyTorch's version.
const ASK: &str = "\
import sysconfig, importlib.util, importlib.metadata
print(sysconfig.get_paths()['include'])
print(importlib.util.find_spec('torch').submodule_search_locations[0])
print(importlib.metadata.version('torch'))";

fn main() {
    // Maturin names the interpreter that it builds for.
    let python = std::env::var("PYO3_PYTHON").unwrap_or_else(|_| "python3".into());
    println!("cargo:rerun-if-env-changed=PYO3_PYTHON");
    let asked = Command::new(&python).args(["-c", ASK]).output();
    let asked = asked.unwrap_or_else(|error| panic!("{python}: {error}"));
    assert!(
        asked.status.success(),
        "{python} finds no PyTorch: install torch first, then build with `pip install --no-build-isolation`\n{}",
        String::from_utf8_lossy(&asked.stderr)
    );
    let answer = String::from_utf8(asked.stdout).expect("Python prints UTF-8");
    let [include, torch, version] = answer.lines().collect::<Vec<_>>()[..] else {
        panic!("{python} answered {answer:?}")
    };
    println!("cargo:rustc-env=REMAT_TORCH_VERSION={version}");
    println!("cargo:rerun-if-changed={torch}/version.py");
    println!("cargo:rerun-if-changed=shim");
    let files = [
        "allocator",
        "storages",
        "flags",
        "form",
        "operands",
        "sizes",
        "record",
        "dry_run",
        "interpreter",
        "dispatch",
    ];
    cc::Build::new()
        .cpp(true)
        .std("c++20")
        // The headers of PyTorch warn.
        .flag("-isystem")
        .flag(format!("{torch}/include"))
        .flag("-isystem")
        .flag(format!("{torch}/include/torch/csrc/api/include"))
        .include(include)
        .flag("-fvisibility=hidden")
        .define("NDEBUG", None)
        .opt_level(2)
        .debug(false)
        .files(files.map(|name| format!("shim/{name}.cpp")))
        .compile("shim");
    println!("cargo:rustc-link-search={torch}/lib");
    for library in ["torch_python", "torch_cpu", "c10"] {
        println!("cargo:rustc-link-lib=dylib={library}");
    }
}
