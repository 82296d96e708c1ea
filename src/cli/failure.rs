use remat::Error;
use remat::data::DataError;
use remat::device::DeviceError;
use remat::error::RuntimeError;
use std::fmt;

/// Exit code of a program that Ctrl-C ended, as shells define it.
pub const INTERRUPTED: u8 = 130;

/// Exit code of a run that did its work, but could not write a secondary file such as `--json`.
const BESIDE: u8 = 3;

/// Reason why the program failed, with an exit code.
#[derive(Debug)]
pub struct Failure {
    code: u8,
    message: String,
}

impl Failure {
    /// A failure of a file, the device or the training: exit code 1.
    pub fn new(message: impl Into<String>) -> Self {
        Self { code: 1, message: message.into() }
    }

    /// A failure because of invalid arguments or a budget that is too small: exit code 2.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { code: 2, message: message.into() }
    }

    /// The end of a run by Ctrl-C: exit code 130.
    pub fn interrupted(message: impl Into<String>) -> Self {
        Self { code: INTERRUPTED, message: message.into() }
    }

    /// A failure of all ranks of a training.
    pub fn of_all(code: u8, message: String) -> Self {
        Self { code, message }
    }

    /// Empties the message unless this rank prints it (`tells`). No empty message is printed.
    #[must_use]
    pub fn told_by(self, tells: bool) -> Self {
        let message = if tells { self.message } else { String::new() };
        Self { message, ..self }
    }

    /// Puts the place of the failure before its message.
    #[must_use]
    pub fn at(self, place: &str) -> Self {
        Self { message: format!("{place}: {}", self.message), ..self }
    }

    /// Whether another rank prints the message of this failure.
    pub const fn is_told(&self) -> bool {
        self.message.is_empty()
    }

    /// Gives the failure exit code 3: the run did its work, but could not write a secondary file
    /// such as `--json`.
    #[must_use]
    pub fn beside(self) -> Self {
        Self { code: BESIDE, ..self }
    }

    /// Joins two failures: the messages of both, and the exit code of `self`.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let message = match self.is_told() {
            true => other.message,
            false => format!("{}\n{}", self.message, other.message),
        };
        Self { message, ..self }
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
            // An op refuses its inputs, because the network does not fit data or batches of these
            // sizes.
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
