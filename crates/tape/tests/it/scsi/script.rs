//! A device whose tape is a number: just enough of a drive to stand somewhere, and a list of what goes wrong when.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_tape::PaceClock;
use capstan_tape::scsi::{DataPhase, Reply, ScsiStatus, SenseData, SenseKey, Transport, TransportError};

/// What happens to the next command of an operation code, instead of what it is for.
#[derive(Debug, Clone)]
pub(crate) enum Upset {
    /// It fails with these sense data.
    Check(SenseData),
    /// It is carried out, and says this.
    Told(SenseData),
    /// It is not answered; the tape may have moved.
    Timeout,
    /// Another host has reserved the device.
    Conflict,
    /// It returns these bytes.
    Returns(Vec<u8>),
}

/// Key, code and qualifier.
pub(crate) fn sense(key: SenseKey, asc: u8, ascq: u8) -> SenseData {
    SenseData::new(key, asc, ascq)
}

/// The device's state, which a test looks at and changes while the drive has the transport.
#[derive(Debug, Default)]
pub(crate) struct Bench {
    /// Where the tape stands.
    pub(crate) at: u64,
    /// Where data end.
    pub(crate) end: u64,
    /// What goes wrong: for which operation code, and how. The first that fits a command is taken.
    pub(crate) upsets: VecDeque<(u8, Upset)>,
    /// Unit attentions that wait.
    pub(crate) attentions: VecDeque<SenseData>,
    /// Every command since it was last emptied.
    pub(crate) log: Vec<Vec<u8>>,
    /// Positions at which blocks and filemarks were written.
    pub(crate) writes: Vec<u64>,
    /// What the host says it moves in one command, and what it moves.
    pub(crate) data_max: usize,
    pub(crate) moves_at_most: usize,
    /// The host's count of commands, if it counts.
    pub(crate) seen: Option<u64>,
    /// Serial number in the cartridge's memory.
    pub(crate) cartridge: String,
    /// Modes and key instance; with none, the drive has no key slot.
    pub(crate) key: Option<KeyState>,
    /// The key, as the next blocks on the tape name it.
    pub(crate) on_tape: Vec<u8>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct KeyState {
    pub(crate) modes: (u8, u8),
    pub(crate) instance: u32,
    pub(crate) data: Vec<u8>,
    /// A drive that takes every key and uses none.
    pub(crate) is_deaf: bool,
}

impl Bench {
    /// What goes wrong with the next command of this operation code.
    pub(crate) fn upset(&mut self, opcode: u8, upset: Upset) {
        self.upsets.push_back((opcode, upset));
    }

    /// Operation codes since the log was emptied.
    pub(crate) fn opcodes(&self) -> Vec<u8> {
        self.log.iter().map(|cdb| cdb[0]).collect()
    }
}

/// The way to the bench.
#[derive(Clone)]
pub(crate) struct Script(pub(crate) Arc<Mutex<Bench>>);

impl Script {
    pub(crate) fn new() -> Self {
        let cartridge = "SERIAL1".to_owned();
        let (data_max, moves_at_most) = (1 << 20, 1 << 20);
        let bench = Bench { seen: Some(1000), cartridge, data_max, moves_at_most, ..Bench::default() };
        Self(Arc::new(Mutex::new(bench)))
    }

    pub(crate) fn bench(&self) -> std::sync::MutexGuard<'_, Bench> {
        self.0.lock().unwrap()
    }
}

fn good(moved: usize) -> Reply {
    Reply { status: ScsiStatus::Good, sense: None, moved }
}

fn check(sense: SenseData) -> Reply {
    Reply { status: ScsiStatus::CheckCondition, sense: Some(sense), moved: 0 }
}

fn refused() -> Reply {
    check(sense(SenseKey::IllegalRequest, 0x20, 0x00))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| (number << 8) | u64::from(*byte))
}

impl Transport for Script {
    fn execute(&mut self, cdb: &[u8], data: DataPhase<'_>, timeout: Duration) -> Result<Reply, TransportError> {
        let mut bench = self.bench();
        let bench = &mut *bench;
        let len = match &data {
            DataPhase::In(room) => room.len(),
            DataPhase::Out(bytes) => bytes.len(),
            DataPhase::None => 0,
        };
        if len > bench.moves_at_most {
            bench.data_max = len / 2;
            return Err(TransportError::TooLong { opcode: cdb[0], len });
        }
        bench.log.push(cdb.to_vec());
        bench.seen = bench.seen.map(|seen| seen + 1);
        let mut sent = Vec::new();
        let mut room: &mut [u8] = match data {
            DataPhase::In(room) => room,
            DataPhase::Out(bytes) => {
                sent.extend_from_slice(bytes);
                &mut []
            }
            DataPhase::None => &mut [],
        };
        if cdb[0] != 0x12
            && let Some(attention) = bench.attentions.pop_front()
        {
            return Ok(check(attention));
        }
        let upset = bench.upsets.iter().position(|(opcode, _)| *opcode == cdb[0]);
        let mut told = None;
        match upset.and_then(|at| bench.upsets.remove(at)).map(|(_, upset)| upset) {
            None => {}
            Some(Upset::Check(sense)) => return Ok(check(sense)),
            Some(Upset::Told(sense)) => told = Some(sense),
            Some(Upset::Timeout) => return Err(TransportError::Timeout { opcode: cdb[0], after: timeout }),
            Some(Upset::Conflict) => {
                return Ok(Reply { status: ScsiStatus::ReservationConflict, sense: None, moved: 0 });
            }
            Some(Upset::Returns(bytes)) => {
                let len = bytes.len().min(room.len());
                room[..len].copy_from_slice(&bytes[..len]);
                return Ok(good(len));
            }
        }
        let mut give = |bytes: &[u8]| {
            let len = bytes.len().min(room.len());
            let (head, tail) = std::mem::take(&mut room).split_at_mut(len);
            head.copy_from_slice(&bytes[..len]);
            room = tail;
            good(len)
        };
        let mut reply = match cdb[0] {
            0x00 | 0x1b | 0x1e | 0x5f => good(sent.len()),
            0x01 => {
                bench.at = 0;
                good(0)
            }
            0x05 => give(&[0, 0x80, 0, 0, 0, 1]),
            0x12 if cdb[1] & 1 == 0 => {
                let mut bytes = [b' '; 36];
                bytes[..8].copy_from_slice(&[1, 0x80, 6, 2, 31, 0, 0, 2]);
                bytes[8..27].copy_from_slice(b"IBM     ULTRIUM-TD9");
                give(&bytes)
            }
            0x12 if cdb[2] == 0x80 => give(b"\x01\x80\x00\x0a0013AABBCC"),
            0x1a => give(&[27, 0, 0x10, 8, 0x60, 0, 0, 0, 0, 0, 0, 0, 0x0f, 14, 0xc0, 0x80, 0, 0, 0, 0xff]),
            0x15 => good(sent.len()),
            0x34 => {
                let mut bytes = [0; 32];
                bytes[8..16].copy_from_slice(&bench.at.to_be_bytes());
                give(&bytes)
            }
            0x92 | 0x2b => {
                let to = if cdb[0] == 0x92 { number(&cdb[4..12]) } else { number(&cdb[3..7]) };
                bench.at = to.min(bench.end);
                if to > bench.end { check(sense(SenseKey::BlankCheck, 0x00, 0x05)) } else { good(0) }
            }
            0x11 if cdb[1] == 3 => {
                bench.at = bench.end;
                good(0)
            }
            // As far as it is told, or up to the filemark that the script has there.
            0x11 if cdb[1] == 0 => {
                let residual = told.and_then(|told| told.residual).map_or(0, |residual| residual as u64 - 1);
                bench.at += number(&cdb[2..5]) - residual;
                good(0)
            }
            0x8c => {
                let serial = bench.cartridge.as_bytes();
                let mut bytes = vec![0, 0, 0, 5 + serial.len() as u8, 0x04, 0x01, 0x81, 0, serial.len() as u8];
                bytes.extend_from_slice(serial);
                give(&bytes)
            }
            0x0a => {
                bench.writes.push(bench.at);
                bench.at += 1;
                bench.end = bench.at;
                good(sent.len())
            }
            0x10 => {
                let count = number(&cdb[2..5]);
                if count > 0 {
                    bench.writes.push(bench.at);
                    bench.at += count;
                    bench.end = bench.at;
                }
                good(0)
            }
            0x08 if bench.at >= bench.end => check(sense(SenseKey::BlankCheck, 0x00, 0x05)),
            0x08 => {
                bench.at += 1;
                good(number(&cdb[2..5]) as usize)
            }
            0xa2 | 0xb5 => security(bench, cdb, &sent, &mut give),
            _ => refused(),
        };
        if let Some(told) = told {
            reply = Reply { status: ScsiStatus::CheckCondition, sense: Some(told), moved: reply.moved };
        }
        Ok(reply)
    }

    fn commands_seen(&mut self) -> Option<u64> {
        self.bench().seen
    }

    fn data_max(&self) -> usize {
        self.bench().data_max
    }
}

fn security(bench: &mut Bench, cdb: &[u8], sent: &[u8], give: &mut dyn FnMut(&[u8]) -> Reply) -> Reply {
    let Some(key) = &mut bench.key else { return refused() };
    let with_data = |mut bytes: Vec<u8>, data: &[u8]| {
        if !data.is_empty() {
            bytes.extend_from_slice(&[0, 0, 0, data.len() as u8]);
            bytes.extend_from_slice(data);
        }
        let len = bytes.len() - 4;
        bytes[3] = len as u8;
        bytes
    };
    match (cdb[0], cdb[3]) {
        // As strict as some: the one index that it lists, in every page.
        (0xb5, 0x10) if sent[8] != 1 => check(sense(SenseKey::IllegalRequest, 0x26, 0x00)),
        (0xb5, 0x10) => {
            key.instance += 1;
            if !key.is_deaf {
                key.modes = (sent[6], sent[7]);
                key.data = sent.get(20 + usize::from(sent[19]) + 4..).unwrap_or_default().to_vec();
            }
            good(sent.len())
        }
        (0xa2, 0x10) => {
            let mut bytes = vec![0; 44];
            (bytes[1], bytes[3]) = (0x10, 40);
            bytes[20..24].copy_from_slice(&[1, 0, 0, 20]);
            bytes[24] = 0x0a;
            bytes[27] = 32;
            bytes[31] = 32;
            bytes[40..44].copy_from_slice(&[0, 1, 0, 0x14]);
            give(&bytes)
        }
        (0xa2, 0x20) => {
            let mut bytes = vec![0; 24];
            (bytes[1], bytes[5], bytes[6], bytes[7]) = (0x20, key.modes.0, key.modes.1, 1);
            bytes[8..12].copy_from_slice(&key.instance.to_be_bytes());
            give(&with_data(bytes, &key.data))
        }
        (0xa2, 0x21) => {
            let mut bytes = vec![0; 16];
            let next = match (bench.at >= bench.end, bench.on_tape.is_empty()) {
                (true, _) => 2,
                (false, true) => 3,
                (false, false) if bench.on_tape == key.data => 5,
                (false, false) => 6,
            };
            (bytes[1], bytes[12], bytes[13]) = (0x21, 0x10 | next, 1);
            give(&with_data(bytes, if next > 3 { &bench.on_tape } else { &[] }))
        }
        _ => refused(),
    }
}

/// A clock on which waiting takes no time.
pub(crate) struct Leap(pub(crate) f64);

impl PaceClock for Leap {
    fn now_s(&self) -> f64 {
        self.0
    }

    fn wait_until(&mut self, at_s: f64) {
        self.0 = self.0.max(at_s);
    }
}
