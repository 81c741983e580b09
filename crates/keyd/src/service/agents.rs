//! What agents ask: `/v1/keys/...`.

use std::sync::Arc;
use std::time::Instant;

use axum::extract::{Path, State};
use axum::{Extension, Json};
use capstan_format::{KeyTag, MediumSerial, Volser};
use capstan_keys::api::{
    ActivateKey, Activated, AppendVolume, Base64, BeginVolume, CartridgeListed, CartridgeSeenAs, EndVolume, KeyGiven,
    KeyOfVolume, KeyRevoked, KeyTagText, PeerKind, Problem, ReadVolume, RequestId, RevokeKey,
};
use capstan_keys::{DataUnit, Name, SeenAs, SeenCartridge, VolumeKey, api, cluster::hand_over};
use capstan_service::audit::{AuditAction, AuditEntry, AuditOutcome};
use capstan_service::identity::Peer;
use capstan_service::listener::RemoteAddress;
use capstan_service::problem::{Input, Refusal};
use jiff::Timestamp;

use super::access::{NodeRoutes, RouteAccess};
use super::person::came_to_nothing;
use super::registrar::certificate_path;
use super::{Service, entry};
use crate::desk::{Answer, DeskError, Operation, recovered};
use crate::node::{MajorityContact, Node, NodeError};
use crate::record::{IssuedRecord, unconfirmed_group};

/// The routes of agents.
pub(super) fn routes() -> NodeRoutes {
    let agent = |words| (RouteAccess::Agent, words);
    NodeRoutes::new()
        .post("/v1/keys/begin", agent("get a key to write a volume with from the beginning of tape"), begin)
        .post("/v1/keys/append", agent("get the key to append to a volume with"), append)
        .post("/v1/keys/read", agent("get a key to read a volume with"), read)
        .post("/v1/keys/activate", agent("say that the first block is about to be encrypted with a key"), activate)
        .post("/v1/keys/revoke", agent("take a key out of use, where its policy lets agents do that"), revoke)
        .post("/v1/keys/end", agent("say that a volume was erased or begun anew without encryption"), end)
        .get("/v1/units/{volume}/keys", agent("list the keys that a volume ever had"), keys_of)
        .get("/v1/units/{volume}/cartridges", agent("list the cartridges that a volume was seen on"), cartridges_of)
}

/// An agent that asks something.
struct Asking {
    service: Arc<Service>,
    node: Arc<Node>,
    peer: Peer,
    from: RemoteAddress,
    request: RequestId,
}

/// A cartridge that has the barcode of a volume, and is not the one that the volume is known to be on.
#[derive(Clone, Copy)]
struct Another {
    found: MediumSerial,
    own: MediumSerial,
}

impl Another {
    fn noted(self, entry: AuditEntry, warning: &'static str) -> AuditEntry {
        entry.with("warning", warning).with("cartridge", &self.found).with("known-cartridge", &self.own)
    }
}

/// The drive that a key is for.
struct Drive {
    name: Name,
    /// Its public key for this request.
    public: Base64,
    another: Option<Another>,
}

type Whence = (Extension<Peer>, Extension<RemoteAddress>, Extension<RequestId>);

impl Asking {
    fn new(
        service: Arc<Service>,
        (Extension(peer), Extension(from), Extension(request)): Whence,
    ) -> Result<Self, Refusal> {
        if peer.id.kind != PeerKind::Agent {
            return Err(Refusal::forbidden(format!("{} is no agent: keys are given to drives alone.", peer.id)));
        }
        let node = service.node()?;
        // Its certificate was committed before it had it. A node that knows nothing of that does not know what the
        // agent may use either.
        let certificate = certificate_path(&peer.serial).to_string();
        if node.view(|view| view.ledger().other(&certificate).is_none()) {
            let detail = format!("This node has not heard of the enrolment of {} yet: ask another.", peer.id);
            return Err(Problem::new(503, "needs-majority", "The cluster's majority cannot be reached", detail).into());
        }
        Ok(Self { service, node, peer, from, request })
    }

    fn name(&self) -> &Name {
        &self.peer.id.name
    }

    /// A refusal is noted, up to some a minute: whoever has a stolen drive tries what it opens.
    async fn noting<T>(&self, noted: AuditEntry, deed: impl Future<Output = Result<T, Refusal>>) -> Result<T, Refusal> {
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

    fn entry(&self, action: AuditAction) -> AuditEntry {
        entry(&self.peer, self.from, action)
    }

    /// Who reports something of a volume may use its keys: of one that is named, or of all that it holds.
    fn check_groups(&self, volser: &Volser, key: Option<&KeyTag>) -> Result<(), Refusal> {
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
    fn another(&self, volser: &Volser, serial: Option<MediumSerial>) -> Option<Another> {
        let own = self.node.view(|view| view.unit(volser)?.cartridges.differs(serial.as_ref()).copied())?;
        Some(Another { found: serial?, own })
    }

    /// Gives a key that was committed, or noted in the journal: once the audit log has it as well.
    async fn give(
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
    async fn claim(&self, volser: &Volser, tag: KeyTag) -> Result<(), Refusal> {
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

    async fn issued(
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

const BEGIN: AuditAction = AuditAction::named("key-to-begin");
const APPEND: AuditAction = AuditAction::named("key-to-append");
const CLAIM: AuditAction = AuditAction::named("key-of-lost-node-on-record");
const READ: AuditAction = AuditAction::named("key-to-read");
const ACTIVATE: AuditAction = AuditAction::named("key-activated");
const REVOKE: AuditAction = AuditAction::named("key-revoked-by-agent");
const END: AuditAction = AuditAction::named("volume-ended");

async fn begin(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(asked): Input<BeginVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let BeginVolume { volume: volser, drive, group, pool, algorithm, public } = asked;
    // The group of the pool's name, if there is one, else the drive's own.
    let of_pool = pool.and_then(|pool| pool.parse::<Name>().ok());
    let of_pool = of_pool.filter(|name| asking.node.view(|view| view.ledger().realm().group(name).is_some()));
    let group = group.or(of_pool);
    let mut noted = asking.entry(BEGIN).of("unit", &volser).with("drive", &drive);
    if let Some(group) = &group {
        noted = noted.with("group", group);
    }
    let operation = Operation::Begin { volser, drive: drive.clone(), group, algorithm, draw: None };
    asking.noting(noted, asking.issued(BEGIN, &Drive { name: drive, public, another: None }, operation)).await
}

async fn append(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(asked): Input<AppendVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let AppendVolume { volume: volser, serial, drive, first, public } = asked;
    let another = asking.another(&volser, serial);
    let noted = asking.entry(APPEND).of("unit", &volser).with("drive", &drive);
    let operation = Operation::Append { volser: volser.clone(), serial, drive: drive.clone(), first, draw: None };
    let drive = Drive { name: drive, public, another };
    let given = async {
        asking.claim(&volser, first).await?;
        asking.issued(APPEND, &drive, operation).await
    };
    asking.noting(noted, given).await
}

async fn read(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(asked): Input<ReadVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let ReadVolume { volume: volser, serial, drive, key: tag, public } = asked;
    let noted = asking.entry(READ).of("key", tag).with("volume", &volser).with("drive", &drive);
    let found = async {
        asking.claim(&volser, tag).await?;
        asking.node.look_up(asking.name(), &drive, &volser, &tag).await.map_err(Refusal::from)
    };
    let (record, key, standing) = asking.noting(noted, found).await?;
    let another = asking.another(&volser, serial);
    if let Some(Another { found: serial, .. }) = another {
        // For the list of data units. A volume is read whether that can be noted or not; the audit log has it in any
        // case.
        let seen = Operation::Seen { volser, serial };
        if let Err(error) = asking.node.ask(seen, asking.name(), asking.request.0).await {
            tracing::warn!(%error, %serial, "the cartridge that a volume was read from was not noted");
        }
    }
    asking.give(READ, &Drive { name: drive, public, another }, &record, &key, standing).await
}

async fn activate(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(asked): Input<ActivateKey>,
) -> Result<Json<Activated>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let mut noted = asking.entry(ACTIVATE).of("key", asked.key).with("volume", &asked.volume);
    if let Some(another) = asking.another(&asked.volume, asked.serial) {
        noted = another.noted(noted, "the volume was begun on another cartridge than before");
    }
    let answered = asking.noting(noted.clone(), async {
        asking.check_groups(&asked.volume, Some(&asked.key))?;
        let operation = Operation::Activate { volser: asked.volume.clone(), serial: asked.serial, tag: asked.key };
        asking.node.ask(operation, asking.name(), asking.request.0).await.map_err(Refusal::from)
    });
    let answered = answered.await?;
    asking.service.note(said_late(noted, &answered.answer)).await?;
    let retired = match answered.answer {
        Answer::Retired(retired) => retired.into_iter().map(KeyTagText).collect(),
        Answer::Key(_) | Answer::Record(_) | Answer::Imported(_) | Answer::Done | Answer::Late => Vec::new(),
    };
    Ok(Json(Activated { retired }))
}

async fn revoke(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(RevokeKey { key: tag, why }): Input<RevokeKey>,
) -> Result<Json<KeyRevoked>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let noted = entry(&asking.peer, asking.from, REVOKE).of("key", tag).with("why", why.name());
    // Noted before it begins, as what people do: whoever takes keys out of use without need stops backups.
    asking.service.note(noted.clone().came_to(AuditOutcome::Begun)).await?;
    let operation = Operation::Revoke { tag, why };
    let answered = asking.node.ask(operation, asking.name(), asking.request.0).await.map_err(Refusal::from);
    let outcome = match &answered {
        Ok(_) => AuditOutcome::Done,
        Err(Refusal(problem)) => came_to_nothing(problem),
    };
    asking.service.note(noted.came_to(outcome)).await?;
    let Answer::Record(record) = answered?.answer else { return Err(Refusal::failed()) };
    Ok(Json(KeyRevoked { volume: record.volser, state: record.state }))
}

async fn end(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Input(asked): Input<EndVolume>,
) -> Result<Json<serde_json::Value>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let noted = asking.entry(END).of("unit", &asked.volume);
    let answered = asking.noting(noted.clone(), async {
        asking.check_groups(&asked.volume, None)?;
        let (volser, serial) = (asked.volume.clone(), asked.serial);
        let operation = Operation::End { volser, serial, last: asked.last.map(|last| last.0) };
        asking.node.ask(operation, asking.name(), asking.request.0).await.map_err(Refusal::from)
    });
    let answered = answered.await?;
    asking.service.note(said_late(noted, &answered.answer)).await?;
    Ok(Json(serde_json::json!({})))
}

async fn keys_of(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Path(volume): Path<String>,
) -> Result<Json<Vec<KeyOfVolume>>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let volser: Volser = volume.parse().map_err(|_| Refusal::malformed(format!("{volume:?} is no barcode.")))?;
    let now_ns = asking.node.now_ns();
    let keys = asking.node.view(|view| {
        let issued = view.unit(&volser).into_iter().flat_map(|unit| &unit.keys);
        issued
            .filter_map(|issued| Some((issued.clone(), view.key(&issued.tag)?.stored.record.clone())))
            .map(|(issued, record)| {
                let state = view
                    .ledger()
                    .realm()
                    .policy_of(&issued.group)
                    .map_or(record.state, |policy| policy.effective_state(record.state, issued.issued_ns, now_ns));
                KeyOfVolume {
                    key: issued.tag,
                    group: issued.group,
                    algorithm: record.algorithm,
                    state,
                    issued: time(issued.issued_ns),
                    activated: record.activated_ns.map(time),
                    destroyed: record.destroyed_ns.map(time),
                    dropped: issued.dropped_ns.map(time),
                }
            })
            .collect()
    });
    Ok(Json(keys))
}

async fn cartridges_of(
    State(service): State<Arc<Service>>,
    whence: Whence,
    Path(volume): Path<String>,
) -> Result<Json<Vec<CartridgeListed>>, Refusal> {
    let asking = Asking::new(service, whence)?;
    let volser: Volser = volume.parse().map_err(|_| Refusal::malformed(format!("{volume:?} is no barcode.")))?;
    Ok(Json(asking.node.view(|view| view.unit(&volser).map(cartridges_listed).unwrap_or_default())))
}

/// The cartridges that a data unit's barcode was seen on.
pub(super) fn cartridges_listed(unit: &DataUnit) -> Vec<CartridgeListed> {
    let listed = |seen: &SeenCartridge| CartridgeListed {
        serial: seen.serial,
        since: time(seen.since_ns),
        seen_as: match seen.seen_as {
            SeenAs::Own => CartridgeSeenAs::Own,
            SeenAs::Another => CartridgeSeenAs::Another,
        },
    };
    unit.cartridges.iter().map(listed).collect()
}

/// A report that changed nothing, because the volume was begun anew since, is noted as such.
fn said_late(noted: AuditEntry, answer: &Answer) -> AuditEntry {
    match answer {
        Answer::Late => noted.with("late", "the volume was begun anew since, or had no key: nothing was changed"),
        Answer::Key(_) | Answer::Retired(_) | Answer::Record(_) | Answer::Imported(_) | Answer::Done => noted,
    }
}

fn time(ns: i64) -> Timestamp {
    Timestamp::from_nanosecond(i128::from(ns)).unwrap_or_default()
}

fn said(standing: MajorityContact) -> api::Standing {
    match standing {
        MajorityContact::Current => api::Standing::Current,
        MajorityContact::Alone { .. } => api::Standing::CutOff,
    }
}
