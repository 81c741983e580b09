//! The ledger of a cluster: etcd, of which this node has a member of its own.
//!
//! A transaction is one `Txn` of etcd that compares the revisions at which records were last changed; its answer comes
//! when a majority has it on disk. Reads are linearizable. Neither locks nor leases of etcd are used: a lease that runs
//! out on a stopped node would let two nodes believe that they hold it.
//!
//! ```text
//! /capstan/<cluster>/<path>   one key of etcd for each record; whatever else lies in the same etcd is not ours
//!
//! commit: [ask whether it has a majority] --> Txn       answer: Committed | Conflict
//!         no connection, no leader: nothing happened,   no answer, connection lost: Unknown;
//!         the next member is asked                      nobody else is asked
//! ```
//! **Unreachable or Unknown.** Only what was certainly never proposed is Unreachable: no connection was made, or the
//! member said that it knows no leader (the metadata `hasleader` makes etcd 3.4 say so before it takes a request,
//! instead of after seven seconds). So that a commit seldom ends as unknown, a member that has not answered for a
//! second is asked for nothing first.
//!
//! **Members.** The node's own stands first; another one is asked when it fails, until it answers again. One client
//! holds one member: the client's own balancing would send every third request over the site boundary, and to a member
//! that is stopped.
//!
//! **History.** Members are to keep some hours of it
//! (`--auto-compaction-mode=periodic --auto-compaction-retention=4h`); who was away for longer reads a snapshot.
//!
//! Limits: one record as in [`RECORD_LEN_MAX`], one answer of etcd [`ANSWER_BYTES_MAX`], every request has a time-out
//! ([`EtcdTiming`]).

mod blame;
mod fragments;
mod members;
mod room;
mod watching;

use std::path::PathBuf;
use std::time::Duration;

use etcd_client::{CompactionOptions, Compare, CompareOp, GetOptions, GetResponse, Txn, TxnOp};
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use tokio::time::Instant;

use self::blame::{Failure, PageFailure};
use self::members::{Member, Members};
use super::{
    Entry, Expected, Ledger, LedgerError, Outcome, PATH_LEN_MAX, RECORD_LEN_MAX, Room, Snapshot, Transaction, Watched,
    is_path,
};

/// Longest answer of etcd that is taken: a page or a fragment is far below, a single commit as well.
const ANSWER_BYTES_MAX: usize = 48 << 20;
/// What a page aims at.
const PAGE_BYTES: usize = 8 << 20;
/// Records in the first page: they may all be as long as can be.
const PAGE_RECORDS_FIRST: usize = 500;
/// Most records in a page. etcd 3.4 counts, for each page, all records that follow: few large pages are faster than
/// many small ones.
const PAGE_RECORDS_MAX: usize = 20_000;
/// How often a snapshot is begun anew because its moment was compacted away under it.
const SNAPSHOT_ATTEMPTS_MAX: usize = 3;
/// A member that has answered so recently is asked for a commit without asking first whether it is there.
const BELIEVED: Duration = Duration::from_secs(1);

/// What a member of etcd takes at most where nobody has said anything else (`--quota-backend-bytes`).
pub const QUOTA_BYTES: u64 = 2 << 30;

/// The files that open the way to members of etcd over TLS, each PEM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdFiles {
    /// Certificates of the authority that the members' certificates come from.
    pub authority: PathBuf,
    /// The node's certificate for etcd.
    pub certificate: PathBuf,
    /// Its private key.
    pub private_key: PathBuf,
}

/// The members of an etcd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EtcdMembers {
    /// Their client addresses, as `https://10.0.0.1:2379`; the node's own first.
    pub endpoints: Vec<String>,
    /// What opens them, if they speak TLS.
    pub files: Option<EtcdFiles>,
}

/// How long a ledger waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EtcdTiming {
    /// For a connection.
    pub connect: Duration,
    /// For a commit, or for the first page of a snapshot, with all members that are asked.
    pub answer: Duration,
    /// For a further page of a snapshot.
    pub page: Duration,
    /// Between two questions of a watch whether the majority has anything newer.
    pub beat: Duration,
    /// For what the majority has and a watch does not bring, until the watch counts as broken.
    pub silence: Duration,
}

impl Default for EtcdTiming {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(1),
            answer: Duration::from_secs(2),
            page: Duration::from_secs(10),
            beat: Duration::from_millis(500),
            silence: Duration::from_secs(5),
        }
    }
}

/// The ledger of a cluster, in etcd.
#[derive(Debug)]
pub struct EtcdLedger {
    members: Members,
    /// What all keys of etcd begin with that are records of this cluster.
    root: String,
    timing: EtcdTiming,
    /// What a member takes at most, as far as it does not say so itself.
    quota_bytes: u64,
}

impl EtcdLedger {
    /// The ledger of the cluster of that name. Asks nobody yet: a node starts without its majority too. Must be called
    /// in a tokio runtime.
    pub async fn new(cluster: &str, members: &EtcdMembers, timing: EtcdTiming) -> Result<Self, LedgerError> {
        if !is_path(cluster) || cluster.contains('/') {
            return Err(LedgerError::Unusable {
                what: format!("{cluster:?} cannot be the name of a cluster: give one without a slash"),
                source: None,
            });
        }
        Ok(Self {
            members: Members::new(members, &timing).await?,
            root: format!("/capstan/{cluster}/"),
            timing,
            quota_bytes: QUOTA_BYTES,
        })
    }

    /// The same, over members that were given another quota than etcd's default (`--quota-backend-bytes`): etcd says
    /// which from 3.6 on alone.
    pub fn with_quota(self, quota_bytes: u64) -> Self {
        Self { quota_bytes, ..self }
    }

    /// The path of a key of etcd, if it is a record of this cluster.
    fn path_of(root: &str, key: &[u8]) -> Result<Option<String>, LedgerError> {
        let Some(path) = key.strip_prefix(root.as_bytes()) else { return Ok(None) };
        match std::str::from_utf8(path) {
            Ok(path) if is_path(path) => Ok(Some(path.to_owned())),
            _ => Err(LedgerError::Protocol { what: format!("a path of {} bytes that is none", path.len()) }),
        }
    }

    fn entry_of(root: &str, found: &etcd_client::KeyValue) -> Result<Option<Entry>, LedgerError> {
        let Some(path) = Self::path_of(root, found.key())? else { return Ok(None) };
        if found.value().len() > RECORD_LEN_MAX {
            return Err(LedgerError::Protocol { what: format!("record {path} has {} bytes", found.value().len()) });
        }
        Ok(Some(Entry { path, sealed: found.value().to_vec(), revision: found.mod_revision() }))
    }

    fn etcd_transaction(&self, transaction: &Transaction) -> Txn {
        let key = |path: &str| format!("{}{path}", self.root);
        let compare = |(path, expected): &(String, Expected)| match *expected {
            Expected::Absent => Compare::create_revision(key(path), CompareOp::Equal, 0),
            Expected::At { revision } => Compare::mod_revision(key(path), CompareOp::Equal, revision),
        };
        let put = transaction.put.iter().map(|(path, sealed)| TxnOp::put(key(path), sealed.clone(), None));
        let remove = transaction.remove.iter().map(|path| TxnOp::delete(key(path), None));
        Txn::new()
            .when(transaction.expect.iter().map(compare).collect::<Vec<_>>())
            .and_then(put.chain(remove).collect::<Vec<_>>())
    }

    async fn commit_transaction(&self, transaction: Transaction) -> Result<Outcome, LedgerError> {
        transaction.check()?;
        let request = self.etcd_transaction(&transaction);
        let deadline = Instant::now() + self.timing.answer;
        let mut refused = None;
        for (member, share) in self.members.in_order(deadline) {
            if member.silent_for() > BELIEVED
                && let Err(failure) = self.ask_for_nothing(member, share).await
            {
                self.members.note_failure(member);
                refused = Some(failure.of_read());
                continue;
            }
            let answer = member.ask(deadline, member.client().kv_client().txn(request.clone())).await;
            match answer {
                Ok(answer) => {
                    member.note_answer();
                    let revision = revision_of(answer.header())?;
                    return Ok(if answer.succeeded() { Outcome::Committed { revision } } else { Outcome::Conflict });
                }
                Err(failure) => {
                    self.members.note_failure(member);
                    match failure.of_commit() {
                        unreachable @ LedgerError::Unreachable { .. } => refused = Some(unreachable),
                        other => return Err(other),
                    }
                }
            }
        }
        Err(refused.unwrap_or_else(members::nobody))
    }

    /// Whether a member is there and has its majority; answers with the last commit of the whole ledger.
    async fn ask_for_nothing(&self, member: &Member, deadline: Instant) -> Result<i64, Failure> {
        member.last_commit(deadline, self.root.trim_end_matches('/')).await
    }

    async fn read_snapshot(&self, prefix: &str) -> Result<Snapshot, LedgerError> {
        if prefix.len() > PATH_LEN_MAX {
            return Err(LedgerError::Malformed { what: format!("a prefix of {} bytes", prefix.len()) });
        }
        let mut attempt = 1;
        loop {
            match self.read_pages(prefix).await {
                Err(PageFailure::Compacted) if attempt < SNAPSHOT_ATTEMPTS_MAX => attempt += 1,
                Ok(snapshot) => return Ok(snapshot),
                Err(failure) => return Err(failure.into_ledger_error()),
            }
        }
    }

    async fn read_pages(&self, prefix: &str) -> Result<Snapshot, PageFailure> {
        let mut from = format!("{}{prefix}", self.root).into_bytes();
        let end = end_of_prefix(&from);
        let mut snapshot = Snapshot { revision: 0, entries: Vec::new() };
        let mut page_records = PAGE_RECORDS_FIRST;
        loop {
            let page = match self.read_page(&from, &end, snapshot.revision, page_records).await {
                Err(PageFailure::TooLong) if page_records > 1 => {
                    page_records /= 2;
                    continue;
                }
                page => page?,
            };
            if snapshot.revision == 0 {
                snapshot.revision = revision_of(page.header())?;
            }
            let mut bytes = 0;
            for found in page.kvs() {
                bytes += found.key().len() + found.value().len();
                snapshot.entries.extend(Self::entry_of(&self.root, found)?);
            }
            let Some(last) = page.kvs().last().filter(|_| page.more()) else { return Ok(snapshot) };
            from = [last.key(), &[0]].concat();
            page_records = (PAGE_BYTES * page.kvs().len() / bytes.max(1)).clamp(1, PAGE_RECORDS_MAX);
        }
    }

    /// One page: of this very moment if `revision` is 0, else of that commit.
    async fn read_page(
        &self,
        from: &[u8],
        end: &[u8],
        revision: i64,
        records: usize,
    ) -> Result<GetResponse, PageFailure> {
        let limit = i64::try_from(records).unwrap_or(i64::MAX);
        let options = GetOptions::new().with_range(end).with_limit(limit).with_revision(revision);
        let deadline = Instant::now() + if revision == 0 { self.timing.answer } else { self.timing.page };
        let mut refused = None;
        for (member, share) in self.members.in_order(deadline) {
            let mut client = member.client().kv_client().max_decoding_message_size(ANSWER_BYTES_MAX);
            match member.ask(share, client.get(from, Some(options.clone()))).await {
                Ok(page) => {
                    member.note_answer();
                    return Ok(page);
                }
                Err(failure) => match failure.of_page() {
                    PageFailure::Ledger(unreachable @ LedgerError::Unreachable { .. }) => {
                        self.members.note_failure(member);
                        refused = Some(unreachable);
                    }
                    other => return Err(other),
                },
            }
        }
        Err(refused.unwrap_or_else(members::nobody).into())
    }
}

impl EtcdLedger {
    /// Compacts etcd, and waits until its own member's database has let go of what was replaced. The pages it was on
    /// are free then and are given back, and written over, by `etcdctl defrag` on each member alone.
    async fn compact(&self, revision: i64) -> Result<(), LedgerError> {
        let deadline = Instant::now() + self.timing.page;
        let mut refused = None;
        for (member, share) in self.members.in_order(deadline) {
            let mut client = member.client().kv_client();
            let options = CompactionOptions::new().with_physical();
            match member.ask(share, client.compact(revision, Some(options))).await {
                Ok(_) => return Ok(()),
                Err(failure) => match failure.of_page() {
                    PageFailure::Compacted => return Ok(()),
                    other => refused = Some(other.into_ledger_error()),
                },
            }
        }
        Err(refused.unwrap_or_else(members::nobody))
    }
}

impl Ledger for EtcdLedger {
    fn commit(&self, transaction: Transaction) -> BoxFuture<'_, Result<Outcome, LedgerError>> {
        Box::pin(self.commit_transaction(transaction))
    }

    fn read<'a>(&'a self, prefix: &'a str) -> BoxFuture<'a, Result<Snapshot, LedgerError>> {
        Box::pin(self.read_snapshot(prefix))
    }

    fn forget(&self, revision: i64) -> BoxFuture<'_, Result<(), LedgerError>> {
        Box::pin(self.compact(revision))
    }

    fn room(&self) -> BoxFuture<'_, Result<Option<Room>, LedgerError>> {
        Box::pin(room::room(&self.members, &self.timing, self.quota_bytes))
    }

    fn watch(&self, after: i64) -> BoxStream<'_, Result<Watched, LedgerError>> {
        watching::watch(&self.members, &self.root, &self.timing, after)
    }
}

fn revision_of(header: Option<&etcd_client::ResponseHeader>) -> Result<i64, LedgerError> {
    header
        .map(etcd_client::ResponseHeader::revision)
        .filter(|revision| *revision > 0)
        .ok_or_else(|| LedgerError::Protocol { what: "an answer that names no commit".to_owned() })
}

/// The first key after all that begin so. What it is made from is UTF-8 and not empty: its last byte can be counted up.
fn end_of_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    end
}
