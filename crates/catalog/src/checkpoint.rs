//! Recording checkpoints: the one way by which objects, extents and entries come into the catalog.
//!
//! A run records each checkpoint after its flush; a rebuild records those it reads from the volumes, backwards from the
//! end of data, a volume at a time in any order; a run that was killed between flush and commit is caught up by
//! recording the same checkpoint again. So recording is idempotent, and its result does not depend on the order: every
//! field is joined (the furthest state, the longest stream, the latest time), never overwritten.

use capstan_format::{
    CatalogPart, Checkpoint, EntryDecoder, FileEntry, Fragment, ObjectId, ObjectRecord, ObjectState, SessionId,
    SessionRecord, Volser, VolumeId, crc32c,
};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Transaction, params};
use crate::fragments;
use crate::object::{TAG_ENDS, kind_code};
use crate::reservation::check_held;
use crate::volume::{self, VolumeState};
use crate::wanted;

/// How hard a run of entries is compressed until its object is sealed.
const PIECE_LEVEL: i32 = 3;

/// A checkpoint, and where on which volume it stands.
#[derive(Debug, Clone, Copy)]
pub struct CheckpointSeen<'a> {
    /// The volume.
    pub volser: &'a Volser,
    /// Its life.
    pub volume: VolumeId,
    /// The session.
    pub session: SessionId,
    /// The session's header, where it is known; it may come with any checkpoint of the session, and more than once.
    pub session_record: Option<&'a SessionRecord>,
    /// The checkpoint's logical block number.
    pub lbn: u64,
    /// The checkpoint.
    pub checkpoint: &'a Checkpoint,
    /// The catalog part in front of it.
    pub part: &'a CatalogPart,
}

/// What recording did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Recorded {
    /// The catalog learned something.
    New,
    /// The checkpoint was recorded before; nothing changed.
    Known,
}

impl Catalog {
    /// Records a checkpoint in one transaction. When this returns, it is on disk.
    ///
    /// The volume must be in the catalog with this life; its state goes from blank or scratch to filling.
    ///
    /// # Errors
    /// [`CatalogError::UnknownVolume`] and [`CatalogError::OtherLife`] if the catalog does not know this life of the
    /// volume; [`CatalogError::PartDamaged`] and [`CatalogError::PartRefused`] if the catalog part cannot be used; else
    /// the database cannot be written. Nothing is recorded then.
    pub fn record_checkpoint(&mut self, seen: &CheckpointSeen<'_>) -> Result<Recorded, CatalogError> {
        self.record(seen, None)
    }

    /// [`Catalog::record_checkpoint`] for whoever has reserved the volume under a generation. Whoever has lost it since
    /// records nothing: [`CatalogError::ReservationLost`].
    ///
    /// # Errors
    /// [`CatalogError::ReservationLost`], and those of [`Catalog::record_checkpoint`].
    pub fn record_checkpoint_under(
        &mut self,
        seen: &CheckpointSeen<'_>,
        generation: u64,
    ) -> Result<Recorded, CatalogError> {
        self.record(seen, Some(generation))
    }

    fn record(&mut self, seen: &CheckpointSeen<'_>, generation: Option<u64>) -> Result<Recorded, CatalogError> {
        let packed = pack(seen)?;
        self.repeatable(|catalog| catalog.record_packed(seen, &packed, generation))
    }

    fn record_packed(
        &mut self,
        seen: &CheckpointSeen<'_>,
        packed: &Packed,
        generation: Option<u64>,
    ) -> Result<Recorded, CatalogError> {
        let transaction = self.write()?;
        if let Some(generation) = generation {
            check_held(&transaction, seen.volser, generation)?;
        }
        let mut volume =
            volume::find(&transaction, seen.volser)?.ok_or_else(|| CatalogError::UnknownVolume(seen.volser.clone()))?;
        if volume.id != Some(seen.volume) {
            let (recorded, found) = (volume::life(volume.id), volume::life(Some(seen.volume)));
            return Err(CatalogError::OtherLife { volser: seen.volser.clone(), recorded, found });
        }
        record_session(&transaction, seen)?;
        if !record_checkpoint(&transaction, seen)? {
            transaction.commit()?;
            return Ok(Recorded::Known);
        }
        for object in &seen.part.objects {
            join_object(&transaction, seen, volume.pool.as_deref(), object)?;
        }
        for part in &seen.part.parts {
            if standing(&transaction, seen, part.object)? == Standing::Expired {
                continue;
            }
            let grown = transaction.execute(
                "INSERT INTO parts (object, connection, valid_len) VALUES (?1, ?2, ?3)
                 ON CONFLICT (object, connection) DO UPDATE SET valid_len = excluded.valid_len
                 WHERE parts.valid_len < excluded.valid_len",
                params![part.object.0, part.connection, number("the length of a stream", part.valid_len)?],
            )?;
            if grown > 0 {
                wanted::look_again(&transaction, part.object)?;
            }
        }
        let stored_len = record_extents(&transaction, seen)?;
        for piece in &packed.pieces {
            if standing(&transaction, seen, piece.object)? == Standing::Living {
                record_piece(&transaction, piece)?;
            }
        }
        for (object, fragment) in &packed.fragments {
            if standing(&transaction, seen, *object)? == Standing::Living {
                fragments::record(&transaction, *object, fragment)?;
            }
        }
        volume.written = volume.written.saturating_add(stored_len);
        volume.checkpoint_lbn = volume.checkpoint_lbn.max(seen.lbn);
        // The filemark behind the checkpoint takes a block number of its own.
        volume.end_of_data_lbn = volume.end_of_data_lbn.max(seen.lbn.saturating_add(2));
        volume.written_ns = volume.written_ns.max(Some(seen.checkpoint.written_ns));
        if matches!(volume.state, VolumeState::Blank | VolumeState::Scratch) {
            volume.state = VolumeState::Filling;
        }
        volume::upsert(&transaction, &volume)?;
        transaction.commit()?;
        Ok(Recorded::New)
    }
}

/// A run of entries, checked and compressed.
pub(crate) struct Piece {
    object: ObjectId,
    crc: u32,
    raw_len: usize,
    stored: Vec<u8>,
}

/// The entries of a checkpoint, as they are recorded.
struct Packed {
    pieces: Vec<Piece>,
    fragments: Vec<(ObjectId, (FileEntry, Fragment))>,
}

/// Checks every entry, so that what is recorded can be sealed, and compresses the runs; before the lock is taken.
fn pack(seen: &CheckpointSeen<'_>) -> Result<Packed, CatalogError> {
    let mut packed = Packed { pieces: Vec::with_capacity(seen.part.entries.len()), fragments: Vec::new() };
    let damaged = |source| CatalogError::PartDamaged { volser: seen.volser.clone(), lbn: seen.lbn, source };
    for (object, run) in &seen.part.entries {
        let (members, found) = fragments::apart(run).map_err(damaged)?;
        for entry in found {
            let fragment = entry.fragment().map_err(damaged)?;
            packed.fragments.extend(fragment.map(|fragment| (*object, (entry, fragment))));
        }
        for entry in EntryDecoder::new(run) {
            let entry = entry.map_err(damaged)?;
            if let Some(fault) = entry.fault() {
                return Err(refused(seen, format!("{:?} {fault}", String::from_utf8_lossy(&entry.path))));
            }
        }
        packed.pieces.extend(pack_entries(*object, &members)?);
    }
    Ok(packed)
}

/// Compresses a run of entries; `None` for an empty one.
pub(crate) fn pack_entries(object: ObjectId, run: &[u8]) -> Result<Option<Piece>, CatalogError> {
    if run.is_empty() {
        return Ok(None);
    }
    let stored = zstd::bulk::compress(run, PIECE_LEVEL)
        .map_err(|source| CatalogError::Io { what: "cannot compress entries".to_owned(), source })?;
    Ok(Some(Piece { object, crc: crc32c(run), raw_len: run.len(), stored }))
}

fn refused(seen: &CheckpointSeen<'_>, reason: String) -> CatalogError {
    CatalogError::PartRefused { volser: seen.volser.clone(), lbn: seen.lbn, reason }
}

fn record_session(db: &Transaction<'_>, seen: &CheckpointSeen<'_>) -> Result<(), CatalogError> {
    let (volume, session) = (seen.volume.0.cast_signed(), seen.session.0.cast_signed());
    let closed = seen.checkpoint.closed.then_some(seen.checkpoint.written_ns);
    let record = seen.session_record;
    db.execute(
        "INSERT INTO sessions (volume, session, started_ns, host, software, closed_ns, continued_on)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT (volume, session) DO UPDATE SET
         started_ns = coalesce(sessions.started_ns, excluded.started_ns),
         host = coalesce(sessions.host, excluded.host), software = coalesce(sessions.software, excluded.software),
         closed_ns = coalesce(sessions.closed_ns, excluded.closed_ns),
         continued_on = coalesce(sessions.continued_on, excluded.continued_on)",
        params![
            volume,
            session,
            record.map(|record| record.started_ns),
            record.map(|record| &record.host),
            record.map(|record| &record.software),
            closed,
            seen.part.continued_on.as_ref().map(Volser::as_str),
        ],
    )?;
    Ok(())
}

/// Whether the checkpoint is new.
fn record_checkpoint(db: &Transaction<'_>, seen: &CheckpointSeen<'_>) -> Result<bool, CatalogError> {
    let inserted = db.execute(
        "INSERT INTO checkpoints (volume, session, number, lbn, written_ns) VALUES (?1, ?2, ?3, ?4, ?5)
         ON CONFLICT (volume, session, number) DO NOTHING",
        params![
            seen.volume.0.cast_signed(),
            seen.session.0.cast_signed(),
            number("a checkpoint's number", seen.checkpoint.number)?,
            number("a block number", seen.lbn)?,
            seen.checkpoint.written_ns,
        ],
    )?;
    Ok(inserted == 1)
}

/// Adds an object, or takes over what this record knows further; and notes which copy of it the volume holds.
fn join_object(
    db: &Transaction<'_>,
    seen: &CheckpointSeen<'_>,
    pool: Option<&str>,
    object: &ObjectRecord,
) -> Result<(), CatalogError> {
    // 0 means never, so it is the latest expiry of all.
    db.execute(
        "INSERT INTO objects (object, source, client, policy, kind, complete, base, chunk_len, started_ns, ended_ns,
                              expires_ns, locked, consolidates, tags)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)
         ON CONFLICT (object) DO UPDATE SET base = coalesce(objects.base, excluded.base),
         consolidates = coalesce(objects.consolidates, excluded.consolidates),
         tags = CASE WHEN length(coalesce(excluded.tags, '')) > length(coalesce(objects.tags, '')) THEN excluded.tags
                     ELSE objects.tags END,
         complete = CASE WHEN excluded.complete > objects.complete THEN excluded.complete ELSE objects.complete END,
         started_ns = CASE WHEN excluded.started_ns < objects.started_ns THEN excluded.started_ns ELSE objects.started_ns END,
         ended_ns = CASE WHEN excluded.ended_ns > objects.ended_ns THEN excluded.ended_ns ELSE objects.ended_ns END,
         expires_ns = CASE WHEN objects.expires_ns = 0 OR excluded.expires_ns = 0 THEN 0
                           WHEN excluded.expires_ns > objects.expires_ns THEN excluded.expires_ns
                           ELSE objects.expires_ns END,
         locked = CASE WHEN excluded.locked > objects.locked THEN excluded.locked ELSE objects.locked END",
        params![
            object.object.0,
            object.source,
            object.client,
            object.policy,
            kind_code(object.kind),
            object.state == ObjectState::Complete,
            object.base.map(|base| base.0),
            object.chunk_len,
            object.started_ns,
            object.ended_ns,
            object.expires_ns,
            object.is_locked,
            object.consolidates.map(|other| other.0),
            (!object.tags.is_empty()).then(|| object.tags.join(TAG_ENDS)),
        ],
    )?;
    let expired = "SELECT 1 FROM objects WHERE object = ?1 AND expired_ns IS NOT NULL";
    if db.exists(expired, params![object.object.0])? {
        return Ok(());
    }
    let (id, volume) = (object.object.0, seen.volume.0.cast_signed());
    let held = db.query_first(
        "INSERT INTO copies (object, volume, copy, first_ns, ended, expires_ns) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT (object, volume) DO UPDATE SET
         first_ns = CASE WHEN excluded.first_ns < copies.first_ns THEN excluded.first_ns ELSE copies.first_ns END,
         ended = CASE WHEN excluded.ended > copies.ended THEN excluded.ended ELSE copies.ended END,
         expires_ns = CASE WHEN copies.expires_ns = 0 OR copies.expires_ns > excluded.expires_ns
                                AND excluded.expires_ns <> 0
                           THEN copies.expires_ns ELSE excluded.expires_ns END
         RETURNING copy",
        params![
            id,
            volume,
            object.copy,
            seen.checkpoint.written_ns,
            object.state == ObjectState::Complete,
            object.expires_ns,
        ],
        |row| row.get(0),
    )?;
    if let Some(copy) = held.filter(|copy: &u8| *copy != object.copy) {
        let reason = format!("it holds copy {} of object {}, and copy {copy} too", object.copy, object.object);
        return Err(refused(seen, reason));
    }
    // A volume of no pool holds nothing that a session wrote; there is nowhere to mend such a copy to.
    pool.map_or(Ok(()), |pool| wanted::want(db, object.object, object.copy, pool))
}

/// Whether something is recorded for an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Living,
    /// It was given up; a copy that comes late is not taken in.
    Expired,
}

/// How an object stands; one that no catalog part of this volume described is refused.
fn standing(db: &Transaction<'_>, seen: &CheckpointSeen<'_>, object: ObjectId) -> Result<Standing, CatalogError> {
    let query = "SELECT expired_ns IS NOT NULL, volume IS NOT NULL
                 FROM objects LEFT JOIN copies ON copies.object = objects.object AND volume = ?2
                 WHERE objects.object = ?1";
    let found =
        db.query_first(query, params![object.0, seen.volume.0.cast_signed()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    match found {
        Some((true, _)) => Ok(Standing::Expired),
        Some((false, true)) => Ok(Standing::Living),
        _ => Err(refused(seen, format!("it does not describe object {object}"))),
    }
}

/// Adds the extents and gives the bytes that they take on the volume.
fn record_extents(db: &Transaction<'_>, seen: &CheckpointSeen<'_>) -> Result<u64, CatalogError> {
    let mut stored_len = 0u64;
    for extent in &seen.part.extents {
        stored_len = stored_len.saturating_add(extent.stored_len);
        if standing(db, seen, extent.object)? == Standing::Expired {
            continue;
        }
        let end = extent.offset.saturating_add(extent.plain_len);
        number("the end of an extent", end)?;
        db.execute(
            "INSERT INTO extents (object, volume, connection, first_sequence, session, first_lbn, blocks, start, plain_len,
                                  stored_len)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
             ON CONFLICT (object, connection, first_sequence, volume) DO NOTHING",
            params![
                extent.object.0,
                seen.volume.0.cast_signed(),
                extent.connection,
                extent.first_sequence,
                seen.session.0.cast_signed(),
                number("a block number", extent.first_lbn)?,
                extent.blocks,
                number("the offset of an extent", extent.offset)?,
                number("the length of an extent", extent.plain_len)?,
                number("the stored length of an extent", extent.stored_len)?,
            ],
        )?;
    }
    Ok(stored_len)
}

/// Keeps a run of entries until its object is sealed. The same run from another copy is the same piece.
pub(crate) fn record_piece(db: &Transaction<'_>, piece: &Piece) -> Result<(), CatalogError> {
    db.execute(
        "INSERT INTO pieces (piece, object, crc, raw_len, stored)
         SELECT (SELECT coalesce(max(piece), 0) + 1 FROM pieces), ?1, ?2, ?3, ?4 WHERE NOT EXISTS
         (SELECT 1 FROM pieces WHERE object = ?1 AND crc = ?2 AND raw_len = ?3 AND stored = ?4)",
        params![piece.object.0, piece.crc, number("the length of a run", piece.raw_len as u64)?, piece.stored],
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use capstan_format::{ObjectKind, ObjectState};

    use super::*;
    use crate::Volume;

    /// SQLite counts pages and not the disk's blocks here, but it is the same refusal on the same way.
    #[test]
    fn a_full_disk_is_named_and_what_was_recorded_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut catalog = Catalog::open(dir.path()).unwrap();
        let volser = Volser::new("A00001").unwrap();
        let volume = VolumeId(1);
        catalog.put_volume(&Volume { id: Some(volume), ..Volume::blank(volser.clone()) }).unwrap();
        let db = catalog.db.sqlite().unwrap();
        let pages: i64 = db.query_row("PRAGMA page_count", [], |row| row.get(0)).unwrap();
        let limit = format!("PRAGMA max_page_count = {}", pages + 8);
        db.query_row(&limit, [], |_| Ok(())).unwrap();
        let mut recorded = 0;
        for number in 1.. {
            let object = ObjectRecord {
                object: ObjectId([number as u8; 16]),
                source: vec![b'/'; 4000],
                client: String::new(),
                policy: String::new(),
                kind: ObjectKind::Tree,
                state: ObjectState::Open,
                base: None,
                copy: 1,
                chunk_len: 1,
                started_ns: number,
                ended_ns: 0,
                expires_ns: 0,
                is_locked: false,
                consolidates: None,
                tags: Vec::new(),
            };
            let part = CatalogPart { objects: vec![object], ..CatalogPart::default() };
            let number = number.cast_unsigned();
            let checkpoint = Checkpoint {
                number,
                previous_lbn: 0,
                part_lbn: number,
                part_blocks: 1,
                part_len: 1,
                closed: false,
                written_ns: 1,
            };
            let (session, session_record, lbn) = (SessionId(1), None, number);
            let seen = CheckpointSeen {
                volser: &volser,
                volume,
                session,
                session_record,
                lbn,
                checkpoint: &checkpoint,
                part: &part,
            };
            match catalog.record_checkpoint(&seen) {
                Ok(_) => recorded += 1,
                Err(CatalogError::DiskFull { .. }) => break,
                Err(other) => panic!("{other:?}"),
            }
        }
        assert!(recorded > 0);
        drop(catalog);
        let catalog = Catalog::open(dir.path()).unwrap();
        assert_eq!(catalog.objects(&crate::ObjectFilter::default()).unwrap().len(), recorded);
        assert_eq!(catalog.volume(&volser).unwrap().unwrap().checkpoint_lbn, recorded as u64);
    }
}
