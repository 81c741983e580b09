//! Enrolment over HTTP.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use super::client::{gone, read_answer};
use super::enrolment::EnrolmentClient;
use super::identity::Identity;
use super::{ClusterError, EnrolmentPassphrase, tls, transport};
use crate::api::PeerId;

/// A person waits for it, and the node asks the cluster's majority twice.
const PATIENCE: Duration = Duration::from_secs(10);

/// Enrols this machine at the enrolment door of the node at `address` (host and port), as `peer`, with the passphrase
/// that a security officer was shown when the enrolment was opened.
///
/// # Errors
/// [`ClusterError::Enrolment`] where passphrase, name or kind are not those of the enrolment, or somebody
/// stands between; and [`ClusterError::Refused`] where it is over, used or locked.
pub fn enrol(address: &str, peer: PeerId, passphrase: EnrolmentPassphrase) -> Result<Identity, ClusterError> {
    let agent = transport::agent(tls::stranger_config().map_err(ClusterError::Tls)?);
    let (client, first) = EnrolmentClient::begin(peer, passphrase)?;
    let begun = ask(&agent, address, "/v1/enrolments/begin", &first)?;
    let (awaited, second) = client.answer(&begun)?;
    awaited.accept(&ask(&agent, address, "/v1/enrolments/finish", &second)?)
}

fn ask<A: DeserializeOwned>(
    agent: &Agent,
    address: &str,
    path: &str,
    question: &impl Serialize,
) -> Result<A, ClusterError> {
    let answered = agent
        .post(format!("https://{address}{path}"))
        .config()
        .timeout_global(Some(PATIENCE))
        .build()
        .send_json(question);
    match answered {
        Ok(answer) => read_answer(address, answer).map_err(|failed| failed.into_error(None, address)),
        Err(error) => Err(ClusterError::AllGone(vec![gone(None, address, &error)])),
    }
}
