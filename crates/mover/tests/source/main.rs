//! Sources against the world: streams are given to GNU tar, bsdtar and another tar reader, and compared with what they
//! came from.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod collect;
mod encode;

mod image;
mod incremental;
mod metadata;
mod racing;
mod tree;
