//! From the command line to an exit code.
//!
//! Results go to stdout, all else to stderr.

mod args;
mod devices;
mod failure;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "cli/no_gpu.rs"]
mod gpu;
mod lab_args;
mod learn;
mod machine;
mod matrix;
mod model;
mod named;
mod output;
mod plan;
mod progress;
mod recording;
mod report;
mod schedule;
mod session;
mod simulate;
mod source;
mod sweep;
mod target;
mod terminal;
mod train;
mod values;
mod words;

use args::{Cli, Command};
use clap::{CommandFactory as _, Parser as _};
use std::process::ExitCode;

/// Runs the program.
pub fn run() -> ExitCode {
    let Some(command) = Cli::parse().command else {
        // Help that nobody reads is no failure.
        let _ = Cli::command().print_help();
        return ExitCode::SUCCESS;
    };
    terminal::start_logging();
    let done = match command {
        Command::Train(args) => train::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Simulate(args) => simulate::run(&args),
        Command::Sweep(args) => sweep::run(&args),
    };
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
