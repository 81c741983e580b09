//! A device server with three logical units that keep one block each, and a target that serves it.

use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use capstan_vtl::iscsi::{Initiator, InitiatorConfig, Server, TargetConfig, WireFaults};
use capstan_vtl::{CommandStatus, Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};

pub(crate) const TARGET: &str = "iqn.2026-01.org.capstan:test";
pub(crate) const DATA_OUT_MAX: usize = 4 << 20;

/// Operations that this device knows, besides those that every device has.
pub(crate) const WRITE_BLOCK: u8 = 0x0a;
pub(crate) const READ_BLOCK: u8 = 0x08;
/// READ BLOCK with CHECK CONDITION behind the data.
pub(crate) const READ_SHORT: u8 = 0xc0;
/// Waits until the gate is opened.
pub(crate) const WAIT: u8 = 0xc1;
/// Returns its own descriptor block.
pub(crate) const ECHO: u8 = 0xc2;
pub(crate) const PANIC: u8 = 0xc3;
pub(crate) const TEST_UNIT_READY: [u8; 6] = [0; 6];

/// What the device was told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) executed: Vec<(u64, u8)>,
    pub(crate) managed: Vec<(u64, TaskFunction)>,
    pub(crate) lost: Vec<Nexus>,
}

#[derive(Default)]
pub(crate) struct Blocks {
    blocks: [Mutex<Vec<u8>>; 3],
    pub(crate) told: Mutex<Told>,
    gate: Mutex<bool>,
    opened: Condvar,
}

impl Blocks {
    pub(crate) fn block(&self, lun: usize) -> Vec<u8> {
        self.blocks[lun].lock().unwrap().clone()
    }

    /// Lets commands go on that wait.
    pub(crate) fn open_gate(&self) {
        *self.gate.lock().unwrap() = true;
        self.opened.notify_all();
    }

    pub(crate) fn executed(&self) -> Vec<(u64, u8)> {
        self.told.lock().unwrap().executed.clone()
    }

    pub(crate) fn lost(&self) -> Vec<Nexus> {
        self.told.lock().unwrap().lost.clone()
    }
}

fn check_condition(key: u8, code: u8) -> Completion {
    let mut sense = vec![0; 18];
    (sense[0], sense[2], sense[7], sense[12]) = (0x70, key, 10, code);
    Completion { status: CommandStatus::CheckCondition, sense, data_out_len: None }
}

impl DeviceServer for Blocks {
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        const INQUIRY: u8 = 0x12;
        const REPORT_LUNS: u8 = 0xa0;
        let (cdb, lun) = (request.cdb, request.lun as usize);
        self.told.lock().unwrap().executed.push((request.lun, cdb[0]));
        if cdb[0] == REPORT_LUNS {
            let allocation = u32::from_be_bytes([cdb[6], cdb[7], cdb[8], cdb[9]]) as usize;
            let mut list = vec![0, 0, 0, 24, 0, 0, 0, 0];
            self.luns().iter().for_each(|lun| list.extend_from_slice(&(lun << 48).to_be_bytes()));
            data_in.put(&list, allocation);
            return Completion::GOOD;
        }
        let Some(block) = self.blocks.get(lun) else { return check_condition(5, 0x25) };
        match cdb[0] {
            0x00 => {}
            INQUIRY if cdb[1] & 1 == 0 => {
                let mut inquiry = b"\x01\x80\x06\x02\x5b\0\0\0CAPSTAN TEST TAPE       0001".to_vec();
                inquiry.resize(96, 0);
                data_in.put(&inquiry, usize::from(u16::from_be_bytes([cdb[3], cdb[4]])));
            }
            WRITE_BLOCK => *block.lock().unwrap() = request.data_out.to_vec(),
            READ_BLOCK => data_in.put(&block.lock().unwrap(), usize::MAX),
            READ_SHORT => {
                data_in.put(&block.lock().unwrap(), usize::MAX);
                return check_condition(0, 0);
            }
            WAIT => {
                let gate = self.gate.lock().unwrap();
                let patience = Duration::from_secs(60);
                let (_open, waited) = self.opened.wait_timeout_while(gate, patience, |open| !*open).unwrap();
                assert!(!waited.timed_out(), "nobody opened the gate");
            }
            ECHO => data_in.put(cdb, usize::MAX),
            PANIC => panic!("a fault in a command, on purpose"),
            _ => return check_condition(5, 0x20),
        }
        Completion::GOOD
    }

    fn data_out_max(&self) -> usize {
        DATA_OUT_MAX
    }

    fn luns(&self) -> Vec<u64> {
        vec![0, 1, 2]
    }

    fn manage(&self, _: &Nexus, lun: u64, function: TaskFunction) {
        self.told.lock().unwrap().managed.push((lun, function));
    }

    fn nexus_lost(&self, nexus: &Nexus) {
        self.told.lock().unwrap().lost.push(nexus.clone());
    }
}

/// A target on a port that the host chooses.
pub(crate) fn config() -> TargetConfig {
    TargetConfig { portal: "127.0.0.1:0".parse().unwrap(), ..TargetConfig::new(TARGET) }
}

pub(crate) struct Bench {
    pub(crate) device: Arc<Blocks>,
    pub(crate) faults: Arc<WireFaults>,
    pub(crate) server: Server,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: TargetConfig) -> Self {
        let (device, faults) = (Arc::new(Blocks::default()), Arc::new(WireFaults::new()));
        let server = Server::bind_with_faults(config, Arc::clone(&device) as _, Arc::clone(&faults)).unwrap();
        Self { device, faults, server }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.server.local_address()
    }

    /// What an initiator needs to log in here; each port of its own.
    pub(crate) fn initiator(&self, port: u8) -> InitiatorConfig {
        let isid = [0x80, 0, 0, 0, 0, port];
        InitiatorConfig { isid, timeout: Duration::from_secs(20), ..InitiatorConfig::new(self.address(), TARGET) }
    }

    pub(crate) fn connect(&self, port: u8) -> Initiator {
        Initiator::connect(&self.initiator(port)).unwrap()
    }
}

/// Tries until it is so.
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not in 10 seconds: {what}");
}
