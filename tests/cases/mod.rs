//! Programs like those of public bug reports, and programs that try to break `remat`, each with the
//! right values.

mod crawl;
mod edges;
mod eval_sum;
#[cfg(feature = "cli")]
mod hf;
mod kept_losses;
#[cfg(feature = "cli")]
mod plan_csv;
#[cfg(feature = "cli")]
mod plan_graph;
mod silent;
mod stale;
mod ties;
