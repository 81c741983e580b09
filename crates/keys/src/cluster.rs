//! The client of a key-management cluster, for agents and people: blocking, and without a thread of its own while all
//! is well.
//!
//! ```text
//!  enrol    passphrase, proved over TLS --> certificate   once, against man in the middle and without any CA known before
//!  Identity certificate, key, CA in one 0600 file     renewed when two thirds of its time are over
//!  ClusterClient  members, own site first, fail-over  each request has an id, and a request sent again has the same
//!  KeyRequest / hand_over  X25519, HKDF, AES-KWP      a key in flight is wrapped for this one agent and this one request
//!  KeyCluster   all of these, as a KeyProvider for drives
//! ```
//! Connections are TLS 1.3 both ways, with aws-lc-rs and nothing else. A node is known by its kind in a certificate of
//! the cluster's own authority, not by a host's name: addresses of nodes change, and any node is as good as any other.
//!
//! **Timing.** A node that refuses a connection is passed over at once, one that is silent after 0.3 s (connecting) or
//! 0.6 s (answering), and the next is asked. Only when none has answered so fast are they given longer. Who was silent
//! is asked last, and is looked at from time to time on a thread that lives for that one look.

mod certificate;
mod client;
mod enrol;
mod enrolment;
mod enrolment_key;
mod error;
mod handover;
mod identity;
mod known_nodes;
mod one_node;
mod place;
mod provider;
mod roster;
mod status;
mod tls;
mod transport;

pub use crate::enrolment_passphrase::{EnrolmentPassphrase, InvalidPassphrase};
pub use certificate::{InvalidCertificate, PEER_URI_SCHEME, PeerCertificate};
pub use client::{ClusterClient, Repeat};
pub use enrol::enrol;
pub use enrolment::EnrolmentClient;
pub use enrolment_key::{ChannelBinding, EnrolmentError, EnrolmentKey};
pub use error::{ClusterError, Gone, Silence};
pub use handover::{HandOverFailed, KeyRequest, hand_over};
pub use identity::{
    CertificateKey, Identity, IdentityError, check_place, check_split_place, read_secret_file, write_pem_file,
};
pub use one_node::NodeClient;
pub use place::ClusterPlace;
pub use provider::{KeyCluster, OnNotice};
pub use status::{ClusterStatus, NodeStatus};
pub use tls::{member_config, provider};
