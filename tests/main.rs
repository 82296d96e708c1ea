//! Tests of the library through its public interface, and tests of the program.
//!
//! Most tests are modules of this one crate, so that shared code is compiled and linked once, and
//! any two tests run at the same time. Tests that count the threads or the memory of the process,
//! or that log for the whole process, are in `alone`.

mod common;

#[cfg(feature = "lab")]
mod bound;
mod bounded_history;
#[cfg(feature = "cli")]
mod budgets;
mod callbacks;
#[cfg(feature = "lab")]
mod captured_steps;
mod cases;
#[cfg(feature = "serde")]
mod checkpoint;
#[cfg(feature = "cli")]
mod cli;
#[cfg(feature = "cli")]
mod cli_course;
#[cfg(feature = "cli")]
mod cli_files;
#[cfg(feature = "cli")]
mod cli_lab;
#[cfg(feature = "cli")]
mod cli_learn;
#[cfg(feature = "cli")]
mod cli_pairs;
#[cfg(feature = "cli")]
mod cli_parameters;
#[cfg(feature = "cli")]
mod cli_plan;
#[cfg(feature = "cli")]
mod cli_plans;
#[cfg(feature = "cli")]
mod cli_ranks;
#[cfg(feature = "cli")]
mod cli_settings;
#[cfg(feature = "cli")]
mod cli_texts;
#[cfg(feature = "cli")]
mod cli_training;
#[cfg(feature = "cli")]
mod cli_verify;
mod collectives;
mod control;
#[cfg(feature = "cli")]
mod ctrl_c;
mod deep_histories;
#[cfg(feature = "lab")]
mod distributed;
mod duties;
mod effects;
mod events;
mod failures;
#[cfg(feature = "data")]
mod half;
#[cfg(feature = "lab")]
mod history;
mod in_place;
#[cfg(feature = "lab")]
mod lab;
#[cfg(feature = "lab")]
mod learned;
#[cfg(feature = "lab")]
mod learning;
mod lifecycle;
mod look_ahead;
#[cfg(feature = "lab")]
mod measured;
mod megengine_article;
mod memory_map;
#[cfg(feature = "data")]
mod models;
#[cfg(all(feature = "data", feature = "lab"))]
mod named_budgets;
mod narration;
#[cfg(feature = "lab")]
mod network;
#[cfg(feature = "serde")]
mod once;
#[cfg(feature = "serde")]
mod optimizers;
mod own_thread;
mod owned_memory;
mod plan_failures;
mod plan_help;
mod plans;
#[cfg(feature = "lab")]
mod programs;
mod random_programs;
#[cfg(feature = "lab")]
mod ranks_memory;
#[cfg(feature = "lab")]
mod recordings;
mod recovery;
mod regeneration;
mod same_bits;
mod settings_at_run_time;
mod short_memory;
mod skipped_updates;
mod streams;
mod tensors;
mod told_alike;
mod transformers;
#[cfg(all(feature = "data", feature = "lab"))]
mod tune;
mod types;
mod verify;
mod writes_over;
