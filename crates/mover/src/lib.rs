//! Moves blocks: sources, pax streams, interleaving, twin copies, tape writer and reader, restore.
//!
//! The mover never sees the catalog: it reports what it wrote and where, and whoever runs it records that.

pub mod extract;
mod sink;

pub use sink::{Baseline, Metadata, Stopped, StreamSink, Verdict};
