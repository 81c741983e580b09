//! Keys that go from one store to another, or to a safe place and back.

use capstan_format::KeyTag;
use zeroize::Zeroizing;

use super::{SealedStore, find};
use crate::envelope::wrap;
use crate::export::{ExportKey, ExportedKey, KeyExport, seal_export, wrap_for_export};
use crate::import::ImportOutcome;
use crate::record::StoredKey;
use crate::{Argon2Cost, ImportedKey, KeyError, KeyRecord, KeyState, Name};

/// Which keys to export.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExportSelection {
    /// All that can be: not destroyed, not drawn and never given out, and not kept here by their policy.
    All,
    /// These. Each must be there, not be destroyed, and be allowed to leave by its policy.
    Keys(Vec<KeyTag>),
}

impl SealedStore {
    /// Seals keys into an export that its own passphrase opens and that needs nothing else.
    ///
    /// # Errors
    /// [`KeyError::KeyMissing`], [`KeyError::KeyDestroyed`] and [`KeyError::Refused`] for a key that is named and may
    /// or can not leave; [`KeyError::EmptyPassphrase`] and [`KeyError::Argon2`] if the passphrase or its cost is
    /// refused; else the store cannot be read.
    pub fn export(
        &self,
        selection: &ExportSelection,
        passphrase: &Zeroizing<String>,
        cost: Argon2Cost,
    ) -> Result<Vec<u8>, KeyError> {
        let (contents, keys) = self.read()?;
        let realm = contents.realm();
        let places = match selection {
            ExportSelection::All => {
                let may_leave = |record: &KeyRecord| {
                    !matches!(record.state, KeyState::Generated | KeyState::Destroyed)
                        && realm.check_export(record).is_ok()
                };
                let rows = contents.rows.iter().enumerate();
                rows.filter(|(_, row)| may_leave(&row.key.record)).map(|(place, _)| place).collect()
            }
            ExportSelection::Keys(tags) => {
                let mut places = Vec::with_capacity(tags.len());
                for tag in tags {
                    let place = find(self.database.path(), &contents, tag, None)?;
                    realm.check_export(&contents.rows[place].key.record)?;
                    places.push(place);
                }
                places.sort_unstable();
                places.dedup();
                places
            }
        };
        let exported = places.into_iter().map(|place| {
            let stored = &contents.rows[place].key;
            Ok(ExportedKey { record: stored.record.clone(), key: self.unwrap_key(stored, &keys)? })
        });
        let exported = exported.collect::<Result<Vec<_>, KeyError>>()?;
        let export_key = ExportKey::random()?;
        seal_export(&wrap_for_export(&exported, &export_key)?, &export_key, passphrase, cost)
    }

    /// Takes the keys of an export in, all in one transaction, and reads them back; says what became of each.
    ///
    /// The keys that are new here join `group`, and their policy's periods run from when they were drawn. It may be
    /// repeated. A key that this store has keeps its record; one that was destroyed here stays destroyed. A key that
    /// was filling its volume goes on doing so, unless this store fills that volume with another.
    ///
    /// # Errors
    /// [`KeyError::WrongExportPassphrase`], [`KeyError::ExportDamaged`], those of
    /// [`Holdings::import`](crate::Holdings::import).
    pub fn import(
        &mut self,
        export: &[u8],
        passphrase: &Zeroizing<String>,
        group: &Name,
        now_ns: i64,
    ) -> Result<Vec<ImportedKey>, KeyError> {
        let decoded = KeyExport::read(export)?;
        let exported = decoded.export_key(passphrase).and_then(|export_key| decoded.open(&export_key))?;
        let path = self.database.path().to_owned();
        let imported = self.change(|contents, keys| {
            let mut imported = Vec::with_capacity(exported.len());
            for ExportedKey { record, key } in exported {
                let (tag, volser) = (record.tag, record.volser.clone());
                let mut holdings = contents.holdings(&path, Some(&volser), Some(&tag));
                let stored = StoredKey { record, wrapped: Some(wrap(&keys.wrapping, key.expose())?) };
                let outcome = holdings.import(stored, group, now_ns)?;
                contents.apply(holdings.finish());
                imported.push(ImportedKey { tag, volser, outcome });
            }
            Ok(imported)
        })?;
        let added = imported.iter().filter(|key| matches!(key.outcome, ImportOutcome::Added(_)));
        self.prove_stored(&added.map(|key| key.tag).collect::<Vec<_>>())?;
        Ok(imported)
    }
}
