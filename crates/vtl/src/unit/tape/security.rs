//! Encryption by the drive: keys that hosts set, and keys that the drive fetches itself.
//!
//! A host's key is for its own nexus or for all; what is in effect for a command is its own, else the one for all. A
//! volume is plain or encrypted from its first block on, with one key or with several, as each block names its own:
//! what a host may do otherwise on LTO drives, mixing block by block, is refused here as an enterprise drive refuses
//! it.

use std::collections::HashMap;

use capstan_format::{Algorithm, KeyTag};
use capstan_keys::tag_of;
use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::encryption::{
    AlgorithmEntry, DecryptionMode, EncryptionMode, EncryptionStatus, KeyData, NextBlock, NextBlockStatus, PROTOCOL,
    Scope, SetEncryption, capabilities, page,
};
use capstan_tape::{Drive, DriveError, DriveKey, EncryptionState, ReadOutcome};
use zeroize::Zeroizing;

use super::CommandContext;
use crate::device::DataIn;
use crate::layout::Encryption;
use crate::unit::answer::{Answer, Refusal, check, invalid_command_field, invalid_parameter_field, unknown_command};
use crate::unit::nexuses::Attention;

/// What a command is about to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Read blocks.
    Reading,
    /// Write blocks or filemarks.
    Writing,
}

/// A key that a host set.
struct Setting {
    page: SetEncryption,
    /// Who set it.
    by: String,
    algorithm: Algorithm,
    tag: KeyTag,
    instance: u32,
}

/// Keys that hosts set, and what the drive below holds.
#[derive(Default)]
pub(super) struct Keys {
    own: HashMap<String, Setting>,
    for_all: Option<Setting>,
    instance: u32,
    /// Which setting's key the drive below holds.
    in_drive: Option<u32>,
}

impl Keys {
    /// All are forgotten.
    pub(super) fn clear(&mut self) {
        let instance = self.instance.wrapping_add(1);
        *self = Self { instance, ..Self::default() };
    }

    pub(super) fn nexus_lost(&mut self, initiator: &str) {
        self.own.remove(initiator);
    }

    /// The cartridge goes, and with it the keys that are to go then; the drive below has forgotten its own.
    pub(super) fn demounted(&mut self) {
        self.own.retain(|_, setting| !setting.page.clear_on_demount);
        if self.for_all.as_ref().is_some_and(|setting| setting.page.clear_on_demount) {
            self.for_all = None;
        }
        self.in_drive = None;
    }

    /// Keys that were to go with a reservation go, where it has gone. Whether one for all initiators was among them.
    pub(super) fn reservations_changed(&mut self, holds: impl Fn(&str) -> bool) -> bool {
        let gone = |setting: &Setting| setting.page.clear_on_reservation_loss && !holds(&setting.by);
        self.own.retain(|_, setting| !gone(setting));
        let for_all = self.for_all.as_ref().is_some_and(gone);
        if for_all {
            self.for_all = None;
            self.instance = self.instance.wrapping_add(1);
        }
        for_all
    }

    /// Another host has set a key of its own for all.
    pub(super) fn set_by_another(&mut self, tag: KeyTag) {
        self.instance = self.instance.wrapping_add(1);
        let mut page = SetEncryption::clear(Scope::AllNexuses);
        page.encryption = EncryptionMode::Encrypt;
        page.decryption = DecryptionMode::Decrypt;
        page.key = Zeroizing::new(vec![0xee; 32]);
        page.key_data.unauthenticated = tag.0.to_vec();
        self.own.clear();
        let (by, instance) = ("another host".to_owned(), self.instance);
        self.for_all = Some(Setting { page, by, algorithm: Algorithm::Aes256Gcm, tag, instance });
    }

    fn in_effect(&self, initiator: &str) -> Option<&Setting> {
        self.own.get(initiator).or(self.for_all.as_ref())
    }
}

impl super::DriveConfig {
    /// Whether hosts may set keys.
    pub(super) fn takes_keys(&self) -> bool {
        self.encryption == Encryption::Host
    }

    /// The cipher of the model; a drive that is said to encrypt and whose model does not say how has LTO's.
    pub(super) fn algorithm(&self) -> Algorithm {
        match self.model.cipher.as_ref().map(|cipher| cipher.value.as_str()) {
            Some(cipher) if cipher.contains("CCM") => Algorithm::Aes256Ccm,
            _ => Algorithm::Aes256Gcm,
        }
    }

    fn algorithms(&self) -> [AlgorithmEntry; 1] {
        [AlgorithmEntry { index: 1, algorithm: self.algorithm(), unauthenticated_max: 32, authenticated_max: 12 }]
    }
}

impl CommandContext<'_> {
    /// Sees that the drive below has the key that this command needs, and none that it may not have.
    pub(super) fn ready_keys(&mut self, purpose: Purpose) -> Answer {
        match self.unit.encryption {
            Encryption::None => Ok(()),
            Encryption::Agent => self.ready_agent(purpose),
            Encryption::Host => self.ready_host(purpose),
        }
    }

    fn ready_host(&mut self, purpose: Purpose) -> Answer {
        let keys = &self.state.keys;
        let wanted = keys.in_effect(self.initiator).filter(|setting| match purpose {
            Purpose::Reading => setting.page.decryption != DecryptionMode::Disable,
            Purpose::Writing => setting.page.encryption == EncryptionMode::Encrypt,
        });
        let instance = wanted.map(|setting| setting.instance);
        let only_encrypted = purpose == Purpose::Reading
            && wanted.is_some_and(|setting| setting.page.decryption == DecryptionMode::Decrypt);
        if instance != keys.in_drive {
            let key = match wanted {
                None => None,
                Some(setting) => Some(drive_key(setting).ok_or_else(|| check(SenseKey::IllegalRequest, 0x26, 0x11))?),
            };
            self.state.on_drive(|bay, _| bay.drive.set_key(key))?;
            self.state.keys.in_drive = instance;
        }
        if only_encrypted && self.next_block()?.0 == NextBlock::Plain {
            // UNENCRYPTED DATA ENCOUNTERED WHILE DECRYPTING
            return Err(check(SenseKey::DataProtect, 0x74, 0x02));
        }
        Ok(())
    }

    /// How the next block is written, and with which key.
    fn next_block(&mut self) -> Result<(NextBlock, Option<KeyTag>), Refusal> {
        let tag = match self.unit.encryption {
            Encryption::Host => self.state.keys.in_effect(self.initiator).map(|setting| setting.tag),
            Encryption::None | Encryption::Agent => None,
        };
        let algorithm = self.unit.algorithm();
        self.state.on_drive(|bay, loaded| {
            let drive = &mut bay.drive;
            let lbn = drive.position()?.lbn;
            // Only of a volume that is plain need it be known whether a block follows at all: the next one has no
            // envelope to tell.
            loaded.filemarks.look(drive, lbn + 1)?;
            if loaded.filemarks.at_or_behind(lbn) == Some(lbn) {
                return Ok((NextBlock::NoBlock, None));
            }
            match drive.locate(lbn + 1) {
                Ok(()) => drive.locate(lbn)?,
                Err(DriveError::BlankCheck { .. }) => return Ok((NextBlock::NoBlock, None)),
                Err(error) => return Err(error),
            }
            let first = match loaded.medium.encryption {
                EncryptionState::Blank => return Ok((NextBlock::NoBlock, None)),
                EncryptionState::Plain => return Ok((NextBlock::Plain, None)),
                EncryptionState::Encrypted { algorithm: other, .. } if other != algorithm => {
                    return Ok((NextBlock::OtherAlgorithm, None));
                }
                EncryptionState::Encrypted { tag: first, .. } => first,
            };
            // A read without room for a byte comes to nothing, and says which key it would have needed: if none, the
            // loaded one.
            let read = drive.read_block(&mut []);
            drive.locate(lbn)?;
            let needed = needed(&read).or(tag).unwrap_or(first);
            Ok((if Some(needed) == tag { NextBlock::Encrypted } else { NextBlock::KeyMissing }, Some(needed)))
        })
    }

    /// Writing began at the beginning of tape: what belongs to keys of the volume's life before is forgotten.
    pub(super) fn began_with_key(&mut self) {
        if let Ok((bay, _)) = self.state.loaded() {
            bay.memory.forget_key_data();
        }
        self.note_key_data();
    }

    /// A block was written with this key: what belongs to it is kept in the cartridge's memory, as it stands with each
    /// block on a tape of metal.
    pub(super) fn note_key_data(&mut self) {
        let keys = &self.state.keys;
        let setting = match self.unit.encryption {
            Encryption::Host => keys.in_effect(self.initiator),
            Encryption::None | Encryption::Agent => None,
        };
        let Some(setting) = setting.filter(|setting| setting.page.encryption == EncryptionMode::Encrypt) else {
            return;
        };
        // With every block but a key's first there is nothing to do.
        if self.state.bay.as_ref().is_none_or(|bay| bay.memory.has_key_data(&setting.tag)) {
            return;
        }
        let (tag, data) = (setting.tag, setting.page.key_data.clone());
        if let Ok((bay, _)) = self.state.loaded() {
            bay.memory.note_key_data(&tag, &data);
        }
    }

    /// SECURITY PROTOCOL IN.
    pub(super) fn tell_security(
        &mut self,
        protocol: u8,
        specific: u16,
        allocation: u32,
        data_in: &mut DataIn,
    ) -> Answer {
        let listed = |pages: &[u16]| {
            let mut bytes = specific.to_be_bytes().to_vec();
            bytes.extend_from_slice(&((2 * pages.len()) as u16).to_be_bytes());
            bytes.extend(pages.iter().flat_map(|page| page.to_be_bytes()));
            bytes
        };
        let bytes = match (protocol, specific) {
            // Which protocols there are.
            (0x00, 0x0000) if self.unit.takes_keys() => vec![0, 0, 0, 0, 0, 0, 0, 2, 0x00, PROTOCOL],
            (0x00, 0x0000) => vec![0, 0, 0, 0, 0, 0, 0, 1, 0x00],
            (PROTOCOL, _) if !self.unit.takes_keys() => return Err(unknown_command()),
            (PROTOCOL, page::IN_SUPPORT) => listed(&[
                page::IN_SUPPORT,
                page::OUT_SUPPORT,
                page::CAPABILITIES,
                page::KEY_FORMATS,
                page::MANAGEMENT_CAPABILITIES,
                page::STATUS,
                page::NEXT_BLOCK,
            ]),
            (PROTOCOL, page::OUT_SUPPORT) => listed(&[page::SET]),
            (PROTOCOL, page::CAPABILITIES) => capabilities(&self.unit.algorithms(), self.state.loaded.is_some()),
            // Plain keys alone.
            (PROTOCOL, page::KEY_FORMATS) => vec![0x00, 0x11, 0x00, 0x01, 0x00],
            // LOCK is not offered; keys go with demount and reservation; for one nexus, or for all.
            (PROTOCOL, page::MANAGEMENT_CAPABILITIES) => {
                let mut bytes = vec![0x00, 0x12, 0x00, 0x0c];
                bytes.extend_from_slice(&[0x00, 0x05, 0x00, 0x07]);
                bytes.resize(16, 0);
                bytes
            }
            (PROTOCOL, page::STATUS) => {
                let keys = &self.state.keys;
                let scope = if keys.own.contains_key(self.initiator) { Scope::Local } else { Scope::AllNexuses };
                let status = match keys.in_effect(self.initiator) {
                    Some(setting) => EncryptionStatus {
                        scope: scope as u8,
                        encryption: setting.page.encryption as u8,
                        decryption: setting.page.decryption as u8,
                        algorithm_index: 1,
                        key_instance: setting.instance,
                        key_data: setting.page.key_data.clone(),
                    },
                    None => EncryptionStatus {
                        scope: 0,
                        encryption: 0,
                        decryption: 0,
                        algorithm_index: 0,
                        key_instance: keys.instance,
                        key_data: KeyData::default(),
                    },
                };
                status.to_bytes()
            }
            (PROTOCOL, page::NEXT_BLOCK) => {
                let (next, needed) = self.next_block()?;
                let (lbn, stored) = self.state.on_drive(|bay, _| {
                    // Drives of ours keep the tag as key data, so that whoever knows tags finds the key.
                    let by_tag = |tag: KeyTag| KeyData { unauthenticated: tag.0.to_vec(), ..KeyData::default() };
                    let data = needed.map(|tag| bay.memory.key_data(&tag).unwrap_or_else(|| by_tag(tag)));
                    Ok((bay.drive.position()?.lbn, data.unwrap_or_default()))
                })?;
                let encrypted = matches!(next, NextBlock::Encrypted | NextBlock::KeyMissing);
                let (algorithm_index, key_data) = if encrypted { (1, stored) } else { (0, KeyData::default()) };
                NextBlockStatus { lbn, next, algorithm_index, key_data }.to_bytes()
            }
            _ => return Err(invalid_command_field(2)),
        };
        data_in.put(&bytes, allocation as usize);
        Ok(())
    }

    /// SECURITY PROTOCOL OUT.
    pub(super) fn set_security(&mut self, protocol: u8, specific: u16, len: u32) -> Answer {
        if !self.unit.takes_keys() {
            return Err(unknown_command());
        }
        if protocol != PROTOCOL {
            return Err(invalid_command_field(1));
        }
        if specific != page::SET {
            return Err(invalid_command_field(2));
        }
        let list = super::parameters(self.data_out, len as usize)?;
        let set = SetEncryption::of_bytes(list).map_err(invalid_parameter_field)?;
        if set.lock {
            return Err(invalid_parameter_field(4));
        }
        if set.encryption == EncryptionMode::External {
            return Err(invalid_parameter_field(6));
        }
        // Ciphertext is nobody's business but the drive's.
        if set.decryption == DecryptionMode::Raw {
            return Err(invalid_parameter_field(7));
        }
        let off = set.encryption == EncryptionMode::Disable && set.decryption == DecryptionMode::Disable;
        let entry = self.unit.algorithms()[0];
        if !off {
            if set.algorithm_index != entry.index {
                return Err(invalid_parameter_field(8));
            }
            if set.key.len() != 32 {
                return Err(invalid_parameter_field(18));
            }
            if set.key_data.unauthenticated.len() > usize::from(entry.unauthenticated_max)
                || set.key_data.authenticated.len() > usize::from(entry.authenticated_max)
            {
                return Err(invalid_parameter_field(52));
            }
        }
        let keys = &mut self.state.keys;
        keys.instance = keys.instance.wrapping_add(1);
        let instance = keys.instance;
        let scope = set.scope;
        let setting = match scope {
            Scope::Public => None,
            _ if off => None,
            Scope::Local | Scope::AllNexuses => {
                let mut key = Zeroizing::new([0; 32]);
                key.copy_from_slice(&set.key);
                // Key data are a description; what a key is, is told by the key alone.
                let tag = tag_of(&key);
                Some(Setting { page: set, by: self.initiator.to_owned(), algorithm: entry.algorithm, tag, instance })
            }
        };
        match (scope, setting) {
            (Scope::AllNexuses, setting) => {
                keys.own.remove(self.initiator);
                keys.for_all = setting;
                self.state.nexuses.tell_all(Some(self.initiator), Attention::KeyChanged);
            }
            (Scope::Local, Some(setting)) => {
                keys.own.insert(self.initiator.to_owned(), setting);
            }
            (Scope::Local | Scope::Public, _) => {
                keys.own.remove(self.initiator);
            }
        }
        Ok(())
    }
}

fn drive_key(setting: &Setting) -> Option<DriveKey> {
    let key = <[u8; 32]>::try_from(setting.page.key.as_slice()).ok()?;
    Some(DriveKey { tag: setting.tag, algorithm: setting.algorithm, key })
}

/// The key that a block asks for.
pub(super) fn needed(read: &Result<ReadOutcome, DriveError>) -> Option<KeyTag> {
    match read {
        Err(DriveError::NoKey { tag, .. }) => Some(*tag),
        Err(DriveError::WrongKey { needed, .. }) => Some(*needed),
        _ => None,
    }
}
