//! Who is in: sessions by initiator, each in its place from the end of its login to the end of its last thread.

use std::collections::BTreeMap;
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant, SystemTime};

use super::Session;
use crate::iscsi::login::Identity;
use crate::iscsi::negotiate::SessionKind;
use crate::iscsi::pdu::LoginStatus;
use crate::iscsi::wire::Digest;

/// How long a login waits for the session that it replaces to end its last command. Then the initiator is to try again.
const REPLACE_WAIT: Duration = Duration::from_secs(5);

/// A session, for a status command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionStatus {
    /// Number of the session, never used twice by one target.
    pub number: u64,
    /// Name of the initiator.
    pub initiator: String,
    /// Where it is.
    pub address: SocketAddr,
    /// What it is for.
    pub kind: SessionKind,
    /// Since when.
    pub since: SystemTime,
    /// Checksums of headers and of data.
    pub digests: (Digest, Digest),
    /// Commands so far.
    pub commands: u64,
    /// Bytes that it has written and read so far.
    pub bytes: (u64, u64),
}

struct Entry {
    identity: Identity,
    tsih: u16,
    stream: Arc<TcpStream>,
    session: Weak<Session>,
}

#[derive(Default)]
struct Entries {
    next_number: u64,
    next_tsih: u16,
    by_number: BTreeMap<u64, Entry>,
}

/// All sessions of a target.
pub(crate) struct Registry {
    limit: usize,
    entries: Mutex<Entries>,
    left: Condvar,
}

/// The place of a session, free again when this is dropped.
pub(crate) struct Registration<'a> {
    registry: &'a Registry,
    number: u64,
    tsih: u16,
}

impl Registry {
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, entries: Mutex::default(), left: Condvar::new() }
    }

    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a session its place. The same initiator port that logs in anew ends its old session first (RFC 7143,
    /// 6.3.5).
    pub(crate) fn admit(&self, identity: &Identity, stream: &Arc<TcpStream>) -> Result<Registration<'_>, LoginStatus> {
        let deadline = Instant::now() + REPLACE_WAIT;
        let mut entries = self.entries();
        let same_port = |entry: &Entry| {
            entry.identity.initiator == identity.initiator
                && entry.identity.isid == identity.isid
                && entry.identity.kind == identity.kind
        };
        if identity.tsih != 0 {
            let session = entries.by_number.values().find(|entry| same_port(entry) && entry.tsih == identity.tsih);
            return Err(match session {
                None => LoginStatus::NoSuchSession,
                // Its connection would be taken over, which is recovery that was not agreed upon.
                Some(entry) if entry.identity.cid == identity.cid => LoginStatus::CannotInclude,
                Some(_) => LoginStatus::TooManyConnections,
            });
        }
        while let Some(old) = entries.by_number.values().find(|entry| same_port(entry)) {
            let _gone_already = old.stream.shutdown(Shutdown::Both);
            let rest = deadline.saturating_duration_since(Instant::now());
            if rest.is_zero() {
                return Err(LoginStatus::ServiceUnavailable);
            }
            entries = self.left.wait_timeout(entries, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        if entries.by_number.len() >= self.limit {
            return Err(LoginStatus::OutOfResources);
        }
        let tsih = entries.free_tsih();
        entries.next_number += 1;
        let number = entries.next_number;
        let entry = Entry { identity: identity.clone(), tsih, stream: Arc::clone(stream), session: Weak::new() };
        entries.by_number.insert(number, entry);
        Ok(Registration { registry: self, number, tsih })
    }

    /// All normal sessions but this one.
    pub(crate) fn others(&self, number: u64) -> Vec<Arc<Session>> {
        let entries = self.entries();
        let others = entries
            .by_number
            .iter()
            .filter(|(other, entry)| **other != number && entry.identity.kind == SessionKind::Normal);
        others.filter_map(|(_, entry)| entry.session.upgrade()).collect()
    }

    /// Takes no more requests from anyone.
    pub(crate) fn stop_all(&self) {
        for entry in self.entries().by_number.values() {
            let _gone_already = entry.stream.shutdown(Shutdown::Read);
        }
    }

    pub(crate) fn status(&self) -> Vec<SessionStatus> {
        let sessions: Vec<_> = self.entries().by_number.values().filter_map(|entry| entry.session.upgrade()).collect();
        sessions.iter().map(|session| status(session)).collect()
    }
}

fn status(session: &Session) -> SessionStatus {
    let digests = session.parameters.digests;
    SessionStatus {
        number: session.nexus.session,
        initiator: session.identity.initiator.clone(),
        address: session.peer,
        kind: session.identity.kind,
        since: session.since,
        digests: (digests.header, digests.data),
        commands: session.commands.load(Ordering::Relaxed),
        bytes: (session.bytes_in.load(Ordering::Relaxed), session.bytes_out.load(Ordering::Relaxed)),
    }
}

impl Entries {
    /// A session handle that nobody has; there are fewer sessions than handles. 0 stands for a new session.
    fn free_tsih(&mut self) -> u16 {
        loop {
            self.next_tsih = self.next_tsih.wrapping_add(1).max(1);
            if self.by_number.values().all(|entry| entry.tsih != self.next_tsih) {
                return self.next_tsih;
            }
        }
    }
}

impl Registration<'_> {
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn tsih(&self) -> u16 {
        self.tsih
    }

    /// The session has begun.
    pub(crate) fn begin(&self, session: &Arc<Session>) {
        if let Some(entry) = self.registry.entries().by_number.get_mut(&self.number) {
            entry.session = Arc::downgrade(session);
        }
    }
}

impl Drop for Registration<'_> {
    fn drop(&mut self) {
        self.registry.entries().by_number.remove(&self.number);
        self.registry.left.notify_all();
    }
}
