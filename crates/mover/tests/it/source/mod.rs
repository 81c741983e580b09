//! Sources against the world: streams are given to GNU tar, bsdtar and another tar reader, and compared with what they
//! came from.

mod collect;
mod cut_off;
mod encode;

mod image;
mod incremental;
mod metadata;
mod racing;
mod tree;
