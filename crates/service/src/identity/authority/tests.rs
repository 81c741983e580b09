//! What the authority signs, and what it does not.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_keys::api::{Base64, IssuedCertificate};
use capstan_keys::cluster::CertificateKey;

use super::*;

const NOW_NS: i64 = 1_790_000_000 * SECOND_NS;
const CLUSTER: ClusterId = ClusterId([7; 16]);

fn peer(text: &str) -> PeerId {
    text.parse().unwrap()
}

fn issue(authority: &Authority, who: &str, request: &[u8]) -> Result<Issued, AuthorityError> {
    authority.issue(&peer(who), &[], request, random_serial().unwrap(), NOW_NS)
}

#[test]
fn a_certificate_says_who_where_and_how_long() {
    let (authority, key) = Authority::create(CLUSTER, NOW_NS).unwrap();
    let again = Authority::open(authority.certificate().clone(), &key).unwrap();
    assert_eq!(again.cluster(), CLUSTER);
    let key = CertificateKey::generate().unwrap();
    let serial = Serial([0x41; 16]);
    let issued = again.issue(&peer("agent/DRIVE1"), &[], key.request(), serial, NOW_NS).unwrap();
    let fields = &issued.fields;
    assert_eq!((&fields.peer, fields.cluster, fields.serial), (&peer("agent/DRIVE1"), CLUSTER, serial));
    assert_eq!(fields.not_before_ns, NOW_NS - CLOCK_SKEW_NS);
    assert_eq!(fields.not_after_ns, NOW_NS + CERTIFICATE_LIFETIME_NS);
    let sixty_days_and_a_bit = 60 * DAY_NS..61 * DAY_NS;
    assert!(sixty_days_and_a_bit.contains(&(fields.renewal_due_ns() - fields.not_before_ns)));
    let answer = IssuedCertificate {
        certificate: Base64(issued.certificate),
        authority: Base64(authority.certificate().to_vec()),
    };
    assert_eq!(key.certified(&answer).unwrap().certificate(), fields);
}

/// What a request asks for besides its key is not granted: no other name, no other use, and it is no authority.
#[test]
fn a_request_cannot_name_itself() {
    let (authority, _) = Authority::create(CLUSTER, NOW_NS).unwrap();
    let pair = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap();
    let mut wished = CertificateParams::new(vec!["kma.example".to_owned()]).unwrap();
    wished.subject_alt_names.push(SanType::URI("capstan:kma/KMA1".try_into().unwrap()));
    wished.distinguished_name.push(DnType::CommonName, "KMA1");
    wished.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    wished.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let request = wished.serialize_request(&pair).unwrap();
    let issued = issue(&authority, "agent/DRIVE1", request.der()).unwrap();
    assert_eq!(issued.fields.peer, peer("agent/DRIVE1"));
    let (_, parsed) = x509_parser::parse_x509_certificate(&issued.certificate).unwrap();
    assert!(!parsed.is_ca());
    let usage = parsed.extended_key_usage().unwrap().unwrap().value;
    assert!(usage.client_auth && !usage.server_auth);
    assert_eq!(parsed.subject_alternative_name().unwrap().unwrap().value.general_names.len(), 1);
}

/// No damage puts another key into a certificate. (Some bytes around the signature mean nothing: the tag of its
/// algorithm's name.)
#[test]
fn damaged_requests_are_refused() {
    let (authority, _) = Authority::create(CLUSTER, NOW_NS).unwrap();
    let request = CertificateKey::generate().unwrap().request().to_vec();
    let key_of = |issued: Issued| {
        let (_, parsed) = x509_parser::parse_x509_certificate(&issued.certificate).unwrap();
        parsed.public_key().raw.to_vec()
    };
    let whole = key_of(issue(&authority, "user/alice", &request).unwrap());
    let mut refused = 0;
    for at in 0..request.len() {
        let mut damaged = request.clone();
        damaged[at] ^= 1;
        match issue(&authority, "user/alice", &damaged) {
            Ok(issued) => assert_eq!(key_of(issued), whole, "byte {at} makes another key"),
            Err(_) => refused += 1,
        }
        assert!(issue(&authority, "user/alice", &request[..at]).is_err(), "{at} bytes were taken");
    }
    assert!(refused > request.len() * 9 / 10, "only {refused} of {} damages were seen", request.len());
    assert!(issue(&authority, "user/alice", &vec![0x30; REQUEST_LEN_MAX + 1]).is_err());
}

#[test]
fn key_and_certificate_of_two_clusters_do_not_go_together() {
    let (one, _) = Authority::create(CLUSTER, NOW_NS).unwrap();
    let (_, other) = Authority::create(CLUSTER, NOW_NS).unwrap();
    assert!(matches!(Authority::open(one.certificate().clone(), &other), Err(AuthorityError::Mismatch)));
}

#[test]
fn serial_numbers_have_16_bytes_and_differ() {
    let serials: std::collections::BTreeSet<_> = (0..1000).map(|_| random_serial().unwrap()).collect();
    assert_eq!(serials.len(), 1000);
    assert!(serials.iter().all(|serial| (0x40..0x80).contains(&serial.0[0])));
}
