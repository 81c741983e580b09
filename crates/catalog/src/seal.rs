//! From pending pieces to an index: sealed when its object is complete, or for a reader while it is not.
//!
//! Commit order: the new file is written, synced and renamed to a name of its own (the generation is part of it); then
//! one transaction makes the object's row name it and deletes the pieces. A crash in between leaves a file that nothing
//! names and that the next sealing replaces. The file's bytes depend on the entries only: not on the order they came
//! in, nor on how often, nor on how they were cut into runs.
//!
//! Sorting and writing hold no lock of the database: others record meanwhile, and what they add is sealed the next
//! time. Two that seal one object at once would write one file, so each holds a lock of the object (`OBJECT.sealing`)
//! until its commit.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use capstan_format::{EntryDecoder, ObjectId};

use crate::catalog::{Catalog, number};
use crate::db::{Db, params};
use crate::index::{Effort, Fingerprint, Index, IndexFile, IndexWriter};
use crate::object::{Object, ObjectStatus, find};
use crate::scratch::scratch_file;
use crate::sort::{EntrySource, Sorter};
use crate::{CatalogError, Counts};

/// Longest run of entries that is believed.
const RUN_LEN_MAX: u64 = 1 << 32;

impl Catalog {
    /// Writes the index file of a complete object and deletes its pending pieces. Does nothing if there are none.
    ///
    /// Where pieces came after the index was sealed (a late copy, a volume found again), they are merged into it.
    ///
    /// # Errors
    /// [`CatalogError::UnknownObject`], [`CatalogError::Expired`] and [`CatalogError::NotComplete`] if there is no such
    /// complete object; [`CatalogError::Corrupt`] if the index or a piece is damaged; [`CatalogError::DiskFull`]; else
    /// the files or the database cannot be written. The pieces stay until the index is on disk.
    pub fn seal_index(&mut self, object: ObjectId) -> Result<Counts, CatalogError> {
        if let (Some(counts), true) = (complete(&self.db, object)?.counts, pieces(&self.db, object)?.is_empty()) {
            return Ok(counts);
        }
        let dir = self.index_dir();
        let lock = SealLock::take(&dir, object)?;
        // Whoever had it may have sealed all there was.
        let (sealed, pieces) = (sealed(&self.db, object)?, pieces(&self.db, object)?);
        // Also of an index that is made anew: files of earlier ones may still be there.
        let before = generation(&self.db, object)?;
        if let (Some(counts), true) = (complete(&self.db, object)?.counts, pieces.is_empty()) {
            return Ok(counts);
        }
        let path = index_path(&dir, object, before + 1);
        let (counts, fingerprint) = self.write_index(object, sealed.as_ref(), &pieces, &path)?;
        let transaction = self.write()?;
        for piece in &pieces {
            // Where the object was forgotten meanwhile, another one may have got the number.
            transaction.execute("DELETE FROM pieces WHERE piece = ?1 AND object = ?2", params![piece, object.0])?;
        }
        transaction.execute(
            "UPDATE objects SET generation = ?2, index_len = ?3, index_crcs = ?4, entries = ?5, files = ?6, bytes = ?7,
             deleted = ?8, changed = ?9, problems = ?10 WHERE object = ?1",
            params![
                object.0,
                number("a count of sealings", before + 1)?,
                number("the length of an index", fingerprint.len)?,
                fingerprint.crcs.iter().flat_map(|crc| crc.to_le_bytes()).collect::<Vec<u8>>(),
                number("a count", counts.entries)?,
                number("a count", counts.files)?,
                i64::try_from(counts.bytes).unwrap_or(i64::MAX),
                number("a count", counts.deleted)?,
                number("a count", counts.changed)?,
                number("a count", counts.problems)?,
            ],
        )?;
        transaction.commit()?;
        remove_generations(&dir, object, before)?;
        drop(lock);
        Ok(counts)
    }

    /// Complete objects with pending pieces: those that [`Catalog::seal_index`] has work for, the oldest first.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn unsealed(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let query = "SELECT object FROM objects WHERE complete = 1 AND expired_ns IS NULL
                     AND (generation = 0 OR object IN (SELECT object FROM pieces)) ORDER BY started_ns, object";
        self.db.query(query, &[], |row| row.get(0).map(ObjectId))
    }

    /// Complete objects whose index file is not there.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn indexes_missing(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let query =
            "SELECT object, generation FROM objects WHERE index_len IS NOT NULL AND expired_ns IS NULL ORDER BY object";
        let sealed: Vec<(ObjectId, u64)> = self.db.query(query, &[], |row| Ok((ObjectId(row.get(0)?), row.get(1)?)))?;
        let dir = self.index_dir();
        let is_missing = |(object, generation): &(ObjectId, u64)| !index_path(&dir, *object, *generation).exists();
        Ok(sealed.into_iter().filter(is_missing).map(|(object, _)| object).collect())
    }

    /// The index of an object. Where it has pending pieces, they are sorted into a file that lives as long as the
    /// reader.
    ///
    /// # Errors
    /// [`CatalogError::UnknownObject`] and [`CatalogError::Expired`] if there is no such living object;
    /// [`CatalogError::Corrupt`] if its index is damaged or gone; else the database or the file cannot be read.
    pub fn index(&self, object: ObjectId) -> Result<Index, CatalogError> {
        loop {
            // One snapshot of the database, so that no entry is missed or seen twice while another process seals.
            let snapshot = self.db.snapshot()?;
            let record = find(&snapshot, object)?.ok_or(CatalogError::UnknownObject(object))?;
            if record.status == ObjectStatus::Expired {
                return Err(CatalogError::Expired(object));
            }
            let known = sealed(&snapshot, object)?;
            let opened = self.open_index(object, known.as_ref());
            drop(snapshot);
            if opened.is_ok() || sealed(&self.db, object)? == known {
                return opened;
            }
            // Another process sealed or expired it meanwhile, so the file that was named before may be gone.
        }
    }

    fn open_index(&self, object: ObjectId, sealed: Option<&Sealed>) -> Result<Index, CatalogError> {
        let (dir, pieces) = (self.index_dir(), pieces(&self.db, object)?);
        if let (Some(sealed), true) = (sealed, pieces.is_empty()) {
            return sealed.open(&dir, object);
        }
        let (file, what) = (scratch_file(&dir)?, format!("the pending index of object {object}"));
        let copy = file.try_clone().map_err(|source| CatalogError::io("write", &dir, source))?;
        self.merge(object, sealed, &pieces, copy, &what, Effort::Passing)?;
        let fingerprint = IndexFile::fingerprint(&file, &what)?;
        Ok(Index::new(object, IndexFile::open(file, &what, &fingerprint)?))
    }

    /// Writes the file, syncs it and gives it its name.
    fn write_index(
        &self,
        object: ObjectId,
        sealed: Option<&Sealed>,
        pieces: &[i64],
        path: &Path,
    ) -> Result<(Counts, Fingerprint), CatalogError> {
        let dir = self.index_dir();
        let unnamed = unnamed_path(&dir, object);
        let failed = |what: &'static str| {
            let unnamed = unnamed.clone();
            move |source| CatalogError::io(what, &unnamed, source)
        };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(&unnamed);
        let file = file.map_err(failed("create"))?;
        let copy = file.try_clone().map_err(failed("write"))?;
        let what = unnamed.display().to_string();
        let counts = self.merge(object, sealed, pieces, copy, &what, Effort::Kept)?;
        let fingerprint = IndexFile::fingerprint(&file, &what)?;
        file.sync_all().map_err(failed("sync"))?;
        fs::rename(&unnamed, path).map_err(failed("rename"))?;
        let synced = File::open(&dir).and_then(|dir| dir.sync_all());
        synced.map_err(|source| CatalogError::io("sync", &dir, source))?;
        Ok((counts, fingerprint))
    }

    /// Merges the sealed index, if there is one, and pieces into a file.
    fn merge(
        &self,
        object: ObjectId,
        sealed: Option<&Sealed>,
        pieces: &[i64],
        file: File,
        what: &str,
        effort: Effort,
    ) -> Result<Counts, CatalogError> {
        let dir = self.index_dir();
        let mut sorter = Sorter::new(&dir);
        let ends = self.stream_ends(object)?;
        for &piece in pieces {
            let Some(run) = read_piece(&self.db, (object, piece))? else { continue };
            for entry in EntryDecoder::new(&run) {
                let entry = entry.map_err(damaged_piece)?;
                // What was written behind it was read again.
                if ends.continued.get(&entry.connection).is_none_or(|stream| entry.offset < stream.end) {
                    sorter.push(entry)?;
                }
            }
        }
        let sealed = sealed.map(|sealed| sealed.open(&dir, object)).transpose()?;
        let sorted = sorter.finish(sealed.map(|index| Box::new(index.iter()) as EntrySource<'_>))?;
        let mut writer = IndexWriter::new(file, what.to_owned(), object, effort)?;
        for entry in sorted {
            writer.push(&entry?)?;
        }
        writer.finish()
    }
}

/// An index file as the database knows it.
#[derive(PartialEq, Eq)]
struct Sealed {
    generation: u64,
    fingerprint: Fingerprint,
}

impl Sealed {
    fn open(&self, dir: &Path, object: ObjectId) -> Result<Index, CatalogError> {
        let path = index_path(dir, object, self.generation);
        let what = path.display().to_string();
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(CatalogError::corrupt(what, "the file is missing"));
            }
            Err(source) => return Err(CatalogError::io("open", &path, source)),
        };
        Ok(Index::new(object, IndexFile::open(file, &what, &self.fingerprint)?))
    }
}

/// An object, if it is complete.
fn complete(db: &Db, object: ObjectId) -> Result<Object, CatalogError> {
    let record = find(db, object)?.ok_or(CatalogError::UnknownObject(object))?;
    match record.status {
        ObjectStatus::Complete => Ok(record),
        ObjectStatus::Open => Err(CatalogError::NotComplete(object)),
        ObjectStatus::Expired => Err(CatalogError::Expired(object)),
    }
}

fn sealed(db: &Db, object: ObjectId) -> Result<Option<Sealed>, CatalogError> {
    let query = "SELECT generation, index_len, index_crcs FROM objects WHERE object = ?1 AND index_len IS NOT NULL";
    db.query_first(query, params![object.0], |row| {
        let crcs =
            row.bytes(2)?.chunks_exact(4).map(|crc| u32::from_le_bytes([crc[0], crc[1], crc[2], crc[3]])).collect();
        Ok(Sealed { generation: row.get(0)?, fingerprint: Fingerprint { len: row.get(1)?, crcs } })
    })
}

/// How often an object was sealed.
fn generation(db: &Db, object: ObjectId) -> Result<u64, CatalogError> {
    let query = "SELECT generation FROM objects WHERE object = ?1";
    Ok(db.query_first(query, params![object.0], |row| row.get(0))?.unwrap_or(0))
}

fn pieces(db: &Db, object: ObjectId) -> Result<Vec<i64>, CatalogError> {
    db.query("SELECT piece FROM pieces WHERE object = ?1 ORDER BY piece", params![object.0], |row| row.get(0))
}

/// The packed entries of a piece of an object; `None` if another process sealed it meanwhile.
fn read_piece(db: &Db, (object, piece): (ObjectId, i64)) -> Result<Option<Vec<u8>>, CatalogError> {
    let query = "SELECT raw_len, crc, stored FROM pieces WHERE piece = ?1 AND object = ?2";
    db.query_first(query, params![piece, object.0], |row| {
        let raw_len: u64 = row.get(0)?;
        if raw_len > RUN_LEN_MAX {
            return Err(damaged_piece("a run of entries is impossibly long"));
        }
        let run = zstd::bulk::decompress(row.bytes(2)?, raw_len as usize).map_err(damaged_piece)?;
        if capstan_format::crc32c(&run) != row.get::<u32>(1)? {
            return Err(damaged_piece("the checksum of a run of entries is wrong"));
        }
        Ok(run)
    })
}

fn damaged_piece(reason: impl std::fmt::Display) -> CatalogError {
    CatalogError::corrupt("the catalog's database", reason)
}

fn index_path(dir: &Path, object: ObjectId, generation: u64) -> PathBuf {
    dir.join(format!("{object}.{generation}.parquet"))
}

/// Removes the files of the generations up to one, and what a killed sealing left. A file that is gone is no error: an
/// earlier try may have removed it.
pub(crate) fn remove_generations(dir: &Path, object: ObjectId, last: u64) -> Result<(), CatalogError> {
    let generations = (1..=last).map(|generation| index_path(dir, object, generation));
    for path in generations.chain([unnamed_path(dir, object)]) {
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(CatalogError::io("remove", &path, error));
            }
            _ => {}
        }
    }
    Ok(())
}

/// The right to seal an object, among all processes. A process that dies loses it.
pub(crate) struct SealLock {
    path: PathBuf,
    _file: File,
}

impl SealLock {
    /// Waits until nobody else seals the object.
    pub(crate) fn take(dir: &Path, object: ObjectId) -> Result<Self, CatalogError> {
        let path = dir.join(format!("{object}.sealing"));
        let failed = |what: &'static str| {
            let path = path.clone();
            move |source| CatalogError::io(what, &path, source)
        };
        loop {
            let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
            let file = file.map_err(failed("create"))?;
            file.lock().map_err(failed("lock"))?;
            let locked = file.metadata().map_err(failed("look at"))?;
            // Whoever had it has removed the file: the lock is on the one that is there now.
            if fs::metadata(&path).is_ok_and(|there| (there.dev(), there.ino()) == (locked.dev(), locked.ino())) {
                return Ok(Self { path, _file: file });
            }
        }
    }
}

impl Drop for SealLock {
    fn drop(&mut self) {
        // While it is locked still. One that stays is taken by the next sealing.
        let _ = fs::remove_file(&self.path);
    }
}

/// Where an index is written before it gets its name.
fn unnamed_path(dir: &Path, object: ObjectId) -> PathBuf {
    dir.join(format!("{object}.new"))
}
