//! What was found bad: blocks of volumes that could not be read, and when each volume and copy was last read back.
//!
//! A damaged block is a fact like an extent. Whoever reads (a verification, a restore, a copy, a mount) records what it
//! met; it stays recorded until a later verification reads those blocks, or until the volume begins another life. What
//! follows from it is computed from the extents: which copies are no longer whole, which objects nothing can stand on,
//! what no copy has any more.
//!
//! Ranges of one life never overlap: what is recorded a second time keeps its first date.

use std::ops::Range;

use capstan_format::{ObjectId, Volser, VolumeId};

use crate::CatalogError;
use crate::catalog::{Catalog, number};
use crate::db::{Db, Row, Transaction, params};
use crate::volume::{self, VolumeState, volser};

/// Consecutive blocks of a volume that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamagedBlocks {
    /// The first.
    pub first_lbn: u64,
    /// How many; 0 where something is wrong with the volume and no block of it is known to be bad.
    pub blocks: u64,
    /// What was found.
    pub reason: String,
}

/// Damage on record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DamageRecord {
    /// The volume.
    pub volser: Volser,
    /// Which blocks.
    pub blocks: DamagedBlocks,
    /// When it was found first, nanoseconds since 1970.
    pub since_ns: i64,
    /// What found it: `verify`, `restore`, `mount` ...
    pub found_by: String,
}

/// The last time that something was read back in full.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verification {
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// What was verified: `volume` or `object`.
    pub how: String,
    /// Blocks that could not be read then.
    pub bad_blocks: u64,
}

/// What a verification read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verified<'a> {
    /// All of a volume.
    Volume,
    /// What a volume holds of one object, in these blocks: those that were repaired on another volume are not read
    /// again, and what is on record of them stays.
    Object(ObjectId, &'a [Range<u64>]),
}

/// Stands for the whole volume where a verification names an object.
const WHOLE_VOLUME: [u8; 0] = [];

const PUT_VERIFICATION: &str = "INSERT INTO verifications (volume, object, at_ns, how, bad_blocks)
    VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (volume, object)
    DO UPDATE SET at_ns = excluded.at_ns, how = excluded.how, bad_blocks = excluded.bad_blocks";

impl Catalog {
    /// Records blocks of a life of a volume that could not be read, and gives how many of them were not known before.
    /// The copies that they belong to are no longer known to be whole; the volume takes no more data.
    ///
    /// # Errors
    /// [`CatalogError::UnknownVolume`] if the volume is not in the catalog; else the database cannot be written.
    pub fn record_damage(
        &mut self,
        volser: &Volser,
        life: VolumeId,
        found: &[DamagedBlocks],
        found_by: &str,
        now_ns: i64,
    ) -> Result<u64, CatalogError> {
        let transaction = self.write()?;
        let recorded =
            volume::find(&transaction, volser)?.ok_or_else(|| CatalogError::UnknownVolume(volser.clone()))?;
        if recorded.id != Some(life) || found.is_empty() {
            // Labelled anew meanwhile: what was read is gone in any case.
            return Ok(0);
        }
        let mut new_blocks = 0;
        let mut known = ranges(&transaction, life)?;
        for damage in found {
            let first = damage.first_lbn;
            let new = without(first..first.saturating_add(damage.blocks), &known);
            let is_note = damage.blocks == 0 && !has_note(&transaction, life)?;
            for range in new.into_iter().chain(is_note.then_some(first..first)) {
                insert(&transaction, life, &range, &damage.reason, found_by, now_ns)?;
                transaction.execute(
                    "UPDATE wanted_copies SET whole = 0 WHERE whole = 1 AND (object, copy) IN
                     (SELECT object, copy FROM extents JOIN copies USING (object, volume)
                      WHERE volume = ?1 AND first_lbn < ?3 AND first_lbn + blocks > ?2)",
                    params![
                        life.0.cast_signed(),
                        number("a block number", range.start)?,
                        number("a block number", range.end)?
                    ],
                )?;
                new_blocks += range.end - range.start;
                known.push(range);
            }
            known.sort_by_key(|range| range.start);
        }
        let mut now = recorded;
        if matches!(now.state, VolumeState::Filling | VolumeState::Full) {
            now.state = VolumeState::Suspect;
        }
        if new_blocks > 0 {
            now.errors += 1;
        }
        volume::upsert(&transaction, &now)?;
        transaction.commit()?;
        Ok(new_blocks)
    }

    /// Records that a volume, or what it holds of an object, was read back in full: damage on record there is replaced
    /// by what was found.
    ///
    /// # Errors
    /// Those of [`Catalog::record_damage`]. Damage that was found to be sound may be off the record by then.
    pub fn record_verification(
        &mut self,
        volser: &Volser,
        life: VolumeId,
        verified: Verified<'_>,
        found: &[DamagedBlocks],
        now_ns: i64,
    ) -> Result<u64, CatalogError> {
        self.forget_sound(life, verified, found)?;
        let new = self.record_damage(volser, life, found, "verify", now_ns)?;
        let transaction = self.write()?;
        let bad: u64 = found.iter().map(|damage| damage.blocks).sum();
        let bad = number("a count of blocks", bad)?;
        let volume = life.0.cast_signed();
        match verified {
            Verified::Volume => {
                transaction.execute(PUT_VERIFICATION, params![volume, WHOLE_VOLUME, now_ns, "volume", bad])?;
                transaction.execute(
                    "INSERT INTO verifications (volume, object, at_ns, how, bad_blocks)
                     SELECT volume, object, ?2, 'volume',
                     (SELECT CAST(coalesce(sum(
                          CASE WHEN extents.first_lbn + extents.blocks < damage.first_lbn + damage.blocks
                               THEN extents.first_lbn + extents.blocks ELSE damage.first_lbn + damage.blocks END
                          - CASE WHEN extents.first_lbn > damage.first_lbn
                                 THEN extents.first_lbn ELSE damage.first_lbn END), 0) AS BIGINT)
                      FROM damage JOIN extents ON extents.volume = damage.volume
                      WHERE extents.volume = copies.volume AND extents.object = copies.object
                      AND extents.first_lbn < damage.first_lbn + damage.blocks
                      AND extents.first_lbn + extents.blocks > damage.first_lbn)
                     FROM copies WHERE volume = ?1 ON CONFLICT (volume, object)
                     DO UPDATE SET at_ns = excluded.at_ns, how = excluded.how, bad_blocks = excluded.bad_blocks",
                    params![volume, now_ns],
                )?;
            }
            Verified::Object(object, _) => {
                transaction.execute(PUT_VERIFICATION, params![volume, object.0, now_ns, "object", bad])?;
            }
        }
        transaction.commit()?;
        Ok(new)
    }

    /// Takes damage off the record where blocks were read and are good.
    fn forget_sound(
        &mut self,
        life: VolumeId,
        verified: Verified<'_>,
        found: &[DamagedBlocks],
    ) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let read = match verified {
            Verified::Volume => std::iter::once(0..i64::MAX.cast_unsigned()).collect(),
            Verified::Object(_, blocks) => blocks.to_vec(),
        };
        let bad: Vec<_> = found.iter().map(|damage| damage.first_lbn..damage.first_lbn + damage.blocks).collect();
        let mut good: Vec<Range<u64>> = read.into_iter().flat_map(|range| without(range, &bad)).collect();
        good.sort_by_key(|range| range.start);
        let rows = rows(&transaction, life)?;
        for (damage, since_ns, found_by) in rows {
            let recorded = damage.first_lbn..damage.first_lbn + damage.blocks;
            let left = match damage.blocks {
                // Only reading all of the volume answers a doubt about the volume.
                0 if verified == Verified::Volume => Vec::new(),
                0 => continue,
                _ => without(recorded.clone(), &good),
            };
            if left == [recorded] {
                continue;
            }
            transaction.execute(
                "DELETE FROM damage WHERE volume = ?1 AND first_lbn = ?2 AND blocks = ?3",
                params![
                    life.0.cast_signed(),
                    number("a block number", damage.first_lbn)?,
                    number("a count of blocks", damage.blocks)?
                ],
            )?;
            for range in left {
                insert(&transaction, life, &range, &damage.reason, &found_by, since_ns)?;
            }
        }
        transaction.commit()?;
        Ok(())
    }

    /// Takes over what another catalog has on record of lives of volumes that this one knows, too.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; findings of some volumes may be taken over by
    /// then.
    pub fn take_over_findings(&mut self, old: &Self) -> Result<(), CatalogError> {
        for volume in self.volumes()? {
            let Some(life) = volume.id else { continue };
            for (damage, since_ns, found_by) in rows(&old.db, life)? {
                self.record_damage(&volume.volser, life, &[damage], &found_by, since_ns)?;
            }
            let query = "SELECT object, at_ns, how, bad_blocks FROM verifications WHERE volume = ?1";
            let found: Vec<(Vec<u8>, i64, String, i64)> =
                old.db.query(query, params![life.0.cast_signed()], |row| {
                    Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
                })?;
            let transaction = self.write()?;
            for (object, at_ns, how, bad) in found {
                transaction.execute(PUT_VERIFICATION, params![life.0.cast_signed(), object, at_ns, how, bad])?;
            }
            transaction.commit()?;
        }
        Ok(())
    }

    /// All damage on record, by volume and block.
    ///
    /// # Errors
    /// The database cannot be read, or a barcode in it is damaged.
    pub fn damage(&self) -> Result<Vec<DamageRecord>, CatalogError> {
        let query =
            "SELECT volser, first_lbn, blocks, reason, since_ns, found_by FROM damage JOIN volumes USING (volume)
                     ORDER BY volser, first_lbn";
        let damage = |row: &Row<'_>| {
            let blocks = DamagedBlocks { first_lbn: row.get(1)?, blocks: row.get(2)?, reason: row.get(3)? };
            let volser = volser(row, 0)?;
            Ok(DamageRecord { volser, blocks, since_ns: row.get(4)?, found_by: row.get(5)? })
        };
        self.db.query(query, &[], damage)
    }

    /// Living objects that have blocks among those on record as damaged, by id.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn damaged_objects(&self) -> Result<Vec<ObjectId>, CatalogError> {
        let query = "SELECT DISTINCT extents.object FROM damage JOIN extents USING (volume) JOIN objects USING (object)
                     WHERE expired_ns IS NULL AND extents.first_lbn < damage.first_lbn + damage.blocks
                     AND extents.first_lbn + extents.blocks > damage.first_lbn ORDER BY extents.object";
        self.db.query(query, &[], |row| row.get(0).map(ObjectId))
    }

    /// When a volume was last read back in full; `None` for one that never was.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn volume_verified(&self, volser: &Volser) -> Result<Option<Verification>, CatalogError> {
        let query = "SELECT at_ns, how, bad_blocks FROM verifications JOIN volumes USING (volume)
                     WHERE volser = ?1 AND object = ?2";
        self.db.query_first(query, params![volser.as_str(), WHOLE_VOLUME], verification)
    }

    /// When a copy of an object was last read back in full: the oldest of its volumes counts. `None` where one of them
    /// never was.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn copy_verified(&self, object: ObjectId, copy: u8) -> Result<Option<Verification>, CatalogError> {
        let query = "SELECT at_ns, how, bad_blocks FROM copies LEFT JOIN verifications USING (object, volume)
                     WHERE object = ?1 AND copy = ?2 ORDER BY at_ns";
        let found: Vec<Option<Verification>> = self.db.query(query, params![object.0, copy], |row| {
            row.get::<Option<i64>>(0)?.map(|_| verification(row)).transpose()
        })?;
        let Some(found) = found.into_iter().collect::<Option<Vec<_>>>() else { return Ok(None) };
        let bad_blocks = found.iter().map(|one| one.bad_blocks).sum();
        Ok(found.into_iter().next().map(|oldest| Verification { bad_blocks, ..oldest }))
    }
}

fn verification(row: &Row<'_>) -> Result<Verification, CatalogError> {
    Ok(Verification { at_ns: row.get(0)?, how: row.get(1)?, bad_blocks: row.get(2)? })
}

fn rows(db: &Db, life: VolumeId) -> Result<Vec<(DamagedBlocks, i64, String)>, CatalogError> {
    let query = "SELECT first_lbn, blocks, reason, since_ns, found_by FROM damage WHERE volume = ?1 ORDER BY first_lbn";
    let row = |row: &Row<'_>| {
        let damage = DamagedBlocks { first_lbn: row.get(0)?, blocks: row.get(1)?, reason: row.get(2)? };
        Ok((damage, row.get(3)?, row.get(4)?))
    };
    db.query(query, params![life.0.cast_signed()], row)
}

fn ranges(db: &Db, life: VolumeId) -> Result<Vec<Range<u64>>, CatalogError> {
    let rows = rows(db, life)?.into_iter();
    Ok(rows.map(|(damage, ..)| damage.first_lbn..damage.first_lbn + damage.blocks).collect())
}

fn has_note(db: &Db, life: VolumeId) -> Result<bool, CatalogError> {
    let query = "SELECT 1 FROM damage WHERE volume = ?1 AND blocks = 0";
    db.exists(query, params![life.0.cast_signed()])
}

fn insert(
    db: &Transaction<'_>,
    life: VolumeId,
    range: &Range<u64>,
    reason: &str,
    found_by: &str,
    since_ns: i64,
) -> Result<(), CatalogError> {
    db.execute(
        "INSERT INTO damage (volume, first_lbn, blocks, since_ns, found_by, reason) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        params![
            life.0.cast_signed(),
            number("a block number", range.start)?,
            number("a count of blocks", range.end - range.start)?,
            since_ns,
            found_by,
            reason,
        ],
    )?;
    Ok(())
}

/// What is left of a range without others, which are sorted and do not overlap.
pub fn without(range: Range<u64>, others: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = Vec::new();
    let mut at = range.start;
    for other in others.iter().filter(|other| other.start < range.end && other.end > range.start) {
        if at < other.start {
            left.push(at..other.start);
        }
        at = at.max(other.end);
    }
    if at < range.end {
        left.push(at..range.end);
    }
    left
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    #![allow(clippy::single_range_in_vec_init, reason = "lists of ranges are what is tested")]

    use super::*;
    use crate::Volume;
    use crate::place_in_tests::catalog_in;

    const LIFE: VolumeId = VolumeId(1);

    fn catalog(dir: &std::path::Path) -> (Catalog, Volser) {
        let mut catalog = catalog_in(dir);
        let volser = Volser::new("A00001").unwrap();
        let volume = Volume { id: Some(LIFE), state: VolumeState::Filling, ..Volume::blank(volser.clone()) };
        catalog.put_volume(&volume).unwrap();
        (catalog, volser)
    }

    fn bad(first_lbn: u64, blocks: u64) -> DamagedBlocks {
        DamagedBlocks { first_lbn, blocks, reason: "unreadable".to_owned() }
    }

    fn on_record(catalog: &Catalog) -> Vec<(u64, u64, i64, String)> {
        let rows = catalog.damage().unwrap().into_iter();
        rows.map(|row| (row.blocks.first_lbn, row.blocks.blocks, row.since_ns, row.found_by)).collect()
    }

    #[test]
    fn damage_keeps_its_first_date_and_goes_when_it_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let (mut catalog, volser) = catalog(dir.path());
        assert_eq!(catalog.record_damage(&volser, LIFE, &[bad(10, 5)], "restore", 100).unwrap(), 5);
        assert_eq!(catalog.record_damage(&volser, LIFE, &[bad(8, 10)], "copy", 200).unwrap(), 5);
        let row = |first, blocks, since, by: &str| (first, blocks, since, by.to_owned());
        assert_eq!(on_record(&catalog), [row(8, 2, 200, "copy"), row(10, 5, 100, "restore"), row(15, 3, 200, "copy")]);
        let volume = catalog.volume(&volser).unwrap().unwrap();
        assert_eq!((volume.state, volume.errors), (VolumeState::Suspect, 2));
        catalog.record_verification(&volser, LIFE, Verified::Volume, &[bad(12, 1)], 300).unwrap();
        assert_eq!(on_record(&catalog), [row(12, 1, 100, "restore")]);
        let verified = catalog.volume_verified(&volser).unwrap().unwrap();
        assert_eq!((verified.at_ns, verified.how.as_str(), verified.bad_blocks), (300, "volume", 1));
    }

    /// Blocks that were repaired elsewhere are not read again for their object: they were taken off the record all the
    /// same.
    #[test]
    fn what_a_verification_did_not_read_stays_on_record() {
        let dir = tempfile::tempdir().unwrap();
        let (mut catalog, volser) = catalog(dir.path());
        catalog.record_damage(&volser, LIFE, &[bad(10, 2), bad(20, 2)], "verify", 100).unwrap();
        let object = ObjectId([1; 16]);
        catalog.record_verification(&volser, LIFE, Verified::Object(object, &[3..11, 12..30]), &[], 300).unwrap();
        assert_eq!(on_record(&catalog), [(11, 1, 100, "verify".to_owned())]);
    }

    #[test]
    fn damage_goes_with_the_life_that_had_it() {
        let dir = tempfile::tempdir().unwrap();
        let (mut catalog, volser) = catalog(dir.path());
        catalog.record_damage(&volser, LIFE, &[bad(10, 5), bad(0, 0)], "mount", 100).unwrap();
        assert_eq!(catalog.damage().unwrap().len(), 2);
        assert_eq!(catalog.record_damage(&volser, VolumeId(9), &[bad(1, 1)], "mount", 100).unwrap(), 0, "another life");
        let known = catalog.volume(&volser).unwrap().unwrap();
        catalog.relabelled(&Volume { id: Some(VolumeId(2)), ..known }, crate::Promise::Keep).unwrap();
        assert_eq!(catalog.damage().unwrap(), []);
        assert_eq!(catalog.volume_verified(&volser).unwrap(), None);
    }

    #[test]
    fn what_is_left_of_a_range() {
        assert_eq!(without(0..10, &[2..4, 6..7]), [0..2, 4..6, 7..10]);
        assert_eq!(without(3..5, &[0..4, 4..9]), []);
        assert_eq!(without(3..5, &[5..9]), [3..5]);
    }
}
