//! Unlocking: shares of the root key, over the network by people of the cluster, or here by whoever has the state
//! directory.
//!
//! Users enrol with a node that is unlocked, and a node is unlocked by people: so the first time, and whenever nobody's
//! certificate is at hand, it is done on the node itself, through a socket in its state directory that is its owner's
//! alone. One line of JSON each way.

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, PoisonError};

use capstan_keys::Name;
use capstan_keys::api::Problem;
use capstan_service::audit::{AuditAction, AuditActor, AuditEntry, AuditOrigin, AuditOutcome};
use capstan_service::problem::Refusal;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use zeroize::Zeroizing;

use super::Service;
use super::phase::Phase;
use super::reenrol::Reenrol;
use super::shares::{GivenShare, TokenPin};
use crate::node::Node;
use crate::replica::PackedRecords;
use crate::root::{ClusterKeys, Existing, Opens, Pin, RootError, SealedRoot, Token, UnlockingStage};

pub(super) const UNLOCK: AuditAction = AuditAction::named("unlock");
/// Longest line: names and passphrases of as many holders as there can be.
const LINE_LEN_MAX: u64 = 64 << 10;

/// What opens a node, or a part of it.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
pub enum Opener {
    /// What the holders want of a node that is open: that somebody enrols anew.
    Reenrol(Reenrol),
    /// One holder's share.
    Share(GivenShare),
    /// The PIN of its token.
    Token(TokenPin),
}

impl Service {
    /// Opens the node with its token.
    pub(super) async fn give_pin(self: &Arc<Self>, pin: Pin) -> Result<Value, Refusal> {
        let refused = |detail: String| Problem::new(403, "not-unlocked", "The token does not open", detail);
        let (Some(token), Opens::Token { label }) = (self.settings.token.clone(), self.sealed_root().opens()) else {
            return Err(
                refused("This node has no token: its holders unlock it (`keyd unlock --holder`).".to_owned()).into()
            );
        };
        let service = self.clone();
        // A token takes its time.
        let opened = tokio::task::spawn_blocking(move || {
            let token = Token::open(&token.module, &label, &pin).map_err(|error| error.to_string())?;
            service.sealed_root().open_with_token(&token).map_err(|error| error.to_string())
        });
        let keys = opened.await.map_err(|_| Refusal::failed())?.map_err(refused)?;
        self.note(AuditEntry::new(AuditActor::Nobody, AuditOrigin::Here, UNLOCK).of("holder", "token")).await?;
        self.admit(keys).await?;
        self.unlocked_by_holders();
        Ok(said(self.gate.lock().await.status()))
    }

    /// Opens the node with keys that no holder has given.
    pub(super) async fn admit(self: &Arc<Self>, keys: ClusterKeys) -> Result<(), Refusal> {
        let keys = {
            let mut gate = self.gate.lock().await;
            gate.admit(keys);
            gate.keys()
        };
        self.open_with(keys).await
    }

    /// Locks the node for as long as its holders do not open it: now, and over each start.
    ///
    /// It gives nothing out from here on, whatever its disk is like: where that does not take note, the node stays
    /// locked as it is, and an error says that it is for now alone.
    pub(super) async fn lock_at_once(&self, by: &Name, noted: AuditEntry) -> io::Result<()> {
        let unlocking = self.unlocking.lock().await;
        self.gate.lock().await.lock();
        *self.phase.write().unwrap_or_else(PoisonError::into_inner) = Phase::Locked(PackedRecords::default());
        *self.copies.lock().unwrap_or_else(PoisonError::into_inner) = None;
        if let Err(Refusal(problem)) = self.note(noted).await {
            tracing::error!(%by, %problem, "this node is locked, and its audit log does not say so");
        }
        let now = Timestamp::from_nanosecond(i128::from((self.clock)())).unwrap_or_default();
        mark(&self.opening.locked, &format!("{by} on {now:.0}"))?;
        // Held until this process is gone: a share that was given to it would be lost with it.
        std::mem::forget(unlocking);
        tracing::warn!(%by, "locked: this node begins anew, and waits for its holders");
        self.locking.notify_one();
        Ok(())
    }

    /// Who has locked the node, and when, where somebody has.
    pub(super) fn locked_by_person(&self) -> Option<String> {
        std::fs::read_to_string(&self.opening.locked).ok()
    }

    /// Holders have opened what a person had locked.
    fn unlocked_by_holders(&self) {
        match std::fs::remove_file(&self.opening.locked) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, "that this node was locked is still on its disk: it does not unlock itself");
            }
            _ => {}
        }
    }

    /// Takes over onto this node's disk what the quorum has put the root key under.
    pub(super) fn take_root_over(&self, node: &Node) -> Result<(), RootError> {
        let path = crate::path::Path::root_key().to_string();
        let said = node.view(|view| view.ledger().other(&path).map(SealedRoot::decode));
        let Some(Ok(new)) = said else { return Ok(()) };
        let known = self.sealed_root();
        // One of an earlier epoch is what the cluster was restored from.
        if new == *known || new.check_of(node.keys(), self.settings.epoch).is_err() {
            return Ok(());
        }
        new.write(&self.opening.root, Existing::Replaced)?;
        tracing::info!(opens = ?new.opens(), "the root key is under other holders");
        *self.sealed_root.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new);
        Ok(())
    }

    /// Opens the node with the keys that the gate gave, if it gave any.
    async fn open_with(self: &Arc<Self>, keys: Option<Arc<ClusterKeys>>) -> Result<(), Refusal> {
        let Some(keys) = keys else { return Ok(()) };
        let service = self.clone();
        let opened = tokio::task::spawn_blocking(move || service.open(keys)).await.map_err(|_| Refusal::failed())?;
        opened.map_err(|error| {
            tracing::error!(error = format!("{error:#}"), "the node cannot be opened");
            Refusal::unready(format!("The root key opens, and the node does not start: {error:#}."))
        })
    }

    /// Takes a holder's share, and opens the node with the last one.
    pub(super) async fn give_share(self: &Arc<Self>, noted: AuditEntry, asked: GivenShare) -> Result<Value, Refusal> {
        // One guess at a time, wherever it comes from: each costs the memory of its derivation.
        let _turn = self.unlocking.lock().await;
        let noted = noted.of("holder", &asked.holder);
        let opened = {
            let service = self.clone();
            // A second or so of Argon2.
            tokio::task::spawn_blocking(move || service.sealed_root().open_share(&asked.holder, &asked.passphrase))
                .await
        };
        let refused =
            |error: RootError| Problem::new(403, "not-unlocked", "The share does not open", error.to_string());
        let share = match opened.map_err(|_| Refusal::failed())? {
            Ok(share) => share,
            Err(error) => {
                self.note(noted.came_to(AuditOutcome::Refused { why: "the share did not open".into() })).await?;
                return Err(refused(error).into());
            }
        };
        // A share that is not needed is looked at all the same: whoever tries their passphrase is to learn whether it
        // is right.
        if self.open_node().is_some() {
            return Ok(said(UnlockingStage::Unlocked));
        }
        self.note(noted).await?;
        let (status, keys) = {
            let mut gate = self.gate.lock().await;
            let status = gate.give(&self.sealed_root(), share, (self.clock)()).map_err(refused)?;
            (status, gate.keys())
        };
        if keys.is_some() {
            self.open_with(keys).await?;
            self.unlocked_by_holders();
        }
        Ok(said(status))
    }
}

fn mark(path: &Path, said: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(path)?;
    let written = file.write_all(said.as_bytes()).and_then(|()| file.sync_all());
    // One that says nothing would keep the node from unlocking itself, and nobody would know why.
    written.inspect_err(|_| drop(std::fs::remove_file(path)))
}

/// Where a node stands, in JSON.
pub(super) fn said(status: UnlockingStage) -> Value {
    match status {
        UnlockingStage::Locked => json!({"state": "locked"}),
        UnlockingStage::Unlocking { given, threshold } => {
            json!({"state": "unlocking", "given": given, "needed": threshold})
        }
        UnlockingStage::Unlocked => json!({"state": "unlocked"}),
    }
}

/// Makes the socket of the state directory.
pub(super) fn listen_here(socket: &Path) -> io::Result<UnixListener> {
    // What a killed node left behind; the replica's lock says that no other runs.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Serves it.
pub(super) async fn serve_here(service: &Arc<Service>, listener: UnixListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            if let Err(error) = converse(&service, stream).await {
                tracing::debug!(%error, "the socket of the state directory");
            }
        });
    }
}

async fn converse(service: &Arc<Service>, stream: UnixStream) -> io::Result<()> {
    let (read, mut write) = stream.into_split();
    let mut line = Zeroizing::new(Vec::new());
    BufReader::new(read.take(LINE_LEN_MAX)).read_until(b'\n', &mut line).await?;
    let answer = match serde_json::from_slice::<Opener>(&line) {
        Ok(Opener::Reenrol(asked)) => service.reenrol(asked).await.map(|opened| json!(opened)),
        Ok(Opener::Share(asked)) => {
            service.give_share(AuditEntry::new(AuditActor::Nobody, AuditOrigin::Here, UNLOCK), asked).await
        }
        Ok(Opener::Token(TokenPin { pin })) => service.give_pin(Pin::new(&pin)).await,
        Err(error) => Err(Refusal::malformed(error.to_string())),
    };
    let answer = answer.unwrap_or_else(|Refusal(problem)| json!({"refused": *problem}));
    write.write_all(format!("{answer}\n").as_bytes()).await
}
