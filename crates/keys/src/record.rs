//! The record of one key: what everybody may know of it, and the wrapped key beside it.
//!
//! One encoding serves the MAC of a record in the store and the record in an export:
//! ```text
//!  0 16  tag
//! 16  1  algorithm: 1 AES-256-GCM, 2 AES-256-CCM
//! 17  1  state: 1 generated .. 7 destroyed
//! 18  1  length of the barcode, 1 to 8
//! 19  n  barcode
//! ..  8  created, in nanoseconds since 1970
//! ..     activated, retired, destroyed, imported: each a byte 0, or a byte 1 and 8 bytes of time
//! ..     the wrapped key: a byte 0 if it is destroyed, or a byte 1 and 40 bytes
//! ```

use capstan_format::{Algorithm, Cursor, FormatError, KeyTag, Volser};

use crate::envelope::WrappedKey;
use crate::fields::{optional_i64, put_optional_i64};
use crate::key_record::KeyRecord;
use crate::lifecycle::KeyEvent;
use crate::{KeyError, KeyState};

/// A record with its wrapped key, which is gone when and only when the key is destroyed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredKey {
    /// What is known of it.
    pub record: KeyRecord,
    /// The key, wrapped for whoever keeps the record.
    pub wrapped: Option<WrappedKey>,
}

impl StoredKey {
    /// Appends the bytes of the layout above.
    pub fn encode(&self, bytes: &mut Vec<u8>) {
        let KeyRecord { tag, volser, algorithm, state, .. } = &self.record;
        bytes.extend_from_slice(&tag.0);
        bytes.extend_from_slice(&[algorithm.code(), state.code(), volser.as_str().len() as u8]);
        bytes.extend_from_slice(volser.as_str().as_bytes());
        bytes.extend_from_slice(&self.record.created_ns.to_le_bytes());
        let KeyRecord { activated_ns, retired_ns, destroyed_ns, imported_ns, .. } = self.record;
        for time in [activated_ns, retired_ns, destroyed_ns, imported_ns] {
            put_optional_i64(bytes, time);
        }
        bytes.push(u8::from(self.wrapped.is_some()));
        bytes.extend_from_slice(self.wrapped.as_ref().map_or(&[], |wrapped| wrapped));
    }

    /// Reads what [`StoredKey::encode`] wrote.
    ///
    /// # Errors
    /// The record is cut short, or a field has a value that no writer writes.
    pub fn decode(fields: &mut Cursor<'_>) -> Result<Self, FormatError> {
        let tag = KeyTag(fields.array()?);
        let code = fields.u8()?;
        let algorithm = Algorithm::from_code(code).ok_or_else(|| fields.field("algorithm", &code))?;
        let code = fields.u8()?;
        let state = KeyState::from_code(code).ok_or_else(|| fields.field("state", &code))?;
        let len = usize::from(fields.u8()?);
        let text = str::from_utf8(fields.take(len)?).map_err(|_| fields.field("barcode", &"not UTF-8"))?;
        let volser = Volser::new(text)?;
        let record = KeyRecord {
            tag,
            volser,
            algorithm,
            state,
            created_ns: fields.i64()?,
            activated_ns: optional_i64(fields, "time of activation")?,
            retired_ns: optional_i64(fields, "time of retirement")?,
            destroyed_ns: optional_i64(fields, "time of destruction")?,
            imported_ns: optional_i64(fields, "time of import")?,
        };
        let wrapped = match fields.u8()? {
            0 => None,
            1 => Some(fields.array()?),
            other => return Err(fields.field("presence of the wrapped key", &other)),
        };
        let key = Self { record, wrapped };
        match key.contradiction() {
            Some(contradiction) => Err(fields.field("state", &contradiction)),
            None => Ok(key),
        }
    }

    /// Takes the key through one event of its life, with the time of it.
    pub(crate) fn advance(&mut self, event: KeyEvent, now_ns: i64) -> Result<(), KeyError> {
        let record = &mut self.record;
        let next = record.state.after(event).map_err(|forbidden| match (forbidden.state, record.destroyed_ns) {
            (KeyState::Destroyed, Some(destroyed_ns)) => {
                KeyError::KeyDestroyed { tag: record.tag, volser: record.volser.clone(), destroyed_ns }
            }
            (state, _) => KeyError::KeyRetired { tag: record.tag, volser: record.volser.clone(), state },
        })?;
        if next == record.state {
            return Ok(());
        }
        record.state = next;
        match next {
            KeyState::Generated | KeyState::Ready => {}
            KeyState::ProtectAndProcess => record.activated_ns = Some(now_ns),
            KeyState::ProcessOnly | KeyState::Deactivated | KeyState::Compromised => {
                record.retired_ns.get_or_insert(now_ns);
            }
            KeyState::Destroyed => {
                record.retired_ns.get_or_insert(now_ns);
                record.destroyed_ns = Some(now_ns);
                self.wrapped = None;
            }
        }
        Ok(())
    }

    /// What in the record cannot be true together with the rest of it.
    pub(crate) fn contradiction(&self) -> Option<&'static str> {
        let destroyed = self.record.state == KeyState::Destroyed;
        if self.wrapped.is_some() == destroyed {
            return Some("a destroyed key that is there, or a key that is not there and not destroyed");
        }
        if self.record.destroyed_ns.is_some() != destroyed {
            return Some("a time of destruction without destruction, or the reverse");
        }
        None
    }
}
