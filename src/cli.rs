//! The program: from the command line to an exit code.
//!
//! Results are printed to stdout, all other text to stderr.

mod args;
mod bound;
mod checkpoint;
mod checkpoint_args;
mod command;
mod completions;
mod devices;
mod distinct;
mod evaluate;
mod failure;
mod foreign;
mod generate;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(not(feature = "cuda"))]
#[path = "cli/no_gpu.rs"]
mod gpu;
mod history;
mod interrupt;
mod journal;
mod lab_args;
mod labels;
mod machine;
mod matrix;
mod memory;
mod model;
#[cfg(feature = "mpi")]
mod mpi;
#[cfg(not(feature = "mpi"))]
#[path = "cli/no_mpi.rs"]
mod mpi;
mod named;
mod network_args;
mod optimizer;
mod output;
mod plan;
mod progress;
mod ranks;
mod ranks_args;
mod recording;
mod rehearsal;
mod report;
mod resume;
mod session;
mod simulate;
mod sizes;
mod source;
mod sweep;
mod sync;
mod target;
mod task;
mod terminal;
mod tokenizer;
mod train;
mod training_loop;
mod values;
mod waiting;
mod words;
mod wrap;

use clap::{CommandFactory as _, FromArgMatches as _};
use command::{Cli, Command};
use failure::Failure;
use ranks::World;
use ranks_args::Distributed;
use std::process::ExitCode;
use terminal::{print_result, tell};

/// Runs the program.
pub fn run() -> ExitCode {
    terminal::set_color(std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()));
    interrupt::survive_full_files();
    memory::end_with_an_error();
    let parsed = Cli::command().try_get_matches();
    let parsed = parsed.and_then(|matches| Ok((Cli::from_arg_matches(&matches)?, matches)));
    let (args, matches) = match parsed {
        Ok(parsed) => parsed,
        Err(message) => return show(&message),
    };
    let Some(command) = args.command else {
        let help = Cli::command().render_help();
        return finish(print_result(&help.ansi().to_string()));
    };
    if args.terminal.no_progress {
        terminal::hide_progress();
    }
    terminal::start_logging(command.is_quiet());
    let done = match command {
        Command::Train(args) => {
            let (_, matches) = matches.subcommand().expect("it is `train`");
            let ranks = args.ranks.clone();
            let work = |world: &World| {
                let copy = world.copy(args.checkpoints.resume.as_deref())?;
                let resumed = resume::arguments(*args, matches, copy.as_ref());
                let adapted = resumed.and_then(|(mut args, options)| {
                    world.adapt(&mut args)?;
                    Ok((args, options))
                });
                let (args, options) = world.agree(adapted)?;
                train::run(&args, &options, world)
            };
            match ranks.distributed {
                None => work(&World::alone()),
                Some(Distributed::Mpi) => mpi::run(&ranks, work),
            }
        }
        Command::Evaluate(args) => evaluate::run(&args),
        Command::Generate(args) => generate::run(&args),
        Command::Devices(args) => devices::run(&args),
        Command::Simulate(args) => interrupt::quit_at_once().and_then(|()| simulate::run(&args)),
        Command::Sweep(args) => interrupt::quit_at_once().and_then(|()| sweep::run(&args)),
        Command::Bound(args) => interrupt::quit_at_once().and_then(|()| bound::run(&args)),
        Command::Plan(args) => interrupt::quit_at_once().and_then(|()| plan::run(&args)),
        Command::History(args) => interrupt::quit_at_once().and_then(|()| history::run(&args)),
        Command::Completions(args) => completions::run(&args),
    };
    finish(done)
}

/// Reports the failure of the program, if it failed, and returns the exit code.
fn finish(done: Result<(), Failure>) -> ExitCode {
    let Err(failure) = done else { return ExitCode::SUCCESS };
    tell(failure).code().into()
}

/// Prints help, the version, or an error in the arguments.
fn show(message: &clap::Error) -> ExitCode {
    match message.use_stderr() {
        true => message.exit(),
        false => finish(print_result(&message.render().ansi().to_string())),
    }
}
