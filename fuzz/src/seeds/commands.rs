//! What hosts tell drives and robots to do: each kind of command once, some in an order that makes sense.

use capstan_tape::scsi::Command;
use capstan_tape::scsi::command::{Destination, Form, Length, PageControl, PositionForm, SpaceOver};
use capstan_tape::scsi::encryption::{DecryptionMode, EncryptionMode, Scope, SetEncryption};

use super::Seeds;

fn told(unit: u8, command: &Command, data: &[u8]) -> Vec<u8> {
    let mut bytes = vec![unit];
    bytes.extend_from_slice(&command.to_cdb());
    bytes.resize(17, 0);
    bytes.extend_from_slice(&(data.len() as u16).to_le_bytes());
    bytes.extend_from_slice(data);
    bytes
}

fn key() -> Vec<u8> {
    let mut page = SetEncryption::clear(Scope::AllNexuses);
    (page.encryption, page.decryption) = (EncryptionMode::Encrypt, DecryptionMode::Decrypt);
    page.algorithm_index = 1;
    page.key = vec![7; 32].into();
    page.key_data.unauthenticated = b"weekly".to_vec();
    page.to_bytes().to_vec()
}

pub(super) fn conversations() -> Seeds {
    let write = |len: usize| told(1, &Command::Write { length: Length::Variable(len as u32), at: None }, &vec![5; len]);
    let read =
        told(1, &Command::Read { length: Length::Variable(600), suppress_incorrect_length: false, at: None }, &[]);
    let marks = |count| told(1, &Command::WriteFilemarks { count, immediate: false, at: None }, &[]);
    let rewind = told(1, &Command::Rewind { immediate: false }, &[]);
    let space = |over, count| told(1, &Command::Space { over, count }, &[]);
    let locate = |to| told(1, &Command::Locate { to, partition: None, immediate: false }, &[]);
    let position = |form| told(1, &Command::ReadPosition { form }, &[]);
    let sense = |page, subpage| {
        let (form, control) = (Form::Ten, PageControl::Current);
        told(1, &Command::ModeSense { form, no_block_descriptor: false, control, page, subpage, allocation: 255 }, &[])
    };
    let security = |specific| told(1, &Command::SecurityProtocolIn { protocol: 0x20, specific, allocation: 999 }, &[]);
    let set = key();
    let set = told(1, &Command::SecurityProtocolOut { protocol: 0x20, specific: 0x10, len: set.len() as u32 }, &set);
    let reserve = |unit, action, keys: [u64; 2]| {
        let list = [keys[0].to_be_bytes(), keys[1].to_be_bytes(), [0; 8]].concat();
        told(unit, &Command::PersistentReserveOut { action, scope: 0, kind: 3, len: 24 }, &list)
    };
    let fixed = [0, 0, 0x10, 8, 0, 0, 0, 0, 0, 0, 2, 0];
    let fixed = told(1, &Command::ModeSelect { form: Form::Six, page_format: true, save: false, len: 12 }, &fixed);
    let elements = Command::ReadElementStatus {
        volume_tags: true,
        kind: 0,
        start: 0,
        count: 99,
        no_motion: false,
        device_identifiers: true,
        allocation: 9999,
    };
    let log = |page| {
        let control = PageControl::Changeable;
        told(1, &Command::LogSense { save: false, control, page, subpage: 0, from_parameter: 0, allocation: 9999 }, &[])
    };
    vec![
        [rewind.clone(), write(500), marks(1), write(300), rewind.clone(), read.clone(), read.clone(), read.clone()]
            .concat(),
        [marks(3), space(SpaceOver::Filemarks, -2), space(SpaceOver::Blocks, 9), space(SpaceOver::EndOfData, 0)]
            .concat(),
        [
            locate(Destination::Object(1)),
            locate(Destination::File(1)),
            position(PositionForm::Long),
            position(PositionForm::Short),
        ]
        .concat(),
        [sense(0x3f, 0xff), fixed, told(1, &Command::Write { length: Length::Fixed(2), at: None }, &[3; 1024])]
            .concat(),
        [security(0x10), set, rewind.clone(), write(100), rewind, security(0x20), security(0x21), read].concat(),
        [reserve(1, 0, [0, 5]), reserve(1, 1, [5, 0]), reserve(0x81, 6, [0, 6]), reserve(0x81, 4, [6, 5])].concat(),
        [told(0, &elements, &[]), told(0, &Command::MoveMedium { transport: 1, from: 500, to: 300 }, &[])].concat(),
        [
            told(0, &Command::ExchangeMedium { transport: 1, from: 1000, to: 500, second_to: 1000 }, &[]),
            log(0x2e),
            log(0x0c),
        ]
        .concat(),
        [
            told(1, &Command::ReadAttribute { action: 0, volume: 0, partition: 0, first: 0, allocation: 9999 }, &[]),
            told(1, &Command::Erase { long: false, immediate: false, at: None }, &[]),
            told(1, &Command::ReportDensity { of_medium: false, medium_type: false, allocation: 999 }, &[]),
        ]
        .concat(),
    ]
}
