//! What a KMIP client may take of the ledger: so many objects and bytes for its domain, so many bytes a second for
//! itself, and nothing that takes room once the ledger's reserve is touched ([`crate::service::room`]).
//!
//! All of it is a part of etcd's quota, so that a small etcd is not filled by what is little for a large one:
//! ```text
//!  a domain   1/8 of the quota in bytes (256 MiB of 2 GiB) and a million objects: keyd.toml says otherwise
//!  a client   1/32 at once (64 MiB), and then 1/131072 a second (16 KiB): what is replaced stays in etcd until it is compacted
//! ```
//! To destroy is free of all but the last reserve, and to revoke an object of all but that and the rate: whoever is to
//! give room back must be able to. The rate is a node's own; a client that asks three nodes has it three times.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use capstan_keys::Name;
use capstan_kmip::{AuditedAct, ObjectChange, Operation};
use thiserror::Error;

use crate::kmip::Usage;
use crate::service::room::{Level, RoomSeen};

/// A domain's share of the ledger, where nobody has said otherwise.
const DOMAIN_SHARE: u64 = 8;
/// A client's share of it at once.
const BURST_SHARE: u64 = 32;
/// A client's share of it a second.
const SECOND_SHARE: u64 = 131_072;

/// Why a client takes no more.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(super) enum Exceeded {
    /// Its domain has its objects.
    #[error(
        "domain {domain} has {objects} objects, and its quota is {objects_max}: destroy what is not needed, or ask an operator for more"
    )]
    Objects { domain: String, objects: u64, objects_max: u64 },
    /// Its domain has its bytes.
    #[error(
        "the objects of domain {domain} take {bytes} bytes, and its quota is {bytes_max}: destroy what is not needed, or ask an operator for more"
    )]
    Bytes { domain: String, bytes: u64, bytes_max: u64 },
    /// It changes too much in too short a time.
    #[error("this client changes more than its share: try again in {wait_s} seconds")]
    Rate { wait_s: u64 },
    /// The rest of the ledger is not for clients.
    #[error(
        "the cluster's ledger is nearly full, and what is left is kept for destroying and revoking: ask an operator to make room in etcd"
    )]
    Reserve,
    /// Nor for that.
    #[error(
        "the cluster's ledger is nearly full, and what is left is kept for people: ask an operator to make room in etcd"
    )]
    Closed,
}

/// The bounds, and what each client has left of its rate.
pub(in crate::service) struct Quotas {
    objects_max: u64,
    /// Where somebody has said so.
    bytes_max: Option<u64>,
    left: Mutex<HashMap<Name, Bucket>>,
}

/// What a client may still write at once.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    bytes: u64,
    at: Instant,
}

/// What a request would take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wanted {
    /// Objects that it adds to its domain.
    pub(super) objects: u64,
    /// By how much its domain's records grow; they may shrink.
    pub(super) grows: i64,
    /// Bytes that are written.
    pub(super) written: u64,
    /// What it does.
    pub(super) kind: Kind,
}

/// What a request does to the room that is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It destroys, and changes nothing else.
    Destroys,
    /// It revokes as well.
    Revokes,
    /// It makes or changes objects.
    Takes,
}

impl Kind {
    /// Of what was decided. What was refused is not among its changes.
    pub(super) fn of(changes: &[ObjectChange], acts: &[AuditedAct]) -> Self {
        let is_done = |act: &&AuditedAct| act.outcome.is_ok();
        let gives_back = |act: &AuditedAct| {
            matches!(
                act.operation,
                Some(
                    Operation::Destroy
                        | Operation::Revoke
                        | Operation::Locate
                        | Operation::Get
                        | Operation::GetAttributes
                        | Operation::GetAttributeList
                        | Operation::Query
                        | Operation::DiscoverVersions
                )
            )
        };
        if changes.iter().all(|change| matches!(change, ObjectChange::Destroy { .. })) {
            Self::Destroys
        } else if acts.iter().filter(is_done).all(gives_back) {
            Self::Revokes
        } else {
            Self::Takes
        }
    }
}

/// The bounds, and the ledger that they are of.
#[derive(Clone, Copy)]
pub(super) struct Allowance<'a> {
    pub(super) quotas: &'a Quotas,
    pub(super) room: &'a RoomSeen,
    /// What the ledger takes at most, as `keyd.toml` says it.
    pub(super) quota_bytes: Option<u64>,
}

impl Allowance<'_> {
    /// Whether a client may have what it wants.
    pub(super) fn check(self, domain: &str, usage: Usage, wanted: Wanted) -> Result<(), Exceeded> {
        let ledger = (self.room.quota_bytes(self.quota_bytes), self.room.level());
        self.quotas.check(domain, usage, wanted, ledger)
    }

    /// Takes what is written off a client's rate.
    pub(super) fn take(self, client: &Name, wanted: Wanted) -> Result<(), Exceeded> {
        self.quotas.take(client, wanted, self.room.quota_bytes(self.quota_bytes), Instant::now())?;
        self.room.wrote(wanted.written);
        Ok(())
    }
}

impl Quotas {
    pub(in crate::service) fn new(objects_max: u64, bytes_max: Option<u64>) -> Self {
        Self { objects_max, bytes_max, left: Mutex::default() }
    }

    /// What a domain may have: objects, and bytes of a ledger that takes so many.
    pub(in crate::service) fn of_domain(&self, quota_bytes: u64) -> (u64, u64) {
        (self.objects_max, self.bytes_max.unwrap_or(quota_bytes / DOMAIN_SHARE))
    }

    /// Whether a client may have what it wants, of a ledger that takes so many bytes.
    fn check(
        &self,
        domain: &str,
        usage: Usage,
        wanted: Wanted,
        (quota_bytes, level): (u64, Level),
    ) -> Result<(), Exceeded> {
        match (level, wanted.kind) {
            (Level::Closed | Level::Full, _) => return Err(Exceeded::Closed),
            (Level::Reserved, Kind::Takes) => return Err(Exceeded::Reserve),
            _ => {}
        }
        if wanted.kind != Kind::Takes {
            return Ok(());
        }
        let (objects_max, bytes_max) = self.of_domain(quota_bytes);
        let domain = domain.to_owned();
        if wanted.objects > 0 && usage.objects + wanted.objects > objects_max {
            return Err(Exceeded::Objects { domain, objects: usage.objects, objects_max });
        }
        if wanted.grows > 0 && usage.bytes.saturating_add_signed(wanted.grows) > bytes_max {
            return Err(Exceeded::Bytes { domain, bytes: usage.bytes, bytes_max });
        }
        Ok(())
    }

    /// Takes what is written off the client's rate.
    fn take(&self, client: &Name, wanted: Wanted, quota_bytes: u64, now: Instant) -> Result<(), Exceeded> {
        if wanted.kind == Kind::Destroys {
            return Ok(());
        }
        let (burst, a_second) = ((quota_bytes / BURST_SHARE).max(1), (quota_bytes / SECOND_SHARE).max(1));
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = left.entry(client.clone()).or_insert(Bucket { bytes: burst, at: now });
        let since = now.saturating_duration_since(bucket.at);
        let more = (u128::from(a_second) * since.as_millis() / 1000).min(u128::from(burst));
        if more > 0 {
            *bucket = Bucket { bytes: bucket.bytes.saturating_add(more as u64).min(burst), at: now };
        }
        match bucket.bytes.checked_sub(wanted.written.min(burst)) {
            Some(bytes) => {
                bucket.bytes = bytes;
                Ok(())
            }
            None => Err(Exceeded::Rate { wait_s: (wanted.written.min(burst) - bucket.bytes).div_ceil(a_second) }),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests fail by panicking")]
mod tests {
    use std::time::Duration;

    use super::*;

    const QUOTA: u64 = 2 << 30;

    fn wanted(objects: u64, grows: i64, kind: Kind) -> Wanted {
        Wanted { objects, grows, written: grows.unsigned_abs(), kind }
    }

    #[test]
    fn a_domain_has_its_share_and_gives_back_beyond_it() {
        let quotas = Quotas::new(10, None);
        let check = |usage, wanted, level| quotas.check("library", usage, wanted, (QUOTA, level));
        let full = Usage { objects: 10, bytes: QUOTA / 8 };
        assert_eq!(check(Usage { objects: 9, bytes: 0 }, wanted(1, 1000, Kind::Takes), Level::Low), Ok(()));
        let refused = check(full, wanted(1, 1000, Kind::Takes), Level::Plenty).unwrap_err();
        assert!(matches!(refused, Exceeded::Objects { objects: 10, objects_max: 10, .. }));
        let refused = check(full, wanted(0, 1000, Kind::Takes), Level::Plenty).unwrap_err();
        assert!(matches!(refused, Exceeded::Bytes { .. }), "{refused}");
        assert_eq!(check(full, wanted(0, 1000, Kind::Revokes), Level::Reserved), Ok(()));
        assert_eq!(check(full, wanted(0, -1000, Kind::Takes), Level::Plenty), Ok(()));
        assert_eq!(check(full, wanted(0, 0, Kind::Takes), Level::Reserved), Err(Exceeded::Reserve));
        assert_eq!(check(full, wanted(0, -9, Kind::Destroys), Level::Reserved), Ok(()));
        assert_eq!(check(full, wanted(0, -9, Kind::Destroys), Level::Closed), Err(Exceeded::Closed));
        assert_eq!(Quotas::new(10, Some(7)).of_domain(QUOTA), (10, 7));
    }

    #[test]
    fn a_client_writes_so_much_at_once_and_then_so_much_a_second() {
        let (quotas, now) = (Quotas::new(10, None), Instant::now());
        let [one, other]: [Name; 2] = ["one", "other"].map(|name| name.parse().unwrap());
        let mib = wanted(1, 1 << 20, Kind::Takes);
        let written = (0..1000).take_while(|_| quotas.take(&one, mib, QUOTA, now).is_ok()).count();
        assert_eq!(written, 64);
        assert_eq!(quotas.take(&one, mib, QUOTA, now), Err(Exceeded::Rate { wait_s: 64 }));
        assert_eq!(quotas.take(&other, mib, QUOTA, now), Ok(()), "another client has a rate of its own");
        assert_eq!(quotas.take(&one, wanted(0, 1 << 20, Kind::Destroys), QUOTA, now), Ok(()));
        // Whoever asks all the time does not lose what has grown meanwhile.
        let (mut then, mut tries) = (now, 0);
        while quotas.take(&one, mib, QUOTA, then).is_err() {
            then += Duration::from_millis(10);
            tries += 1;
        }
        assert!((6390..=6450).contains(&tries), "{tries}");
    }
}
