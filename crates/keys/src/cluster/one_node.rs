//! A client of one node and no other: where it matters which one answers.

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use ureq::Agent;

use super::client::{Patience, send};
use super::identity::Identity;
use super::roster::Candidate;
use super::{ClusterError, tls, transport};
use crate::api::RequestId;

/// A client of one node: to unlock it, to ask how it is, to leave something with it.
#[derive(Clone)]
pub struct NodeClient {
    agent: Agent,
    address: String,
    patience: Patience,
}

impl NodeClient {
    /// The node at `address` (host and port), which is given `answer` to answer; nothing is asked yet.
    ///
    /// # Errors
    /// [`ClusterError::Tls`] if the identity cannot be used.
    pub fn new(identity: &Identity, address: &str, answer: Duration) -> Result<Self, ClusterError> {
        let agent = transport::agent(tls::member_config(identity).map_err(ClusterError::Tls)?);
        let patience = Patience { connect: answer.min(Duration::from_secs(2)), answer };
        Ok(Self { agent, address: address.to_owned(), patience })
    }

    /// Asks for what is at `path`.
    ///
    /// # Errors
    /// [`ClusterError::Unanswered`] if the node does not answer; [`ClusterError::Refused`] if it refuses;
    /// [`ClusterError::Unreadable`] if the answer is not understood.
    pub fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClusterError> {
        self.request(path, None)
    }

    /// Asks for something to be done, once.
    ///
    /// # Errors
    /// As [`NodeClient::get`]. After [`ClusterError::Unanswered`] it may have been done.
    pub fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Result<A, ClusterError> {
        let unreadable =
            |error: serde_json::Error| ClusterError::Unreadable { address: "here".to_owned(), what: error.to_string() };
        let body = zeroize::Zeroizing::new(serde_json::to_vec(question).map_err(unreadable)?);
        self.request(path, Some(&body))
    }

    fn request<A: DeserializeOwned>(&self, path: &str, body: Option<&[u8]>) -> Result<A, ClusterError> {
        let candidate = Candidate { name: None, address: self.address.clone() };
        let answer = send(&self.agent, candidate, &RequestId::random()?, path, body, self.patience, &|_, _| Ok(()));
        answer.map_err(|failed| failed.into_error(None, &self.address))
    }
}
