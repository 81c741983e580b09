//! Objects and files written to an output.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use capstan_format::{EntryFlags, EntryKind, FileEntry, ObjectId, ObjectKind, crc32c_append};
use capstan_mover::extract::{CopyError, MemberReader};
use capstan_mover::{ReadMeters, VolumeAccess, Wanted, WantedMember, plan_reads_at, read_streams};
use capstan_tape::with_causes;

use crate::DirectorError;
use crate::chains::Chains;
use crate::libraries::VolumeRoutes;
use crate::mounter::{Mounter, ReadMounter};
use crate::plan::{OlderVersion, older_versions};
use crate::select::{Layout, WhichCopy, locate_streams};
use crate::site::{Site, locked};

/// An output that computes the checksum of what passes.
struct Checked<'o> {
    out: &'o mut (dyn Write + Send),
    crc: u32,
}

/// What is to be known of a file that was copied out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileGiven {
    /// It is an older version, because it could not be read when it was last backed up.
    pub older: Option<OlderVersion>,
    /// It could not be read to its end when it was backed up: zeros stand for the rest.
    pub is_incomplete: bool,
}

/// What a file that is copied may lack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lacks {
    /// It is copied whole, or there is an error.
    Nothing,
    /// Zeros stand for what no copy gives.
    Parts,
}

impl Site {
    /// Writes an object's own pax stream: every connection up to its valid length, then the end of the archive.
    ///
    /// # Errors
    /// No copy gives a part of it, no key opens a volume, or `out` cannot be written.
    pub fn cat_object(&self, object: ObjectId, out: &mut (dyn Write + Send)) -> Result<(), DirectorError> {
        let _kept = self.keep_what_is_read(&[object]);
        let present = self.present()?;
        let mut host = ReadMounter::new(Mounter::new(self));
        let pieces = {
            let catalog = locked(&self.catalog);
            let is_image = catalog.object(object)?.is_some_and(|record| record.kind == ObjectKind::Device);
            let ends = catalog.whole_stream_ends(object)?;
            Chains::of_streams(ends.clone(), is_image).in_order(&ends.parts)
        };
        for (connection, range) in pieces.into_iter().filter(|(_, range)| !range.is_empty()) {
            let member = WantedMember { offset: range.start, len: range.end - range.start, crc: 0 };
            let streams = BTreeMap::from([((object, connection), vec![member])]);
            let located = locate_streams(&locked(&self.catalog), streams, &present, WhichCopy::Any, Layout::Apart)?;
            copy_range(&mut host, &located.wanted, &[], &mut |bytes| {
                std::io::copy(bytes, out).map(drop).map_err(|error| error.to_string())
            })?;
        }
        let end = out.write_all(&[0; 1024]).and_then(|()| out.flush());
        end.map_err(|error| DirectorError::Output { reason: error.to_string() })
    }

    /// Writes the content of one file of the state at an object.
    ///
    /// # Errors
    /// [`DirectorError::UnknownPath`]; [`DirectorError::NotAFile`]; [`DirectorError::Interrupted`] if `stop` is set;
    /// otherwise as [`Site::cat_object`], or the content is not what its checksum says.
    pub fn cat_file(
        &self,
        object: ObjectId,
        path: &[u8],
        out: &mut (dyn Write + Send),
        stop: &Arc<AtomicBool>,
    ) -> Result<FileGiven, DirectorError> {
        Ok(self.copy_file(object, path, out, Lacks::Nothing, stop)?.0)
    }

    /// The same, and how many blocks were read for it.
    pub(crate) fn copy_file(
        &self,
        object: ObjectId,
        path: &[u8],
        out: &mut (dyn Write + Send),
        lacks: Lacks,
        stop: &Arc<AtomicBool>,
    ) -> Result<(FileGiven, u64), DirectorError> {
        let source = locked(&self.catalog).object(object)?.map(|object| object.source).unwrap_or_default();
        let unknown = || DirectorError::UnknownPath {
            object: object.to_string(),
            source_name: String::from_utf8_lossy(&source).into_owned(),
            path: String::from_utf8_lossy(path).into_owned(),
            tried: Vec::new(),
            elsewhere: Box::default(),
        };
        let chain = locked(&self.catalog).chain_as_far(object)?.0;
        let _kept = self.keep_what_is_read(&chain);
        let (state, broken) = locked(&self.catalog).state_as_far(object)?;
        let unknown = || broken.map_or_else(unknown, DirectorError::from);
        let found = match state.get(path)? {
            Some(link) if link.entry.kind == EntryKind::HardLink => state.get(&link.entry.link)?,
            found => found,
        };
        let Some(entry) = found else { return Err(unknown()) };
        if entry.entry.kind != EntryKind::File || entry.entry.member_len == 0 {
            let path = String::from_utf8_lossy(path).into_owned();
            return Err(DirectorError::NotAFile { path });
        }
        let FileEntry { connection, offset, member_len, crc, flags, .. } = entry.entry;
        let is_incomplete = flags.contains(EntryFlags::UNREADABLE) || flags.contains(EntryFlags::SHRANK);
        let member = WantedMember { offset, len: member_len, crc };
        let streams = BTreeMap::from([((entry.object, connection), vec![member])]);
        let present = self.present()?;
        let located = locate_streams(&locked(&self.catalog), streams, &present, WhichCopy::Any, Layout::Joined)?;
        let mut out = Checked { out, crc: 0 };
        let mut host = ReadMounter::new(Mounter::new(self).stopped_by(stop));
        let wanted = self.routes()?.split(located.wanted);
        let blocks = copy_range(&mut host, &wanted, &self.costs_to_mount(&wanted)?, &mut |bytes| {
            let mut reader = MemberReader::new(bytes).passing_missing(lacks == Lacks::Parts);
            // A stream that was standard input is one file in several members.
            let mut any = false;
            loop {
                match reader.next() {
                    Ok(Some((_, mut content))) => {
                        content.copy_to(&mut out).map(drop).map_err(|error| match error {
                            CopyError::Output(error) => error.to_string(),
                            CopyError::Stream(error) => with_causes(&error),
                        })?;
                    }
                    Ok(None) if any => return Ok(()),
                    Ok(None) => return Err("the stream holds no member where the catalog says one is".to_owned()),
                    Err(error) => return Err(with_causes(&error)),
                }
                any = true;
            }
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(DirectorError::Interrupted);
        }
        if out.crc != crc && lacks == Lacks::Nothing {
            let reason = format!("its content has checksum {:08x}, the catalog says {crc:08x}", out.crc);
            return Err(DirectorError::Output { reason });
        }
        let older = older_versions(&locked(&self.catalog), &[entry])?.pop();
        Ok((FileGiven { older, is_incomplete }, blocks))
    }
}

/// Reads the one range of the one stream that is wanted and gives it to `copy`; says how many blocks that took.
fn copy_range(
    host: &mut ReadMounter,
    wanted: &Wanted,
    costs: &[u8],
    copy: &mut (dyn FnMut(&mut dyn std::io::BufRead) -> Result<(), String> + Send),
) -> Result<u64, DirectorError> {
    let reads = plan_reads_at(wanted, costs);
    let outcome = std::sync::Mutex::new(Ok(()));
    let copy = std::sync::Mutex::new(copy);
    let enough = AtomicBool::new(false);
    let routes = VolumeRoutes::new(&host.mounter().libraries, &host.mounter().catalog)?;
    let access = VolumeAccess { host, drives: routes.drives(), between: None };
    let read = read_streams(wanted, &reads, access, (&enough, &ReadMeters::default()), &|_, reader| {
        for member in reader.members() {
            let copied = locked(&copy)(&mut reader.range(member.offset..member.offset + member.len));
            if copied.is_err() {
                *locked(&outcome) = copied;
                enough.store(true, Ordering::Relaxed);
                return;
            }
        }
    });
    host.note_bad(&read.bad, "cat");
    let outcome = outcome.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    outcome.map(|()| read.blocks).map_err(|reason| host.why_not(reason))
}

impl Write for Checked<'_> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let len = self.out.write(bytes)?;
        self.crc = crc32c_append(self.crc, &bytes[..len]);
        Ok(len)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
