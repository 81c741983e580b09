//! Why there is no advice.

use std::path::PathBuf;

/// Why there is no advice.
#[derive(Debug, thiserror::Error)]
pub enum AdviseError {
    /// The data path was not measured with this source.
    #[error("{} was not measured yet: capstan lab null {}", path.display(), path.display())]
    NoPath {
        /// The source.
        path: PathBuf,
    },
    /// No drive was measured.
    #[error(
        "no virtual drive was measured yet: capstan lab drive --folder DIR, where DIR is on the disk of the library"
    )]
    NoDrive,
    /// The data path was not measured at that level: what it costs and how far it shrinks are not known.
    #[error(
        "zstd {level} was not measured of {}, so what it costs and how far it shrinks the data is not known: capstan lab null {} --compression {}",
        path.display(), path.display(), levels(known, *level)
    )]
    Level {
        /// The source.
        path: PathBuf,
        /// The level.
        level: i32,
        /// Those that were measured.
        known: Vec<i32>,
    },
    /// A drive's model does not do what is asked of it.
    #[error(transparent)]
    Model(#[from] capstan_tape::model::ModelError),
    /// A number that cannot be.
    #[error("{what}")]
    Option {
        /// What is wrong.
        what: &'static str,
    },
}

/// All of them, as an option has them: a measurement of one level takes the place of that of others.
fn levels(known: &[i32], level: i32) -> String {
    let all = distinct(known.iter().copied().chain([level]));
    all.iter().map(i32::to_string).collect::<Vec<_>>().join(",")
}

pub(super) fn distinct<T: Ord>(values: impl Iterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.collect();
    values.sort();
    values.dedup();
    values
}
