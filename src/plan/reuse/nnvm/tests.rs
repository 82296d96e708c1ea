//! What is planned: for lifetimes, for graphs written by hand, and for random ones.

mod graphs;
mod lifetimes;
mod random;
