//! What agents ask: `/v1/keys/...`.

use axum::extract::Path;
use axum::{Extension, Json};
use capstan_format::Volser;
use capstan_keys::api::{
    ActivateKey, Activated, AppendVolume, BeginVolume, CartridgeListed, CartridgeSeenAs, EndVolume, KeyGiven,
    KeyOfVolume, KeyRevoked, KeyTagText, ReadVolume, RevokeKey,
};
use capstan_keys::{DataUnit, Name, SeenAs, SeenCartridge};
use capstan_service::audit::{AuditAction, AuditEntry, AuditOutcome};
use capstan_service::problem::{Input, Refusal};
use jiff::Timestamp;

use super::access::{NodeRoutes, RouteAccess};
use super::agent::{Another, Asking, Drive, READ};
use super::entry;
use super::person::came_to_nothing;
use crate::desk::{Answer, Operation};

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

const BEGIN: AuditAction = AuditAction::named("key-to-begin");
const APPEND: AuditAction = AuditAction::named("key-to-append");
const ACTIVATE: AuditAction = AuditAction::named("key-activated");
const REVOKE: AuditAction = AuditAction::named("key-revoked-by-agent");
const END: AuditAction = AuditAction::named("volume-ended");

async fn begin(
    Extension(asking): Extension<Asking>,
    Input(asked): Input<BeginVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Input(asked): Input<AppendVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Input(asked): Input<ReadVolume>,
) -> Result<Json<KeyGiven>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Input(asked): Input<ActivateKey>,
) -> Result<Json<Activated>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Input(RevokeKey { key: tag, why }): Input<RevokeKey>,
) -> Result<Json<KeyRevoked>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Input(asked): Input<EndVolume>,
) -> Result<Json<serde_json::Value>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Path(volume): Path<String>,
) -> Result<Json<Vec<KeyOfVolume>>, Refusal> {
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
    Extension(asking): Extension<Asking>,
    Path(volume): Path<String>,
) -> Result<Json<Vec<CartridgeListed>>, Refusal> {
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
