//! Messages, records and requests of an honest enrolment.

use capstan_keys::api::{ConversationId, Problem};
use capstan_keys::cluster::CertificateKey;
use capstan_service::enrolment::Conversation;
use capstan_service::identity::random_serial;

use super::Seeds;
use crate::enrolment::{CLUSTER, NOW_NS, Site};

pub(super) fn enrolment() -> Seeds {
    let site = Site::new();
    let (client, first) = site.client();
    let (_, second) = Conversation::begin(&site.enrolment, CLUSTER, ConversationId([1; 16]), &first).unwrap();
    let (_, third) = client.answer(&second).unwrap();
    let request = CertificateKey::generate().unwrap().request().to_vec();
    let serial = random_serial().unwrap();
    let issued = site.authority.issue(&site.enrolment.peer, &[], &request, serial, NOW_NS).unwrap();
    let of_kind = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        of_kind(0, &first.message.0),
        of_kind(1, &second.message.0),
        of_kind(2, &[third.message.0.clone(), third.sealed_request.0.clone()].concat()),
        of_kind(3, &site.enrolment.encode()),
        of_kind(4, &issued.certificate),
        of_kind(4, site.authority.certificate()),
        of_kind(5, &request),
        of_kind(6, &serde_json::to_vec(&first).unwrap()),
        of_kind(6, &serde_json::to_vec(&second).unwrap()),
        of_kind(6, &serde_json::to_vec(&third).unwrap()),
        of_kind(6, &serde_json::to_vec(&Problem::new(404, "not-found", "No", "Nothing")).unwrap()),
    ]
}
