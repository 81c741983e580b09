//! Volumes: which cartridges there are, what state each is in, and what became of its earlier lives.

use capstan_format::{Algorithm, KeyTag, Volser, VolumeId};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Db, Row, Transaction, impossible, params};
use crate::pool::algorithm;

/// The library that `[library]` of the settings is, and that volumes of a catalog before there were several are in.
pub const MAIN_LIBRARY: &str = "main";

/// What may be done with a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum VolumeState {
    /// Never labelled, or erased.
    Blank,
    /// Labelled, and free to be labelled anew for any pool that scratch feeds.
    Scratch,
    /// Labelled, with room.
    Filling,
    /// No room left.
    Full,
    /// An error was seen on it: it is read, and not written, until an operator clears it.
    Suspect,
    /// It is read, and never written again.
    Retired,
}

impl VolumeState {
    const ALL: [Self; 6] = [Self::Blank, Self::Scratch, Self::Filling, Self::Full, Self::Suspect, Self::Retired];

    pub(crate) fn code(self) -> u8 {
        Self::ALL.iter().position(|&state| state == self).map_or(0, |at| at as u8)
    }
}

/// Whether a volume can ever be written anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MediumKind {
    /// It can.
    Rewritable,
    /// It cannot (WORM): it is labelled once, appended to until it is full, and keeps what is on it.
    WriteOnce,
}

impl MediumKind {
    const ALL: [Self; 2] = [Self::Rewritable, Self::WriteOnce];

    fn code(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |at| at as u8)
    }
}

/// The key that a volume is encrypted with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyRef {
    /// The key's public name.
    pub tag: KeyTag,
    /// The cipher.
    pub algorithm: Algorithm,
}

/// A cartridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Its barcode.
    pub volser: Volser,
    /// Its pool; `None` while it belongs to scratch.
    pub pool: Option<String>,
    /// This life; `None` while it is blank.
    pub id: Option<VolumeId>,
    /// What may be done with it.
    pub state: VolumeState,
    /// Its key; `None` where it is plain.
    pub key: Option<KeyRef>,
    /// Bytes that it is thought to hold.
    pub capacity: Option<u64>,
    /// Bytes on it, block headers included. [`Catalog::record_checkpoint`] adds to it.
    pub written: u64,
    /// End of data at the last flush that is recorded. [`Catalog::record_checkpoint`] moves it on.
    pub end_of_data_lbn: u64,
    /// The last checkpoint, 0 if there is none. [`Catalog::record_checkpoint`] moves it on.
    pub checkpoint_lbn: u64,
    /// When this life began.
    pub labelled_ns: Option<i64>,
    /// When it was last written. [`Catalog::record_checkpoint`] moves it on.
    pub written_ns: Option<i64>,
    /// When it was last read.
    pub read_ns: Option<i64>,
    /// How many times it was mounted.
    pub mounts: u64,
    /// How many errors were seen on it.
    pub errors: u64,
    /// How many lives it had before this one.
    pub recycled: u32,
    /// When the key of this life was destroyed, as far as is known here: the sealed key store knows.
    pub key_destroyed_ns: Option<i64>,
    /// Whether it can ever be written anew, as its drive said when it was mounted last; rewritable until then.
    pub medium: MediumKind,
    /// The library that it was in when it was last seen.
    pub library: String,
    /// The generation of the cartridge, as its drive said when it was mounted last: `LTO-9`; `virtual` for one of none.
    pub generation: Option<String>,
}

impl Volume {
    /// Notes that nothing more fits on it. One that was set aside or retired meanwhile stays so.
    pub fn fill(&mut self) {
        if self.state == VolumeState::Filling {
            self.state = VolumeState::Full;
        }
    }

    /// A volume that was never used.
    pub fn blank(volser: Volser) -> Self {
        Self {
            volser,
            pool: None,
            id: None,
            state: VolumeState::Blank,
            key: None,
            capacity: None,
            written: 0,
            end_of_data_lbn: 0,
            checkpoint_lbn: 0,
            labelled_ns: None,
            written_ns: None,
            read_ns: None,
            mounts: 0,
            errors: 0,
            recycled: 0,
            key_destroyed_ns: None,
            medium: MediumKind::Rewritable,
            library: MAIN_LIBRARY.to_owned(),
            generation: None,
        }
    }
}

const COLUMNS: &str = "volser, pool, volume, state, key_tag, algorithm, capacity, written, end_lbn, checkpoint_lbn,
    labelled_ns, written_ns, read_ns, mounts, errors, recycled, key_destroyed_ns, medium, library,
    generation";

impl Catalog {
    /// Adds a volume, or changes the one of that barcode. Its life cannot be changed so: see [`Catalog::relabelled`].
    ///
    /// # Errors
    /// [`CatalogError::OtherLife`] if the catalog knows another life of the volume; else the database cannot be
    /// written.
    pub fn put_volume(&mut self, volume: &Volume) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        if let Some(recorded) = find(&transaction, &volume.volser)?
            && recorded.id.is_some()
        {
            same_life(&recorded, volume)?;
        }
        upsert(&transaction, volume)?;
        transaction.commit()
    }

    /// Changes what `change` changes of a volume, and gives it as it is then.
    ///
    /// # Errors
    /// [`CatalogError::UnknownVolume`] if there is no such volume; [`CatalogError::OtherLife`] if `change` changes its
    /// life; else the database cannot be written.
    pub fn update_volume(&mut self, volser: &Volser, change: impl FnOnce(&mut Volume)) -> Result<Volume, CatalogError> {
        let transaction = self.write()?;
        let recorded = find(&transaction, volser)?.ok_or_else(|| CatalogError::UnknownVolume(volser.clone()))?;
        let mut volume = recorded.clone();
        change(&mut volume);
        same_life(&recorded, &volume)?;
        upsert(&transaction, &volume)?;
        transaction.commit()?;
        Ok(volume)
    }

    /// Notes that the key of a tag was destroyed, for those who ask without opening the key store.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn key_destroyed(&mut self, tag: &KeyTag, destroyed_ns: i64) -> Result<(), CatalogError> {
        let note = "UPDATE volumes SET key_destroyed_ns = ?2 WHERE key_tag = ?1 AND key_destroyed_ns IS NULL";
        let transaction = self.write()?;
        transaction.execute(note, params![tag.0, destroyed_ns])?;
        transaction.commit()
    }

    /// The volume of a barcode.
    ///
    /// # Errors
    /// The database cannot be read, or what it has of the volume is damaged.
    pub fn volume(&self, volser: &Volser) -> Result<Option<Volume>, CatalogError> {
        find(&self.db, volser)
    }

    /// All volumes, by barcode.
    ///
    /// # Errors
    /// The database cannot be read, or what it has of a volume is damaged.
    pub fn volumes(&self) -> Result<Vec<Volume>, CatalogError> {
        self.db.query(&format!("SELECT {COLUMNS} FROM volumes ORDER BY volser"), &[], volume)
    }
}

pub(crate) fn find(db: &Db, volser: &Volser) -> Result<Option<Volume>, CatalogError> {
    db.query_first(&format!("SELECT {COLUMNS} FROM volumes WHERE volser = ?1"), params![volser.as_str()], volume)
}

fn same_life(recorded: &Volume, now: &Volume) -> Result<(), CatalogError> {
    if recorded.id == now.id {
        return Ok(());
    }
    Err(CatalogError::OtherLife { volser: now.volser.clone(), recorded: life(recorded.id), found: life(now.id) })
}

/// A life in words.
pub(crate) fn life(id: Option<VolumeId>) -> String {
    id.map_or_else(|| "none (blank)".to_owned(), |id| id.to_string())
}

pub(crate) fn upsert(db: &Transaction<'_>, volume: &Volume) -> Result<(), CatalogError> {
    if let Some(pool) = &volume.pool
        && !db.exists("SELECT 1 FROM pools WHERE name = ?1", params![pool])?
    {
        return Err(CatalogError::UnknownPool(pool.clone()));
    }
    db.execute("DELETE FROM volumes WHERE volser = ?1", params![volume.volser.as_str()])?;
    let insert = format!(
        "INSERT INTO volumes ({COLUMNS})
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)"
    );
    db.execute(
        &insert,
        params![
            volume.volser.as_str(),
            volume.pool,
            volume.id.map(|id| id.0.cast_signed()),
            volume.state.code(),
            volume.key.map(|key| key.tag.0),
            volume.key.map(|key| key.algorithm.code()),
            volume.capacity.map(|capacity| number("the capacity", capacity)).transpose()?,
            number("bytes written", volume.written)?,
            number("the end of data", volume.end_of_data_lbn)?,
            number("the last checkpoint", volume.checkpoint_lbn)?,
            volume.labelled_ns,
            volume.written_ns,
            volume.read_ns,
            number("the mount count", volume.mounts)?,
            number("the error count", volume.errors)?,
            volume.recycled,
            volume.key_destroyed_ns,
            volume.medium.code(),
            volume.library,
            volume.generation,
        ],
    )
    .map(drop)
}

fn volume(row: &Row<'_>) -> Result<Volume, CatalogError> {
    let (code, medium): (u8, u8) = (row.get(3)?, row.get(17)?);
    let key = match (row.get(4)?, row.get::<Option<u8>>(5)?) {
        (Some(tag), Some(code)) => Some(KeyRef { tag: KeyTag(tag), algorithm: algorithm(code)? }),
        _ => None,
    };
    Ok(Volume {
        volser: volser(row, 0)?,
        pool: row.get(1)?,
        id: row.get::<Option<i64>>(2)?.map(|id| VolumeId(id.cast_unsigned())),
        state: *VolumeState::ALL.get(usize::from(code)).ok_or_else(|| impossible("a volume's state", code))?,
        key,
        capacity: row.get(6)?,
        written: row.get(7)?,
        end_of_data_lbn: row.get(8)?,
        checkpoint_lbn: row.get(9)?,
        labelled_ns: row.get(10)?,
        written_ns: row.get(11)?,
        read_ns: row.get(12)?,
        mounts: row.get(13)?,
        errors: row.get(14)?,
        recycled: row.get(15)?,
        key_destroyed_ns: row.get(16)?,
        medium: *MediumKind::ALL.get(usize::from(medium)).ok_or_else(|| impossible("a kind of medium", medium))?,
        library: row.get(18)?,
        generation: row.get(19)?,
    })
}

/// The barcode in a column.
pub(crate) fn volser(row: &Row<'_>, at: usize) -> Result<Volser, CatalogError> {
    let text: String = row.get(at)?;
    Volser::new(&text).map_err(|_| impossible("a volser", text))
}
