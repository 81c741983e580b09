//! Command descriptor blocks, both ways.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
use super::*;

/// As they stand in the standards' tables, or in what other programs send.
#[test]
fn commands_are_the_standards_bytes() {
    let cases: &[(Command, DeviceType, &[u8])] = &[
        (
            Command::Read { length: Length::Variable(0x04_0000), suppress_incorrect_length: true, at: None },
            DeviceType::Tape,
            &[0x08, 0x02, 0x04, 0, 0, 0],
        ),
        (Command::Write { length: Length::Fixed(16), at: None }, DeviceType::Tape, &[0x0a, 0x01, 0, 0, 16, 0]),
        (
            Command::Write { length: Length::Variable(256), at: Some(Address { partition: 0, lbn: 0x0102 }) },
            DeviceType::Tape,
            &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 0, 1, 0, 0],
        ),
        (Command::Space { over: SpaceOver::Filemarks, count: -1 }, DeviceType::Tape, &[0x11, 1, 0xff, 0xff, 0xff, 0]),
        (
            Command::Space { over: SpaceOver::Blocks, count: -0x80_0001 },
            DeviceType::Tape,
            &[0x91, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0xff, 0xff, 0, 0, 0, 0],
        ),
        (
            Command::Locate { to: Destination::File(7), partition: None, immediate: false },
            DeviceType::Tape,
            &[0x92, 0x08, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0],
        ),
        (
            Command::SecurityProtocolOut { protocol: 0x20, specific: 0x0010, len: 52 },
            DeviceType::Tape,
            &[0xb5, 0x20, 0, 0x10, 0, 0, 0, 0, 0, 52, 0, 0],
        ),
        (
            Command::MoveMedium { transport: 1, from: 0x03e8, to: 0x01f4 },
            DeviceType::Changer,
            &[0xa5, 0, 0, 1, 0x03, 0xe8, 0x01, 0xf4, 0, 0, 0, 0],
        ),
        (
            Command::ReadElementStatus {
                volume_tags: true,
                kind: 0,
                start: 0,
                count: 0xffff,
                no_motion: false,
                device_identifiers: true,
                allocation: 0x01_0000,
            },
            DeviceType::Changer,
            &[0xb8, 0x10, 0, 0, 0xff, 0xff, 0x01, 0x01, 0, 0, 0, 0],
        ),
    ];
    for (command, device, bytes) in cases {
        assert_eq!(command.to_cdb(), *bytes, "{command:?}");
        assert_eq!(Command::of_cdb(*device, bytes).as_ref(), Ok(command));
    }
}

#[test]
fn every_command_that_is_read_is_written_so_that_it_is_read_again() {
    let mut seed = 0x1234_5678_9abc_def1u64;
    for round in 0..200_000u32 {
        let mut cdb = [0u8; 16];
        for byte in &mut cdb {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            *byte = seed as u8;
        }
        cdb[0] = round as u8;
        for device in [DeviceType::Tape, DeviceType::Changer] {
            if let Ok(command) = Command::of_cdb(device, &cdb) {
                assert_eq!(Command::of_cdb(device, &command.to_cdb()), Ok(command), "{cdb:02x?}");
            }
        }
    }
}

#[test]
fn short_and_unknown_ones_are_refused() {
    assert_eq!(Command::of_cdb(DeviceType::Tape, &[]), Err(CommandError::OperationCode));
    assert_eq!(Command::of_cdb(DeviceType::Tape, &[0x08, 0, 0]), Err(CommandError::Field(0)));
    assert_eq!(Command::of_cdb(DeviceType::Tape, &[0xa5; 12]), Err(CommandError::OperationCode));
    assert_eq!(Command::of_cdb(DeviceType::Changer, &[0x08; 6]), Err(CommandError::OperationCode));
}
