//! What the tests record: entries, objects and checkpoints as a run would leave them on a volume.
#![allow(unreachable_pub, reason = "shared by the tests of this folder")]

mod place;
mod random;

pub use place::catalog_in;
pub use random::Random;

use capstan_catalog::{Catalog, CatalogError, CheckpointSeen, Pool, Recorded, ScratchFeed, Volume, VolumeState};
use capstan_format::{
    CatalogPart, Checkpoint, EntryEncoder, EntryFlags, EntryKind, ExtentRecord, FileEntry, ObjectId, ObjectKind,
    ObjectRecord, ObjectState, PartRecord, SessionId, SessionRecord, Volser, VolumeId,
};

pub fn object_id(number: u64) -> ObjectId {
    let mut bytes = [7; 16];
    bytes[8..].copy_from_slice(&number.to_be_bytes());
    ObjectId(bytes)
}

pub fn object(id: ObjectId, base: Option<ObjectId>, state: ObjectState) -> ObjectRecord {
    ObjectRecord {
        object: id,
        source: b"/usr/share".to_vec(),
        client: "tern".to_owned(),
        policy: "nightly".to_owned(),
        kind: ObjectKind::Tree,
        state,
        base,
        copy: 1,
        chunk_len: 256 << 10,
        started_ns: 1_000 + i64::from(id.0[15]),
        ended_ns: if state == ObjectState::Complete { 2_000 + i64::from(id.0[15]) } else { 0 },
        expires_ns: 0,
        is_locked: false,
        consolidates: None,
        tags: Vec::new(),
    }
}

pub fn file(path: &str, connection: u16, offset: u64) -> FileEntry {
    FileEntry {
        path: path.as_bytes().to_vec(),
        kind: EntryKind::File,
        flags: EntryFlags::default(),
        mode: 0o644,
        uid: 1000,
        gid: 1000,
        size: 10,
        mtime_ns: 1_700_000_000_000_000_000,
        change: 0xdead_beef,
        crc: 0x0bad_cafe,
        connection,
        offset,
        member_len: 1024,
        link: Vec::new(),
    }
}

pub fn run(entries: &[FileEntry]) -> Vec<u8> {
    let mut encoder = EntryEncoder::new();
    entries.iter().for_each(|entry| encoder.push(entry));
    encoder.finish()
}

/// A volume that is written: hands out block numbers and checkpoint numbers.
#[derive(Clone)]
pub struct Tape {
    pub volser: Volser,
    pub id: VolumeId,
    pub session: SessionId,
    pub lbn: u64,
    pub number: u64,
    pub previous_lbn: u64,
}

/// A checkpoint as it stands on a tape.
#[derive(Clone)]
pub struct Written {
    pub volser: Volser,
    pub id: VolumeId,
    pub session: SessionId,
    pub header: Option<SessionRecord>,
    pub lbn: u64,
    pub checkpoint: Checkpoint,
    pub part: CatalogPart,
}

impl Tape {
    pub fn new(volser: &str, id: u64) -> Self {
        let volser = Volser::new(volser).unwrap();
        Self { volser, id: VolumeId(id), session: SessionId(id ^ 1), lbn: 2, number: 0, previous_lbn: 0 }
    }

    /// The volume's row, filling, in the pool `main`.
    pub fn volume(&self) -> Volume {
        Volume {
            pool: Some("main".to_owned()),
            id: Some(self.id),
            state: VolumeState::Filling,
            labelled_ns: Some(500),
            ..Volume::blank(self.volser.clone())
        }
    }

    /// A checkpoint that holds `part`, with a session header on the first of a session.
    pub fn write(&mut self, part: CatalogPart) -> Written {
        self.lbn += 10;
        self.number += 1;
        let header = SessionRecord { started_ns: 600, host: "mover".to_owned(), software: "capstan".to_owned() };
        let checkpoint = Checkpoint {
            number: self.number,
            previous_lbn: self.previous_lbn,
            part_lbn: self.lbn - 1,
            part_blocks: 1,
            part_len: part.encode().len() as u64,
            closed: false,
            written_ns: 700 + self.lbn as i64,
        };
        self.previous_lbn = self.lbn;
        Written {
            volser: self.volser.clone(),
            id: self.id,
            session: self.session,
            header: (self.number == 1).then_some(header),
            lbn: self.lbn,
            checkpoint,
            part,
        }
    }
}

impl Written {
    pub fn record(&self, catalog: &mut Catalog) -> Result<Recorded, CatalogError> {
        catalog.record_checkpoint(&CheckpointSeen {
            volser: &self.volser,
            volume: self.id,
            session: self.session,
            session_record: self.header.as_ref(),
            lbn: self.lbn,
            checkpoint: &self.checkpoint,
            part: &self.part,
        })
    }
}

/// A part with one object, its entries, and one extent of one connection that covers them.
pub fn part(record: &ObjectRecord, entries: &[FileEntry]) -> CatalogPart {
    part_of(record, entries.first().map_or(0, |entry| entry.connection), entries)
}

/// The same of this connection, in which a member may end that began in another.
pub fn part_of(record: &ObjectRecord, connection: u16, entries: &[FileEntry]) -> CatalogPart {
    let own = || entries.iter().filter(|entry| entry.connection == connection);
    let from = own().map(|entry| entry.offset).min().unwrap_or(0);
    let to = own().map(FileEntry::end).max().unwrap_or(0);
    let extent = ExtentRecord {
        object: record.object,
        connection,
        first_sequence: (from / 1024) as u32,
        first_lbn: 3 + from / 1024,
        blocks: ((to - from) / 1024) as u32,
        offset: from,
        plain_len: to - from,
        stored_len: to - from + 64,
    };
    CatalogPart {
        objects: vec![record.clone()],
        parts: vec![PartRecord { object: record.object, connection, valid_len: to }],
        extents: if to > from { vec![extent] } else { Vec::new() },
        entries: if entries.is_empty() { Vec::new() } else { vec![(record.object, run(entries))] },
        continued_on: None,
    }
}

pub fn main_pool() -> Pool {
    Pool { name: "main".to_owned(), encryption: None, retention_ns: None, feed: ScratchFeed::Allowed }
}

/// A catalog with the pool `main` and these volumes.
pub fn catalog(dir: &std::path::Path, tapes: &[&Tape]) -> Catalog {
    let mut catalog = catalog_in(dir);
    catalog.put_pool(&main_pool()).unwrap();
    for tape in tapes {
        catalog.put_volume(&tape.volume()).unwrap();
    }
    catalog
}

pub fn paths(entries: impl Iterator<Item = Result<FileEntry, CatalogError>>) -> Vec<String> {
    entries.map(|entry| String::from_utf8(entry.unwrap().path).unwrap()).collect()
}
