//! Journals and copies of journals in which nothing is left: each node wipes its own, and says how far.
//!
//! A journal holds wrapped keys ([`crate::journal`]), and so do the copies that other nodes keep of it. A key that is
//! destroyed is gone from them once each node has said so:
//! ```text
//!  wiped/KMA          at commit R this node's own journal was empty; it ends with that record. Nothing from before can be sent to anybody
//!                     from the commit on that put this there
//!  wiped-copies/KMA   at commit R the copies that this node keeps were empty, but for those that are named, each with the commit at which it was
//! ```
//! The order counts: a copy that was empty before its journal was may have been filled again since. So a statement of
//! copies counts from the statement of each journal on, and for a node that was removed from its removal on: after that
//! nobody takes anything from it.
//!
//! **When a copy may go.** A living node's, once that node has said that its journal is empty, which the ledger has all
//! of, at the copy's last record or behind it, and every key of the copy is on record as well, for the same volume: a
//! node that was brought back from an old disk speaks of another journal of the same name. A removed node's, once this
//! node has said it to the ledger.
//!
//! Nothing is said as long as no key is destroyed, but where a journal ends that was used.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use capstan_format::KeyTag;
use capstan_keys::Name;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::Service;
use super::peers::{Copies, HeldCopy};
use crate::desk::{Decided, Operation};
use crate::destruction::{CopiesWiped, JournalWiped};
use crate::node::{DoubtKind, JournalSaid, Node, NodeError, journals_said};
use crate::path::Path;
use crate::state::View;

/// Of many keys that are destroyed one after the other each would be a statement of each node.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// How often copies are looked through unasked.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// `wiped/KMA`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct OwnJournal {
    revision: i64,
    sequence: u64,
    end: String,
}

/// `wiped-copies/KMA`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
struct KeptCopies {
    revision: i64,
    left: BTreeMap<Name, i64>,
}

impl KeptCopies {
    fn of(&self, kma: &Name) -> i64 {
        self.left.get(kma).copied().unwrap_or(self.revision)
    }
}

/// What a node does about that, since its start.
#[derive(Default)]
pub(super) struct Wiped {
    said: Option<Instant>,
    looked: Option<Instant>,
    waits: Arc<Mutex<Waits>>,
}

/// What the log was told of each copy that stays and may be in order.
type Waits = BTreeMap<Name, String>;

impl Wiped {
    /// Wipes what may go, and says how far that is, if anybody waits for it. In touch with the majority.
    pub(super) async fn settle(&mut self, service: &Service, node: &Arc<Node>) -> Result<(), NodeError> {
        if node.removal().is_some() || self.said.is_some_and(|said| said.elapsed() < SAY_EVERY) {
            return Ok(());
        }
        let said_own = say_own(service, node).await?;
        let (due, known) = node.view(|view| (copies_due(view), kept_copies(view, node.name()).unwrap_or_default()));
        let overdue = self.looked.is_none_or(|looked| looked.elapsed() >= LOOK_EVERY);
        if known.revision >= due && !overdue {
            self.said = said_own.then(Instant::now).or(self.said);
            return Ok(());
        }
        self.looked = Some(Instant::now());
        let said_copies = self.say_copies(service, node, &known, due).await?;
        if said_own || said_copies {
            self.said = Some(Instant::now());
        }
        Ok(())
    }

    /// Wipes the copies that may go, and says which are left. Whether it had to be said.
    async fn say_copies(
        &self,
        service: &Service,
        node: &Arc<Node>,
        known: &KeptCopies,
        due: i64,
    ) -> Result<bool, NodeError> {
        let copies = service.copies.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(copies) = copies else { return Ok(false) };
        let revision = node.progress().borrow().applied;
        let (at_work, waits) = (node.clone(), self.waits.clone());
        let looked = tokio::task::spawn_blocking(move || look_through(&at_work, &copies, &waits)).await;
        let left = match looked {
            Ok(Ok(left)) => left,
            Ok(Err(error)) => {
                tracing::warn!(%error, "the folder of copies of journals cannot be read");
                return Ok(false);
            }
            Err(_) => return Ok(false),
        };
        let left: BTreeMap<Name, i64> = left.into_iter().map(|kma| (kma.clone(), known.of(&kma))).collect();
        let is_cleaner = known.left.keys().any(|kma| !left.contains_key(kma));
        if revision < due || known.revision >= due && !is_cleaner {
            return Ok(false);
        }
        say(node, copies_path(node.name()), &KeptCopies { revision, left }).await?;
        Ok(true)
    }
}

/// Says where this node's own journal ends, and that nothing is left in it. Whether it had to be said.
async fn say_own(service: &Service, node: &Arc<Node>) -> Result<bool, NodeError> {
    // Before anything is looked at: what was destroyed by then is in none of what is empty now.
    let revision = node.progress().borrow().applied;
    let (known, destroyed) =
        node.view(|view| (own_journal(view, node.name()).unwrap_or_default(), view.ledger().keys_destroyed()));
    let Some((sequence, end)) = node.wiped_journal().await? else { return Ok(false) };
    let is_due = known.revision < destroyed && destroyed <= revision;
    if !is_due && known.sequence == sequence {
        return Ok(false);
    }
    if !service.backups.holds_nothing_from_before(destroyed, node.now_ns()) {
        return Ok(false);
    }
    say(node, own_path(node.name()), &OwnJournal { revision, sequence, end }).await?;
    Ok(true)
}

/// Wipes the copies that may go. Gives those in which something is left.
fn look_through(node: &Node, copies: &Copies, waits: &Mutex<Waits>) -> std::io::Result<Vec<Name>> {
    for kma in copies.left()? {
        match copies.held_of(&kma, node.keys()) {
            Ok(Some(copy)) if may_go(node, &kma, &copy, waits) => {
                if let Err(error) = copies.wipe(&kma, copy.sequence) {
                    tracing::warn!(%kma, %error, "the copy of that node's journal is not wiped");
                }
            }
            Ok(Some(_))
                if node
                    .view(|view| !view.ledger().kmas().contains_key(&kma) && view.ledger().removed(&kma).is_none()) =>
            {
                node.doubt(DoubtKind::Journal, format!(
                    "{} keeps a copy of the journal of {kma}, which is no node of this cluster: stop {} and `shred -u` journal/copies/{kma}",
                    node.name(),
                    node.name()
                ));
            }
            Ok(_) => {}
            Err(error) => {
                node.doubt(
                    DoubtKind::Journal,
                    format!("the copy of {kma}'s journal that {} keeps is not believed: {error}", node.name()),
                );
            }
        }
    }
    copies.left()
}

/// Whether a copy may go. A doubt that comes up is noted.
fn may_go(node: &Node, kma: &Name, copy: &HeldCopy, waits: &Mutex<Waits>) -> bool {
    match node.view(|view| judge(view, node.name(), kma, copy)) {
        Verdict::Goes => true,
        Verdict::Stays => false,
        Verdict::Waits(words) => {
            let mut waits = waits.lock().unwrap_or_else(PoisonError::into_inner);
            if waits.get(kma) != Some(&words) {
                tracing::warn!("{words}");
                waits.insert(kma.clone(), words);
            }
            false
        }
        Verdict::Doubted(kind, words) => {
            node.doubt(kind, words);
            false
        }
    }
}

/// What is to become of a copy.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// The ledger has all that it holds.
    Goes,
    /// Whose journal it is has not said enough yet.
    Stays,
    /// It holds something that the ledger contradicts or lacks: it stays until somebody has looked at it.
    Doubted(DoubtKind, String),
    /// It stays, and may be that of a node that gives keys out at this moment: no doubt, and said in the log, for
    /// certificates wait for it.
    Waits(String),
}

fn judge(view: View<'_>, holder: &Name, kma: &Name, copy: &HeldCopy) -> Verdict {
    if view.ledger().removed(kma).is_some() {
        let said = journals_said(view.ledger(), kma).into_iter().find(|(by, _)| *by == holder.as_str());
        let is_it = |said: &JournalSaid| (said.sequence, &said.end) == (copy.sequence, &copy.end);
        return if said.is_some_and(|(_, said)| is_it(&said)) { Verdict::Goes } else { Verdict::Stays };
    }
    let own = own_journal(view, kma).filter(|_| view.ledger().kmas().contains_key(kma));
    let Some(own) = own else { return Verdict::Stays };
    let given_out = || {
        copy.noted.iter().flat_map(|noted| &noted.asked).filter_map(|asked| match &asked.operation {
            Operation::Adopt(adopted) => Some((adopted, view.ledger().key(&adopted.tag))),
            _ => None,
        })
    };
    // A node that was put back and drew the same key again has a longer journal by now: that the key is on record says
    // nothing of this volume.
    let twice = given_out().find_map(|(adopted, known)| {
        let owner = &known?.stored.record.volser;
        (*owner != adopted.volser).then_some((adopted, owner))
    });
    if let Some((adopted, owner)) = twice {
        let words = format!(
            "node {kma} gave out key {0} for volume {1} while it was cut off, but the key belongs to volume {owner}: \
             {kma} was brought back from an old disk. Write the data of volume {1} again, under another key; then stop \
             {holder} and `shred -u` its journal/copies/{kma}, which shows this. Until then certificates of \
             destruction wait",
            adopted.tag, adopted.volser
        );
        return Verdict::Doubted(DoubtKind::Conflict, words);
    }
    let unknown = given_out().find(|(_, known)| known.is_none()).map(|(adopted, _)| adopted.tag);
    if copy.sequence > own.sequence {
        return longer(view, holder, kma, copy, &own, unknown);
    }
    let ends_elsewhere = copy.sequence == own.sequence && copy.end != own.end;
    let missing = unknown
        .map(|tag| format!("it gave out key {tag}"))
        .or(ends_elsewhere.then(|| "it ends with another record".to_owned()));
    let Some(missing) = missing else { return Verdict::Goes };
    let words = format!(
        "{holder} has a copy of another journal of {kma} than {kma} has itself, and the ledger does not have it: {missing}. That node was \
         brought back from an old disk. Keep journal/copies/{kma}, and see what was written under that key"
    );
    Verdict::Doubted(DoubtKind::Journal, words)
}

/// A copy that goes on behind what its node has said: that node is cut off and gives keys out, or it has lost its disk
/// and begun another journal.
fn longer(
    view: View<'_>,
    holder: &Name,
    kma: &Name,
    copy: &HeldCopy,
    own: &OwnJournal,
    unknown: Option<KeyTag>,
) -> Verdict {
    let destroyed = view.ledger().keys_destroyed();
    // Of what a node gives out now, the copy was empty since the node said so, or else the node has more to say for
    // what is destroyed.
    let emptied = kept_copies(view, holder).unwrap_or_default().of(kma);
    if destroyed == 0 || own.revision < destroyed || emptied >= from_when(view, kma) {
        return Verdict::Stays;
    }
    let first = match unknown {
        None => "the ledger has every key that the copy names, so".to_owned(),
        Some(tag) => format!("see what was written under key {tag}, which the ledger does not have; then"),
    };
    let words = format!(
        "{holder} has a copy of the journal of {kma} up to record {}, and {kma} said to the ledger that its own ends with record {}: unless {kma} \
         is cut off just now, it has lost its disk and begun another. Certificates of destruction wait for that copy. Start {kma} again while \
         it reaches {holder}: it takes its journal back. If the copy still stays, {first} stop {holder} and `shred -u` journal/copies/{kma}",
        copy.sequence, own.sequence
    );
    Verdict::Waits(words)
}

async fn say<T: Serialize>(node: &Node, path: Path, said: &T) -> Result<(), NodeError> {
    let bytes = serde_json::to_vec(said).unwrap_or_default();
    node.change(|_| Ok::<_, NodeError>(Decided::records(vec![(path.clone(), bytes.clone())], Vec::new()))).await
}

fn own_path(kma: &Name) -> Path {
    Path::Other(format!("wiped/{kma}"))
}

fn copies_path(kma: &Name) -> Path {
    Path::Other(format!("wiped-copies/{kma}"))
}

fn read<T: DeserializeOwned>(view: View<'_>, path: &Path) -> Option<T> {
    serde_json::from_slice(view.ledger().other(&path.to_string())?).ok()
}

fn own_journal(view: View<'_>, kma: &Name) -> Option<OwnJournal> {
    read(view, &own_path(kma))
}

fn kept_copies(view: View<'_>, kma: &Name) -> Option<KeptCopies> {
    read(view, &copies_path(kma))
}

/// From which commit on nobody takes anything of a node's journal from before its last statement.
fn from_when(view: View<'_>, kma: &Name) -> i64 {
    match view.ledger().removed(kma) {
        Some(_) => view.ledger().mark(&Path::removed(kma)).revision,
        None => view.ledger().mark(&own_path(kma)).revision,
    }
}

/// The commit at which copies must have been empty for what is destroyed so far; 0 if nobody waits for that.
fn copies_due(view: View<'_>) -> i64 {
    let destroyed = view.ledger().keys_destroyed();
    if destroyed == 0 {
        return 0;
    }
    let kmas = view.ledger().kmas().keys().cloned().chain(view.ledger().removed_kmas());
    kmas.map(|kma| from_when(view, &kma)).chain([destroyed]).max().unwrap_or(0)
}

/// What each node has said of its journal.
pub(super) fn journals_wiped(view: View<'_>) -> Vec<JournalWiped> {
    let said = |kma: &Name| JournalWiped { kma: kma.clone(), at: own_journal_empty_at(view, kma) };
    view.ledger().kmas().keys().map(said).collect()
}

/// The commit at which a node has said that its own journal was empty; 0 if it never has.
pub(super) fn own_journal_empty_at(view: View<'_>, kma: &Name) -> i64 {
    own_journal(view, kma).map_or(0, |own| own.revision)
}

/// What each node has said of the copies that it keeps.
pub(super) fn copies_wiped(view: View<'_>) -> Vec<CopiesWiped> {
    view.ledger().kmas().keys().flat_map(|kma| copies_wiped_by(view, kma)).collect()
}

fn copies_wiped_by(view: View<'_>, kept_by: &Name) -> Vec<CopiesWiped> {
    let said = kept_copies(view, kept_by).unwrap_or_default();
    let known = view.ledger().kmas().keys().cloned().chain(view.ledger().removed_kmas());
    // A copy may be of a node that this cluster does not know: of an earlier epoch.
    let mut of: Vec<Name> = known.chain(said.left.keys().cloned()).filter(|kma| kma != kept_by).collect();
    of.sort();
    of.dedup();
    let copy = |of: Name| CopiesWiped { kept_by: kept_by.clone(), at: said.of(&of), from: from_when(view, &of), of };
    of.into_iter().map(copy).collect()
}

/// The last commit up to which no journal on a node's disk can hold a key that was destroyed; 0 if that is not known.
pub(super) fn wiped_up_to(view: View<'_>, kma: &Name) -> i64 {
    let copies = copies_wiped_by(view, kma);
    let copies = copies.iter().map(|copy| if copy.at >= copy.from { copy.at } else { 0 });
    copies.chain([own_journal_empty_at(view, kma)]).min().unwrap_or(0)
}

#[cfg(test)]
mod tests;
