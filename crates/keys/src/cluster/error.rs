//! What can go wrong between a client and the cluster.

use std::fmt;

use thiserror::Error;

use super::enrolment_key::EnrolmentError;
use super::identity::IdentityError;
use crate::KeyError;
use crate::api::Problem;

/// Why the cluster did not do what it was asked.
#[derive(Debug, Error)]
pub enum ClusterError {
    /// Peer: no node answered; each with what it did instead.
    #[error("no node of the key cluster answers: {}. See that one of them runs, is unlocked, and can be reached from here", List(.0))]
    AllGone(Vec<Gone>),
    /// Peer: a node refused.
    #[error("the key cluster refused: {0}")]
    Refused(Box<Problem>),
    /// Peer: the answer to something that must not be asked twice was lost; it may have been done.
    #[error("{0}. What was asked for may have been done: look before you ask again")]
    Unanswered(Box<Gone>),
    /// Peer: what it answered is not what was asked for.
    #[error(
        "the node at {address} answered what cannot be read: {what}. See that it is of the same release as this program"
    )]
    Unreadable {
        /// The node.
        address: String,
        /// What is the matter.
        what: String,
    },
    /// Caller: there is no address to ask at.
    #[error("no address of the key cluster is known: name one of its nodes, as host and port")]
    NoAddress,
    /// Operator or peer: nobody proved to know the passphrase.
    #[error("enrolment came to nothing: {0}")]
    Enrolment(#[from] EnrolmentError),
    /// Operator, peer or host: this machine has no identity that serves.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// Host: TLS could not be set up with this identity.
    #[error("the identity of this machine cannot be used: enrol again")]
    Tls(#[source] rustls::Error),
    /// Host: no random numbers.
    #[error(transparent)]
    Host(#[from] KeyError),
}

impl KeyError {
    /// What the key cluster did instead of giving a key, if that is the matter.
    pub fn of_cluster(&self) -> Option<&ClusterError> {
        match self {
            Self::Cluster(error) => error.downcast_ref(),
            _ => None,
        }
    }
}

/// A node that did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gone {
    /// Its name, where it is known.
    pub name: Option<String>,
    /// Where it was looked for.
    pub address: String,
    /// What happened.
    pub silence: Silence,
}

/// How a node did not answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Silence {
    /// It cannot be connected to: nothing was sent.
    Unreachable(String),
    /// It took the connection and did not answer in time.
    TimedOut,
    /// The connection broke, or its TLS did: a certificate that is not taken shows like this.
    Broken(String),
    /// It answers that it cannot serve now.
    Unready(Box<Problem>),
    /// It answers that it failed: what was asked for may have been done.
    Failed(Box<Problem>),
}

impl fmt::Display for Gone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name} ({}) ", self.address)?,
            None => write!(f, "{} ", self.address)?,
        }
        match &self.silence {
            Silence::Unreachable(why) => write!(f, "cannot be connected to: {why}"),
            Silence::TimedOut => f.write_str("is silent"),
            Silence::Broken(why) => write!(f, "broke the connection: {why}"),
            Silence::Unready(problem) => write!(f, "cannot serve now: {problem}"),
            Silence::Failed(problem) => write!(f, "failed: {problem}"),
        }
    }
}

struct List<'a>(&'a [Gone]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, gone) in self.0.iter().enumerate() {
            write!(f, "{}{gone}", if at > 0 { "; " } else { "" })?;
        }
        Ok(())
    }
}
