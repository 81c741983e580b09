//! What a person asks of the server: at a client, what was backed up of the machine and to have it back; as a user of
//! the cell, whatever the user's roles allow.

use capstan_keys::cluster::PeerCertificate;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::renewal::renew;
use crate::restores::{AskRestore, ObjectsAnswer, RestorePlanned, RestoreSeen, RestoreStopping, StopRestore};
use crate::server_link::ServerLink;
use crate::{ClientError, JobId, MemberState};

/// Asks the server of the cell on behalf of this machine, or of a user.
pub struct ServerQuestions {
    links: Vec<ServerLink>,
    addresses: Vec<String>,
}

/// A server ends the connection of whoever shows a certificate that has ended, often before it can say why.
fn check_end(certificate: &PeerCertificate, now_ns: i64) -> Result<(), ClientError> {
    if now_ns < certificate.not_after_ns { Ok(()) } else { Err(ClientError::ended(certificate)) }
}

impl ServerQuestions {
    /// Questions of the machine of this state directory; nothing is asked yet.
    ///
    /// # Errors
    /// [`ClientError::NotJoined`], or the state directory cannot be read.
    pub fn new(state: &MemberState) -> Result<Self, ClientError> {
        let (identity, addresses) = (state.identity()?, state.addresses()?);
        let links = addresses.iter().map(|address| ServerLink::new(&identity, address)).collect::<Result<_, _>>()?;
        Ok(Self { links, addresses })
    }

    /// The same for a client at this time. Whose certificate has ended is told that, and not that a connection broke.
    ///
    /// # Errors
    /// As [`ServerQuestions::new`]; [`ClientError::CertificateEnded`].
    pub fn of_client(state: &MemberState, now_ns: i64) -> Result<Self, ClientError> {
        check_end(state.identity()?.certificate(), now_ns)?;
        Self::new(state)
    }

    /// The same for a user, whose certificate is renewed here when its time has come: nothing of a user's runs in the
    /// background.
    ///
    /// # Errors
    /// As [`ServerQuestions::of_client`]; [`ClientError::Revoked`] or [`ClientError::CertificateEnded`] if the
    /// certificate is to be renewed and lets nobody in. A renewal that fails otherwise is tried again the next time.
    pub fn of_user(state: &MemberState, now_ns: i64) -> Result<Self, ClientError> {
        let (identity, questions) = (state.identity()?, Self::new(state)?);
        check_end(identity.certificate(), now_ns)?;
        if now_ns < identity.certificate().renewal_due_ns() {
            return Ok(questions);
        }
        match questions.ask(false, |link| renew(link, state, now_ns)) {
            Ok(_) => Self::new(state),
            Err(error @ (ClientError::Revoked { .. } | ClientError::CertificateEnded { .. })) => Err(error),
            Err(_) => Ok(questions),
        }
    }

    /// Asks for what is at a path.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn get<A: DeserializeOwned>(&self, path: &str) -> Result<A, ClientError> {
        Ok(self.ask(false, |link| link.get(path))?.0)
    }

    /// Asks for something to be done.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn post<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Result<A, ClientError> {
        Ok(self.ask(true, |link| link.post(path, question))?.0)
    }

    /// Asks something that changes nothing and does not fit into an address.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn look<A: DeserializeOwned>(&self, path: &str, question: &impl Serialize) -> Result<A, ClientError> {
        Ok(self.ask(false, |link| link.post(path, question))?.0)
    }

    /// Asks at one address after the other, until one answers; gives the address, too. What changes something is not
    /// asked for a second time where it may have arrived.
    fn ask<T>(
        &self,
        changes: bool,
        ask: impl Fn(&ServerLink) -> Result<T, ClientError>,
    ) -> Result<(T, &str), ClientError> {
        let mut away = None;
        for (link, address) in self.links.iter().zip(&self.addresses) {
            match ask(link) {
                Ok(answer) => return Ok((answer, address)),
                Err(ClientError::Away { address, reason, may_have_arrived: true }) if changes => {
                    let reason = format!("{reason}. It may have been done all the same: look before you ask again");
                    return Err(ClientError::Away { address, reason, may_have_arrived: true });
                }
                Err(error @ ClientError::Away { .. }) => away = Some(error),
                Err(error) => return Err(error),
            }
        }
        let nowhere = || ClientError::Away {
            address: "the server".to_owned(),
            reason: "no address is known".to_owned(),
            may_have_arrived: false,
        };
        Err(away.unwrap_or_else(nowhere))
    }

    /// What was backed up of this machine.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn objects(&self) -> Result<ObjectsAnswer, ClientError> {
        Ok(self.ask(false, |link| link.get("/v1/own/objects"))?.0)
    }

    /// Asks for a restore to this machine.
    ///
    /// # Errors
    /// The server is away, or refuses: there is nothing of that name.
    pub fn begin_restore(&self, asked: &AskRestore) -> Result<RestorePlanned, ClientError> {
        self.post("/v1/own/restores", asked)
    }

    /// What a restore waits for, what to do now that its turn has come, or how it ended. An order names its host; the
    /// last one that came is named by its job.
    ///
    /// # Errors
    /// The server is away, or knows of no such restore.
    pub fn restore_seen(&self, run: i64, had: Option<JobId>) -> Result<RestoreSeen, ClientError> {
        let had = had.map(|job| format!("&had={job}")).unwrap_or_default();
        let path = format!("/v1/own/restores?run={run}{had}");
        let (mut seen, address) = self.ask(false, |link| link.get::<RestoreSeen>(&path))?;
        seen.order = seen.order.map(|order| order.at(address));
        Ok(seen)
    }

    /// Cancels a restore to this machine.
    ///
    /// # Errors
    /// The server is away, or knows of no such restore.
    pub fn stop_restore(&self, run: i64) -> Result<RestoreStopping, ClientError> {
        self.post("/v1/own/restores/stop", &StopRestore { run })
    }
}
