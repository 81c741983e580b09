//! Both sides of an enrolment, without sockets: honest, mixed up, and by somebody who lacks the passphrase.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_keys::api::ClusterId;
use capstan_keys::cluster::{ClusterError, EnrolmentClient};

use super::*;
use crate::identity::{Authority, random_serial};

const NOW_NS: i64 = 1_790_000_000_000_000_000;
const CLUSTER: ClusterId = ClusterId([7; 16]);
const BINDING: [u8; 32] = [3; 32];

struct Site {
    authority: Authority,
    enrolment: Enrolment,
    typed: String,
}

impl Site {
    fn new() -> Self {
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let peer = "agent/DRIVE1".parse().unwrap();
        let enrolment = Enrolment::open(peer, Vec::new(), &passphrase, NOW_NS + 1).unwrap();
        let (authority, _) = Authority::create(CLUSTER, NOW_NS).unwrap();
        Self { authority, enrolment, typed: passphrase.expose().to_string() }
    }

    fn client(&self) -> (EnrolmentClient, AskEnrolment) {
        EnrolmentClient::begin(self.enrolment.peer.clone(), &self.typed.parse().unwrap(), binding()).unwrap()
    }

    fn issue(&self, question: &AskEnrolment) -> IssuedCertificate {
        let serial = random_serial().unwrap();
        let issued = self.authority.issue(&question.peer, &[], &question.request.0, serial, NOW_NS).unwrap();
        let authority = Base64(self.authority.certificate().to_vec());
        IssuedCertificate { certificate: Base64(issued.certificate), authority }
    }

    fn answer(&self, question: &AskEnrolment) -> EnrolmentAnswer {
        self.enrolment.answer(&binding(), question, self.issue(question)).unwrap()
    }
}

fn binding() -> ChannelBinding {
    ChannelBinding::from_bytes(BINDING)
}

#[test]
fn who_knows_the_passphrase_gets_a_certificate() {
    let site = Site::new();
    let (client, question) = site.client();
    site.enrolment.check_proof(&binding(), &question).unwrap();
    let identity = client.accept(&site.answer(&question)).unwrap();
    assert_eq!(identity.certificate().peer, site.enrolment.peer);
    assert_eq!(identity.certificate().cluster, CLUSTER);
    assert_eq!(identity.authority_der(), site.authority.certificate());
}

/// A man in the middle who runs an authority of his own and does not know the passphrase.
#[test]
fn a_node_that_does_not_know_the_passphrase_is_found_out() {
    let (site, impostor) = (Site::new(), Site::new());
    let (client, question) = site.client();
    assert!(matches!(impostor.enrolment.check_proof(&binding(), &question), Err(EnrolmentError::NotProved)));
    let theirs = impostor.answer(&question);
    assert!(matches!(client.accept(&theirs), Err(ClusterError::Enrolment(EnrolmentError::NotProved))));
    // Nor may he put his certificate into the answer of a node.
    let (client, question) = site.client();
    let mixed = EnrolmentAnswer { issued: impostor.issue(&question), ..site.answer(&question) };
    assert!(client.accept(&mixed).is_err());
}

#[test]
fn a_proof_of_another_connection_or_request_is_of_no_use() {
    let site = Site::new();
    let ((client, one), (_, other)) = (site.client(), site.client());
    let refused =
        |binding: &ChannelBinding, question: &AskEnrolment| site.enrolment.check_proof(binding, question).is_err();
    assert!(refused(&ChannelBinding::from_bytes([4; 32]), &one), "a proof was passed on");
    assert!(
        refused(&binding(), &AskEnrolment { request: other.request.clone(), ..one.clone() }),
        "a request was exchanged"
    );
    assert!(client.accept(&site.answer(&other)).is_err(), "a certificate for another key was taken");
}

#[test]
fn time_and_use_end_an_enrolment_and_tries_do_not() {
    let mut tried = Site::new().enrolment;
    for left in (0..ENROLMENT_TRIES).rev() {
        tried.take_try(NOW_NS).unwrap();
        assert_eq!(tried.tries_left, left);
    }
    // No stranger ends it by trying.
    assert_eq!((tried.take_try(NOW_NS), tried.tries_left), (Ok(()), 0));
    let id = tried.id();
    tried.use_up(id, NOW_NS).unwrap();
    assert_eq!(tried.use_up(id, NOW_NS), Err(EnrolmentRefusal::Used));
    assert_eq!(tried.take_try(NOW_NS), Err(EnrolmentRefusal::Used));
    // A passphrase that was said before another one was made is of no use, even if it was proved already.
    let (replaced, mut newer) = (Site::new().enrolment, Site::new().enrolment);
    assert_eq!(newer.use_up(replaced.id(), NOW_NS), Err(EnrolmentRefusal::Replaced));
    let mut late = Site::new().enrolment;
    assert_eq!(late.take_try(NOW_NS + 1), Err(EnrolmentRefusal::Expired));
    assert_eq!(late.use_up(late.id(), NOW_NS + 1), Err(EnrolmentRefusal::Expired));
    assert_eq!(late.tries_left, ENROLMENT_TRIES);
}

/// A key that was used opens nothing, and is not kept.
#[test]
fn a_used_enrolment_keeps_no_key() {
    let mut site = Site::new();
    let key = site.enrolment.key_bytes().to_vec();
    let id = site.enrolment.id();
    site.enrolment.use_up(id, NOW_NS).unwrap();
    let bytes = site.enrolment.encode();
    assert!(!bytes.windows(key.len()).any(|window| window == key));
    assert_eq!(*Enrolment::decode(&bytes).unwrap().encode(), *bytes);
    let mut open = bytes.to_vec();
    open[2] = 1;
    assert!(Enrolment::decode(&open).is_err(), "an open enrolment without a key was taken");
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let mut site = Site::new();
    site.enrolment.hosts = vec!["kma1.example".to_owned(), "::1".to_owned()];
    site.enrolment.take_try(NOW_NS).unwrap();
    let bytes = site.enrolment.encode();
    site.enrolment = Enrolment::decode(&bytes).unwrap();
    assert_eq!(*site.enrolment.encode(), *bytes);
    site.enrolment.check_proof(&binding(), &site.client().1).unwrap();
    for len in 0..bytes.len() {
        assert!(Enrolment::decode(&bytes[..len]).is_err(), "{len} bytes were taken for an enrolment");
    }
    assert!(Enrolment::decode(&[&bytes[..], &[0]].concat()).is_err());
}

/// What was open when the program was replaced is opened anew.
#[test]
fn an_enrolment_of_version_1_is_over() {
    let peer = b"agent/DRIVE1";
    let verifier = [9; 200];
    let mut bytes = vec![VERSION_OF_OPAQUE, 5, 1];
    bytes.extend(i64::MAX.to_le_bytes());
    bytes.push(peer.len() as u8);
    bytes.extend(peer);
    bytes.extend((verifier.len() as u16).to_le_bytes());
    bytes.extend(verifier);
    bytes.push(0);
    let mut old = Enrolment::decode(&bytes).unwrap();
    assert_eq!(old.peer, "agent/DRIVE1".parse().unwrap());
    assert_eq!(old.take_try(NOW_NS), Err(EnrolmentRefusal::Expired));
    assert_eq!(old.use_up(old.id(), NOW_NS), Err(EnrolmentRefusal::Expired));
    // Nor by a later end: a request that waited for its approval meanwhile set one.
    old.expires_ns = i64::MAX;
    assert!(old.is_of_older_program());
    assert_eq!(old.take_try(NOW_NS), Err(EnrolmentRefusal::Expired));
    let nobodys = EnrolmentKey::from_bytes(&NO_KEY);
    let proof = Base64(nobodys.prove_request(&binding(), &old.peer, b"request").unwrap());
    let question = AskEnrolment { peer: old.peer.clone(), request: Base64(b"request".to_vec()), proof };
    assert!(old.check_proof(&binding(), &question).is_err());
    let again = Enrolment::decode(&old.encode()).unwrap();
    assert!(again.state == EnrolmentState::Used && again.check_proof(&binding(), &question).is_err());
}
