//! The members of an etcd: which of them is asked, and for how long.

use std::fmt;
use std::future::Future;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use etcd_client::{Certificate, Client, ConnectOptions, Error, GetOptions, Identity, TlsOptions};
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::blame::Failure;
use super::{EtcdFiles, EtcdMembers, EtcdTiming};
use crate::ledger::LedgerError;

/// How often a connection in use is asked whether it lives, and how long that may take. etcd closes connections that
/// ask more often than every 5 seconds (`--grpc-keepalive-min-time`).
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// One member.
pub(super) struct Member {
    endpoint: String,
    client: Client,
    /// Its last answer.
    answered: Mutex<Option<Instant>>,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.endpoint)
    }
}

impl Member {
    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Waits for its answer until then.
    pub(super) async fn ask<T>(
        &self,
        deadline: Instant,
        question: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Failure> {
        match tokio::time::timeout_at(deadline, question).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => Err(Failure::answered(&self.endpoint, error)),
            Err(_) => Err(Failure::late(&self.endpoint)),
        }
    }

    /// The last commit of the whole etcd, as the majority knows it now: a linearizable read of a key that is never
    /// there.
    pub(super) async fn last_commit(&self, deadline: Instant, nothing: &str) -> Result<i64, Failure> {
        let mut client = self.client.kv_client();
        let answer = self.ask(deadline, client.get(nothing, Some(GetOptions::new().with_count_only()))).await?;
        self.note_answer();
        // No etcd is without a revision; 0 is below all that was ever known, and is found out as such.
        Ok(answer.header().map_or(0, etcd_client::ResponseHeader::revision))
    }

    pub(super) fn note_answer(&self) {
        *self.answered.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(Instant::now());
    }

    fn forget_answer(&self) {
        *self.answered.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
    }

    /// Since when it has said nothing.
    pub(super) fn silent_for(&self) -> Duration {
        let answered = *self.answered.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        answered.map_or(Duration::MAX, |answered| answered.elapsed())
    }

    #[cfg(test)]
    fn with_endpoint(endpoint: &str, client: Client) -> Self {
        Self { endpoint: endpoint.to_owned(), client, answered: Mutex::new(None) }
    }
}

/// All of them, the node's own first.
#[derive(Debug)]
pub(super) struct Members {
    members: Vec<Member>,
    /// Who is asked first: the node's own while it answers.
    first: AtomicUsize,
}

impl Members {
    pub(super) async fn new(wanted: &EtcdMembers, timing: &EtcdTiming) -> Result<Self, LedgerError> {
        if wanted.endpoints.is_empty() {
            return Err(nobody());
        }
        let options = ConnectOptions::new()
            .with_require_leader(true)
            .with_connect_timeout(timing.connect)
            .with_keep_alive(KEEP_ALIVE.0, KEEP_ALIVE.1);
        let over_tls = match &wanted.files {
            Some(files) => Some(tls(files)?),
            None => None,
        };
        let mut members = Vec::new();
        for endpoint in &wanted.endpoints {
            let mut options = options.clone();
            // A node's own member may be asked over loopback without, and those of other machines over TLS.
            if let Some(over_tls) = over_tls.as_ref().filter(|_| endpoint.starts_with("https://")) {
                options = options.with_tls(over_tls.clone());
            }
            let client = Client::connect([endpoint], Some(options)).await.map_err(|error| LedgerError::Unusable {
                what: format!("{endpoint} cannot be used as the address of an etcd member: see the configuration"),
                source: Some(error.into()),
            })?;
            members.push(Member { endpoint: endpoint.clone(), client, answered: Mutex::new(None) });
        }
        Ok(Self { members, first: AtomicUsize::new(0) })
    }

    /// The members in the order in which they are to be asked, each with the moment at which the next one gets its
    /// turn: half of what is left is for one member, and all of it for the last.
    pub(super) fn in_order(&self, deadline: Instant) -> impl Iterator<Item = (&Member, Instant)> {
        let (count, first) = (self.members.len(), self.first.load(Ordering::Relaxed));
        (0..count).map(move |turn| {
            let left = deadline.saturating_duration_since(Instant::now());
            let share = if turn + 1 == count { left } else { left / 2 };
            (&self.members[(first + turn) % count], Instant::now() + share)
        })
    }

    /// All of them.
    pub(super) fn all(&self) -> impl Iterator<Item = &Member> {
        self.members.iter()
    }

    /// The node's own member, if another one is asked in its place.
    pub(super) fn absent_home(&self) -> Option<&Member> {
        (self.first.load(Ordering::Relaxed) != 0).then(|| &self.members[0])
    }

    /// The node's own member answers again.
    pub(super) fn come_home(&self) {
        self.first.store(0, Ordering::Relaxed);
    }

    /// The next member is to be asked first from now on, if this one was.
    pub(super) fn note_failure(&self, failed: &Member) {
        failed.forget_answer();
        let count = self.members.len();
        let Some(place) = self.members.iter().position(|member| std::ptr::eq(member, failed)) else { return };
        // Several requests fail together: only the first of them moves on.
        let _ = self.first.compare_exchange(place, (place + 1) % count, Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// There is no member that could be asked.
pub(super) fn nobody() -> LedgerError {
    LedgerError::Unusable {
        what: "no member of etcd is configured: give at least the node's own".to_owned(),
        source: None,
    }
}

fn tls(files: &EtcdFiles) -> Result<TlsOptions, LedgerError> {
    let read = |path: &std::path::Path, what: &str| {
        std::fs::read(path).map_err(|error| LedgerError::Unusable {
            what: format!("{what} {} cannot be read: it opens the way to etcd", path.display()),
            source: Some(error.into()),
        })
    };
    let authority = read(&files.authority, "the authority's certificate")?;
    let certificate = read(&files.certificate, "the node's certificate")?;
    let private_key = Zeroizing::new(read(&files.private_key, "the node's private key")?);
    Ok(TlsOptions::new()
        .ca_certificate(Certificate::from_pem(authority))
        .identity(Identity::from_pem(certificate, private_key.as_slice())))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    async fn members(count: usize) -> Members {
        let mut members = Vec::new();
        for place in 0..count {
            let endpoint = format!("http://127.0.0.1:{}", place + 1);
            members.push(Member::with_endpoint(&endpoint, Client::connect([&endpoint], None).await.unwrap()));
        }
        Members { members, first: AtomicUsize::new(0) }
    }

    fn order(members: &Members) -> Vec<String> {
        members.in_order(Instant::now()).map(|(member, _)| format!("{member:?}")[17..].to_owned()).collect()
    }

    #[tokio::test]
    async fn the_own_member_is_asked_first_until_it_fails_and_again_when_it_is_back() {
        let members = members(3).await;
        assert_eq!(order(&members), ["1", "2", "3"]);
        assert!(members.absent_home().is_none());
        members.note_failure(&members.members[0]);
        assert_eq!(order(&members), ["2", "3", "1"]);
        members.note_failure(&members.members[0]);
        assert_eq!(order(&members), ["2", "3", "1"], "the second of two failures at once moves nothing");
        assert!(members.absent_home().is_some());
        members.come_home();
        assert_eq!(order(&members), ["1", "2", "3"]);
    }

    #[tokio::test]
    async fn a_member_that_does_not_answer_leaves_time_for_the_next() {
        let members = members(3).await;
        let deadline = Instant::now() + Duration::from_secs(8);
        let until: Vec<_> = members.in_order(deadline).map(|(_, until)| until).collect();
        let left = |turn: usize| (deadline - until[turn]).as_millis();
        assert!((3900..=4100).contains(&left(0)), "{until:?}");
        assert!(left(2) < 100, "the last one has all that is left: {until:?}");
    }
}
