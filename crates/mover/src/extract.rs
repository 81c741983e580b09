//! Restoring: pax streams in, files below one directory out.
//!
//! ```text
//! stream --> MemberReader --> Extractor (one a thread) --> files, links, nodes   at once
//!                                   |
//!                                   '--> Target (shared) --> hard links, then directories, deepest first   at the end
//! ```
//! A stream is not trusted, whoever wrote it:
//! - Nothing is written outside the target. Paths that could lead out are refused; what is left is opened beneath the
//!   target's descriptor and never through a symbolic link, also one that the stream itself made a moment ago.
//! - A hard link is made only to what this restore has written or found unchanged, never to a file that merely stands
//!   where the link's own should.
//! - Nothing existing is opened for writing. A file is made exclusively, or under a temporary name that replaces the
//!   old one in a rename, so that a name that is a link elsewhere is replaced and not followed.
//! - Device nodes, setuid bits, capabilities and owners appear only where [`ExtractOptions`] says so.
//! - Memory is bounded: what has to wait for the end waits in a nameless file once it passes a budget, and no length in
//!   the stream is believed before it is checked.
//!
//! What concerns one path becomes an [`ExtractProblem`] and the rest goes on; what concerns the target (no room,
//! input/output error) or the stream ends in an [`ExtractError`].
//!
//! ```
//! use std::io::Write;
//! use capstan_mover::extract::{MemberChoice, ExtractOptions, RestoreTarget};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let mut stream = tar::Builder::new(Vec::new());
//! let mut header = tar::Header::new_ustar();
//! header.set_size(5);
//! header.set_mode(0o644);
//! stream.append_data(&mut header, "a/b", &b"hello"[..])?;
//!
//! let directory = tempfile::tempdir()?;
//! let target = RestoreTarget::new(directory.path(), ExtractOptions::default())?;
//! let bytes = stream.into_inner()?;
//! target.extractor().extract(&mut &bytes[..], &mut |_| MemberChoice::Take, &mut |_| ())?;
//! let report = target.finish()?;
//! assert_eq!((report.files, report.bytes), (1, 5));
//! assert_eq!(std::fs::read(directory.path().join("a/b"))?, b"hello");
//! # Ok(())
//! # }
//! ```

mod acl;
mod beneath;
mod deferred;
mod directories;
mod existing;
mod extractor;
mod journal;
mod members;
mod metadata;
mod names;
mod options;
mod path;
mod placement;
mod report;
mod selection;
mod target;

pub use beneath::open_or_make_directory;
pub use existing::ExistingFiles;
pub use extractor::{Extractor, damaged_name};
pub use members::{Content, CopyError, MemberHead, MemberReader, Piece, StreamError};
pub use options::{DeviceNodes, Durability, ExtractOptions, MemberChoice, Overwrite, Owners};
pub use path::stripped;
pub use report::{
    DamagedFile, ExtractError, ExtractProblem, ExtractProblemKind, ExtractReport, Likeness, MemberDone, MemberOutcome,
};
pub use selection::Selection;
pub use target::RestoreTarget;
