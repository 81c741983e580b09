//! An agent that asks something: what it may use, what is noted of it, and how it is given a key.

use std::sync::Arc;
use std::time::Instant;

use axum::Json;
use capstan_format::{KeyTag, MediumSerial, Volser};
use capstan_keys::api::{Base64, KeyGiven, RequestId};
use capstan_keys::{Name, VolumeKey, api, cluster::hand_over};
use capstan_service::audit::{AuditAction, AuditEntry, AuditOutcome};
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::Refusal;

use super::person::came_to_nothing;
use super::{Service, entry};
use crate::desk::{Answer, DeskError, Operation, recovered};
use crate::node::{MajorityContact, Node, NodeError};
use crate::record::{IssuedRecord, unconfirmed_group};

const CLAIM: AuditAction = AuditAction::named("key-of-lost-node-on-record");
pub(super) const READ: AuditAction = AuditAction::named("key-to-read");

/// An agent that asks something.
#[derive(Clone)]
pub(super) struct Asking {
    pub(super) service: Arc<Service>,
    pub(super) node: Arc<Node>,
    pub(super) peer: Peer,
    pub(super) from: RemoteAddress,
    pub(super) request: RequestId,
}

/// A cartridge that has the barcode of a volume, and is not the one that the volume is known to be on.
#[derive(Clone, Copy)]
pub(super) struct Another {
    pub(super) found: MediumSerial,
    own: MediumSerial,
}

impl Another {
    pub(super) fn noted(self, entry: AuditEntry, warning: &'static str) -> AuditEntry {
        entry.with("warning", warning).with("cartridge", &self.found).with("known-cartridge", &self.own)
    }
}

/// The drive that a key is for.
pub(super) struct Drive {
    pub(super) name: Name,
    /// Its public key for this request.
    pub(super) public: Base64,
    pub(super) another: Option<Another>,
}

impl Asking {
    pub(super) fn name(&self) -> &Name {
        &self.peer.id.name
    }

    /// A refusal is noted, up to some a minute: whoever has a stolen drive tries what it opens.
    pub(super) async fn noting<T>(
        &self,
        noted: AuditEntry,
        deed: impl Future<Output = Result<T, Refusal>>,
    ) -> Result<T, Refusal> {
        let done = deed.await;
        let Err(Refusal(problem)) = &done else { return done };
        let outcome = came_to_nothing(problem);
        if let AuditOutcome::Refused { .. } = outcome
            && let Some(left_out) = self.service.refusals.next(self.name(), Instant::now())
        {
            let noted = noted.came_to(outcome);
            let noted = if left_out == 0 { noted } else { noted.with("left-out", left_out) };
            // It is refused whether that can be noted or not.
            let _ = self.service.note(noted).await;
        }
        done
    }

    pub(super) fn entry(&self, action: AuditAction) -> AuditEntry {
        entry(&self.peer, self.from, action)
    }

    /// Who reports something of a volume may use its keys: of one that is named, or of all that it holds.
    pub(super) fn check_groups(&self, volser: &Volser, key: Option<&KeyTag>) -> Result<(), Refusal> {
        self.node.view(|view| {
            let agent = view.ledger().realm().agent(self.name());
            let held = view.unit(volser).into_iter().flat_map(|unit| &unit.keys).filter(|issued| match key {
                Some(key) => issued.tag == *key,
                None => issued.dropped_ns.is_none(),
            });
            match held.map(|issued| &issued.group).find(|group| !agent.may_use(group)) {
                Some(group) => Err(Refusal::forbidden(format!("{} may not use keys of group {group}.", agent.name))),
                None => Ok(()),
            }
        })
    }

    /// The cartridge that the drive tells of, where it is another one than the volume's own.
    pub(super) fn another(&self, volser: &Volser, serial: Option<MediumSerial>) -> Option<Another> {
        let own = self.node.view(|view| view.unit(volser)?.cartridges.differs(serial.as_ref()).copied())?;
        Some(Another { found: serial?, own })
    }

    /// Gives a key that was committed, or noted in the journal: once the audit log has it as well.
    pub(super) async fn give(
        &self,
        action: AuditAction,
        drive: &Drive,
        record: &IssuedRecord,
        key: &VolumeKey,
        standing: MajorityContact,
    ) -> Result<Json<KeyGiven>, Refusal> {
        let mut noted = entry(&self.peer, self.from, action)
            .of("key", record.stored.record.tag)
            .with("volume", record.volser())
            .with("drive", &drive.name);
        match drive.another {
            Some(another) => noted = another.noted(noted, "another cartridge has the barcode of this volume"),
            None if action == READ => noted = noted.reading(),
            None => {}
        }
        if standing != MajorityContact::Current {
            noted = noted.with("cut-off", "yes");
        }
        self.service.note(noted).await?;
        let handed_over = hand_over(key, &drive.public, &self.peer.id, &self.request)
            .map_err(|error| Refusal::malformed(format!("The public key of the request is none: {error}")))?;
        Ok(Json(KeyGiven {
            key: record.stored.record.tag,
            algorithm: record.stored.record.algorithm,
            group: record.issued.group.clone(),
            handed_over,
            standing: said(standing),
        }))
    }

    /// A volume names a key that a lost node may have given out: from here on it is on record. It is given to nobody
    /// before an officer has confirmed of which group it is.
    pub(super) async fn claim(&self, volser: &Volser, tag: KeyTag) -> Result<(), Refusal> {
        if self.node.view(|view| recovered(view.ledger(), &tag).is_none()) {
            return Ok(());
        }
        let noted = self.entry(CLAIM).of("key", tag).with("volume", volser);
        let (_, group_key) = self
            .node
            .keys()
            .new_group_key(&unconfirmed_group())
            .map_err(|error| NodeError::from(DeskError::from(error)))?;
        let operation = Operation::Claim { volser: volser.clone(), tag, group_key };
        self.node.ask(operation, self.name(), self.request.0).await?;
        self.service.note(noted).await
    }

    pub(super) async fn issued(
        &self,
        action: AuditAction,
        drive: &Drive,
        operation: Operation,
    ) -> Result<Json<KeyGiven>, Refusal> {
        let answered = self.node.ask(operation, self.name(), self.request.0).await?;
        let Answer::Key(record) = answered.answer else { return Err(Refusal::failed()) };
        let key = self.node.open(&record)?;
        self.give(action, drive, &record, &key, answered.standing).await
    }
}

fn said(standing: MajorityContact) -> api::Standing {
    match standing {
        MajorityContact::Current => api::Standing::Current,
        MajorityContact::Alone { .. } => api::Standing::CutOff,
    }
}
