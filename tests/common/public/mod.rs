//! Random programs through the public interface, on a real device.
//!
//! A [`program`](program) is plain data, [drawn](draw) by proptest. [`play`], `player`, `calc` and
//! `change` run it on a runtime; only they know the public interface. The [`journal`] keeps the
//! worker's commands and failures. [`verdict`] compares a run under some [`setup`] with a run in
//! plenty of memory without failures. [`check`] does so for many programs, and [`figures`] show how
//! far the programs reach.

mod calc;
mod change;
pub mod check;
pub mod draw;
pub mod figures;
pub mod journal;
pub mod play;
mod player;
pub mod program;
pub mod setup;
pub mod verdict;
pub mod watch;
