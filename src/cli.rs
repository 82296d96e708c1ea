//! From the command line to an exit code.
//!
//! Results go to stdout, all else to stderr.

mod args;
mod failure;
mod learn;
mod model;
mod plan;
mod progress;
mod recording;
mod report;
mod schedule;
mod session;
mod source;
mod terminal;
mod train;
mod values;

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
    };
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}
