use remat::Error;
use remat::data::DataError;
use remat::device::DeviceError;
use remat::error::RuntimeError;
use std::fmt;

/// The exit code that shells use for "interrupted by Ctrl-C".
pub const INTERRUPTED: u8 = 130;

/// The exit code where all was done but for a file beside the work.
const BESIDE: u8 = 3;

/// Why the program failed.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// Something did not work.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// The arguments make no sense, or the budget is too small.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// Ctrl-C ended it: not an error, but not a success either.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, message: message.into() }
    }

    /// The work was done, and a file beside it could not be written.
    #[must_use]
    pub fn beside(self) -> Self {
        Self { code: BESIDE, ..self }
    }

    /// Both: what came first counts.
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
            // A network does not take data or batches of such sizes.
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
