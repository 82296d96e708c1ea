//! `remat completions`: a completion script for a shell.

use super::command::{Cli, CompletionsArgs};
use super::failure::Failure;
use super::terminal::print_result;
use clap::CommandFactory as _;

/// Prints the completion script.
pub fn run(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "remat", &mut script);
    print_result(&String::from_utf8_lossy(&script))
}
