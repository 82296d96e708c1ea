//! `PyTorch` under a memory budget: each operator that a program calls becomes a command of remat.
//!
//! | file | contents |
//! |---|---|
//! | `shim/dispatch.cpp` | the way of a call from PyTorch's dispatcher to the engine |
//! | `shim/interpreter.cpp` | PyTorch's table of the Python interpreter, with a replaced `dispatch` |
//! | `shim/form.cpp` | facts about an operator, from its schema |
//! | `shim/operands.cpp` | the tensors among the arguments of a call |
//! | `shim/sizes.cpp` | bytes and work of an op, known before it runs |
//! | `shim/record.cpp` | a call that can be made again with the same bits |
//! | `shim/flags.cpp` | settings of the process on which results depend |
//! | `shim/storages.cpp` | the table of bytes, and the storages that hold them |
//! | `shim/dry_run.cpp` | ops that compute nothing, for `remat.suggest` |
//! | `shim/allocator.cpp` | PyTorch's way to [`heap`] |
//! | [`session`] | from calls to commands of remat |
//! | [`python`] | the class `Session` of the package |
//! | [`heap`] | memory of tensors on the CPU, which follows the budget |
//! | [`suggest`] | budgets that a recorded run would pass in |
//! | [`warnings`] | warnings of remat as Python's warnings |
//! | [`device`] | the table as a device of remat |
//! | [`op`] | operators as ops of remat |
//! | [`ffi`] | functions of the shim |

mod device;
mod ffi;
mod heap;
mod op;
mod python;
mod session;
mod suggest;
mod warnings;

use pyo3::prelude::*;

#[pymodule]
mod _remat {
    #[pymodule_export]
    use crate::python::{OutOfMemory, Session};
    #[pymodule_export]
    use crate::suggest::replays;
    use pyo3::prelude::*;

    /// Version of PyTorch that this module was built against.
    #[pymodule_export]
    const TORCH: &str = env!("REMAT_TORCH_VERSION");

    /// Version of remat.
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");

    #[pymodule_init]
    #[allow(clippy::unnecessary_wraps, reason = "the signature that PyO3 wants")]
    fn init(_module: &Bound<'_, PyModule>) -> PyResult<()> {
        // SAFETY: the module is initialized once, under Python's lock.
        unsafe { crate::ffi::rm_install() };
        crate::warnings::install();
        Ok(())
    }
}
