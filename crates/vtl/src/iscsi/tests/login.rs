//! Logins, step by step.

use super::super::chap::{Algorithm, Challenge};
use super::super::config::{ChapCredentials, ChapSecret, TargetConfig};
use super::super::login::{Answer, Login};
use super::super::negotiate::SessionKind;
use super::super::pdu::{CONTINUE, FINAL, LoginRequest, LoginStatus};
use super::super::text::{parse, put};
use super::raw::{Raw, TARGET, request, serve};

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const NAMES: [(&str, &str); 2] = [("InitiatorName", "iqn.2026-01.org.capstan:host"), ("TargetName", TARGET)];

fn text(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut text = Vec::new();
    pairs.iter().for_each(|(key, value)| put(&mut text, key, value));
    text
}

fn staying(stage: u8) -> LoginRequest {
    LoginRequest { flags: stage << 2, ..LoginRequest::default() }
}

fn going(stage: u8, next: u8) -> LoginRequest {
    LoginRequest { flags: FINAL | stage << 2 | next, ..LoginRequest::default() }
}

fn credentials(secret: &str) -> ChapCredentials {
    let secret = ChapSecret::new(secret.as_bytes().to_vec().into()).unwrap();
    ChapCredentials { name: "host".into(), secret }
}

fn open() -> TargetConfig {
    TargetConfig::new(TARGET)
}

fn closed() -> TargetConfig {
    TargetConfig { chap: Some(credentials("correct-horse")), mutual: Some(credentials("battery-staple")), ..open() }
}

/// The status of the first request that is refused.
fn refused(config: &TargetConfig, requests: &[(LoginRequest, &[(&str, &str)])]) -> Option<LoginStatus> {
    let mut login = Login::new(config);
    requests.iter().find_map(|(request, pairs)| login.request(request, &text(pairs)).err())
}

fn value<'a>(answer: &'a Answer, key: &str) -> Option<&'a str> {
    parse(&answer.text).unwrap().into_iter().find(|(name, _)| *name == key).map(|(_, value)| value)
}

#[test]
fn each_way_to_fail_has_its_status() {
    let first = |pairs: &[(&str, &str)]| refused(&open(), &[(going(OPERATIONAL, 3), pairs)]);
    assert_eq!(first(&NAMES), None);
    assert_eq!(first(&NAMES[1..]), Some(LoginStatus::MissingParameter));
    assert_eq!(first(&NAMES[..1]), Some(LoginStatus::MissingParameter));
    assert_eq!(first(&[("InitiatorName", "host"), NAMES[1]]), Some(LoginStatus::InitiatorError));
    assert_eq!(first(&[NAMES[0], ("TargetName", "iqn.2026-01.org.capstan:no")]), Some(LoginStatus::NotFound));
    assert_eq!(first(&[NAMES[0], NAMES[1], ("SessionType", "Odd")]), Some(LoginStatus::SessionType));
    assert_eq!(first(&[NAMES[0], ("SessionType", "Discovery")]), None);
    let twice = ("MaxBurstLength", "65536");
    assert_eq!(first(&[NAMES[0], NAMES[1], twice, twice]), Some(LoginStatus::InitiatorError));

    let version = LoginRequest { version_min: 1, version_max: 1, ..going(OPERATIONAL, 3) };
    assert_eq!(refused(&open(), &[(version, &NAMES)]), Some(LoginStatus::UnsupportedVersion));
    for flags in [FINAL | 1 << 2 | 1, FINAL | 1 << 2, FINAL | 2, FINAL | CONTINUE | 3, 2 << 2, 3 << 2 | FINAL] {
        let wrong = LoginRequest { flags, ..LoginRequest::default() };
        assert_eq!(refused(&open(), &[(wrong, &NAMES)]), Some(LoginStatus::InitiatorError), "flags {flags:#x}");
    }
    let other = LoginRequest { cid: 7, ..going(OPERATIONAL, 3) };
    assert_eq!(refused(&open(), &[(staying(OPERATIONAL), &NAMES), (other, &[])]), Some(LoginStatus::InitiatorError));
    let back = [(going(SECURITY, OPERATIONAL), &NAMES[..]), (staying(SECURITY), &[])];
    assert_eq!(refused(&open(), &back), Some(LoginStatus::InitiatorError));

    let late = [(staying(OPERATIONAL), &NAMES[..]), (going(OPERATIONAL, 3), &[("AuthMethod", "None")])];
    assert_eq!(refused(&open(), &late), Some(LoginStatus::InitiatorError));
    let methods = [NAMES[0], NAMES[1], ("AuthMethod", "KRB5")];
    assert_eq!(refused(&open(), &[(going(SECURITY, 3), &methods)]), Some(LoginStatus::AuthenticationFailure));
}

#[test]
fn who_must_prove_something_cannot_pass_by() {
    const FAILED: Option<LoginStatus> = Some(LoginStatus::AuthenticationFailure);
    let config = closed();
    assert_eq!(refused(&config, &[(going(OPERATIONAL, 3), &NAMES)]), FAILED);
    assert_eq!(refused(&config, &[(going(SECURITY, 3), &NAMES)]), FAILED);
    let none = [NAMES[0], NAMES[1], ("AuthMethod", "None")];
    assert_eq!(refused(&config, &[(going(SECURITY, OPERATIONAL), &none)]), FAILED);
    let chap = [NAMES[0], NAMES[1], ("AuthMethod", "CHAP,None")];
    let begun = (going(SECURITY, OPERATIONAL), &chap[..]);
    // Asked to go on, the target stays; asked to do so without proof, it ends.
    assert_eq!(refused(&config, &[begun, (going(SECURITY, 3), &[])]), Some(LoginStatus::MissingParameter));
    assert_eq!(refused(&config, &[begun, (staying(SECURITY), &[("CHAP_A", "6")])]), FAILED);
    let challenged = (staying(SECURITY), &[("CHAP_A", "5")][..]);
    assert_eq!(refused(&config, &[begun, challenged, (going(SECURITY, 3), &[])]), Some(LoginStatus::MissingParameter));
    let wrong = [("CHAP_N", "host"), ("CHAP_R", "0x00")];
    assert_eq!(refused(&config, &[begun, challenged, (going(SECURITY, 3), &wrong)]), FAILED);
    assert_eq!(refused(&config, &[begun, challenged, (going(OPERATIONAL, 3), &[])]), Some(LoginStatus::InitiatorError));
}

/// A login up to the challenge, and the challenge.
fn challenged(config: &TargetConfig) -> (Login<'_>, String, String) {
    let mut login = Login::new(config);
    let chap = [NAMES[0], NAMES[1], ("AuthMethod", "CHAP")];
    let answer = login.request(&going(SECURITY, OPERATIONAL), &text(&chap)).unwrap();
    assert_eq!((answer.flags, value(&answer, "AuthMethod")), (0, Some("CHAP")));
    assert_eq!(value(&answer, "TargetPortalGroupTag"), Some("1"));
    let answer = login.request(&staying(SECURITY), &text(&[("CHAP_A", "5")])).unwrap();
    let (id, challenge) = (value(&answer, "CHAP_I").unwrap(), value(&answer, "CHAP_C").unwrap());
    (login, id.to_owned(), challenge.to_owned())
}

#[test]
fn a_challenge_that_comes_back_is_not_answered() {
    let config = closed();
    let (mut login, id, bytes) = challenged(&config);
    let challenge = Challenge::received(Algorithm::Md5, &id, &bytes).unwrap();
    let mut proof = Vec::new();
    challenge.answer(&credentials("correct-horse"), &mut proof);
    put(&mut proof, "CHAP_I", &id);
    put(&mut proof, "CHAP_C", &bytes);
    let status = login.request(&going(SECURITY, OPERATIONAL), &proof).unwrap_err();
    assert_eq!(status, LoginStatus::AuthenticationFailure);
}

#[test]
fn a_proved_login_goes_through_all_stages() {
    let config = closed();
    let (mut login, id, bytes) = challenged(&config);
    let mut proof = Vec::new();
    Challenge::received(Algorithm::Md5, &id, &bytes).unwrap().answer(&credentials("correct-horse"), &mut proof);
    let answer = login.request(&going(SECURITY, OPERATIONAL), &proof).unwrap();
    assert_eq!((answer.flags, answer.complete.is_some()), (FINAL | OPERATIONAL, false));
    let keys = [("MaxRecvDataSegmentLength", "4096"), ("X-odd", "1")];
    let answer = login.request(&staying(OPERATIONAL), &text(&keys)).unwrap();
    assert_eq!((answer.flags, value(&answer, "X-odd")), (OPERATIONAL << 2, Some("NotUnderstood")));
    assert_eq!(value(&answer, "MaxRecvDataSegmentLength"), Some("262144"));
    let answer = login.request(&going(OPERATIONAL, 3), &[]).unwrap();
    let (identity, parameters) = answer.complete.unwrap();
    assert_eq!((answer.flags, answer.text.len()), (FINAL | OPERATIONAL << 2 | 3, 0));
    assert_eq!((identity.kind, identity.initiator.as_str()), (SessionKind::Normal, NAMES[0].1));
    assert_eq!((parameters.send_segment, parameters.receive_segment), (4096, 262_144));
}

/// Keys may be cut anywhere, even in their names.
#[test]
fn text_is_continued_over_several_requests() {
    let config = open();
    let whole = text(&[NAMES[0], NAMES[1], ("HeaderDigest", "CRC32C")]);
    let mut login = Login::new(&config);
    for piece in whole.chunks(7) {
        let more = LoginRequest { flags: CONTINUE | OPERATIONAL << 2, ..LoginRequest::default() };
        let answer = login.request(&more, piece).unwrap();
        assert_eq!((answer.flags, answer.text.len()), (OPERATIONAL << 2, 0));
    }
    let answer = login.request(&going(OPERATIONAL, 3), &[]).unwrap();
    assert_eq!(value(&answer, "HeaderDigest"), Some("CRC32C"));
    assert!(answer.complete.is_some());
}

#[test]
fn text_without_end_is_refused() {
    let config = open();
    let mut login = Login::new(&config);
    let more = LoginRequest { flags: CONTINUE | OPERATIONAL << 2, ..LoginRequest::default() };
    let piece = [b'a'; 8192];
    let taken = (0..100).take_while(|_| login.request(&more, &piece).is_ok()).count();
    assert_eq!(taken, 8);
}

/// A second connection to a session, on the wire: which session it names decides how it is refused.
#[test]
fn sessions_have_one_connection() {
    let (_device, server) = serve();
    let mut first = Raw::open(&server);
    let (response, _) = first.log_in_as(&request(1), &[]);
    assert_eq!(response.status, 0);
    assert_ne!(response.tsih, 0);
    let tsih = response.tsih;
    for (tsih, cid, status) in [(tsih, 1, 0x0206), (tsih, 0, 0x0208), (tsih + 1, 1, 0x020a)] {
        let mut second = Raw::open(&server);
        let (response, _) = second.log_in_as(&LoginRequest { tsih, cid, ..request(1) }, &[]);
        assert_eq!(response.status, status);
        assert!(second.is_closed());
    }
    first.command(0, 0);
    assert_eq!(first.response(), (1, 0));
}
