//! Requests to the server of the cell, and what their failures mean.

use std::time::Duration;

use capstan_keys::api::{ENROLMENT_NOT_PROVED, PeerId, Problem};
use capstan_keys::cluster::{ClusterError, Gone, Identity, NodeClient, Silence};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::ClientError;
use crate::orders::ORDERS_WAIT_SECONDS;

/// How long the server is given to answer: longer than it keeps a question for orders open.
const PATIENCE: Duration = Duration::from_secs(ORDERS_WAIT_SECONDS + 10);

/// The kinds of answers to a certificate that was revoked, and to one that has ended by the server's clock.
const REVOKED: &str = "revoked";
const TURNED_AWAY: &str = "turned-away";
/// What to do about the latter. Whose own clock says that its certificate holds, waits: one of both clocks is wrong.
const ENDED_THERE: &str = "by the server's clock, the certificate of this machine has ended: compare the clock of this \
                           machine with the server's. If both are right, enrol and join again with --replace";

/// The server at one address.
pub(crate) struct ServerLink {
    client: NodeClient,
    address: String,
    peer: PeerId,
}

impl ServerLink {
    /// Nothing is asked yet.
    pub(crate) fn new(identity: &Identity, address: &str) -> Result<Self, ClientError> {
        let client = NodeClient::new(identity, address, PATIENCE).map_err(|error| ClientError::Tls(Box::new(error)))?;
        Ok(Self { client, address: address.to_owned(), peer: identity.certificate().peer.clone() })
    }

    pub(crate) fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        self.client.get(path).map_err(|error| explained(error, &self.address, &self.peer))
    }

    pub(crate) fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Result<A, ClientError> {
        self.client.post(path, question).map_err(|error| explained(error, &self.address, &self.peer))
    }
}

/// What the failure of a request means for this client or mover, and what to do.
pub(crate) fn explained(error: ClusterError, address: &str, peer: &PeerId) -> ClientError {
    let away = |reason| ClientError::Away { address: address.to_owned(), reason, may_have_arrived: true };
    match error {
        ClusterError::AllGone(gone) => match gone.into_iter().next() {
            Some(gone) => of_silence(gone, address, peer),
            None => away("nobody answers".to_owned()),
        },
        ClusterError::Unanswered(gone) => of_silence(*gone, address, peer),
        ClusterError::Refused(problem) => of_problem(&problem, address, peer),
        ClusterError::Enrolment(_) => ClientError::WrongPassphrase { peer: peer.clone() },
        ClusterError::Identity(error) => ClientError::Identity(error),
        ClusterError::Host(error) => ClientError::Host(error),
        error @ ClusterError::Tls(_) => ClientError::Tls(Box::new(error)),
        ClusterError::Unreadable { what, .. } => {
            away(format!("the answer cannot be read ({what}): give the address and port that the server printed"))
        }
        ClusterError::NoAddress => away("no address is known".to_owned()),
    }
}

fn of_silence(Gone { silence, .. }: Gone, address: &str, peer: &PeerId) -> ClientError {
    let may_have_arrived = !matches!(silence, Silence::Unreachable(_));
    let reason = match silence {
        Silence::Unreachable(why) if why.contains("host not found") => {
            format!("the host is not known here ({why}): check the name, or give an IP address")
        }
        Silence::Unreachable(why) => {
            format!("it cannot be connected to ({why}): see that the server runs, and that no firewall closes the port")
        }
        Silence::TimedOut => "it does not answer: see that the server runs and can be reached from here".to_owned(),
        Silence::Broken(why) => broken(&why),
        Silence::Unready(problem) | Silence::Failed(problem) => return of_problem(&problem, address, peer),
    };
    ClientError::Away { address: address.to_owned(), reason, may_have_arrived }
}

/// What a connection that broke means, where its TLS says so.
fn broken(why: &str) -> String {
    let lower = why.to_ascii_lowercase();
    if ["close_notify", "connection reset", "broken pipe", "unexpected end of file"]
        .iter()
        .any(|end| lower.contains(end))
    {
        return "it ended the connection: the server was stopped, or something on the way cut it".to_owned();
    }
    // An alert is what the server says of the certificate here.
    let advice = if lower.contains("fatal alert") && lower.contains("expired") {
        ENDED_THERE
    } else if lower.contains("not valid yet") || lower.contains("expired") || lower.contains("notvalidyet") {
        "a certificate does not hold at this time: compare the clock of this machine with the server's"
    } else if lower.contains("unknownissuer") || lower.contains("unknownca") || lower.contains("decrypterror") {
        "another cell answers there: join that cell, or give the address of the right server"
    } else {
        "see that the address is that of the server, with the right port"
    };
    format!("the connection broke ({why}): {advice}")
}

fn of_problem(problem: &Problem, address: &str, peer: &PeerId) -> ClientError {
    let peer = peer.clone();
    match problem.status {
        _ if problem.is(REVOKED) => ClientError::Revoked { peer },
        _ if problem.is(ENROLMENT_NOT_PROVED) => ClientError::WrongPassphrase { peer },
        _ if problem.is(TURNED_AWAY) => {
            let (address, reason) = (address.to_owned(), ENDED_THERE.to_owned());
            ClientError::Away { address, reason, may_have_arrived: false }
        }
        500.. => {
            let reason = format!("it cannot serve now: {problem}");
            ClientError::Away { address: address.to_owned(), reason, may_have_arrived: true }
        }
        _ => ClientError::Refused { reason: problem.to_string() },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// A server whose clock was a year ahead for a moment ended every client and mover for good.
    #[test]
    fn a_certificate_that_has_ended_by_the_clock_there_is_waited_with() {
        let silence = Silence::Unready(Box::new(Problem::new(403, TURNED_AWAY, "This peer is not let in", "Enrol.")));
        let gone = Gone { name: None, address: "cell".to_owned(), silence };
        let peer = "client/web1".parse().unwrap();
        for error in [ClusterError::AllGone(vec![gone.clone()]), ClusterError::Unanswered(Box::new(gone))] {
            let told = explained(error, "cell", &peer);
            assert!(matches!(told, ClientError::Away { .. }) && told.to_string().contains(ENDED_THERE), "{told:?}");
        }
    }

    #[test]
    fn a_connection_that_broke_is_told_by_what_is_to_be_done() {
        let cut = "io: peer closed connection without sending TLS close_notify: https://docs.rs/rustls/latest/rustls";
        for (why, said) in [
            (cut, "it ended the connection: the server was stopped, or something on the way cut it"),
            ("io: Connection reset by peer (os error 104)", "the server was stopped"),
            ("rustls: invalid peer certificate: certificate expired", "compare the clock"),
            ("rustls: received fatal alert: CertificateExpired", "join again with --replace"),
            ("rustls: invalid peer certificate: UnknownIssuer", "another cell answers there"),
            ("rustls: received corrupt message", "with the right port"),
        ] {
            let told = broken(why);
            assert!(told.contains(said) && (said.contains("port") || !told.contains("docs.rs")), "{told}");
        }
    }
}
