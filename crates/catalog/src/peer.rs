//! Peers of the cell: the certificates that its server made out, and the enrolments that are open.
//!
//! A peer may have several certificates: one that is renewed beside the one before, which holds to its end. Who is let
//! in is who has one that stands here and is not revoked, so a catalog that was lost lets nobody in.

use crate::CatalogError;
use crate::catalog::Catalog;
use crate::db::{Row, Transaction, params};
use crate::queue::cancel_restores_to;

/// A certificate of a peer of the cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerRow {
    /// The number of the certificate.
    pub serial: [u8; 16],
    /// The kind of the peer, as certificates name it.
    pub kind: String,
    /// The peer's name.
    pub name: String,
    /// When the peer was enrolled, nanoseconds since 1970.
    pub enrolled_ns: i64,
    /// Until when the certificate holds, nanoseconds since 1970.
    pub expires_ns: i64,
    /// When it was revoked, nanoseconds since 1970.
    pub revoked_ns: Option<i64>,
    /// When the peer was last seen with it, nanoseconds since 1970.
    pub seen_ns: Option<i64>,
    /// The address that the peer came from last.
    pub address: String,
    /// The version of its program, as it said last; empty if it has not.
    pub version: String,
}

/// An enrolment: whoever proves to know its passphrase becomes the peer. Its record holds a secret.
#[derive(Clone, PartialEq, Eq)]
pub struct EnrolmentRow {
    /// The peer, as certificates name it.
    pub peer: String,
    /// What the server keeps of it.
    pub record: Vec<u8>,
}

/// When and from where a peer was last seen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerSeen {
    /// The number of its certificate.
    pub serial: [u8; 16],
    /// When, nanoseconds since 1970.
    pub seen_ns: i64,
    /// The address that it came from.
    pub address: String,
    /// The version of its program, if it has said it since it was written last.
    pub version: Option<String>,
}

const PEER: &str = "serial, kind, name, enrolled_ns, expires_ns, revoked_ns, seen_ns, address, version";

const PUT_PEER: &str =
    "INSERT INTO peers (serial, kind, name, enrolled_ns, expires_ns, revoked_ns, seen_ns, address, version)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";

const PUT_ENROLMENT: &str = "INSERT INTO enrolments (peer, record) VALUES (?1, ?2)";

impl Catalog {
    /// All certificates of peers, by kind and name, the newest of each peer last.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn peers(&self) -> Result<Vec<PeerRow>, CatalogError> {
        self.db.query(&format!("SELECT {PEER} FROM peers ORDER BY kind, name, expires_ns, serial"), &[], peer)
    }

    /// All certificates of one peer, the newest last.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn peers_named(&self, kind: &str, name: &str) -> Result<Vec<PeerRow>, CatalogError> {
        let query = format!("SELECT {PEER} FROM peers WHERE kind = ?1 AND name = ?2 ORDER BY expires_ns, serial");
        self.db.query(&query, params![kind, name], peer)
    }

    /// Puts a certificate on record that renews another one, unless that was revoked. Whether it did.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn renew_peer(&mut self, old: [u8; 16], renewed: &PeerRow) -> Result<bool, CatalogError> {
        let transaction = self.write()?;
        let holds = "SELECT 1 FROM peers WHERE serial = ?1 AND revoked_ns IS NULL";
        if !transaction.exists(holds, params![old])? {
            return Ok(false);
        }
        put_peer(&transaction, renewed)?;
        transaction.commit()?;
        Ok(true)
    }

    /// Notes when and from where peers were last seen.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn peers_were_seen(&mut self, seen: &[PeerSeen]) -> Result<(), CatalogError> {
        let transaction = self.write_for_now()?;
        for PeerSeen { serial, seen_ns, address, version } in seen {
            let note = "UPDATE peers SET seen_ns = ?2, address = ?3 WHERE serial = ?1";
            transaction.execute(note, params![serial, seen_ns, address])?;
            if let Some(version) = version {
                transaction.execute("UPDATE peers SET version = ?2 WHERE serial = ?1", params![serial, version])?;
            }
        }
        transaction.commit()
    }

    /// Revokes all certificates of a peer and removes its enrolment: nobody is let in by them any more, and a user has
    /// no rights. How many certificates and enrolments that were.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn revoke_peer(&mut self, kind: &str, name: &str, now_ns: i64) -> Result<u64, CatalogError> {
        let transaction = self.write()?;
        let revoke = "UPDATE peers SET revoked_ns = ?3 WHERE kind = ?1 AND name = ?2 AND revoked_ns IS NULL";
        let revoked = transaction.execute(revoke, params![kind, name, now_ns])?;
        let remove = "DELETE FROM enrolments WHERE peer = ?1";
        let removed = transaction.execute(remove, params![format!("{kind}/{name}")])?;
        if kind == "client" {
            // Whatever machine has the name next: what was to be written at this one is not written there.
            cancel_restores_to(&transaction, name, now_ns)?;
        }
        if kind == "user" {
            // At once, whatever certificates of theirs a server knows.
            transaction.execute("DELETE FROM users WHERE name = ?1", params![name])?;
        }
        transaction.commit()?;
        Ok(revoked + removed)
    }

    /// Removes certificates that ended before a time and were revoked, or renewed by one that the peer was seen with:
    /// nobody needs them any more. The last one of a peer stays: whoever calls may have a clock that is ahead, and no
    /// peer has to join again by that.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn forget_ended_peers(&mut self, before_ns: i64) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let forget = "DELETE FROM peers WHERE expires_ns < ?1 AND (revoked_ns IS NOT NULL OR EXISTS (
                SELECT 1 FROM peers newer
                WHERE newer.kind = peers.kind AND newer.name = peers.name AND newer.expires_ns > peers.expires_ns
                    AND newer.revoked_ns IS NULL AND newer.seen_ns IS NOT NULL))";
        transaction.execute(forget, params![before_ns])?;
        transaction.commit()
    }

    /// All enrolments, by peer.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn enrolments(&self) -> Result<Vec<EnrolmentRow>, CatalogError> {
        self.db.query("SELECT peer, record FROM enrolments ORDER BY peer", &[], enrolment)
    }

    /// The enrolment of a peer.
    ///
    /// # Errors
    /// The database cannot be read.
    pub fn enrolment(&self, peer: &str) -> Result<Option<EnrolmentRow>, CatalogError> {
        self.db.query_first("SELECT peer, record FROM enrolments WHERE peer = ?1", params![peer], enrolment)
    }

    /// Puts an enrolment on record, in place of an older one of the same peer.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn put_enrolment(&mut self, new: &EnrolmentRow) -> Result<(), CatalogError> {
        let transaction = self.write()?;
        let put = format!("{PUT_ENROLMENT} ON CONFLICT (peer) DO UPDATE SET record = excluded.record");
        transaction.execute(&put, params![new.peer, new.record])?;
        transaction.commit()
    }

    /// Changes an enrolment from one record to another, and puts the certificate on record that it led to, if it did.
    /// `false` if it is no longer as the caller saw it: then nothing is changed.
    ///
    /// # Errors
    /// The database cannot be written.
    pub fn change_enrolment(
        &mut self,
        seen: &EnrolmentRow,
        record: &[u8],
        admitted: Option<&PeerRow>,
    ) -> Result<bool, CatalogError> {
        let transaction = self.write()?;
        let change = "UPDATE enrolments SET record = ?3 WHERE peer = ?1 AND record = ?2";
        if transaction.execute(change, params![seen.peer, seen.record, record])? == 0 {
            return Ok(false);
        }
        if let Some(admitted) = admitted {
            put_peer(&transaction, admitted)?;
        }
        transaction.commit()?;
        Ok(true)
    }

    /// Takes over the peers and enrolments of another catalog, which this one replaces.
    ///
    /// # Errors
    /// The old catalog cannot be read, or this one cannot be written; nothing is taken over then.
    pub fn take_over_peers(&mut self, old: &Self) -> Result<(), CatalogError> {
        let (peers, enrolments) = (old.peers()?, old.enrolments()?);
        let transaction = self.write()?;
        for peer in peers {
            put_peer(&transaction, &peer)?;
        }
        for EnrolmentRow { peer, record } in enrolments {
            transaction.execute(PUT_ENROLMENT, params![peer, record])?;
        }
        transaction.commit()
    }
}

fn put_peer(transaction: &Transaction<'_>, peer: &PeerRow) -> Result<(), CatalogError> {
    let PeerRow { serial, kind, name, enrolled_ns, expires_ns, revoked_ns, seen_ns, address, version } = peer;
    let values = params![serial, kind, name, enrolled_ns, expires_ns, revoked_ns, seen_ns, address, version];
    transaction.execute(PUT_PEER, values).map(drop)
}

fn peer(row: &Row<'_>) -> Result<PeerRow, CatalogError> {
    Ok(PeerRow {
        serial: row.get(0)?,
        kind: row.get(1)?,
        name: row.get(2)?,
        enrolled_ns: row.get(3)?,
        expires_ns: row.get(4)?,
        revoked_ns: row.get(5)?,
        seen_ns: row.get(6)?,
        address: row.get(7)?,
        version: row.get(8)?,
    })
}

fn enrolment(row: &Row<'_>) -> Result<EnrolmentRow, CatalogError> {
    Ok(EnrolmentRow { peer: row.get(0)?, record: row.get(1)? })
}

#[cfg(test)]
mod tests;
