//! What who runs a library is told while it is served, by a library that is served.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use capstan_keys::{Argon2Cost, SealedStore, Unlock};
use capstan_tape::scsi::Command;
use capstan_tape::scsi::command::Length;
use capstan_vtl::iscsi::{ChapCredentials, ChapSecret, Initiator, InitiatorConfig};
use capstan_vtl::{
    CommandClass, ControlReply, ControlRequest, DeviceFault, FaultOrder, FaultyUnit, KeyAgent, LAYOUT_FILE,
    LibraryService, ProviderAgent, TargetEvent, TargetEvents, VolumeKeyState, ask,
};
use zeroize::Zeroizing;

const TARGET: &str = "iqn.2026-01.org.capstan:events";
const SECRET: &[u8] = b"sixteen bytes or more";
const LAYOUT: &str = "[target]\nname = \"iqn.2026-01.org.capstan:events\"\nlisten = \"127.0.0.1:0\"\nchap_user = \"host\"\n\
    chap_secret_file = \"secret\"\n[library]\nslots = 4\nmail_slots = 1\n[[drive]]\nmodel = \"LTO-9\"\nencryption = \"agent\"\n\
    [[cartridge]]\nbarcode = \"A00001L9\"\ncapacity_mib = 16\n";

/// All that was told.
#[derive(Default)]
struct Log {
    events: Mutex<Vec<TargetEvent>>,
    more: Condvar,
}

impl Log {
    /// Waits for an event, and drops it and all that came before.
    fn expect(&self, what: &str, is: impl Fn(&TargetEvent) -> bool) -> TargetEvent {
        let events = self.events.lock().unwrap();
        let patience = Duration::from_secs(20);
        let (mut events, waited) =
            self.more.wait_timeout_while(events, patience, |events| !events.iter().any(&is)).unwrap();
        assert!(!waited.timed_out(), "{what} was not told: {events:?}");
        let at = events.iter().position(&is).unwrap();
        events.drain(..=at).next_back().unwrap()
    }
}

struct Bench {
    folder: tempfile::TempDir,
    service: LibraryService,
    log: Arc<Log>,
}

fn unlock() -> Unlock {
    Unlock::passphrase(String::from("a passphrase").into())
}

fn store(folder: &Path) -> std::path::PathBuf {
    folder.join("keys.sealed")
}

impl Bench {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LAYOUT_FILE), LAYOUT).unwrap();
        let secret = folder.path().join("secret");
        std::fs::write(&secret, SECRET).unwrap();
        std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o600)).unwrap();
        let cost = Argon2Cost { memory_kib: 8, iterations: 1, lanes: 1 };
        SealedStore::create(&store(folder.path()), &unlock(), cost).unwrap();
        let agent: Arc<dyn KeyAgent> =
            Arc::new(ProviderAgent::new(Mutex::new(SealedStore::open(&store(folder.path()), &unlock()).unwrap())));
        let log = Arc::<Log>::default();
        let into = Arc::clone(&log);
        let listener: TargetEvents = Arc::new(move |event| {
            into.events.lock().unwrap().push(event);
            into.more.notify_all();
        });
        let service = LibraryService::start(folder.path(), Some(&agent), None, listener).unwrap();
        Self { folder, service, log }
    }

    fn initiator(&self, name: &str, secret: &[u8]) -> Result<Initiator, capstan_vtl::iscsi::InitiatorError> {
        let secret = ChapSecret::new(Zeroizing::new(secret.to_vec())).unwrap();
        let chap = Some(ChapCredentials { name: "host".to_owned(), secret });
        let config = InitiatorConfig::new(self.service.local_address(), TARGET);
        Initiator::connect(&InitiatorConfig { name: name.to_owned(), chap, ..config })
    }

    fn asks(&self, request: &ControlRequest) {
        let reply = ask(self.folder.path(), request).unwrap();
        assert!(matches!(reply, ControlReply::Done(_)), "{reply:?}");
    }
}

/// Sends a command until it is no unit attention that is answered.
fn sends(initiator: &mut Initiator, lun: u64, command: &Command, data: &[u8]) -> u8 {
    loop {
        let done = initiator.execute(lun, &command.to_cdb(), data, &mut []).unwrap();
        if done.sense.get(2).is_none_or(|key| key & 0xf != 6) {
            return done.status;
        }
    }
}

#[test]
fn who_comes_what_is_mounted_and_what_goes_wrong_is_told() {
    let bench = Bench::new();
    let log = Arc::clone(&bench.log);
    let name = "iqn.2026-01.example:one";
    assert!(bench.initiator(name, b"another secret, wrong").is_err());
    let refused = log.expect("a refused login", |event| matches!(event, TargetEvent::LoginRefused { .. }));
    let text = refused.to_string();
    assert!(text.contains(name) && text.contains("127.0.0.1:") && text.contains("CHAP name or secret"), "{text}");
    assert!(!format!("{refused:?}").contains("another secret"), "what was tried is nobody's business");

    let mut host = bench.initiator(name, SECRET).unwrap();
    log.expect("a login", |event| matches!(event, TargetEvent::LoggedIn { initiator, .. } if initiator == name));
    let load = Command::MoveMedium { transport: 0, from: 1000, to: 500 };
    assert_eq!(sends(&mut host, 0, &load, &[]), 0);
    let mounted = TargetEvent::Mounted { drive: 0, barcode: "A00001L9".to_owned(), key: Some(VolumeKeyState::Blank) };
    log.expect("a mount", |event| *event == mounted);

    let prevent = |prevent| Command::PreventRemoval { prevent };
    let home = Command::MoveMedium { transport: 0, from: 500, to: 300 };
    assert_eq!(sends(&mut host, 1, &prevent(true), &[]), 0);
    assert_eq!(sends(&mut host, 0, &home, &[]), 2);
    let told =
        log.expect("a removal that was prevented", |event| matches!(event, TargetEvent::RemovalPrevented { .. }));
    assert!(told.to_string().contains(name), "by whom: {told}");
    assert_eq!(sends(&mut host, 1, &prevent(false), &[]), 0);

    // A block is taken and lost: an operator hears of it as the host does.
    let write = Command::Write { length: Length::Variable(8), at: None };
    let flush = Command::WriteFilemarks { count: 1, immediate: false, at: None };
    assert_eq!(sends(&mut host, 1, &write, b"01234567"), 0);
    let (unit, at) = (FaultyUnit::Drive(0), CommandClass::Write);
    let order = FaultOrder { unit, at, passing: 0, fault: DeviceFault::LoseWrites { told_after: 8 } };
    bench.asks(&ControlRequest::Inject { order });
    assert_eq!(sends(&mut host, 1, &write, b"01234567"), 0);
    let happened = TargetEvent::FaultHappened { unit: "drive 0".to_owned(), fault: "lose-writes:8".to_owned() };
    log.expect("a fault", |event| *event == happened);
    assert_eq!(sends(&mut host, 1, &flush, &[]), 2);
    log.expect("a failed write", |event| matches!(event, TargetEvent::WriteFailed { drive: 0, .. }));

    // A key that somebody destroys is missed at the next flush.
    bench.asks(&ControlRequest::Forgive);
    let rewind = Command::Rewind { immediate: false };
    while sends(&mut host, 1, &rewind, &[]) != 0 {}
    assert_eq!(sends(&mut host, 1, &write, b"01234567"), 0);
    assert_eq!(sends(&mut host, 1, &flush, &[]), 0);
    let mut keys = SealedStore::open(&store(bench.folder.path()), &unlock()).unwrap();
    for record in keys.list().unwrap() {
        keys.destroy(&record.tag, 1).unwrap();
    }
    let _ = sends(&mut host, 1, &write, b"01234567");
    assert_eq!(sends(&mut host, 1, &flush, &[]), 2);
    let trouble = log.expect("a key that is gone", |event| matches!(event, TargetEvent::KeyTrouble { .. })).to_string();
    assert!(trouble.contains("was destroyed") && trouble.contains("Read another copy"), "{trouble}");

    while sends(&mut host, 0, &home, &[]) != 0 {}
    log.expect("a dismount", |event| matches!(event, TargetEvent::Dismounted { .. }));
    log.expect("where it is", |event| matches!(event, TargetEvent::InMailSlot { place, .. } if place == "mail 0"));
    bench.asks(&ControlRequest::Export { barcode: "A00001L9".to_owned() });
    log.expect("an export", |event| matches!(event, TargetEvent::Exported { .. }));
    bench.asks(&ControlRequest::Import { barcode: "A00001L9".to_owned() });
    log.expect("an import", |event| matches!(event, TargetEvent::Imported { .. }));
    let order = FaultOrder {
        unit: FaultyUnit::Robot,
        at: CommandClass::Carry,
        passing: 0,
        fault: DeviceFault::DoorOpen { commands: 1 },
    };
    bench.asks(&ControlRequest::Inject { order });
    let load = Command::MoveMedium { transport: 0, from: 300, to: 500 };
    assert_eq!(sends(&mut host, 0, &load, &[]), 2);
    log.expect("an open door", |event| *event == TargetEvent::DoorOpened { commands: 1 });
    log.expect("a closed one", |event| *event == TargetEvent::DoorClosed);
    assert_eq!(sends(&mut host, 0, &load, &[]), 0);
    let mounted =
        |event: &TargetEvent| matches!(event, TargetEvent::Mounted { key: Some(VolumeKeyState::Missing), .. });
    log.expect("a mount without a key", mounted);
    host.logout().unwrap();
    log.expect("a logout", |event| matches!(event, TargetEvent::LoggedOut { initiator, .. } if initiator == name));
    assert!(bench.service.stop().is_empty());
}

/// Whoever tries passwords fills no log; how often it was is told when the library is stopped.
#[test]
fn a_flood_of_refused_logins_is_counted() {
    let bench = Bench::new();
    for _ in 0..60 {
        assert!(bench.initiator("iqn.2026-01.example:guesser", b"another secret, wrong").is_err());
    }
    bench.service.stop();
    let events = bench.log.events.lock().unwrap();
    let told = events.iter().filter(|event| matches!(event, TargetEvent::LoginRefused { .. })).count();
    let Some(TargetEvent::Withheld { count, .. }) = events.last() else { panic!("{events:?}") };
    assert!(told <= 40 && told as u64 + count == 60, "{told} told, {count} counted");
}
