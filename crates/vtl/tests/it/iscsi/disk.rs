//! A disk in memory, only because libiscsi's conformance tests of the protocol want one to talk to.

use std::sync::Mutex;

use capstan_vtl::{CommandStatus, Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};

const BLOCK_LEN: usize = 512;
const BLOCKS: usize = 16 << 10;

pub(crate) struct Disk(Mutex<Vec<u8>>);

impl Disk {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(vec![0; BLOCK_LEN * BLOCKS]))
    }
}

fn number(bytes: &[u8]) -> usize {
    bytes.iter().fold(0, |number, &byte| number << 8 | usize::from(byte))
}

fn illegal_request(code: u8) -> Completion {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12]) = (0x70, 5, 10, code);
    Completion { status: CommandStatus::CheckCondition, sense, data_out_len: None }
}

impl DeviceServer for Disk {
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        let cdb = request.cdb;
        let (address, blocks) = match cdb[0] >> 5 {
            4 => (number(&cdb[2..10]), number(&cdb[10..14])),
            5 => (number(&cdb[2..6]), number(&cdb[6..10])),
            1 | 2 => (number(&cdb[2..6]), number(&cdb[7..9])),
            _ => (0, 0),
        };
        let (begin, len) = (address.saturating_mul(BLOCK_LEN), blocks * BLOCK_LEN);
        let mut medium = self.0.lock().unwrap();
        match cdb[0] {
            // TEST UNIT READY, START STOP UNIT, SYNCHRONIZE CACHE.
            0x00 | 0x1b | 0x35 => {}
            0x12 if cdb[1] & 1 == 0 => {
                let mut inquiry = b"\0\0\x06\x02\x5b\0\0\x02CAPSTAN TEST DISK       0001".to_vec();
                inquiry.resize(96, 0);
                data_in.put(&inquiry, number(&cdb[3..5]));
            }
            0x25 => data_in.put(&[0, 0, 0x3f, 0xff, 0, 0, 2, 0], 8),
            0x9e if cdb[1] & 0x1f == 0x10 => {
                let mut capacity = vec![0, 0, 0, 0, 0, 0, 0x3f, 0xff, 0, 0, 2, 0];
                capacity.resize(32, 0);
                data_in.put(&capacity, number(&cdb[10..14]));
            }
            0xa0 => data_in.put(&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], number(&cdb[6..10])),
            // MODE SENSE: a header and nothing else.
            0x1a => data_in.put(&[3, 0, 0, 0], usize::from(cdb[4])),
            0x28 | 0xa8 | 0x88 => match medium.get(begin..).and_then(|rest| rest.get(..len)) {
                Some(data) => data_in.put(data, usize::MAX),
                None => return illegal_request(0x21),
            },
            0x2a | 0xaa | 0x8a => match medium.get_mut(begin..).and_then(|rest| rest.get_mut(..len)) {
                Some(room) => {
                    let len = len.min(request.data_out.len());
                    room[..len].copy_from_slice(&request.data_out[..len]);
                }
                None => return illegal_request(0x21),
            },
            _ => return illegal_request(0x20),
        }
        let data_out_len = matches!(cdb[0], 0x2a | 0xaa | 0x8a).then_some(len as u64);
        Completion { data_out_len, ..Completion::GOOD }
    }

    fn data_out_max(&self) -> usize {
        4 << 20
    }

    fn luns(&self) -> Vec<u64> {
        vec![0]
    }

    fn manage(&self, _: &Nexus, _: u64, _: TaskFunction) {}

    fn nexus_lost(&self, _: &Nexus) {}
}
