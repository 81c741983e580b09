//! Log pages of a drive, and its alerts.

use std::collections::BTreeSet;

use capstan_tape::scsi::log::{Parameter, encode, page};

use super::CommandContext;
use crate::device::DataIn;
use crate::unit::answer::{Answer, invalid_command_field};

/// What is counted.
#[derive(Debug, Default, Clone)]
pub(super) struct Counters {
    written_bytes: u64,
    read_bytes: u64,
    written_blocks: u64,
    read_blocks: u64,
    write_errors: u64,
    read_errors: u64,
    /// Errors that the drive recovered from by itself.
    write_retries: u64,
    read_retries: u64,
    loads: u64,
    /// TapeAlert flags that are raised.
    alerts: BTreeSet<u16>,
}

impl Counters {
    pub(super) fn wrote(&mut self, bytes: usize) {
        self.written_bytes += bytes as u64;
        self.written_blocks += 1;
    }

    pub(super) fn read(&mut self, bytes: usize) {
        self.read_bytes += bytes as u64;
        self.read_blocks += 1;
    }

    /// Raises "hard error" and "write failure".
    pub(super) fn write_failed(&mut self) {
        self.write_errors += 1;
        self.alerts.extend([3, 6]);
    }

    /// Raises "hard error" and "read failure".
    pub(super) fn read_failed(&mut self) {
        self.read_errors += 1;
        self.alerts.extend([3, 5]);
    }

    pub(super) fn write_recovered(&mut self, count: u32) {
        self.write_retries += u64::from(count);
    }

    pub(super) fn read_recovered(&mut self, count: u32) {
        self.read_retries += u64::from(count);
    }

    /// Raises a flag; a number that no flag has is passed over.
    pub(super) fn raise(&mut self, flag: u16) {
        if (1..=ALERTS).contains(&flag) {
            self.alerts.insert(flag);
        }
    }

    pub(super) fn loaded(&mut self) {
        self.loads += 1;
    }
}

/// TapeAlert has this many flags.
const ALERTS: u16 = 64;

const PAGES: [u8; 11] = [
    page::SUPPORTED,
    page::WRITE_ERRORS,
    page::READ_ERRORS,
    page::SEQUENTIAL,
    page::DEVICE_STATUS,
    page::TAPE_ALERT_RESPONSE,
    page::DEVICE_STATISTICS,
    page::VOLUME_STATISTICS,
    page::COMPRESSION,
    page::TAPE_ALERT,
    page::CAPACITY,
];

impl CommandContext<'_> {
    /// LOG SENSE.
    pub(super) fn tell_log(
        &mut self,
        code: u8,
        subpage: u8,
        from: u16,
        allocation: u16,
        data_in: &mut DataIn,
    ) -> Answer {
        if subpage != 0 {
            return Err(invalid_command_field(3));
        }
        let counters = self.state.counters.clone();
        let long = |number: u16, value: u64| Parameter::new(number, value.to_be_bytes());
        let short =
            |number: u16, value: u64| Parameter::new(number, (value.min(u64::from(u32::MAX)) as u32).to_be_bytes());
        let medium = self.state.loaded.as_ref().map(|loaded| &loaded.medium);
        let parameters = match code {
            page::SUPPORTED => {
                let mut bytes = vec![page::SUPPORTED, 0, 0, PAGES.len() as u8];
                bytes.extend_from_slice(&PAGES);
                data_in.put(&bytes, usize::from(allocation));
                return Ok(());
            }
            page::WRITE_ERRORS => {
                let corrected = long(3, counters.write_retries);
                vec![corrected, long(5, counters.written_bytes), short(6, counters.write_errors)]
            }
            page::READ_ERRORS => {
                let corrected = long(3, counters.read_retries);
                vec![corrected, long(5, counters.read_bytes), short(6, counters.read_errors)]
            }
            // From hosts, to the medium, from the medium, to hosts; then whether it must be cleaned.
            page::SEQUENTIAL => vec![
                long(0, counters.written_bytes),
                long(1, counters.written_bytes),
                long(2, counters.read_bytes),
                long(3, counters.read_bytes),
                short(0x100, 0),
            ],
            page::DEVICE_STATUS => vec![Parameter::new(0, self.device_status())],
            page::TAPE_ALERT_RESPONSE => {
                let bits = counters.alerts.iter().fold(0u64, |bits, flag| bits | 1 << (ALERTS - flag));
                vec![long(0, bits)]
            }
            page::TAPE_ALERT => {
                let flag = |number: u16| Parameter::new(number, [u8::from(counters.alerts.contains(&number))]);
                let flags: Vec<Parameter> = (1..=ALERTS).map(flag).collect();
                // Whoever reads them has been told; who asks for the length alone has not.
                if usize::from(allocation) >= encode(code, &flags, from).len() {
                    self.state.counters.alerts.clear();
                }
                flags
            }
            // Loads alone: nobody has measured the tape that passed.
            page::DEVICE_STATISTICS => vec![long(0x0000, counters.loads)],
            page::VOLUME_STATISTICS => {
                let Some(medium) = medium else { return Err(invalid_command_field(2)) };
                let used = medium.capacity_bytes - medium.remaining_bytes.min(medium.capacity_bytes);
                vec![
                    short(0x0000, 1),
                    short(0x0001, counters.loads),
                    long(0x0002, counters.written_blocks),
                    long(0x0003, counters.write_retries),
                    short(0x0004, counters.write_errors),
                    long(0x0007, counters.read_blocks),
                    long(0x0008, counters.read_retries),
                    short(0x0009, counters.read_errors),
                    // In MB: of this mount written and read, altogether, and what the volume holds.
                    short(0x0010, counters.written_bytes / 1_000_000),
                    short(0x0011, counters.read_bytes / 1_000_000),
                    short(0x0016, medium.capacity_bytes / 1_000_000),
                    short(0x0017, used / 1_000_000),
                ]
            }
            // Ratios in hundredths; nothing is compressed. Then MB and bytes to and from hosts and the medium.
            page::COMPRESSION => {
                let parts =
                    |first: u16, bytes: u64| [short(first, bytes / 1_000_000), short(first + 1, bytes % 1_000_000)];
                let mut all = vec![Parameter::new(0, 100u16.to_be_bytes()), Parameter::new(1, 100u16.to_be_bytes())];
                all.extend(parts(2, counters.read_bytes));
                all.extend(parts(4, counters.read_bytes));
                all.extend(parts(6, counters.written_bytes));
                all.extend(parts(8, counters.written_bytes));
                all
            }
            // MiB: what remains, and what there is.
            page::CAPACITY => {
                let of = |bytes: Option<u64>| bytes.unwrap_or(0) >> 20;
                vec![
                    short(1, of(medium.map(|medium| medium.remaining_bytes))),
                    short(2, 0),
                    short(3, of(medium.map(|medium| medium.capacity_bytes))),
                    short(4, 0),
                ]
            }
            _ => return Err(invalid_command_field(2)),
        };
        data_in.put(&encode(code, &parameters, from), usize::from(allocation));
        Ok(())
    }

    /// Very high frequency data: whether a cartridge is there, threaded, protected, encrypted.
    fn device_status(&self) -> [u8; 4] {
        let mut bits = 0u32;
        let mut set = |bit: u8, on: bool| bits |= u32::from(on) << (31 - bit);
        // Byte 1: in transition 0; bits from the left: RAA.., MSTD, MTHRD, MOUNTED. Byte 0: PAMR, HUI, MACC, CMPR,
        // WRTP, CRQST, CRQRD, DINIT.
        set(3, self.state.modes.buffered > 0);
        set(4, self.state.loaded.as_ref().is_some_and(|loaded| loaded.medium.write_protected));
        set(7, true);
        set(11, self.state.bay.is_some());
        set(13, self.state.bay.is_some());
        set(14, self.state.loaded.is_some());
        set(15, self.state.loaded.is_some());
        bits.to_be_bytes()
    }

    /// LOG SELECT: the counters begin anew.
    pub(super) fn reset_log(&mut self, reset: bool, code: u8, len: u16) -> Answer {
        if !reset || len > 0 {
            return Err(invalid_command_field(1));
        }
        let alerts = std::mem::take(&mut self.state.counters.alerts);
        if code == 0 {
            self.state.counters = Counters { loads: self.state.counters.loads, ..Counters::default() };
        }
        if code != 0 && code != page::TAPE_ALERT {
            self.state.counters.alerts = alerts;
        }
        Ok(())
    }
}
