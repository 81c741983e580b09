//! Sources against the world: streams are given to GNU tar and compared with the tree that they came from.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod collect;
mod tree;
