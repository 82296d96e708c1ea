//! Programs after public bug reports, and attacks of our own, each with the values that are right.

mod crawl;
mod eval_sum;
mod kept_losses;
#[cfg(feature = "cli")]
mod plan_csv;
#[cfg(feature = "cli")]
mod plan_graph;
mod silent;
mod stale;
