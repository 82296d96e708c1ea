use remat::Error;
use remat::data::DataError;
use remat::device::DeviceError;
use remat::error::RuntimeError;
use std::fmt;

/// Exit code of shells for "interrupted by Ctrl-C".
pub const INTERRUPTED: u8 = 130;

/// Exit code of a run that did its work, but could not write another file.
const BESIDE: u8 = 3;

/// Reason why the program failed, with an exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure of the work: exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// A failure of the arguments, or too small a budget: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// The end of a run by Ctrl-C: not an error, but not a success either.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, message: message.into() }
    }

    /// Turns the failure into that of a run that did its work, but could not write another file.
    #[must_use]
    pub fn beside(self) -> Self {
        Self { code: BESIDE, ..self }
    }

    /// Both failures: the messages of both, and the exit code of the first.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self { message: format!("{}\n{}", self.message, other.message), ..self }
    }

    /// The exit code of the program.
    pub const fn code(&self) -> u8 {
        self.code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            // The network does not take data or batches of these sizes.
            Error::Op(_) => Self::usage(message),
            Error::Runtime(e) if matches!(*e, RuntimeError::Settings(_)) => Self::usage(message),
            error if error.is_of_memory() => Self::usage(message),
            _ => Self::new(message),
        }
    }
}

impl From<DeviceError> for Failure {
    fn from(error: DeviceError) -> Self {
        Self::new(error.to_string())
    }
}

impl From<DataError> for Failure {
    fn from(error: DataError) -> Self {
        match error {
            DataError::Description(_) => Self::usage(error.to_string()),
            _ => Self::new(format!("data: {error}")),
        }
    }
}
