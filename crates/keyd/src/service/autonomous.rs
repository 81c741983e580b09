//! Nodes that unlock themselves: because the quorum lets them, or because somebody has left a token's PIN with them.
//!
//! ```text
//!  autonomous/KMA  {allowed, by, request, epoch, since}           in the ledger, as the quorum has approved it
//!        | read by the node, unlocked, in touch with the majority
//!        v
//!  autonomous.sealed, autonomous.key                              on its disk, made and destroyed by itself ([`OwnUnlock`])
//!        | at the next start
//!        v
//!  the majority is heard; the keys open; the record is read with them; allowed, by this very request, in this epoch, for a node of the cluster?
//!        |-- yes: unlocked, and noted                             `-- no: what it made is destroyed, it stays locked, and that is noted
//! ```
//! **It asks the majority first**, because what lies on its disk may be old: the disk of a node that was removed, a
//! copy from before a restore or from before the quorum took it back. So a node that is started cut off waits for its
//! holders, and that is the price. It does not help against somebody who takes the files apart without this program:
//! docs/KEYS.md says what does.
//!
//! **A PIN file** (`[token] pin_file` in keyd.toml) is another way round, and no quorum is asked: whoever may write the
//! state directory, has the token and knows its PIN, could unlock the node as well by hand. It is said by
//! `keyd status`, in the log of the system and in the audit log.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_keys::Name;
use capstan_service::audit::{AuditAction, AuditEntry, AuditFact, AuditOutcome};
use capstan_service::problem::Refusal;
use serde::{Deserialize, Serialize};

use super::request_id::id_of;
use super::{Service, StateDirectory};
use crate::authority::PendingId;
use crate::node::Node;
use crate::path::Path;
use crate::root::{ClusterKeys, OnMachine, OwnUnlock, Pin, RootError};
use crate::seal::SealedContent;
use crate::state::View;

const UNLOCKED: AuditAction = AuditAction::named("unlock-by-itself");
const MADE: AuditAction = AuditAction::named("autonomous-unlock-made");
const DESTROYED: AuditAction = AuditAction::named("autonomous-unlock-destroyed");
/// How often it looks whether the majority was heard.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it waits after the files could not be made or destroyed: somebody has to plug a stick in.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Whether a node may unlock itself: `autonomous/NAME`. It is never removed, so that what was put back is seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AutonomousRecord {
    /// Whether it may.
    pub(super) allowed: bool,
    /// Who asked for that.
    pub(super) by: Name,
    /// The request that was approved.
    pub(super) request: String,
    /// The epoch in which that was: it says nothing in another.
    pub(super) epoch: u32,
    /// Since when, in nanoseconds since 1970.
    pub(super) since_ns: i64,
}

impl AutonomousRecord {
    pub(super) fn path(kma: &Name) -> Path {
        Path::Other(format!("autonomous/{kma}"))
    }

    /// What is said of a node in this epoch.
    pub(super) fn of(view: View<'_>, kma: &Name, epoch: u32) -> Option<Self> {
        let bytes = view.ledger().other(&Self::path(kma).to_string())?;
        serde_json::from_slice(bytes).ok().filter(|record: &Self| record.epoch == epoch)
    }

    fn allows(&self, request: PendingId, epoch: u32) -> bool {
        self.allowed && self.epoch == epoch && self.request == request.to_string()
    }
}

/// Where a node has what it unlocks itself with.
pub(super) struct OwnFiles {
    sealed: PathBuf,
    key: PathBuf,
    /// The key file has the name that this program gives it: nobody else's is there.
    key_is_ours: bool,
}

impl OwnFiles {
    /// Beside everything else, or the key where keyd.toml says.
    pub(super) fn of(directory: &StateDirectory, key: Option<PathBuf>) -> Self {
        let (sealed, key_is_ours) = (directory.file("autonomous.sealed"), key.is_none());
        Self { sealed, key: key.unwrap_or(directory.file("autonomous.key")), key_is_ours }
    }

    fn read(&self) -> Result<Option<OwnUnlock>, RootError> {
        OwnUnlock::read(&self.sealed)
    }

    /// Whether the files are there: told of a node that is locked as well.
    pub(super) fn are_there(&self) -> bool {
        self.sealed.exists() && self.key.exists()
    }

    /// Destroys what was found, and the key file if this program made it.
    fn destroy(&self, found: Option<&OwnUnlock>) -> Result<(), RootError> {
        let made = self.key_is_ours || found.is_some_and(OwnUnlock::made_key_file);
        if !made {
            tracing::warn!(key_file = %self.key.display(), "the key file was there before, or nobody knows who made it: it stays");
        }
        OwnUnlock::destroy(&self.sealed, made.then_some(&*self.key))
    }
}

/// The node keeps its files as the quorum has said; this is what it did last.
#[derive(Default)]
pub(super) struct Keeping {
    settled: Option<Wanted>,
    failed: Option<(Wanted, Instant)>,
}

/// The request by which a node has its files, if it has any.
type Wanted = Option<String>;

/// How often something has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Failed {
    First,
    Again,
}

impl Keeping {
    /// Makes the files or destroys them, where what the quorum said has changed. What fails is tried again once in a
    /// while, and said once.
    pub(super) async fn settle(&mut self, service: &Service, node: &Node) {
        let (name, epoch) = (service.name(), service.settings.epoch);
        let record = node.view(|view| AutonomousRecord::of(view, name, epoch)).filter(|record| record.allowed);
        let record = record.filter(|_| node.removal().is_none());
        let wanted = record.map(|record| record.request);
        if !self.is_due(&wanted, Instant::now()) {
            return;
        }
        let noted = self.next_failure(&wanted);
        match service.keep_own_files(node.keys(), wanted.as_deref(), noted).await {
            Ok(()) => self.settled = Some(wanted),
            Err(Refusal(problem)) => {
                if noted == Failed::First {
                    tracing::error!(
                        %problem, again_every = ?TRY_AGAIN_AFTER,
                        "what this node unlocks itself with is not as the quorum said"
                    );
                }
                self.failed = Some((wanted, Instant::now()));
            }
        }
    }

    fn is_due(&self, wanted: &Wanted, now: Instant) -> bool {
        let waits = |(failed, at): &(Wanted, Instant)| failed == wanted && now.duration_since(*at) < TRY_AGAIN_AFTER;
        self.settled.as_ref() != Some(wanted) && !self.failed.as_ref().is_some_and(waits)
    }

    /// Which failure it would be: an audit log is no place for one that nobody mends for days.
    fn next_failure(&self, wanted: &Wanted) -> Failed {
        match &self.failed {
            Some((failed, _)) if failed == wanted => Failed::Again,
            _ => Failed::First,
        }
    }
}

impl Service {
    async fn keep_own_files(&self, keys: &ClusterKeys, wanted: Option<&str>, failure: Failed) -> Result<(), Refusal> {
        let files = &self.own_files;
        let found = files.read();
        if found.as_ref().is_ok_and(|found| found.as_ref().map(|own| own.approved().to_string()).as_deref() == wanted) {
            return Ok(());
        }
        if !matches!(found, Ok(None)) {
            let destroyed = files.destroy(found.as_ref().ok().and_then(Option::as_ref));
            self.note_done(AuditEntry::own(DESTROYED).of("kma", self.name()), destroyed, failure).await?;
            tracing::info!("what this node unlocked itself with is destroyed");
        }
        let Some(request) = wanted.and_then(|request| id_of(request).ok()) else { return Ok(()) };
        let on = OnMachine::here(self.name().clone());
        let noted = AuditEntry::own(MADE).of("kma", self.name()).with("pending", request);
        let own = match OwnUnlock::make(keys, self.settings.epoch, request, &on, &files.key) {
            Ok(own) => own,
            Err(error) => return self.note_done(noted, Err(error), failure).await,
        };
        let written = own.write(&files.sealed);
        if let Err(refusal) = self.note_done(noted, written, failure).await {
            // Half of it, or what is not on record, does not stay.
            if let Err(error) = files.destroy(Some(&own)) {
                tracing::error!(%error, "what was begun to unlock this node with is still on its disk: destroy it");
            }
            return Err(refusal);
        }
        tracing::info!(key_file = %files.key.display(), "this node unlocks itself from its next start, as the quorum has approved");
        Ok(())
    }

    /// Notes what came of it, of its failures the first alone.
    async fn note_done(&self, noted: AuditEntry, done: Result<(), RootError>, failure: Failed) -> Result<(), Refusal> {
        let Err(error) = done else { return self.note(noted).await };
        if failure == Failed::First {
            let why = AuditFact::from("its files could not be written: the log of the node says why");
            self.note(noted.came_to(AuditOutcome::Failed { why })).await?;
        }
        Err(Refusal::unready(error.to_string()))
    }

    /// Opens the node with the PIN that was left with it. What does not open leaves it locked: tried at each start
    /// anew, a wrong PIN would end the token.
    pub(super) async fn unlock_with_pin_file(self: &Arc<Self>) {
        let Some(pin_file) = self.settings.token.as_ref().and_then(|token| token.pin_file.as_ref()) else { return };
        if let Some(by) = self.locked_by_person() {
            tracing::warn!(by, "this node was locked by a person and does not unlock itself: `keyd unlock --token`");
            return;
        }
        tracing::warn!(pin_file = %pin_file.display(), "this node unlocks itself with a PIN in a file, for which no quorum was asked");
        let opened = match Pin::read(pin_file) {
            Ok(pin) => self.give_pin(pin).await.map(drop).map_err(|Refusal(problem)| problem.detail),
            Err(error) => Err(error.to_string()),
        };
        if let Err(error) = opened {
            tracing::error!(error, "this node does not unlock itself with its PIN file: `keyd unlock --token`");
        }
    }

    /// Opens the node with what is on its disk, once the majority was heard and says that it may.
    pub(super) async fn unlock_by_itself(self: &Arc<Self>) {
        let own = match self.own_files.read() {
            Ok(Some(own)) => own,
            Ok(None) => return,
            Err(error) => {
                tracing::error!(%error, "this node does not unlock itself: its holders do (`keyd unlock`)");
                return;
            }
        };
        if let Some(by) = self.locked_by_person() {
            tracing::warn!(
                by,
                "this node was locked by a person and does not unlock itself: its holders do (`keyd unlock`)"
            );
            return;
        }
        while !self.majority_was_heard() {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let _turn = self.unlocking.lock().await;
        if self.open_node().is_some() {
            return;
        }
        let opened = {
            let service = self.clone();
            let approved = own.approved();
            tokio::task::spawn_blocking(move || service.allowed_by_record(&own).map(|keys| (keys, approved))).await
        };
        let noted = AuditEntry::own(UNLOCKED);
        let result = match opened {
            Ok(Ok((keys, approved))) => match self.note(noted.with("pending", approved)).await {
                Ok(()) => self.admit(keys).await,
                Err(refusal) => Err(refusal),
            },
            Ok(Err(NotByItself::Forbidden(why))) => {
                tracing::error!(why, "this node does not unlock itself any more: what it did so with is destroyed");
                let found = self.own_files.read().ok().flatten();
                if let Err(error) = self.own_files.destroy(found.as_ref()) {
                    tracing::error!(%error, "what this node unlocked itself with is still on its disk: destroy it");
                }
                self.note(noted.came_to(AuditOutcome::Refused { why: AuditFact::from(why) })).await
            }
            Ok(Err(NotByItself::Root(error))) => {
                tracing::error!(%error, "this node does not unlock itself: its holders do (`keyd unlock`)");
                let why = "what is on its disk does not open here";
                self.note(noted.came_to(AuditOutcome::Refused { why: AuditFact::from(why) })).await
            }
            Err(_) => Err(Refusal::failed()),
        };
        if let Err(Refusal(problem)) = result {
            tracing::error!(%problem, "this node does not unlock itself: its holders do (`keyd unlock`)");
        }
    }

    /// How this node is unlocked after a start, where it does so itself.
    pub(super) fn unlocks_itself(&self) -> Option<UnlocksItself> {
        if self.settings.token.as_ref().is_some_and(|token| token.pin_file.is_some()) {
            return Some(UnlocksItself::PinFile);
        }
        self.own_files.are_there().then_some(UnlocksItself::Quorum)
    }

    fn majority_was_heard(&self) -> bool {
        self.last_heard().by_this_process().is_some()
    }

    /// The keys, if the records of the cluster, which they open, say that this node may have them so.
    fn allowed_by_record(&self, own: &OwnUnlock) -> Result<ClusterKeys, NotByItself> {
        let (name, epoch) = (self.name(), self.settings.epoch);
        if self.opening.refused.exists() {
            return Err(NotByItself::Forbidden("another node has refused this one as removed"));
        }
        let keys = own.open(&OnMachine::here(name.clone()), &self.own_files.key)?;
        self.sealed_root().check_of(&keys, epoch)?;
        let Some(records) = self.locked_records() else { return Ok(keys) };
        let read = |path: Path| {
            let path = path.to_string();
            let mut all = records.parts().into_iter().flatten();
            let opened = keys.sealer().open(&path, all.find(|record| record.path == path)?.sealed).ok()?;
            (opened.content == SealedContent::Record && opened.epoch == epoch).then_some(opened.plaintext)
        };
        if read(Path::Kma(name.clone())).is_none() {
            return Err(NotByItself::Forbidden("the cluster knows no such node"));
        }
        let record = read(AutonomousRecord::path(name));
        let record: Option<AutonomousRecord> = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        match record.is_some_and(|record| record.allows(own.approved(), epoch)) {
            true => Ok(keys),
            false => Err(NotByItself::Forbidden("the quorum does not allow it, or took it back")),
        }
    }
}

/// By whose leave a node unlocks itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum UnlocksItself {
    /// The quorum's.
    Quorum,
    /// Nobody's: a PIN lies with it.
    PinFile,
}

/// Why a node does not unlock itself.
enum NotByItself {
    /// It may not: what it could do so with has no place on its disk.
    Forbidden(&'static str),
    /// It cannot.
    Root(RootError),
}

impl From<RootError> for NotByItself {
    fn from(error: RootError) -> Self {
        Self::Root(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The stick with the key file was not plugged in: five times a second an entry was made that said it was done.
    #[test]
    fn what_fails_waits_and_is_said_once_until_something_else_is_wanted() {
        let (on, off, now) = (Some("request".to_owned()), None, Instant::now());
        let mut keeping = Keeping::default();
        assert!(keeping.is_due(&on, now) && keeping.is_due(&off, now));
        assert_eq!(keeping.next_failure(&on), Failed::First);
        keeping.failed = Some((on.clone(), now));
        assert!(!keeping.is_due(&on, now + TRY_AGAIN_AFTER / 2));
        assert!(keeping.is_due(&on, now + TRY_AGAIN_AFTER));
        assert_eq!(keeping.next_failure(&on), Failed::Again);
        assert!(keeping.is_due(&off, now), "what is taken back is taken back at once");
        assert_eq!(keeping.next_failure(&off), Failed::First);
        keeping.settled = Some(on.clone());
        assert!(!keeping.is_due(&on, now + 2 * TRY_AGAIN_AFTER));
    }

    #[test]
    fn the_key_file_goes_with_the_other_only_if_this_node_made_it() -> Result<(), Box<dyn std::error::Error>> {
        let folder = tempfile::tempdir()?;
        let directory = StateDirectory::create(&folder.path().join("state"))?;
        let elsewhere = folder.path().join("stick.key");
        let named = OwnFiles::of(&directory, Some(elsewhere.clone()));
        let own = OwnFiles::of(&directory, None);
        for files in [&named, &own] {
            std::fs::write(&files.key, "key file")?;
            std::fs::write(&files.sealed, "damaged: nobody knows who made the key file")?;
            assert!(files.read().is_err() && files.are_there());
            files.destroy(None)?;
            assert!(!files.sealed.exists());
        }
        assert!(elsewhere.exists() && !own.key.exists());
        Ok(())
    }
}
