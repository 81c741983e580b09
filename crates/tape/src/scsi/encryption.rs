//! Encryption by the drive: the pages of SECURITY PROTOCOL IN and OUT, protocol 20h (SSC-5, 8.5).
//!
//! ```text
//! set data encryption (OUT 0010h)                     next block encryption status (IN 0021h)
//!   0  2  page code                                     0  2  page code
//!   2  2  length of what follows                        2  2  length of what follows
//!   4  1  bits 7-5 scope, bit 0 LOCK                    4  8  logical block number
//!   5  1  CEEM, RDMC, SDK, CKOD, CKORP, CKORL          12  1  bits 7-4 compression, bits 3-0 encryption
//!   6  1  encryption mode                              13  1  algorithm index
//!   7  1  decryption mode                              14  1  bit 1 EMES, bit 0 RDMDS
//!   8  1  algorithm index                              15  1  format of key-associated data
//!   9  1  key format                                   16     key-associated data
//!  10  1  format of key-associated data
//!  18  2  length of the key
//!  20     key, then key-associated data, each: type, flags, length (2), bytes
//! ```

use capstan_format::Algorithm;
use zeroize::Zeroizing;

use super::bytes::{be16, be32, be64};

/// Tape data encryption, among the security protocols.
pub const PROTOCOL: u8 = 0x20;

/// Pages.
pub mod page {
    /// Which pages can be read.
    pub const IN_SUPPORT: u16 = 0x0000;
    /// Which pages can be sent.
    pub const OUT_SUPPORT: u16 = 0x0001;
    /// What the drive can do.
    pub const CAPABILITIES: u16 = 0x0010;
    /// What the drive can do about keys' formats.
    pub const KEY_FORMATS: u16 = 0x0011;
    /// Who decides on encryption.
    pub const MANAGEMENT_CAPABILITIES: u16 = 0x0012;
    /// What the drive is set to.
    pub const STATUS: u16 = 0x0020;
    /// How the next block is written.
    pub const NEXT_BLOCK: u16 = 0x0021;
    /// Loads a key, or clears it.
    pub const SET: u16 = 0x0010;
}

/// Code of a cipher (SPC-5, table E.12).
pub fn algorithm_code(algorithm: Algorithm) -> u32 {
    match algorithm {
        Algorithm::Aes256Ccm => 0x0001_0010,
        Algorithm::Aes256Gcm => 0x0001_0014,
    }
}

fn algorithm_of_code(code: u32) -> Option<Algorithm> {
    [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm].into_iter().find(|algorithm| algorithm_code(*algorithm) == code)
}

/// Data that belong to a key and stand on the medium with each block.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct KeyData {
    /// Anybody may have changed them.
    pub unauthenticated: Vec<u8>,
    /// Covered by the block's authentication.
    pub authenticated: Vec<u8>,
}

impl KeyData {
    const UNAUTHENTICATED: u8 = 0;
    const AUTHENTICATED: u8 = 1;

    fn append_to(&self, bytes: &mut Vec<u8>) {
        for (kind, data) in [(Self::UNAUTHENTICATED, &self.unauthenticated), (Self::AUTHENTICATED, &self.authenticated)]
        {
            if !data.is_empty() {
                bytes.extend_from_slice(&[kind, kind]);
                bytes.extend_from_slice(&(data.len() as u16).to_be_bytes());
                bytes.extend_from_slice(data);
            }
        }
    }

    /// Descriptors of other kinds (nonces, metadata) are passed over. `None`: a descriptor is longer than what holds
    /// it.
    fn of_bytes(mut bytes: &[u8]) -> Option<Self> {
        let mut found = Self::default();
        while bytes.len() >= 4 {
            let data = bytes.get(4..4 + usize::from(be16(bytes, 2)))?;
            match bytes[0] {
                Self::UNAUTHENTICATED => found.unauthenticated = data.to_vec(),
                Self::AUTHENTICATED => found.authenticated = data.to_vec(),
                _ => {}
            }
            bytes = &bytes[4 + data.len()..];
        }
        Some(found)
    }
}

/// What becomes of blocks that are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EncryptionMode {
    /// They stay as they are.
    Disable = 0,
    /// They are encrypted already.
    External = 1,
    /// They are encrypted.
    Encrypt = 2,
}

/// What becomes of blocks that are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecryptionMode {
    /// Encrypted ones are refused.
    Disable = 0,
    /// They come as they stand on the medium.
    Raw = 1,
    /// Encrypted ones are decrypted, plain ones refused.
    Decrypt = 2,
    /// Encrypted ones are decrypted, plain ones passed.
    Mixed = 3,
}

/// Whom a key that is loaded is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Nobody's own: this nexus uses what others have set for all.
    Public = 0,
    /// This nexus.
    Local = 1,
    /// Every nexus that has none of its own.
    AllNexuses = 2,
}

/// A set data encryption page. It holds a key: it has no `Debug`, and is zeroed when it is dropped.
pub struct SetEncryption {
    /// For whom.
    pub scope: Scope,
    /// Whether a change by somebody else is to fail the next command.
    pub lock: bool,
    /// CKOD: the key goes with the medium.
    pub clear_on_demount: bool,
    /// CKORL: the key goes when a reservation is lost.
    pub clear_on_reservation_loss: bool,
    /// RDMC: 2 or 3 has blocks marked as not to be read raw.
    pub raw_decryption_control: u8,
    /// Writing.
    pub encryption: EncryptionMode,
    /// Reading.
    pub decryption: DecryptionMode,
    /// Number of the algorithm in the drive's capabilities.
    pub algorithm_index: u8,
    /// The key; empty if both modes are off.
    pub key: Zeroizing<Vec<u8>>,
    /// What stands with each block.
    pub key_data: KeyData,
}

impl SetEncryption {
    /// Clears the key and turns encryption off.
    pub fn clear(scope: Scope) -> Self {
        Self {
            scope,
            lock: false,
            clear_on_demount: false,
            clear_on_reservation_loss: false,
            raw_decryption_control: 0,
            encryption: EncryptionMode::Disable,
            decryption: DecryptionMode::Disable,
            algorithm_index: 0,
            key: Zeroizing::default(),
            key_data: KeyData::default(),
        }
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Zeroizing<Vec<u8>> {
        let flag = |set: bool, at: u8| if set { 1u8 << at } else { 0 };
        // The exact length before the key comes in: a vector that grew would leave a copy of it behind.
        let mut bytes = Vec::with_capacity(
            20 + self.key.len() + 8 + self.key_data.unauthenticated.len() + self.key_data.authenticated.len(),
        );
        bytes.extend_from_slice(&page::SET.to_be_bytes());
        bytes.extend_from_slice(&[0, 0]);
        // CEEM 2: a block that is encrypted from outside is refused while encrypting.
        let check_external = if self.encryption == EncryptionMode::Encrypt { 2 } else { 0 };
        bytes.extend_from_slice(&[
            ((self.scope as u8) << 5) | flag(self.lock, 0),
            (check_external << 6)
                | (self.raw_decryption_control << 4)
                | flag(self.clear_on_demount, 2)
                | flag(self.clear_on_reservation_loss, 0),
            self.encryption as u8,
            self.decryption as u8,
            self.algorithm_index,
        ]);
        bytes.resize(18, 0);
        bytes.extend_from_slice(&(self.key.len() as u16).to_be_bytes());
        bytes.extend_from_slice(&self.key);
        self.key_data.append_to(&mut bytes);
        let len = (bytes.len() - 4) as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        Zeroizing::new(bytes)
    }

    /// As it was received; the number of the byte that is not understood otherwise.
    ///
    /// # Errors
    /// The place of the byte that is not understood.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self, u16> {
        if bytes.len() < 20 || be16(bytes, 0) != page::SET {
            return Err(0);
        }
        if usize::from(be16(bytes, 2)) != bytes.len() - 4 {
            return Err(2);
        }
        let key_len = usize::from(be16(bytes, 18));
        let key = bytes.get(20..20 + key_len).ok_or(18u16)?;
        let bit = |byte: u8, at: u8| byte >> at & 1 == 1;
        Ok(Self {
            scope: match bytes[4] >> 5 {
                0 => Scope::Public,
                1 => Scope::Local,
                2 => Scope::AllNexuses,
                _ => return Err(4),
            },
            lock: bit(bytes[4], 0),
            clear_on_demount: bit(bytes[5], 2),
            clear_on_reservation_loss: bit(bytes[5], 0),
            raw_decryption_control: bytes[5] >> 4 & 3,
            encryption: match bytes[6] {
                0 => EncryptionMode::Disable,
                1 => EncryptionMode::External,
                2 => EncryptionMode::Encrypt,
                _ => return Err(6),
            },
            decryption: match bytes[7] {
                0 => DecryptionMode::Disable,
                1 => DecryptionMode::Raw,
                2 => DecryptionMode::Decrypt,
                3 => DecryptionMode::Mixed,
                _ => return Err(7),
            },
            algorithm_index: bytes[8],
            // Only plain keys: none that is wrapped for the drive.
            key: if bytes[9] == 0 { Zeroizing::new(key.to_vec()) } else { return Err(9) },
            key_data: KeyData::of_bytes(&bytes[20 + key_len..]).ok_or((20 + key_len) as u16)?,
        })
    }
}

/// One cipher of a drive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AlgorithmEntry {
    /// By which number a key names it.
    pub index: u8,
    /// Which it is.
    pub algorithm: Algorithm,
    /// Most bytes of unauthenticated key data.
    pub unauthenticated_max: u16,
    /// Most bytes of authenticated key data.
    pub authenticated_max: u16,
}

/// A capabilities page. `volume_marked`: a volume is loaded, and the drive can tell how it is written.
pub fn capabilities(algorithms: &[AlgorithmEntry], volume_loaded: bool) -> Vec<u8> {
    let mut bytes = vec![0; 20];
    bytes[..2].copy_from_slice(&page::CAPABILITIES.to_be_bytes());
    bytes[2..4].copy_from_slice(&((16 + 24 * algorithms.len()) as u16).to_be_bytes());
    // EXTDECC 01b: external encryption is not known to it. CFG_P 01b: hosts may set it.
    bytes[4] = 0x05;
    for entry in algorithms {
        let mut descriptor = [0; 24];
        descriptor[0] = entry.index;
        descriptor[2..4].copy_from_slice(&20u16.to_be_bytes());
        // A volume is there; the MAC, and encrypted blocks, are told apart; decrypts and encrypts in hardware.
        descriptor[4] = if volume_loaded { 0x80 } else { 0 } | 0x20 | 0x10 | (2 << 2) | 2;
        // Key data may have any length up to the most.
        descriptor[6..8].copy_from_slice(&entry.unauthenticated_max.to_be_bytes());
        descriptor[8..10].copy_from_slice(&entry.authenticated_max.to_be_bytes());
        descriptor[10..12].copy_from_slice(&32u16.to_be_bytes());
        // Key data may be given with a key; raw reading can be forbidden block by block.
        descriptor[12] = (3 << 6) | (1 << 1);
        descriptor[20..24].copy_from_slice(&algorithm_code(entry.algorithm).to_be_bytes());
        bytes.extend_from_slice(&descriptor);
    }
    bytes
}

/// Whether a capabilities page says that hosts may not set or clear keys, as a library or a key manager gives them:
/// CFG_P, bits 1-0 of byte 4: 01b they may, 10b they may not, 00b the drive does not say.
pub fn is_set_elsewhere(bytes: &[u8]) -> bool {
    be16(bytes, 0) == page::CAPABILITIES && bytes.get(4).is_some_and(|flags| flags & 0x03 == 0x02)
}

/// The ciphers in a capabilities page that are known here; others are passed over.
pub fn algorithms_of(bytes: &[u8]) -> Vec<AlgorithmEntry> {
    let mut found = Vec::new();
    if be16(bytes, 0) != page::CAPABILITIES {
        return found;
    }
    let mut left = bytes.get(20..).unwrap_or_default();
    while left.len() >= 24 {
        let len = (4 + usize::from(be16(left, 2))).min(left.len());
        if len < 24 {
            break;
        }
        // 1 is by software, 2 by hardware; 0 is not at all.
        let able = left[4] & 0x03 != 0 && left[4] & 0x0c != 0;
        if let Some(algorithm) = algorithm_of_code(be32(left, 20))
            && able
            && be16(left, 10) == 32
        {
            found.push(AlgorithmEntry {
                index: left[0],
                algorithm,
                unauthenticated_max: be16(left, 6),
                authenticated_max: be16(left, 8),
            });
        }
        left = &left[len..];
    }
    found
}

/// What a drive is set to, for one nexus.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EncryptionStatus {
    /// Whose setting is in effect.
    pub scope: u8,
    /// Writing.
    pub encryption: u8,
    /// Reading.
    pub decryption: u8,
    /// Number of the algorithm.
    pub algorithm_index: u8,
    /// Counts changes of the key.
    pub key_instance: u32,
    /// What stands with each block.
    pub key_data: KeyData,
}

impl EncryptionStatus {
    /// As a status page.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 24];
        bytes[..2].copy_from_slice(&page::STATUS.to_be_bytes());
        bytes[4] = (self.scope << 5) | self.scope;
        (bytes[5], bytes[6], bytes[7]) = (self.encryption, self.decryption, self.algorithm_index);
        bytes[8..12].copy_from_slice(&self.key_instance.to_be_bytes());
        self.key_data.append_to(&mut bytes);
        let len = (bytes.len() - 4) as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    /// Out of a status page.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if within(bytes).len() < 24 || be16(bytes, 0) != page::STATUS {
            return None;
        }
        Some(Self {
            scope: bytes[4] >> 5,
            encryption: bytes[5],
            decryption: bytes[6],
            algorithm_index: bytes[7],
            key_instance: be32(bytes, 8),
            key_data: KeyData::of_bytes(&within(bytes)[24..])?,
        })
    }
}

/// A page as long as it says it is: behind it there may be anything.
fn within(bytes: &[u8]) -> &[u8] {
    match bytes.len() {
        0..4 => bytes,
        len => &bytes[..len.min(4 + usize::from(be16(bytes, 2)))],
    }
}

/// How the next block is written (SSC-5, table 188).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextBlock {
    /// The drive cannot tell, ever or now.
    Unknown = 1,
    /// It is a filemark or the end of data.
    NoBlock = 2,
    /// It is not encrypted.
    Plain = 3,
    /// By a cipher that the drive has not.
    OtherAlgorithm = 4,
    /// It is encrypted and the loaded key opens it.
    Encrypted = 5,
    /// It is encrypted and no loaded key opens it.
    KeyMissing = 6,
}

/// A next block encryption status page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextBlockStatus {
    /// Which block it is about.
    pub lbn: u64,
    /// How it is written.
    pub next: NextBlock,
    /// Number of the algorithm.
    pub algorithm_index: u8,
    /// What stands with it.
    pub key_data: KeyData,
}

impl NextBlockStatus {
    /// As a page.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; 16];
        bytes[..2].copy_from_slice(&page::NEXT_BLOCK.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.lbn.to_be_bytes());
        // Whether it is compressed cannot be told: 0.
        bytes[12] = self.next as u8;
        bytes[13] = self.algorithm_index;
        self.key_data.append_to(&mut bytes);
        let len = (bytes.len() - 4) as u16;
        bytes[2..4].copy_from_slice(&len.to_be_bytes());
        bytes
    }

    /// Out of a page.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if within(bytes).len() < 16 || be16(bytes, 0) != page::NEXT_BLOCK {
            return None;
        }
        Some(Self {
            lbn: be64(bytes, 4),
            next: match bytes[12] & 0x0f {
                2 => NextBlock::NoBlock,
                3 => NextBlock::Plain,
                4 => NextBlock::OtherAlgorithm,
                5 => NextBlock::Encrypted,
                6 => NextBlock::KeyMissing,
                _ => NextBlock::Unknown,
            },
            algorithm_index: bytes[13],
            key_data: KeyData::of_bytes(&within(bytes)[16..])?,
        })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    fn set() -> SetEncryption {
        SetEncryption {
            scope: Scope::AllNexuses,
            lock: false,
            clear_on_demount: true,
            clear_on_reservation_loss: true,
            raw_decryption_control: 3,
            encryption: EncryptionMode::Encrypt,
            decryption: DecryptionMode::Decrypt,
            algorithm_index: 1,
            key: Zeroizing::new(vec![7; 32]),
            key_data: KeyData { unauthenticated: vec![1, 2, 3], authenticated: vec![9; 12] },
        }
    }

    /// As the reference has it: scope, then CEEM 2, RDMC 3, CKOD and CKORL; modes 2 and 2; key at byte 20.
    #[test]
    fn a_key_is_loaded_by_the_standards_bytes() {
        let bytes = set().to_bytes();
        assert_eq!(
            &bytes[..20],
            [0, 0x10, 0, 16 + 32 + 7 + 16, 0x40, 0b1011_0101, 2, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32]
        );
        assert_eq!(&bytes[20..52], [7; 32]);
        assert_eq!(&bytes[52..59], [0, 0, 0, 3, 1, 2, 3]);
        let read = SetEncryption::of_bytes(&bytes).unwrap();
        assert_eq!(*read.to_bytes(), *bytes);
    }

    #[test]
    fn pages_are_read_as_they_were_made() {
        let entry = AlgorithmEntry {
            index: 1,
            algorithm: Algorithm::Aes256Gcm,
            unauthenticated_max: 32,
            authenticated_max: 12,
        };
        let other = AlgorithmEntry { index: 2, algorithm: Algorithm::Aes256Ccm, ..entry };
        let mut page = capabilities(&[entry, other], true);
        assert_eq!(algorithms_of(&page), [entry, other]);
        for (flags, is_elsewhere) in [(0x05, false), (0x00, false), (0x06, true), (0x02, true), (0x08, false)] {
            page[4] = flags;
            assert_eq!(is_set_elsewhere(&page), is_elsewhere, "{flags:02x}");
        }
        let key_data = KeyData { unauthenticated: b"tag".to_vec(), authenticated: Vec::new() };
        let status = EncryptionStatus {
            scope: 2,
            encryption: 2,
            decryption: 2,
            algorithm_index: 1,
            key_instance: 5,
            key_data: key_data.clone(),
        };
        assert_eq!(EncryptionStatus::of_bytes(&status.to_bytes()), Some(status));
        let next = NextBlockStatus { lbn: 1 << 40, next: NextBlock::KeyMissing, algorithm_index: 1, key_data };
        assert_eq!(NextBlockStatus::of_bytes(&next.to_bytes()), Some(next));
    }

    #[test]
    fn hostile_pages_are_no_panic() {
        let whole = set().to_bytes();
        for len in 0..whole.len() {
            assert!(SetEncryption::of_bytes(&whole[..len]).is_err(), "{len}");
        }
        for at in 0..whole.len() {
            let mut changed = whole.clone();
            changed[at] = 0xff;
            let _ = SetEncryption::of_bytes(&changed);
            let _ = NextBlockStatus::of_bytes(&changed);
            let _ = algorithms_of(&changed);
            let _ = is_set_elsewhere(&changed[..at]);
        }
    }
}
