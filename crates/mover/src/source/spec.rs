//! What a source is, as data: whoever decides says what is read, and whoever has the files reads it.

use std::ffi::OsString;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use capstan_format::ObjectKind;
use serde::{Deserialize, Serialize};

use super::cut::CutFile;
use super::producer::Producer;
use super::report::{OnProblem, Progress, SourceReport};
use super::snapshot::{ReadFrom, SnapshotUse};
use super::{DeviceSource, SourceError, StreamSource, Totals, TreeOptions, TreeSource};
use crate::{Baseline, StreamSink};

/// A file of at least this length, without holes, is read in ranges by all connections.
const IMAGE_LEN_MIN: u64 = 256 << 20;

/// What is read into one object. It can cross a socket: paths are those of the host that reads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SourceSpec {
    /// A file, or a directory with all that is below it.
    Tree {
        /// Where it is.
        #[serde(with = "crate::os_text")]
        path: PathBuf,
        /// What is left out of it.
        options: TreeOptions,
    },
    /// A block device, or an image of one.
    Device {
        /// Where it is.
        #[serde(with = "crate::os_text")]
        path: PathBuf,
    },
    /// A stream of unknown length.
    Stream(StreamInput),
}

/// A stream that is backed up as one file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StreamInput {
    /// The file's name.
    pub name: String,
    /// The program whose output it is, with its arguments; none for standard input.
    #[serde(with = "crate::os_text")]
    pub command: Vec<OsString>,
}

/// What was found at the path of a source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFound {
    /// How it is read: as a tree or as a device.
    pub kind: ObjectKind,
    /// Where it is, links followed; none where that cannot be told.
    #[serde(with = "crate::os_text")]
    pub real_path: Option<PathBuf>,
    /// Whether it is a file that is read as a device.
    #[serde(default)]
    pub is_image: bool,
}

/// What accompanies a reading.
pub struct SourceRun<'a> {
    /// Nanoseconds since 1970 at the beginning of the object: the time of a stream, which has none of its own.
    pub began_ns: i64,
    /// What an incremental compares with.
    pub baseline: Option<&'a dyn Baseline>,
    /// Files of a tree that an earlier reading was cut off in.
    pub cut: &'a [CutFile],
    /// What is counted meanwhile.
    pub progress: &'a Progress,
    /// Told of each problem.
    pub on_problem: OnProblem,
}

impl SourceFound {
    /// Looks at a path. A block device, or a file that is long enough to be worth it, is read as a device; anything
    /// else as a tree.
    ///
    /// # Errors
    /// Nothing is there, or it cannot be looked at.
    pub fn at(path: &Path) -> io::Result<Self> {
        let metadata = std::fs::symlink_metadata(path)?;
        let image = metadata.is_file() && metadata.len() >= IMAGE_LEN_MIN && metadata.blocks() * 512 >= metadata.len();
        let is_device = metadata.file_type().is_block_device() || image;
        let kind = if is_device { ObjectKind::Device } else { ObjectKind::Tree };
        Ok(Self { kind, real_path: std::fs::canonicalize(path).ok(), is_image: image })
    }

    /// How it is read and recorded with these options: an image is a file of a tree where that has a snapshot.
    pub fn kind_with(&self, options: &TreeOptions) -> ObjectKind {
        let is_file = self.is_image && options.snapshot != SnapshotUse::None;
        if is_file { ObjectKind::Tree } else { self.kind }
    }

    /// What is read from the path where this was found.
    pub fn spec(&self, path: &Path, options: &TreeOptions) -> SourceSpec {
        let path = path.to_owned();
        match self.kind_with(options) {
            ObjectKind::Device => SourceSpec::Device { path },
            _ => SourceSpec::Tree { path, options: options.clone() },
        }
    }
}

impl SourceSpec {
    /// How it is recorded.
    pub fn kind(&self) -> ObjectKind {
        match self {
            Self::Tree { .. } => ObjectKind::Tree,
            Self::Device { .. } => ObjectKind::Device,
            Self::Stream(_) => ObjectKind::Stream,
        }
    }

    /// How many of the connections that it is offered it is read over: one stream is read by one.
    pub fn connections(&self, offered: usize) -> usize {
        if matches!(self, Self::Stream(_)) { 1 } else { offered }
    }

    /// Counts what [`SourceSpec::read`] will pass, as far as it is there. A stream has no length before its end.
    pub fn count(&self, totals: &Totals) {
        match self {
            Self::Tree { path, options } => {
                // What cannot be read is reported where it is read.
                if let Ok(tree) = TreeSource::new(std::slice::from_ref(path), options) {
                    tree.count(totals);
                }
            }
            Self::Device { path } => {
                let end = std::fs::File::open(path).and_then(|mut file| file.seek(SeekFrom::End(0)));
                totals.add_device(end.unwrap_or(0));
            }
            Self::Stream(_) => {}
        }
    }

    /// Reads it to its end into as many streams as there are sinks.
    ///
    /// # Errors
    /// It cannot be opened, its name cannot be stored, it broke off, or the session was stopped. What a tree's files
    /// are about is no error: it is in the report.
    pub fn read<S: StreamSink>(&self, sinks: &mut [S], run: SourceRun<'_>) -> Result<SourceReport, SourceError> {
        match self {
            Self::Tree { path, options } => {
                let tree = TreeSource::new(std::slice::from_ref(path), options)?.on_problem(run.on_problem);
                let (snapshot, from) = options.snapshot.of(path)?;
                let snapshot = snapshot.map(Arc::new);
                let tree = match &snapshot {
                    Some(snapshot) => tree.read_from(snapshot)?,
                    None => tree,
                };
                let read = tree.run_on(sinks, (run.baseline, run.cut), run.progress);
                drop(tree);
                let left = snapshot.and_then(Arc::into_inner).and_then(|snapshot| snapshot.remove().err());
                let from = match from {
                    ReadFrom::Snapshot { by, .. } => ReadFrom::Snapshot { by, left },
                    from => from,
                };
                Ok(SourceReport { from, ..read? })
            }
            Self::Device { path } => {
                let report = DeviceSource::open(path)?.run(sinks, run.progress)?;
                for problem in &report.problems {
                    (run.on_problem)(&problem.path, problem.kind);
                }
                Ok(report)
            }
            Self::Stream(input) => {
                let sink = sinks.first_mut().ok_or(SourceError::NoConnection)?;
                StreamSource::new(&input.name, input.open()?, run.began_ns)?.run(sink, run.progress)
            }
        }
    }
}

impl StreamInput {
    /// Whether a file can have this name.
    ///
    /// # Errors
    /// It cannot; the error says why.
    pub fn check_name(&self) -> Result<(), SourceError> {
        StreamSource::new(&self.name, io::empty(), 0).map(drop)
    }

    fn open(&self) -> Result<Box<dyn Read>, SourceError> {
        match self.command.split_first() {
            None => Ok(Box::new(io::stdin().lock())),
            Some((program, arguments)) => Ok(Box::new(Producer::start(program, arguments)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn a_source_crosses_a_socket_whatever_its_path_is() {
        let path = PathBuf::from(OsString::from_vec(b"/srv/\xff\xfe".to_vec()));
        let options = TreeOptions { excludes: vec!["*.o".to_owned()], ..TreeOptions::default() };
        let command = vec!["dump".into(), OsString::from_vec(b"\x80".to_vec())];
        for spec in [
            SourceSpec::Tree { path: path.clone(), options },
            SourceSpec::Device { path },
            SourceSpec::Stream(StreamInput { name: "db".to_owned(), command }),
        ] {
            let text = serde_json::to_string(&spec).unwrap();
            assert_eq!(serde_json::from_str::<SourceSpec>(&text).unwrap(), spec, "{text}");
        }
    }

    #[test]
    fn a_long_file_without_holes_is_a_device() {
        let folder = tempfile::tempdir().unwrap();
        let (short, sparse) = (folder.path().join("short"), folder.path().join("sparse"));
        std::fs::write(&short, "short").unwrap();
        std::fs::File::create(&sparse).unwrap().set_len(IMAGE_LEN_MIN).unwrap();
        let found = |path: &Path| SourceFound::at(path).unwrap();
        assert_eq!(found(&short).kind, ObjectKind::Tree);
        assert_eq!(found(&sparse).kind, ObjectKind::Tree);
        assert_eq!(found(folder.path()).kind, ObjectKind::Tree);
        assert_eq!(found(folder.path()).real_path, std::fs::canonicalize(folder.path()).ok());
        let gone = SourceFound::at(&folder.path().join("gone")).unwrap_err();
        assert_eq!(gone.kind(), io::ErrorKind::NotFound);
        let crossed = serde_json::to_string(&found(&short)).unwrap();
        assert_eq!(serde_json::from_str::<SourceFound>(&crossed).unwrap(), found(&short));
    }
}
