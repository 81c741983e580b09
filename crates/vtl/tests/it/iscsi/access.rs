//! Who gets in, and who does not.

use capstan_vtl::iscsi::{
    ChapCredentials, ChapSecret, Digest, Discovery, FoundTarget, Initiator, InitiatorConfig, InitiatorError,
    ServeError, Server, SessionKind, TargetConfig, TargetLimits,
};

use super::device::{Bench, TARGET, TEST_UNIT_READY, WAIT, config, eventually};

const AUTHENTICATION: u16 = 0x0201;
const AUTHORIZATION: u16 = 0x0202;
const NOT_FOUND: u16 = 0x0203;
const UNAVAILABLE: u16 = 0x0301;
const OUT_OF_RESOURCES: u16 = 0x0302;

fn credentials(name: &str, secret: &str) -> Option<ChapCredentials> {
    let secret = ChapSecret::new(secret.as_bytes().to_vec().into()).unwrap();
    Some(ChapCredentials { name: name.into(), secret })
}

fn refused(config: &InitiatorConfig) -> u16 {
    match Initiator::connect(config) {
        Err(InitiatorError::Refused { status }) => status,
        Err(error) => panic!("not refused, but {error}"),
        Ok(_) => panic!("not refused"),
    }
}

#[test]
fn who_knows_the_secret_gets_in() {
    let bench = Bench::with(TargetConfig { chap: credentials("host", "correct-horse"), ..config() });
    let with = |chap| InitiatorConfig { chap, ..bench.initiator(1) };
    let mut initiator = Initiator::connect(&with(credentials("host", "correct-horse"))).unwrap();
    assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    assert_eq!(refused(&with(credentials("host", "battery-staple"))), AUTHENTICATION);
    assert_eq!(refused(&with(credentials("other", "correct-horse"))), AUTHENTICATION);
    assert_eq!(refused(&with(None)), AUTHENTICATION);
    // Who failed to prove itself has not taken the session of who did.
    assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
}

#[test]
fn both_sides_prove_themselves() {
    let (chap, mutual) = (credentials("host", "correct-horse"), credentials("library", "battery-staple"));
    let bench = Bench::with(TargetConfig { chap, mutual, ..config() });
    let with = |mutual| InitiatorConfig { chap: credentials("host", "correct-horse"), mutual, ..bench.initiator(1) };
    Initiator::connect(&with(credentials("library", "battery-staple"))).unwrap().logout().unwrap();
    for wrong in [credentials("library", "wrong-secret"), credentials("other", "battery-staple")] {
        assert!(matches!(Initiator::connect(&with(wrong)), Err(InitiatorError::Unproved)));
    }
    // Without a demand it proves nothing.
    Initiator::connect(&with(None)).unwrap().logout().unwrap();
    // A target that cannot prove itself is not believed.
    let bench = Bench::new();
    let mutual = credentials("library", "battery-staple");
    let config = InitiatorConfig { chap: credentials("host", "correct-horse"), mutual, ..bench.initiator(1) };
    assert_eq!(refused(&config), AUTHENTICATION);
}

#[test]
fn only_named_initiators_are_admitted() {
    let initiators = vec!["iqn.2026-01.org.capstan:host".to_owned()];
    let bench = Bench::with(TargetConfig { initiators, ..config() });
    let named = |name: &str| InitiatorConfig { name: name.into(), ..bench.initiator(1) };
    Initiator::connect(&named("iqn.2026-01.org.capstan:host")).unwrap().logout().unwrap();
    assert_eq!(refused(&named("iqn.2026-01.org.capstan:hos")), AUTHORIZATION);
}

#[test]
fn targets_are_found_by_name() {
    let bench = Bench::new();
    let found = Initiator::discover(&bench.initiator(1)).unwrap();
    let addresses = vec![format!("{},1", bench.address())];
    assert_eq!(found, [FoundTarget { name: TARGET.into(), addresses }]);
    let other = InitiatorConfig { target: "iqn.2026-01.org.capstan:other".into(), ..bench.initiator(1) };
    assert_eq!(refused(&other), NOT_FOUND);
}

#[test]
fn discovery_is_as_open_as_was_decided() {
    let chap = || credentials("host", "correct-horse");
    let bench = Bench::with(TargetConfig { chap: chap(), ..config() });
    assert_eq!(Initiator::discover(&bench.initiator(1)).unwrap().len(), 1);
    let bench = Bench::with(TargetConfig { chap: chap(), discovery: Discovery::LikeLogin, ..config() });
    let closed = Initiator::discover(&bench.initiator(1));
    assert!(matches!(closed, Err(InitiatorError::Refused { status: AUTHENTICATION })));
    assert_eq!(Initiator::discover(&InitiatorConfig { chap: chap(), ..bench.initiator(1) }).unwrap().len(), 1);
}

#[test]
fn sessions_are_told_of_while_they_last() {
    let bench = Bench::new();
    let mut plain = bench.connect(1);
    let checked = InitiatorConfig { header_digest: Digest::Crc32c, ..bench.initiator(2) };
    let checked = Initiator::connect(&checked).unwrap();
    plain.execute(0, &[0x0a, 0, 0, 0, 0, 0], &[0; 1000], &mut []).unwrap();
    plain.execute(0, &[0x08, 0, 0, 0, 0, 0], &[], &mut [0; 700]).unwrap();
    let sessions = bench.server.sessions();
    assert_eq!(sessions.len(), 2);
    assert_eq!((sessions[0].commands, sessions[0].bytes, sessions[0].kind), (2, (1000, 700), SessionKind::Normal));
    assert_eq!((sessions[0].digests.0, sessions[1].digests.0), (Digest::None, Digest::Crc32c));
    assert!(sessions[0].number < sessions[1].number && sessions[0].address.ip().is_loopback());
    checked.logout().unwrap();
    eventually("one session is left", || bench.server.sessions().len() == 1);
    drop(plain);
    eventually("no session is left", || bench.server.sessions().is_empty());
    let lost = bench.device.lost();
    assert_eq!(lost.len(), 2);
    assert_eq!(lost[0].initiator, "iqn.2026-01.org.capstan:initiator,i,0x800000000002");
}

/// The same port that logs in again ends its old session first; another port of the same initiator does not.
#[test]
fn a_new_login_of_a_port_ends_its_old_session() {
    let bench = Bench::new();
    let (mut old, mut other) = (bench.connect(1), bench.connect(2));
    let mut new = bench.connect(1);
    assert!(new.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    assert!(other.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    assert!(matches!(old.execute(0, &TEST_UNIT_READY, &[], &mut []), Err(InitiatorError::Lost { .. })));
    let lost = bench.device.lost();
    assert_eq!((lost.len(), lost[0].session), (1, 1));
    assert_eq!(bench.server.sessions().len(), 2);
}

/// While a command of the old session runs, nothing of the new one may: the initiator is told to try again.
#[test]
fn a_new_login_waits_for_the_last_command_of_the_old_session() {
    let bench = Bench::new();
    let mut old = bench.connect(1);
    let waiting = std::thread::spawn(move || old.execute(0, &[WAIT, 0, 0, 0, 0, 0], &[], &mut []));
    eventually("the command runs", || !bench.device.executed().is_empty());
    assert_eq!(refused(&bench.initiator(1)), UNAVAILABLE);
    assert!(bench.device.lost().is_empty());
    bench.device.open_gate();
    bench.connect(1).logout().unwrap();
    assert!(waiting.join().unwrap().is_err());
    assert_eq!(bench.device.lost()[0].session, 1);
}

#[test]
fn sessions_are_limited() {
    let limits = TargetLimits { sessions: 2, ..TargetLimits::default() };
    let bench = Bench::with(TargetConfig { limits, ..config() });
    let (first, _second) = (bench.connect(1), bench.connect(2));
    assert_eq!(refused(&bench.initiator(3)), OUT_OF_RESOURCES);
    first.logout().unwrap();
    eventually("there is room again", || bench.server.sessions().len() == 1);
    bench.connect(3).logout().unwrap();
}

#[test]
fn a_target_that_is_stopped_answers_what_runs_and_leaves_nobody() {
    let bench = Bench::new();
    let address = bench.address();
    let mut initiator = bench.connect(1);
    let idle = bench.connect(2);
    let waiting = std::thread::spawn(move || initiator.execute(0, &[WAIT, 0, 0, 0, 0, 0], &[], &mut []));
    eventually("the command runs", || !bench.device.executed().is_empty());
    let (server, device) = (bench.server, bench.device);
    let stopping = std::thread::spawn(move || server.stop());
    std::thread::sleep(std::time::Duration::from_millis(50));
    device.open_gate();
    stopping.join().unwrap();
    assert!(waiting.join().unwrap().unwrap().is_good());
    assert_eq!(device.lost().len(), 2);
    drop(idle);
    let config = InitiatorConfig::new(address, TARGET);
    assert!(matches!(Initiator::connect(&config), Err(InitiatorError::Connect { .. })));
}

#[test]
fn what_cannot_be_served_is_told_at_once() {
    let bench = Bench::new();
    let bind = |config| Server::bind(config, std::sync::Arc::clone(&bench.device) as _).err().unwrap();
    let taken = bind(TargetConfig { portal: bench.address(), ..config() });
    assert!(matches!(taken, ServeError::Listen { .. }) && taken.to_string().contains("ss -ltnp"));
    assert!(matches!(bind(TargetConfig { name: "tapes".into(), ..config() }), ServeError::Config(_)));
}
