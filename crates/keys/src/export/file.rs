//! An export as a file that may be larger than memory: written and read a part at a time.
//!
//! The number of keys stands at the beginning and the seal, which covers it, at the end. So a writer puts the records
//! down first, then the number, and reads what it wrote once more for the seal: what is not finished has no seal, and
//! is no export.

use std::io::{Read, Seek, SeekFrom, Write};

use aws_lc_rs::hmac;
use capstan_format::{Cursor, FormatError, crc32c_append};
use zeroize::Zeroizing;

use super::{ExportKey, ExportKeys, ExportedKey, Head, MAC_LEN, WHAT, head, open_one};
use crate::record::StoredKey;
use crate::unlock::Argon2Cost;
use crate::{KeyError, KeyState};

const CHECKSUM_LEN: u64 = 4;
/// Where the number of keys stands.
const COUNT_AT: u64 = 90;
/// Header and number of keys.
const HEAD_LEN: usize = 94;
/// What is read at a time.
const BUFFER_LEN: usize = 64 << 10;
/// More than any record has.
const RECORD_LEN_MAX: usize = 256;

fn host(what: &'static str) -> impl Fn(std::io::Error) -> KeyError {
    move |error| KeyError::host(what, error)
}

/// An export that is being written. It is none before [`ExportWriter::finish`].
pub struct ExportWriter<F> {
    file: F,
    keys: u32,
    mac: hmac::Key,
}

impl<F: Read + Write + Seek> ExportWriter<F> {
    /// Begins one in an empty file that can be read as well.
    ///
    /// # Errors
    /// [`KeyError::EmptyPassphrase`] and [`KeyError::Argon2`] if the passphrase or its cost is refused; else the file
    /// cannot be written.
    pub fn begin(
        mut file: F,
        export_key: &ExportKey,
        passphrase: &Zeroizing<String>,
        cost: Argon2Cost,
    ) -> Result<Self, KeyError> {
        let mut bytes = head(export_key, passphrase, cost)?;
        bytes.extend_from_slice(&[0; 4]);
        file.write_all(&bytes).map_err(host("writing the export"))?;
        Ok(Self { file, keys: 0, mac: ExportKeys::new(export_key)?.mac })
    }

    /// Writes what [`crate::wrap_for_export`] made under the same key. Says how many keys that was.
    ///
    /// # Errors
    /// [`KeyError::ExportDamaged`] if `wrapped` is no such part; else the file cannot be written.
    pub fn add(&mut self, wrapped: &[u8]) -> Result<usize, KeyError> {
        let (count, records) = wrapped.split_first_chunk::<4>().ok_or_else(|| damaged("a part of it is cut short"))?;
        let count = u32::from_le_bytes(*count);
        let keys = self.keys.checked_add(count).ok_or_else(|| damaged("it has more keys than any"))?;
        self.file.write_all(records).map_err(host("writing the export"))?;
        self.keys = keys;
        Ok(count as usize)
    }

    /// Puts number and seal on it. Gives the file and how many keys are in it.
    ///
    /// # Errors
    /// The file cannot be read back or written.
    pub fn finish(mut self) -> Result<(F, usize), KeyError> {
        let failed = host("writing the export");
        self.file.seek(SeekFrom::Start(COUNT_AT)).map_err(&failed)?;
        self.file.write_all(&self.keys.to_le_bytes()).map_err(&failed)?;
        self.file.rewind().map_err(&failed)?;
        let (mut context, mut checksum) = (hmac::Context::with_key(&self.mac), 0);
        read_through(&mut self.file, u64::MAX, |bytes| {
            context.update(bytes);
            checksum = crc32c_append(checksum, bytes);
        })?;
        let mac = context.sign();
        let checksum = crc32c_append(checksum, mac.as_ref());
        self.file.write_all(mac.as_ref()).map_err(&failed)?;
        self.file.write_all(&checksum.to_le_bytes()).map_err(&failed)?;
        Ok((self.file, self.keys as usize))
    }
}

/// A part of an export as it lies in the file: its beginning, keys, its end.
pub struct ExportPart {
    /// Where it begins.
    pub at: u64,
    /// The bytes.
    pub bytes: Vec<u8>,
    /// Whether the file ends with it.
    pub is_last: bool,
}

/// The records in a part of an export, without the file's beginning and end.
///
/// # Errors
/// [`KeyError::ExportDamaged`] if the part is cut short or goes on behind its end.
pub fn records_of(bytes: &[u8], at: u64, is_last: bool) -> Result<&[u8], KeyError> {
    let from = if at == 0 { HEAD_LEN } else { 0 };
    let behind = if is_last { MAC_LEN + CHECKSUM_LEN as usize } else { 0 };
    let records = bytes.len().checked_sub(behind).and_then(|to| bytes.get(from..to));
    let records = records.ok_or_else(|| damaged("a part of it is cut short"))?;
    if at == 0 {
        Head::decode(&mut Cursor::new(WHAT, bytes)).map_err(unreadable)?;
    }
    Ok(records)
}

/// An export that is being read: nothing of it counts before [`ExportReader::check`].
pub struct ExportReader<F> {
    file: F,
    head: Head,
    keys: u32,
    /// Keys that were not read yet.
    left: u32,
    /// Where the next part begins.
    at: u64,
    buffer: Vec<u8>,
    /// How much of it was taken.
    taken: usize,
}

impl<F: Read + Seek> ExportReader<F> {
    /// Reads the beginning, and the checksum of all.
    ///
    /// # Errors
    /// [`KeyError::ExportDamaged`] if it is no export or its checksum is wrong; else the file cannot be read.
    pub fn open(mut file: F) -> Result<Self, KeyError> {
        let len = file.seek(SeekFrom::End(0)).map_err(host("reading the export"))?;
        file.rewind().map_err(host("reading the export"))?;
        let mut bytes = Vec::with_capacity(HEAD_LEN);
        (&mut file).take(HEAD_LEN as u64).read_to_end(&mut bytes).map_err(host("reading the export"))?;
        // Another version says so, whatever else is in it.
        let mut fields = Cursor::new(WHAT, &bytes);
        let head = Head::decode(&mut fields).map_err(unreadable)?;
        let keys = fields.u32().map_err(unreadable)?;
        file.rewind().map_err(host("reading the export"))?;
        let mut computed = 0;
        read_through(&mut file, len.saturating_sub(CHECKSUM_LEN), |bytes| computed = crc32c_append(computed, bytes))?;
        let mut stored = [0; 4];
        file.read_exact(&mut stored).map_err(|_| damaged("it is cut short"))?;
        let stored = u32::from_le_bytes(stored);
        if stored != computed {
            return Err(unreadable(FormatError::Checksum { what: WHAT, stored, computed }));
        }
        let mut export = Self { file, head, keys, left: 0, at: 0, buffer: Vec::new(), taken: 0 };
        export.rewind()?;
        Ok(export)
    }

    /// How many keys are in it.
    pub fn keys(&self) -> usize {
        self.keys as usize
    }

    /// The key that its keys are wrapped under, for whoever knows the passphrase.
    ///
    /// # Errors
    /// [`KeyError::WrongExportPassphrase`].
    pub fn export_key(&self, passphrase: &Zeroizing<String>) -> Result<ExportKey, KeyError> {
        self.head.export_key(passphrase)
    }

    /// Checks the seal of all of it, and that its records are as many as it says. Then it is read from the first key
    /// on.
    ///
    /// # Errors
    /// [`KeyError::ExportDamaged`] if the seal is wrong, or there are more or fewer records; else the file cannot be
    /// read.
    pub fn check(&mut self, export_key: &ExportKey) -> Result<(), KeyError> {
        self.rewind()?;
        let mut signed = HEAD_LEN as u64;
        loop {
            let records = self.records(BUFFER_LEN / RECORD_LEN_MAX)?;
            if records.is_empty() {
                break;
            }
            signed += records.len() as u64;
        }
        self.file.rewind().map_err(host("reading the export"))?;
        let mut context = hmac::Context::with_key(&ExportKeys::new(export_key)?.mac);
        read_through(&mut self.file, signed, |bytes| context.update(bytes))?;
        let mut rest = Vec::new();
        let rest_len = MAC_LEN as u64 + CHECKSUM_LEN;
        (&mut self.file).take(rest_len + 1).read_to_end(&mut rest).map_err(host("reading the export"))?;
        if rest.len() as u64 != rest_len {
            return Err(damaged("it does not end with its last key"));
        }
        aws_lc_rs::constant_time::verify_slices_are_equal(context.sign().as_ref(), &rest[..MAC_LEN])
            .map_err(|_| damaged("its seal does not match, so somebody altered it"))?;
        self.rewind()
    }

    /// The records of the next keys as they lie there, so many at most; nothing at the end.
    ///
    /// # Errors
    /// [`KeyError::ExportDamaged`] if a record is cut short; else the file cannot be read.
    pub fn records(&mut self, keys_max: usize) -> Result<Vec<u8>, KeyError> {
        let wanted = self.left.min(u32::try_from(keys_max).unwrap_or(u32::MAX));
        let mut records = Vec::new();
        for _ in 0..wanted {
            if self.buffer.len() - self.taken < RECORD_LEN_MAX {
                self.buffer.drain(..std::mem::take(&mut self.taken));
                (&mut self.file)
                    .take(BUFFER_LEN as u64)
                    .read_to_end(&mut self.buffer)
                    .map_err(host("reading the export"))?;
            }
            let mut fields = Cursor::new(WHAT, &self.buffer[self.taken..]);
            let key = StoredKey::decode(&mut fields).map_err(unreadable)?;
            check_state(&key).map_err(unreadable)?;
            let len = encoded_len(&key);
            records.extend_from_slice(&self.buffer[self.taken..self.taken + len]);
            self.taken += len;
        }
        self.left -= wanted;
        Ok(records)
    }

    /// The next part of the file with so many keys at most; none at its end. Begins anew after
    /// [`ExportReader::rewind`].
    ///
    /// # Errors
    /// As [`ExportReader::records`].
    pub fn part(&mut self, keys_max: usize) -> Result<Option<ExportPart>, KeyError> {
        let at = self.at;
        if at > 0 && self.left == 0 {
            return Ok(None);
        }
        let mut bytes = Vec::new();
        if at == 0 {
            self.file.rewind().map_err(host("reading the export"))?;
            (&mut self.file).take(HEAD_LEN as u64).read_to_end(&mut bytes).map_err(host("reading the export"))?;
        }
        bytes.append(&mut self.records(keys_max.max(1))?);
        let is_last = self.left == 0;
        if is_last {
            self.file.read_to_end(&mut self.buffer).map_err(host("reading the export"))?;
            bytes.extend_from_slice(&self.buffer[self.taken..]);
        }
        self.at += bytes.len() as u64;
        Ok(Some(ExportPart { at, bytes, is_last }))
    }

    /// Goes back to the first key.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn rewind(&mut self) -> Result<(), KeyError> {
        self.file.seek(SeekFrom::Start(HEAD_LEN as u64)).map_err(host("reading the export"))?;
        self.buffer.clear();
        self.taken = 0;
        self.left = self.keys;
        self.at = 0;
        Ok(())
    }
}

/// Opens records as they lie in an export: unwraps each key and checks it against its tag.
///
/// # Errors
/// [`KeyError::ExportDamaged`] if a record is damaged or wrapped under another key.
pub fn open_records(records: &[u8], export_key: &ExportKey) -> Result<Vec<ExportedKey>, KeyError> {
    let keys = ExportKeys::new(export_key)?;
    let (mut rest, mut opened) = (records, Vec::new());
    while !rest.is_empty() {
        let key = StoredKey::decode(&mut Cursor::new(WHAT, rest)).map_err(unreadable)?;
        check_state(&key).map_err(unreadable)?;
        rest = &rest[encoded_len(&key)..];
        opened.push(open_one(key, &keys)?);
    }
    Ok(opened)
}

fn check_state(key: &StoredKey) -> Result<(), FormatError> {
    if matches!(key.record.state, KeyState::Generated | KeyState::Destroyed) {
        return Err(Cursor::new(WHAT, &[]).field("state of an exported key", &key.record.state));
    }
    Ok(())
}

/// What a record takes: the same is encoded as was decoded.
fn encoded_len(key: &StoredKey) -> usize {
    let mut bytes = Vec::with_capacity(RECORD_LEN_MAX);
    key.encode(&mut bytes);
    bytes.len()
}

fn read_through(file: &mut impl Read, len: u64, mut take: impl FnMut(&[u8])) -> Result<(), KeyError> {
    let (mut buffer, mut file) = (vec![0; BUFFER_LEN], file.take(len));
    loop {
        match file.read(&mut buffer).map_err(host("reading the export"))? {
            0 => return Ok(()),
            read => take(&buffer[..read]),
        }
    }
}

fn damaged(what: &str) -> KeyError {
    KeyError::ExportDamaged { what: what.to_owned() }
}

fn unreadable(error: FormatError) -> KeyError {
    match error {
        FormatError::Version { found, supported, .. } => {
            KeyError::Version { what: "the key export".to_owned(), found, supported }
        }
        other => KeyError::ExportDamaged { what: other.to_string() },
    }
}
