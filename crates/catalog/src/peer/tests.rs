//! Whoever is let in stands in the catalog, and an enrolment leads to one certificate.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::place_in_tests::catalog_in;

fn certificate(serial: u8, name: &str) -> PeerRow {
    PeerRow {
        serial: [serial; 16],
        kind: "client".to_owned(),
        name: name.to_owned(),
        enrolled_ns: 5,
        expires_ns: 100 + i64::from(serial),
        revoked_ns: None,
        seen_ns: None,
        address: "192.0.2.7:4711".to_owned(),
        version: String::new(),
    }
}

fn open(name: &str, record: &[u8]) -> EnrolmentRow {
    EnrolmentRow { peer: format!("client/{name}"), record: record.to_vec() }
}

#[test]
fn an_enrolment_leads_to_one_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let first = open("tern", b"first");
    catalog.put_enrolment(&first).unwrap();
    assert!(catalog.change_enrolment(&first, b"tried", None).unwrap());
    assert!(!catalog.change_enrolment(&first, b"used", Some(&certificate(1, "tern"))).unwrap(), "it was changed since");
    assert_eq!(catalog.peers().unwrap(), []);
    let tried = catalog.enrolment("client/tern").unwrap().unwrap();
    assert!(catalog.change_enrolment(&tried, b"used", Some(&certificate(1, "tern"))).unwrap());
    assert_eq!(catalog.peers().unwrap(), [certificate(1, "tern")]);
    catalog.put_enrolment(&open("tern", b"second")).unwrap();
    assert_eq!(catalog.enrolments().unwrap().len(), 1, "the newest one counts");
    assert!(catalog.enrolment("client/plover").unwrap().is_none());
}

#[test]
fn a_revoked_peer_has_no_certificate_and_gets_none() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let enrolled = open("tern", b"open");
    catalog.put_enrolment(&enrolled).unwrap();
    assert!(catalog.change_enrolment(&enrolled, b"used", Some(&certificate(1, "tern"))).unwrap());
    assert!(catalog.renew_peer([1; 16], &certificate(2, "tern")).unwrap());
    assert_eq!(catalog.revoke_peer("client", "tern", 50).unwrap(), 3, "both certificates and the enrolment");
    assert!(!catalog.renew_peer([2; 16], &certificate(3, "tern")).unwrap());
    let revoked: Vec<_> = catalog.peers().unwrap().iter().map(|row| row.revoked_ns).collect();
    assert_eq!(revoked, [Some(50), Some(50)]);
    assert_eq!(catalog.revoke_peer("client", "tern", 60).unwrap(), 0);
    catalog.forget_ended_peers(102).unwrap();
    assert_eq!(catalog.peers().unwrap().len(), 1);
}

#[test]
fn the_last_certificate_of_a_peer_is_never_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    for (number, name) in [(1, "tern"), (2, "plover")] {
        let enrolled = open(name, b"open");
        catalog.put_enrolment(&enrolled).unwrap();
        assert!(catalog.change_enrolment(&enrolled, b"used", Some(&certificate(number, name))).unwrap());
    }
    assert!(catalog.renew_peer([1; 16], &certificate(3, "tern")).unwrap());
    // The clock is years ahead.
    let forget = |catalog: &mut Catalog| {
        catalog.forget_ended_peers(i64::MAX).unwrap();
        let peers = catalog.peers().unwrap();
        peers.into_iter().map(|row| (row.name, row.serial[0])).collect::<Vec<_>>()
    };
    let of = |name: &str, serial: u8| (name.to_owned(), serial);
    assert_eq!(
        forget(&mut catalog),
        [of("plover", 2), of("tern", 1), of("tern", 3)],
        "it may not have got the new one"
    );
    let seen = PeerSeen { serial: [3; 16], seen_ns: 77, address: String::new(), version: None };
    catalog.peers_were_seen(&[seen]).unwrap();
    assert_eq!(forget(&mut catalog), [of("plover", 2), of("tern", 3)]);
    // One that was revoked is in nobody's place.
    let anew = PeerRow { expires_ns: 1_000, ..certificate(4, "plover") };
    assert!(catalog.renew_peer([2; 16], &PeerRow { revoked_ns: Some(5), seen_ns: Some(4), ..anew }).unwrap());
    assert_eq!(forget(&mut catalog), [of("plover", 2), of("tern", 3)]);
}

#[test]
fn a_catalog_that_replaces_another_one_knows_its_peers() {
    let dir = tempfile::tempdir().unwrap();
    let mut catalog = catalog_in(dir.path());
    let enrolled = open("tern", b"open");
    catalog.put_enrolment(&enrolled).unwrap();
    catalog.put_enrolment(&open("plover", b"open too")).unwrap();
    assert!(catalog.change_enrolment(&enrolled, b"used", Some(&certificate(1, "tern"))).unwrap());
    let seen =
        PeerSeen { serial: [1; 16], seen_ns: 77, address: "192.0.2.8:1".to_owned(), version: Some("1.2.3".to_owned()) };
    catalog.peers_were_seen(&[seen]).unwrap();
    let other = tempfile::tempdir().unwrap();
    let mut anew = catalog_in(other.path());
    anew.take_over_peers(&catalog).unwrap();
    let peers = anew.peers().unwrap();
    assert_eq!(peers, catalog.peers().unwrap());
    assert_eq!((peers[0].seen_ns, peers[0].address.as_str()), (Some(77), "192.0.2.8:1"));
    assert_eq!(peers[0].version, "1.2.3");
    assert!(anew.enrolments().unwrap() == catalog.enrolments().unwrap());
}
