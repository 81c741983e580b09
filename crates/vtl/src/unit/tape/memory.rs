//! A cartridge's memory as hosts see it: READ ATTRIBUTE and WRITE ATTRIBUTE.
//!
//! What the drive knows (capacity, barcode of the cartridge) is made when it is asked for. What hosts wrote lies beside
//! the cartridge, in `NAME.attributes`, as WRITE ATTRIBUTE brought it; the file is replaced whole, so that a crash
//! leaves the old one or the new one.

use std::io::Write;
use std::path::{Path, PathBuf};

use capstan_format::{KeyTag, MediumSerial};
use capstan_tape::scsi::SenseKey;
use capstan_tape::scsi::attribute::{self, AttributeFormat, MediumAttribute, decode, encode, id};
use capstan_tape::scsi::encryption::KeyData;
use capstan_tape::{Drive, Rewritability};

use super::CommandContext;
use crate::device::DataIn;
use crate::unit::answer::{Answer, check, invalid_command_field, invalid_parameter_field};

/// Bytes that hosts may write: as much as an LTO cartridge has room for.
const HOST_BYTES_MAX: usize = 2048;

/// Key data that stand with each block of a volume with one key: in the part of the numbers that belongs to vendors.
/// They were kept like this until volumes could have several keys, and are read still.
const UNAUTHENTICATED_KEY_DATA: u16 = 0x1400;
const AUTHENTICATED_KEY_DATA: u16 = 0x1401;
/// How often writing began at the beginning of tape.
const LIVES: u16 = 0x1402;
/// Key data of each key that blocks were written with: two numbers a key, each the key's tag and the data.
const KEY_DATA: std::ops::Range<u16> = 0x1410..0x1440;
/// Bytes of a tag.
const TAG_LEN: usize = 16;

/// What hosts wrote into a cartridge's memory.
pub(super) struct CartridgeMemory {
    path: PathBuf,
    attributes: Vec<MediumAttribute>,
}

impl CartridgeMemory {
    /// Reads what lies beside the cartridge; what is no list of attributes counts as none.
    pub(super) fn open(cartridge: &Path) -> Self {
        let path = cartridge.with_extension("attributes");
        let bytes = std::fs::read(&path).unwrap_or_default();
        let (attributes, _) = decode(&bytes[..bytes.len().min(2 * HOST_BYTES_MAX)]);
        Self { path, attributes }
    }

    fn set(&mut self, attribute: MediumAttribute) {
        self.attributes.retain(|known| known.id != attribute.id);
        if !attribute.value.is_empty() {
            self.attributes.push(attribute);
            self.attributes.sort_by_key(|known| known.id);
        }
    }

    fn get(&self, id: u16) -> Option<&MediumAttribute> {
        self.attributes.iter().find(|known| known.id == id)
    }

    fn save(&self) -> std::io::Result<()> {
        let new = self.path.with_extension("attributes.new");
        let mut file = std::fs::File::create(&new)?;
        file.write_all(&encode(&self.attributes))?;
        file.sync_all()?;
        std::fs::rename(new, &self.path)
    }

    fn lives(&self) -> u64 {
        self.get(LIVES).and_then(MediumAttribute::as_number).unwrap_or(0)
    }

    /// Writing began at the beginning of tape: the volume change reference counts it. It is a service to hosts; a file
    /// that cannot be written must not make the cartridge unwritable.
    pub(super) fn began_anew(&mut self) {
        self.set(MediumAttribute::number(LIVES, (self.lives() + 1).to_be_bytes()));
        let _ = self.save();
    }

    /// Where the data of a key are kept.
    fn key_data_at(&self, tag: &KeyTag) -> Option<u16> {
        KEY_DATA.step_by(2).find(|id| self.get(*id).is_some_and(|kept| kept.value.starts_with(&tag.0)))
    }

    /// What belongs to a key of the volume, if anything does.
    pub(super) fn key_data(&self, tag: &KeyTag) -> Option<KeyData> {
        let of = |id: u16, from| self.get(id).and_then(|kept| kept.value.get(from..)).unwrap_or_default().to_vec();
        let data = match self.key_data_at(tag) {
            Some(id) => KeyData { unauthenticated: of(id, TAG_LEN), authenticated: of(id + 1, TAG_LEN) },
            None => KeyData {
                unauthenticated: of(UNAUTHENTICATED_KEY_DATA, 0),
                authenticated: of(AUTHENTICATED_KEY_DATA, 0),
            },
        };
        (data != KeyData::default()).then_some(data)
    }

    /// Whether what belongs to a key is kept.
    pub(super) fn has_key_data(&self, tag: &KeyTag) -> bool {
        self.key_data_at(tag).is_some()
    }

    /// Keeps what belongs to a key, once.
    pub(super) fn note_key_data(&mut self, tag: &KeyTag, data: &KeyData) {
        let Some(id) = KEY_DATA.step_by(2).find(|id| self.get(*id).is_none()) else { return };
        for (id, data) in [(id, &data.unauthenticated), (id + 1, &data.authenticated)] {
            let value = [&tag.0[..], data].concat();
            self.set(MediumAttribute { id, read_only: true, kind: AttributeFormat::Binary, value });
        }
        let _ = self.save();
    }

    /// The keys of the volume's life before are of no interest any more.
    pub(super) fn forget_key_data(&mut self) {
        let ours = |id: u16| KEY_DATA.contains(&id) || matches!(id, UNAUTHENTICATED_KEY_DATA | AUTHENTICATED_KEY_DATA);
        self.attributes.retain(|attribute| !ours(attribute.id));
        let _ = self.save();
    }
}

/// Attributes that hosts may write: number, kind, length.
const WRITABLE: [(u16, AttributeFormat, usize); 8] = [
    (id::APPLICATION_VENDOR, AttributeFormat::Ascii, 8),
    (id::APPLICATION_NAME, AttributeFormat::Ascii, 32),
    (id::APPLICATION_VERSION, AttributeFormat::Ascii, 8),
    (id::USER_LABEL, AttributeFormat::Text, 160),
    (id::BARCODE, AttributeFormat::Ascii, 32),
    (id::MEDIA_POOL, AttributeFormat::Text, 160),
    (id::FORMAT_VERSION, AttributeFormat::Ascii, 16),
    (id::COHERENCY, AttributeFormat::Binary, 1024),
];

impl CommandContext<'_> {
    fn attributes(&mut self) -> Result<Vec<MediumAttribute>, crate::unit::answer::Refusal> {
        let medium = self.state.on_drive(|bay, _| bay.drive.medium())?;
        let density = self.unit.model.density_code.as_ref().map_or(0, |code| code.value);
        let medium_type = match medium.rewritability {
            Rewritability::WriteOnce => attribute::WRITE_ONCE as u8,
            Rewritability::Rewritable | Rewritability::Unknown => 0,
        };
        let (bay, _) = self.state.loaded()?;
        let lives = (bay.memory.lives() as u32).to_be_bytes();
        // One that an older program made has none.
        let serial = medium.serial.as_ref().map_or(bay.volser.as_str(), MediumSerial::as_str);
        let ascii = |id, text: &str, len| MediumAttribute { read_only: true, ..MediumAttribute::ascii(id, text, len) };
        let mut all = vec![
            MediumAttribute::number(id::REMAINING, (medium.remaining_bytes >> 20).to_be_bytes()),
            MediumAttribute::number(id::MAXIMUM, (medium.capacity_bytes >> 20).to_be_bytes()),
            MediumAttribute::number(id::MEMORY_SPACE, (HOST_BYTES_MAX as u64).to_be_bytes()),
            ascii(id::ASSIGNING_ORGANIZATION, "CAPSTAN", 8),
            MediumAttribute::number(id::FORMATTED_DENSITY, [density]),
            MediumAttribute::number(id::VOLUME_CHANGE_REFERENCE, lives),
            ascii(id::MEDIUM_MANUFACTURER, "CAPSTAN", 8),
            ascii(id::MEDIUM_SERIAL, serial, 32),
            MediumAttribute::number(id::MEDIUM_TYPE, [medium_type]),
        ];
        if bay.memory.get(id::BARCODE).is_none() {
            all.push(MediumAttribute::ascii(id::BARCODE, bay.volser.as_str(), 32));
        }
        // What is ours stays out of sight.
        all.extend(bay.memory.attributes.iter().filter(|attribute| attribute.id < 0x1400).cloned());
        all.sort_by_key(|attribute| attribute.id);
        Ok(all)
    }

    /// READ ATTRIBUTE.
    pub(super) fn tell_attributes(
        &mut self,
        action: u8,
        (volume, partition): (u8, u8),
        first: u16,
        allocation: u32,
        data_in: &mut DataIn,
    ) -> Answer {
        if volume != 0 {
            return Err(invalid_command_field(5));
        }
        if partition != 0 {
            return Err(invalid_command_field(7));
        }
        let all = self.attributes()?;
        let from = all.iter().filter(|attribute| attribute.id >= first);
        let body = match action {
            // ATTRIBUTE VALUES
            0 => encode(&from.cloned().collect::<Vec<_>>()),
            // ATTRIBUTE LIST
            1 => from.flat_map(|attribute| attribute.id.to_be_bytes()).collect(),
            // LOGICAL VOLUME LIST, PARTITION LIST: first and number, in two bytes of length.
            2 | 3 => {
                data_in.put(&[0, 2, 0, 1], allocation as usize);
                return Ok(());
            }
            // SUPPORTED ATTRIBUTES
            5 => {
                let mut ids: Vec<u16> =
                    all.iter().map(|attribute| attribute.id).chain(WRITABLE.map(|(id, ..)| id)).collect();
                ids.sort_unstable();
                ids.dedup();
                ids.into_iter().filter(|id| *id >= first).flat_map(u16::to_be_bytes).collect()
            }
            _ => return Err(invalid_command_field(1)),
        };
        let mut bytes = (body.len() as u32).to_be_bytes().to_vec();
        bytes.extend_from_slice(&body);
        data_in.put(&bytes, allocation as usize);
        Ok(())
    }

    /// WRITE ATTRIBUTE.
    pub(super) fn set_attributes(&mut self, partition: u8, len: u32) -> Answer {
        if partition != 0 {
            return Err(invalid_command_field(7));
        }
        // More than there is room for, whatever is in it.
        if len as usize > 4 * HOST_BYTES_MAX {
            return Err(crate::unit::answer::parameter_length());
        }
        let list = super::parameters(self.data_out, len as usize)?;
        let body = match list {
            [] => return Ok(()),
            [_, _, _, _, body @ ..] => body,
            _ => return Err(crate::unit::answer::parameter_length()),
        };
        let (attributes, wrong) = decode(body);
        if let Some(at) = wrong {
            return Err(invalid_parameter_field(4 + at as u16));
        }
        let (bay, loaded) = self.state.loaded()?;
        if loaded.medium.write_protected {
            return Err(check(SenseKey::DataProtect, 0x27, 0x00));
        }
        let mut at = 4;
        for attribute in &attributes {
            let Some((_, kind, len)) = WRITABLE.iter().find(|(id, ..)| *id == attribute.id) else {
                return Err(invalid_parameter_field(at));
            };
            // A value of no length deletes the attribute.
            if attribute.kind != *kind || attribute.value.len() > *len {
                return Err(invalid_parameter_field(at + 2));
            }
            at += 5 + attribute.value.len() as u16;
        }
        let before = bay.memory.attributes.clone();
        for attribute in attributes {
            bay.memory.set(MediumAttribute { read_only: false, ..attribute });
        }
        if encode(&bay.memory.attributes).len() > HOST_BYTES_MAX {
            bay.memory.attributes = before;
            // AUXILIARY MEMORY OUT OF SPACE
            return Err(check(SenseKey::IllegalRequest, 0x55, 0x06));
        }
        if bay.memory.save().is_err() {
            bay.memory.attributes = before;
            // AUXILIARY MEMORY WRITE ERROR
            return Err(check(SenseKey::MediumError, 0x11, 0x12));
        }
        Ok(())
    }
}
