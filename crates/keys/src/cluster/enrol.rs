//! Enrolment over HTTP.

use std::time::Duration;

use super::client::{gone, read_answer};
use super::enrolment::EnrolmentClient;
use super::enrolment_key::{ChannelBinding, EnrolmentError};
use super::identity::Identity;
use super::{ClusterError, EnrolmentPassphrase, tls, transport};
use crate::api::{ENROLMENT_NOT_PROVED, PeerId};

/// A person waits for it, and the node asks the cluster's majority twice. Longer than a node works on a request.
const PATIENCE: Duration = Duration::from_secs(20);

/// Enrols this machine at the enrolment door of the node at `address` (host and port), as `peer`, with the passphrase
/// that a security officer was shown when the enrolment was opened.
///
/// # Errors
/// [`ClusterError::Enrolment`] where the passphrase is not that of the enrolment, or somebody stands between; and
/// [`ClusterError::Refused`] where there is no such enrolment, or it is over or used.
pub fn enrol(address: &str, peer: PeerId, passphrase: &EnrolmentPassphrase) -> Result<Identity, ClusterError> {
    let silent = |error: &ureq::Error| ClusterError::AllGone(vec![gone(None, address, error)]);
    let tls = tls::stranger_config().map_err(ClusterError::Tls)?;
    let connection = transport::connect(address, tls, PATIENCE).map_err(|error| silent(&error))?;
    let binding = ChannelBinding::of(connection.tls()).map_err(ClusterError::Tls)?;
    let (client, question) = EnrolmentClient::begin(peer, passphrase, binding)?;
    let answered = connection
        .into_agent()
        .post(format!("https://{address}/v1/enrolments"))
        .config()
        .timeout_global(Some(PATIENCE))
        .build()
        .send_json(&question);
    // It was connected: the node may have used the enrolment up.
    let answer = answered.map_err(|error| ClusterError::Unanswered(Box::new(gone(None, address, &error))))?;
    match read_answer(address, answer).map_err(|failed| failed.into_error(None, address)) {
        Ok(answer) => client.accept(&answer),
        Err(ClusterError::Refused(problem)) if problem.is(ENROLMENT_NOT_PROVED) => {
            Err(EnrolmentError::NotProved.into())
        }
        Err(ClusterError::Refused(problem)) if problem.is("not-found") => Err(ClusterError::Unreadable {
            address: address.to_owned(),
            what: "it knows no enrolment by one request".to_owned(),
        }),
        Err(error) => Err(error),
    }
}
