//! Who of the people asks, and whether they may.

use super::{Service, entry};
use crate::audit::Outcome;
use crate::authority::{Act, CertificateSerial, Denied, Permission, User, Users, may};
use crate::door::{CameFrom, Refusal};
use crate::identity::Peer;
use crate::node::Node;

impl Service {
    /// The user behind a certificate, if they may do this on their own word. A refusal is noted.
    pub(super) async fn person(&self, node: &Node, peer: &Peer, from: CameFrom, act: Act) -> Result<User, Refusal> {
        let serial = CertificateSerial::from(peer.serial);
        let users = node.view(|view| {
            let records = view.ledger().others("user/");
            records.map(|(_, bytes)| User::decode(bytes)).collect::<Result<Users, _>>()
        });
        let users = users.map_err(|error| {
            tracing::error!(%error, "the record of a user cannot be read");
            Refusal::failed()
        })?;
        let allowed = |user: &User| -> Result<Permission, Denied> { may(user, act) };
        match users.identify(&serial).and_then(|user| Ok((user, allowed(user)?))) {
            Ok((user, Permission::AtOnce)) => Ok(user.clone()),
            Ok((_, Permission::ByQuorum)) => {
                Err(Refusal::forbidden(format!("To {} takes a quorum: ask for it there.", act.words())))
            }
            Err(denied) => {
                let noted = entry(peer, from, act.into()).came_to(Outcome::Refused { why: (&denied).into() });
                self.note(noted).await?;
                Err(Refusal::forbidden(format!("{denied}.")))
            }
        }
    }
}
