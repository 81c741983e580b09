//! Messages, records and requests of an honest enrolment.

use capstan_keys::api::{Base64, IssuedCertificate, Problem};
use capstan_service::identity::random_serial;

use super::Seeds;
use crate::enrolment::{NOW_NS, Site, binding};

pub(super) fn enrolment() -> Seeds {
    let site = Site::new();
    let (_, question) = site.client();
    let serial = random_serial().unwrap();
    let made = site.authority.issue(&site.enrolment.peer, &[], &question.request.0, serial, NOW_NS).unwrap();
    let authority = Base64(site.authority.certificate().to_vec());
    let issued = IssuedCertificate { certificate: Base64(made.certificate), authority };
    let answer = site.enrolment.answer(&binding(), &question, issued).unwrap();
    let of_kind = |kind: u8, bytes: &[u8]| [&[kind], bytes].concat();
    vec![
        of_kind(0, &[&question.proof.0[..], &question.request.0].concat()),
        of_kind(1, &[&answer.proof.0[..], &answer.issued.certificate.0].concat()),
        of_kind(2, &site.enrolment.encode()),
        of_kind(3, &answer.issued.certificate.0),
        of_kind(3, site.authority.certificate()),
        of_kind(4, &question.request.0),
        of_kind(5, &serde_json::to_vec(&question).unwrap()),
        of_kind(5, &serde_json::to_vec(&answer).unwrap()),
        of_kind(5, &serde_json::to_vec(&Problem::new(404, "not-found", "No", "Nothing")).unwrap()),
    ]
}
