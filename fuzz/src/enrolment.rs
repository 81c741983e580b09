//! What strangers send to a node's enrolment door, and what somebody in between sends to who enrols.

use capstan_client::orders::{OrdersAnswer, PeerHello};
use capstan_keys::api::{
    AskEnrolment, Base64, ClusterId, EnrolmentAnswer, HandOver, IssuedCertificate, KmaMember, PeerId, Problem,
    RenewCertificate,
};
use capstan_keys::cluster::{ChannelBinding, EnrolmentClient, EnrolmentPassphrase, PeerCertificate};
use capstan_service::enrolment::{ENROLMENT_TRIES, Enrolment};
use capstan_service::identity::{Authority, random_serial};
use rustls::pki_types::CertificateDer;

pub(crate) const CLUSTER: ClusterId = ClusterId([7; 16]);
pub(crate) const NOW_NS: i64 = 1_790_000_000_000_000_000;
const BINDING: [u8; 32] = [3; 32];
const PROOF_LEN: usize = 32;
/// The version of records whose enrolments are over.
const VERSION_OF_OPAQUE: u8 = 1;

pub(crate) struct Site {
    pub(crate) authority: Authority,
    pub(crate) enrolment: Enrolment,
    typed: String,
}

thread_local! {
    static SITE: Site = Site::new();
}

impl Site {
    pub(crate) fn new() -> Self {
        let passphrase = EnrolmentPassphrase::random().expect("randomness");
        let peer = "agent/DRIVE1".parse().expect("a peer");
        let (authority, _) = Authority::create(CLUSTER, NOW_NS).expect("an authority");
        let hosts = vec!["::1".to_owned()];
        let enrolment = Enrolment::open(peer, hosts, &passphrase, NOW_NS + 1).expect("an enrolment");
        Self { authority, enrolment, typed: passphrase.expose().to_string() }
    }

    pub(crate) fn client(&self) -> (EnrolmentClient, AskEnrolment) {
        let passphrase = self.typed.parse().expect("what was shown");
        EnrolmentClient::begin(self.enrolment.peer.clone(), &passphrase, binding()).expect("a client begins")
    }
}

pub(crate) fn binding() -> ChannelBinding {
    ChannelBinding::from_bytes(BINDING)
}

/// One message or record of any bytes, of the kind that the first byte says. Nobody who lacks the passphrase is
/// believed.
pub fn enrolment(data: &[u8]) {
    let Some((kind, bytes)) = data.split_first() else { return };
    SITE.with(|site| match kind % 6 {
        0 => question(site, bytes),
        1 => answer(site, bytes),
        2 => record(bytes),
        3 => drop(PeerCertificate::read(&CertificateDer::from(bytes))),
        4 => request(site, bytes),
        _ => json(bytes),
    });
}

fn question(site: &Site, bytes: &[u8]) {
    let (proof, request) = bytes.split_at(bytes.len().min(PROOF_LEN));
    let (proof, request) = (Base64(proof.to_vec()), Base64(request.to_vec()));
    let question = AskEnrolment { peer: site.enrolment.peer.clone(), request, proof };
    assert!(site.enrolment.check_proof(&binding(), &question).is_err(), "a client without the passphrase was believed");
}

fn answer(site: &Site, bytes: &[u8]) {
    let (proof, certificate) = bytes.split_at(bytes.len().min(PROOF_LEN));
    let authority = Base64(site.authority.certificate().to_vec());
    let issued = IssuedCertificate { certificate: Base64(certificate.to_vec()), authority };
    let answer = EnrolmentAnswer { issued, proof: Base64(proof.to_vec()) };
    assert!(site.client().0.accept(&answer).is_err(), "a node without the passphrase was believed");
}

fn record(bytes: &[u8]) {
    let Ok(mut enrolment) = Enrolment::decode(bytes) else { return };
    if bytes.first() != Some(&VERSION_OF_OPAQUE) {
        assert_eq!(*enrolment.encode(), bytes, "two records mean the same");
    }
    let before = enrolment.tries_left;
    if enrolment.take_try(NOW_NS).is_ok() {
        assert!(enrolment.tries_left < before && before <= ENROLMENT_TRIES, "a try cost nothing");
    }
    let id = enrolment.id();
    if enrolment.use_up(id, NOW_NS).is_ok() {
        assert!(enrolment.take_try(NOW_NS).is_err() && enrolment.use_up(id, NOW_NS).is_err(), "it was used twice");
    }
}

fn request(site: &Site, bytes: &[u8]) {
    let serial = random_serial().expect("randomness");
    if let Ok(issued) = site.authority.issue(&site.enrolment.peer, &[], bytes, serial, NOW_NS) {
        assert_eq!((issued.fields.peer, issued.fields.serial), (site.enrolment.peer.clone(), serial));
    }
}

fn json(bytes: &[u8]) {
    fn read<T: serde::de::DeserializeOwned + serde::Serialize>(bytes: &[u8]) {
        if let Ok(read) = serde_json::from_slice::<T>(bytes) {
            let again = serde_json::to_vec(&read).expect("what was read can be written");
            let written = serde_json::from_slice::<T>(&again).expect("what was written can be read");
            assert_eq!(serde_json::to_vec(&written).expect("and written again"), again);
        }
    }
    read::<AskEnrolment>(bytes);
    read::<EnrolmentAnswer>(bytes);
    read::<RenewCertificate>(bytes);
    read::<IssuedCertificate>(bytes);
    read::<Vec<KmaMember>>(bytes);
    read::<HandOver>(bytes);
    read::<Problem>(bytes);
    read::<PeerId>(bytes);
    read::<OrdersAnswer>(bytes);
    read::<PeerHello>(bytes);
}
