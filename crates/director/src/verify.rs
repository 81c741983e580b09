//! Verifying a whole volume, and an object against its source.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use std::time::Instant;

use capstan_catalog::{Extent, Object, StateEntry, Volume, VolumeState};
use capstan_format::{EntryKind, FileEntry, ObjectId, ObjectKind, Volser, VolumeId, crc32c_append};
use capstan_mover::{Damage, FIRST_SESSION_LBN, RestoreWatch, VolumeReader};
use capstan_tape::with_causes;

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, statat};

use crate::catch_up::clear_suspicion;
use crate::desk::Desk;
use crate::drive_history::Stay;
use crate::restore::{FailedFile, RestoreReport};
use crate::select::index_path;
use crate::site::{Site, locked};
use crate::verify_object::is_held;
use crate::{DirectorError, Event};

impl Site {
    /// Reads back every block of a volume: labels, session headers and catalog parts by themselves, data with every file's
    /// checksum. Files that go on on another volume are read from there, too. A volume that was set aside and is found good may
    /// be written again.
    pub fn verify_volume(&self, volser: &Volser, watch: &RestoreWatch) -> Result<RestoreReport, DirectorError> {
        let (began, since_ns) = (Instant::now(), self.now_ns());
        let known = Desk::new(self).volume(volser)?;
        let extents = locked(&self.catalog).extents_on(volser)?;
        let mut report = RestoreReport::default();
        if let Some(life) = known.id {
            self.verify_between(volser, life, known.end_of_data_lbn, &extents, watch, &mut report)?;
        }
        let mut by_object: BTreeMap<ObjectId, Vec<Extent>> = BTreeMap::new();
        for extent in extents {
            by_object.entry(extent.record.object).or_default().push(extent);
        }
        for (object, extents) in by_object {
            let (entries, joined) = {
                let catalog = locked(&self.catalog);
                let index = catalog.index(object)?;
                // The one member of a device image runs through all connections.
                let joined = catalog.object(object)?.is_some_and(|object| object.kind == ObjectKind::Device);
                let here: Result<Vec<_>, _> = index
                    .iter()
                    .filter(|entry| entry.as_ref().map_or(true, |entry| joined || touches(&extents, entry)))
                    .map(|entry| entry.map(|entry| StateEntry { object, entry, unread: None }))
                    .collect();
                (here?, joined)
            };
            let copy = extents.first().map(|extent| extent.copy);
            // A member that this copy holds only part of is what a twin lacks, not damage.
            let all = locked(&self.catalog).extents(object, None)?;
            let (entries, behind): (Vec<_>, Vec<_>) = entries
                .into_iter()
                .partition(|entry| joined || copy.is_none_or(|copy| is_held(&all, &entry.entry, copy)));
            report.behind += behind.len() as u64;
            let part = self.verify_entries(entries, object, false, copy, watch)?;
            report.blocks += part.blocks;
            report.failed.extend(part.failed);
            report.lost.extend(part.lost);
            report.recovered.extend(part.recovered);
            report.absent.extend(part.absent);
            report.without_key.extend(part.without_key);
            report.orders.extend(part.orders);
        }
        report.members = watch.members.load(Ordering::Relaxed);
        report.bytes = watch.bytes.load(Ordering::Relaxed);
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        let all_good = report.is_whole() && report.recovered.is_empty() && report.without_key.is_empty();
        if let (VolumeState::Suspect, Some(life), true) = (known.state, known.id, all_good)
            && !watch.stop.load(Ordering::Relaxed)
        {
            self.clear(&known, life, since_ns)?;
        }
        Ok(report)
    }

    /// A volume that was set aside and is good is written again, unless a drive has said since that it is worn. Why it is not, if so, is no fault of what was read.
    fn clear(&self, known: &Volume, life: VolumeId, since_ns: i64) -> Result<(), DirectorError> {
        let history = self.drive_history(None, Some(&known.volser))?;
        // Its drives were asked while it was read.
        let mut meanwhile = history.stays.iter().take_while(|stay| stay.since_ns >= since_ns);
        let sound = match meanwhile.find_map(Stay::against_medium) {
            Some(alert) => {
                let meaning = alert.meaning.unwrap_or_default();
                let reason = format!("its drive says that {meaning} (TapeAlert {})", alert.flag);
                Err(DirectorError::VolumeWorn { volser: known.volser.clone(), reason })
            }
            None => Ok(()),
        };
        let locked = sound.and_then(|()| self.writer_lock());
        let cleared = locked.and_then(|_lock| clear_suspicion(&Desk::new(self), known, life));
        match cleared {
            Err(
                error @ (DirectorError::Busy { .. }
                | DirectorError::VolumeDiffers { .. }
                | DirectorError::VolumeWorn { .. }),
            ) => {
                let message = format!("volume {} stays set aside: {}", known.volser, with_causes(&error));
                (self.events)(Event::Notice { message });
                Ok(())
            }
            other => other,
        }
    }

    /// Reads all blocks of a volume that are not data.
    fn verify_between(
        &self,
        volser: &Volser,
        life: VolumeId,
        end_lbn: u64,
        extents: &[Extent],
        watch: &RestoreWatch,
        report: &mut RestoreReport,
    ) -> Result<(), DirectorError> {
        let desk = Desk::new(self).stopped_by(&watch.stop);
        let mut volume = desk.mount_to_read(volser, life)?;
        {
            let mut reader = VolumeReader::new(volume.drive.as_mut(), volser.clone(), life);
            let mut checkpoints = Vec::new();
            let mut at = reader.last_checkpoint_lbn().unwrap_or_default();
            // Filemarks stand right behind checkpoints; no block is read where one is.
            while let Some(lbn) = at {
                checkpoints.push(lbn);
                at = reader.checkpoint_lbn_before(lbn).unwrap_or_default();
            }
            let is_data = |lbn: u64| {
                let after = extents.partition_point(|extent| extent.record.first_lbn <= lbn);
                after > 0 && {
                    let record = &extents[after - 1].record;
                    lbn < record.first_lbn + u64::from(record.blocks)
                }
            };
            let filemark = |lbn: u64| checkpoints.contains(&(lbn - 1));
            for lbn in (FIRST_SESSION_LBN..end_lbn).filter(|&lbn| !is_data(lbn) && !filemark(lbn)) {
                if watch.stop.load(Ordering::Relaxed) {
                    break;
                }
                report.blocks += 1;
                if let Err(error) = reader.read(lbn) {
                    let (object, reason) = (ObjectId([0; 16]), with_causes(&error));
                    let volser = volser.clone();
                    report.lost.push(Damage { volser, lbn: Some(lbn), object, connection: 0, offset: 0, reason });
                }
            }
        }
        desk.dismount(volume.drive, volume.number, volser)
    }

    /// Compares the state at an object with the files as they are now: kind, size, time, mode, owner and content.
    pub fn compare_with_source(&self, object: &Object) -> Result<Vec<FailedFile>, DirectorError> {
        let state = locked(&self.catalog).state(object.id)?;
        let mut differences = Vec::new();
        for entry in state.subtree(&index_path(&object.source)) {
            let entry = entry?.entry;
            if let Some(reason) = difference(&entry) {
                differences.push(FailedFile { path: entry.path, reason });
            }
        }
        Ok(differences)
    }
}

/// Longest piece of a path that is opened at once; the kernel's limit is 4,096 with the zero.
const PIECE_LEN_MAX: usize = 4000;

fn touches(extents: &[Extent], entry: &FileEntry) -> bool {
    entry.member_len > 0
        && extents.iter().any(|extent| {
            let record = &extent.record;
            record.connection == entry.connection
                && entry.offset < record.offset + record.plain_len
                && record.offset < entry.offset + entry.member_len
        })
}

/// Opens the directory above a path, a piece at a time: a path may be longer than the kernel takes in one call.
fn parent_of(path: &[u8]) -> rustix::io::Result<(OwnedFd, &[u8])> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut at = openat(CWD, c"/", flags, Mode::empty())?;
    let mut rest = path;
    loop {
        let window = &rest[..rest.len().min(PIECE_LEN_MAX)];
        let split = match (rest.len() <= PIECE_LEN_MAX, window.iter().rposition(|&byte| byte == b'/')) {
            (_, Some(slash)) => slash,
            (_, None) => return Ok((at, rest)),
        };
        at = openat(&at, &rest[..split], flags | OFlags::NOFOLLOW, Mode::empty())?;
        rest = &rest[split + 1..];
    }
}

fn difference(entry: &FileEntry) -> Option<String> {
    let gone = |error: rustix::io::Errno| Some(format!("it cannot be looked at: {}", std::io::Error::from(error)));
    let (parent, name) = match parent_of(&entry.path) {
        Ok(found) => found,
        Err(error) => return gone(error),
    };
    let name = if name.is_empty() { b"." } else { name };
    let now = match statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(now) => now,
        Err(error) => return gone(error),
    };
    let kind = FileType::from_raw_mode(now.st_mode);
    let same_kind = match entry.kind {
        EntryKind::File => kind == FileType::RegularFile,
        EntryKind::HardLink => kind != FileType::Directory,
        EntryKind::Directory => kind == FileType::Directory,
        EntryKind::Symlink => kind == FileType::Symlink,
        EntryKind::Fifo => kind == FileType::Fifo,
        EntryKind::CharDevice => kind == FileType::CharacterDevice,
        EntryKind::BlockDevice => kind == FileType::BlockDevice,
        EntryKind::Deleted => false,
    };
    if !same_kind {
        return Some("it is of another kind now".to_owned());
    }
    let mode = now.st_mode & 0o7777;
    if kind != FileType::Symlink && mode != entry.mode {
        return Some(format!("its mode is {mode:04o}, was {:04o}", entry.mode));
    }
    if (now.st_uid, now.st_gid) != (entry.uid, entry.gid) {
        return Some(format!("its owner is {}:{}, was {}:{}", now.st_uid, now.st_gid, entry.uid, entry.gid));
    }
    if entry.kind != EntryKind::File {
        return None;
    }
    if u64::try_from(now.st_size) != Ok(entry.size) {
        return Some(format!("it has {} bytes, had {}", now.st_size, entry.size));
    }
    let mtime_ns = now.st_mtime.saturating_mul(1_000_000_000).saturating_add(now.st_mtime_nsec as i64);
    if mtime_ns != entry.mtime_ns {
        return Some("its modification time differs".to_owned());
    }
    let opened = openat(&parent, name, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
    match opened.map_err(std::io::Error::from).and_then(|file| content_crc(File::from(file))) {
        Ok(crc) if crc == entry.crc => None,
        Ok(_) => Some("its content differs although size and time are the same".to_owned()),
        Err(error) => Some(format!("it cannot be read: {error}")),
    }
}

fn content_crc(mut file: File) -> std::io::Result<u32> {
    let mut buffer = vec![0; 1 << 20];
    let mut crc = 0;
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(crc),
            len => crc = crc32c_append(crc, &buffer[..len]),
        }
    }
}
