//! What a person at a client asks of the server: what was backed up of the machine, and to have it back.

use crate::restores::{AskRestore, ObjectsAnswer, RestoreEnded, RestorePlanned, RestoreSeen};
use crate::server_link::ServerLink;
use crate::{ClientError, JobId, MemberState};

/// Asks the server of the cell on behalf of this machine.
pub struct ServerQuestions {
    links: Vec<ServerLink>,
    addresses: Vec<String>,
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

    /// Asks at one address after the other, until one answers; gives the address, too.
    fn ask<T>(&self, ask: impl Fn(&ServerLink) -> Result<T, ClientError>) -> Result<(T, &str), ClientError> {
        let mut away = None;
        for (link, address) in self.links.iter().zip(&self.addresses) {
            match ask(link) {
                Ok(answer) => return Ok((answer, address)),
                Err(error @ ClientError::Away { .. }) => away = Some(error),
                Err(error) => return Err(error),
            }
        }
        let nowhere =
            || ClientError::Away { address: "the server".to_owned(), reason: "no address is known".to_owned() };
        Err(away.unwrap_or_else(nowhere))
    }

    /// What was backed up of this machine.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn objects(&self) -> Result<ObjectsAnswer, ClientError> {
        Ok(self.ask(|link| link.get("/v1/objects"))?.0)
    }

    /// Asks for a restore to this machine. The order that it gives names its host.
    ///
    /// # Errors
    /// The server is away, or refuses: there is nothing of that name.
    pub fn begin_restore(&self, asked: &AskRestore) -> Result<RestorePlanned, ClientError> {
        let (mut planned, address) = self.ask(|link| link.post::<RestorePlanned>("/v1/restores", asked))?;
        planned.order = planned.order.map(|order| order.at(address));
        Ok(planned)
    }

    /// How a restore ended; none while it is under way.
    ///
    /// # Errors
    /// The server is away, or knows of no such restore: it has started anew since.
    pub fn restore_ended(&self, job: JobId) -> Result<Option<RestoreEnded>, ClientError> {
        let path = format!("/v1/restores?job={job}");
        Ok(self.ask(|link| link.get::<RestoreSeen>(&path))?.0.ended)
    }
}
