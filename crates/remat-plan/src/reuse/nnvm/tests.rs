//! Checks of plans for lifetimes, for graphs written by hand, and for random graphs.

mod graphs;
mod lifetimes;
mod random;
