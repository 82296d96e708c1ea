//! Random programs through the public interface, on a real device.
//!
//! A [`program`](program) is plain data, [drawn](draw) by proptest. [`play`], `player`, `calc` and `change` give it to a
//! runtime: all that is known of the public interface is there. The [`journal`] has what the worker did with it, and
//! [`verdict`] compares a run under some [`setup`] with a run with plenty of memory and no failure. [`check`] does so
//! for many programs; [`figures`] show what they did.

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
