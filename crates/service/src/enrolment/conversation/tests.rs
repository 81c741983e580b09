//! Both sides of an enrolment, without sockets: honest, mixed up, and by somebody who lacks the passphrase.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_keys::cluster::{ClusterError, EnrolmentClient, EnrolmentPassphrase};

use super::*;
use crate::enrolment::{ENROLMENT_TRIES, EnrolmentRefusal};
use crate::identity::{Authority, random_serial};

const NOW_NS: i64 = 1_790_000_000_000_000_000;
const CLUSTER: ClusterId = ClusterId([7; 16]);

struct Site {
    authority: Authority,
    enrolment: Enrolment,
    typed: String,
}

impl Site {
    fn new() -> Self {
        let passphrase = EnrolmentPassphrase::random().unwrap();
        let peer = "agent/DRIVE1".parse().unwrap();
        let enrolment = Enrolment::open(peer, Vec::new(), &CLUSTER, &passphrase, NOW_NS + 1).unwrap();
        let (authority, _) = Authority::create(CLUSTER, NOW_NS).unwrap();
        Self { authority, enrolment, typed: passphrase.expose().to_string() }
    }

    fn client(&self) -> (EnrolmentClient, BeginEnrolment) {
        EnrolmentClient::begin(self.enrolment.peer.clone(), self.typed.parse().unwrap()).unwrap()
    }

    fn begin(&self, question: &BeginEnrolment) -> (Conversation, EnrolmentBegun) {
        Conversation::begin(&self.enrolment, CLUSTER, ConversationId([1; 16]), question).unwrap()
    }

    fn certify(&self, proved: Proved) -> EnrolmentFinished {
        let serial = random_serial().unwrap();
        let issued = self.authority.issue(&proved.peer, &[], &proved.request, serial, NOW_NS).unwrap();
        let authority = Base64(self.authority.certificate().to_vec());
        proved.answer(&IssuedCertificate { certificate: Base64(issued.certificate), authority }).unwrap()
    }
}

#[test]
fn who_knows_the_passphrase_gets_a_certificate() {
    let site = Site::new();
    let (client, first) = site.client();
    let (node, second) = site.begin(&first);
    let (awaited, third) = client.answer(&second).unwrap();
    let identity = awaited.accept(&site.certify(node.finish(&third).unwrap())).unwrap();
    assert_eq!(identity.certificate().peer, site.enrolment.peer);
    assert_eq!(identity.certificate().cluster, CLUSTER);
    assert_eq!(identity.authority_der(), site.authority.certificate());
}

/// A man in the middle who runs an authority of his own and does not know the passphrase: the client leaves before it
/// sends anything of use.
#[test]
fn a_node_that_does_not_know_the_passphrase_is_found_out() {
    let (site, impostor) = (Site::new(), Site::new());
    let (client, first) = site.client();
    let (_, second) = impostor.begin(&first);
    assert!(matches!(client.answer(&second), Err(ClusterError::Enrolment(PakeError::NotProved))));
    // Nor may he say that it is another cluster.
    let (client, first) = site.client();
    let (_, mut second) = site.begin(&first);
    second.cluster = ClusterId([8; 16]);
    assert!(client.answer(&second).is_err());
}

#[test]
fn a_message_of_another_conversation_is_of_no_use() {
    let site = Site::new();
    let run = || {
        let (client, first) = site.client();
        let (node, second) = site.begin(&first);
        let (awaited, third) = client.answer(&second).unwrap();
        (node, third, awaited)
    };
    let ((one, third_of_one, awaited_of_one), (other, third_of_other, _)) = (run(), run());
    let mixed = FinishEnrolment { sealed_request: third_of_other.sealed_request.clone(), ..third_of_one.clone() };
    assert!(other.finish(&third_of_one).is_err(), "a proof was replayed");
    assert!(one.finish(&mixed).is_err(), "a request was put into another conversation");
    let (another, third, _) = run();
    let finished = site.certify(another.finish(&third).unwrap());
    assert!(matches!(awaited_of_one.accept(&finished), Err(ClusterError::Enrolment(_))));
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
    // A passphrase that was said before another one was made is of no use, even in a conversation that was begun with
    // it.
    let (replaced, mut newer) = (Site::new().enrolment, Site::new().enrolment);
    assert_eq!(newer.use_up(replaced.id(), NOW_NS), Err(EnrolmentRefusal::Replaced));
    let mut late = Site::new().enrolment;
    assert_eq!(late.take_try(NOW_NS + 1), Err(EnrolmentRefusal::Expired));
    assert_eq!(late.use_up(late.id(), NOW_NS + 1), Err(EnrolmentRefusal::Expired));
    assert_eq!(late.tries_left, ENROLMENT_TRIES);
}

#[test]
fn a_record_is_read_as_it_was_written() {
    let mut site = Site::new();
    site.enrolment.hosts = vec!["kma1.example".to_owned(), "::1".to_owned()];
    site.enrolment.take_try(NOW_NS).unwrap();
    let bytes = site.enrolment.encode();
    site.enrolment = Enrolment::decode(&bytes).unwrap();
    assert_eq!(*site.enrolment.encode(), *bytes);
    let (client, first) = site.client();
    let (node, second) = site.begin(&first);
    node.finish(&client.answer(&second).unwrap().1).unwrap();
    for len in 0..bytes.len() {
        assert!(Enrolment::decode(&bytes[..len]).is_err(), "{len} bytes were taken for an enrolment");
    }
    assert!(Enrolment::decode(&[&bytes[..], &[0]].concat()).is_err());
}

#[test]
fn conversations_are_few_short_and_taken_once() {
    let site = Site::new();
    let (now, mut open) = (Instant::now(), Conversations::default());
    let id = |number: usize| ConversationId((number as u128).to_be_bytes());
    let conversation = || site.begin(&site.client().1).0;
    open.keep(id(0), conversation(), now);
    assert!(open.take(&id(0), now).is_some());
    assert!(open.take(&id(0), now).is_none(), "a conversation was taken twice");
    open.keep(id(0), conversation(), now);
    assert!(open.take(&id(0), now + AGE_MAX).is_none(), "an old one was taken");
    for number in 0..=CONVERSATIONS_MAX {
        open.keep(id(number), conversation(), now + Duration::from_millis(number as u64));
    }
    assert_eq!(open.open.len(), CONVERSATIONS_MAX);
    assert!(open.take(&id(0), now).is_none() && open.take(&id(1), now).is_some());
}
