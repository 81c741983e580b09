//! Keys: listed, reported as known to others, destroyed.

use axum::Json;
use axum::extract::Query;
use capstan_format::{KeyTag, Volser};
use capstan_keys::api::{ConfirmKey, KeyListed, NamedKey, Page, RecoveredKey, RequestOutcome};
use capstan_keys::{KeyState, KeyUse, Name};
use capstan_service::problem::{Input, Refusal};
use capstan_service::roles::ActPermission;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::access::{NodeRoutes, RouteAccess};
use super::material::{After, PAGE_LEN, ask, key_of_volume, page, state_of};
use super::peers::asked;
use super::proposal::{KeyTold, Proposal};
use super::{Of, Person, queue, time};
use crate::authority::{Act, may};
use crate::desk::{Operation, decide, recovered};
use crate::node::NodeError;
use crate::record::IssuedRecord;
use crate::state::View;

/// Which of the two it is shows in what is asked.
const DESTROY: RouteAccess = RouteAccess::PersonOr(Act::DestroyKeys, Act::DestroyExpiredKeys);

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/keys", Act::ListKeys, list)
        .post("/v1/keys/compromise", Act::CompromiseKeys, compromise)
        .post("/v1/keys/destroy", (DESTROY, Act::DestroyKeys.words()), destroy)
        .post("/v1/keys/confirm", Act::ConfirmKeys, confirm)
        .get("/v1/keys/recovered", Act::ListKeys, recovered_keys)
        .get("/v1/keys/of/{tag}", Act::ListKeys, show)
}

/// Which keys.
#[derive(Deserialize, JsonSchema)]
struct Wanted {
    volume: Option<String>,
    group: Option<Name>,
    state: Option<String>,
    after: Option<String>,
}

async fn list(person: Person, Query(wanted): Query<Wanted>) -> Result<Json<Page<KeyListed>>, Refusal> {
    let volume = wanted
        .volume
        .map(|volume| volume.parse::<Volser>().map_err(|_| Refusal::malformed(format!("{volume:?} is no barcode."))));
    let state = wanted.state.map(|name| {
        let known = KeyState::ALL.into_iter().find(|state| state.name() == name);
        known.ok_or_else(|| Refusal::malformed(format!("{name:?} is no state of a key.")))
    });
    let after = wanted.after.map(|tag| tag.parse::<KeyTag>().map_err(|error| Refusal::malformed(error.to_string())));
    let (volume, state, after) = (volume.transpose()?, state.transpose()?, after.transpose()?);
    let look = |view: View<'_>, now_ns| {
        let of_volume = |key: &&IssuedRecord| volume.as_ref().is_none_or(|volume| key.volser() == volume);
        let in_state = |key: &&IssuedRecord| state.is_none_or(|state| state_of(view, key, now_ns) == state);
        let of_group = |key: &&IssuedRecord| wanted.group.as_ref().is_none_or(|group| key.issued.group == *group);
        // A node that is cut off lists what it gave out meanwhile, too.
        let behind = view.keys_after(after.as_ref());
        let keys = behind.filter(of_volume).filter(of_group).filter(in_state).take(PAGE_LEN + 1);
        let items = keys.map(|key| listed(view, key, now_ns)).collect();
        Ok(Json(page(items, |key: &KeyListed| key.of.key.to_string())))
    };
    person.looks(Act::ListKeys, look).await
}

async fn show(person: Person, Of(tag): Of<KeyTag>) -> Result<Json<KeyListed>, Refusal> {
    let look = |view: View<'_>, now_ns| {
        let key = view.key(&tag).ok_or_else(|| missing(view, &tag))?;
        Ok(Json(listed(view, key, now_ns)))
    };
    person.looks(Act::ListKeys, look).await
}

async fn compromise(person: Person, Input(NamedKey { key }): Input<NamedKey>) -> Result<Json<RequestOutcome>, Refusal> {
    person.permitted(Act::CompromiseKeys).await?;
    person.node.view(|view| view.key(&key).map(drop).ok_or_else(|| missing(view, &key)))?;
    let noted = person.entry(Act::CompromiseKeys).of("key", key);
    ask(&person, noted, Operation::Compromise { tag: key }).await
}

/// Says of which volume and group a key is that a lost node gave out.
async fn confirm(
    person: Person,
    Input(ConfirmKey { key: tag, volume, group }): Input<ConfirmKey>,
) -> Result<Json<RequestOutcome>, Refusal> {
    person.permitted(Act::ConfirmKeys).await?;
    let on_record = person.node.view(|view| match view.key(&tag) {
        Some(known) => Ok(Some(known.volser().clone())),
        None => recovered(view.ledger(), &tag).map(|_| None).ok_or_else(|| missing(view, &tag)),
    })?;
    let unnamed =
        || Refusal::malformed(format!("No volume has named key {tag} yet: say which one it is of (`--volume`)."));
    let volser = volume.or(on_record).ok_or_else(unnamed)?;
    let noted = person.entry(Act::ConfirmKeys).of("key", tag).with("volume", &volser).with("group", &group);
    ask(&person, noted, Operation::Confirm { volser, tag, group }).await
}

/// The keys of lost nodes' pools that no volume has named yet.
async fn recovered_keys(
    person: Person,
    Query(After { after }): Query<After>,
) -> Result<Json<Page<RecoveredKey>>, Refusal> {
    let look = |view: View<'_>, _| {
        let behind =
            view.ledger().recovered().filter(|(tag, ..)| after.as_ref().is_none_or(|after| tag.to_string() > *after));
        let items = behind.take(PAGE_LEN + 1).map(|(key, kept, _)| RecoveredKey { key, drawn: time(kept.created_ns) });
        Ok(Json(page(items.collect(), |key: &RecoveredKey| key.key.to_string())))
    };
    person.looks(Act::ListKeys, look).await
}

/// A key that reads no more an operator destroys; one that still does, the quorum.
async fn destroy(
    person: Person,
    Input(NamedKey { key: tag }): Input<NamedKey>,
) -> Result<Json<RequestOutcome>, Refusal> {
    let act = match person.node.view(|view| reads_still(view, &tag, person.node.now_ns()))? {
        // Who may ask the quorum as well as do it: the quorum counts only where it has to.
        ReadsStill::No if may(&person.user, Act::DestroyExpiredKeys).is_ok() => Act::DestroyExpiredKeys,
        ReadsStill::No | ReadsStill::Yes => Act::DestroyKeys,
    };
    match person.permitted(act).await? {
        ActPermission::ByQuorum => {
            let told = person.node.view(|view| view.key(&tag).map(|key| told(view, key, person.node.now_ns())));
            let proposal = Proposal::DestroyKey { tag, told };
            queue::request(&person, proposal, None).await.map(|asked| Json(RequestOutcome::Waits(asked)))
        }
        ActPermission::AtOnce => {
            let destroying = person.change(|view| {
                if reads_still(view, &tag, person.node.now_ns())? == ReadsStill::Yes {
                    return Err(Refusal::conflict(format!("Key {tag} reads again: its data unit was extended.")));
                }
                let operation = Operation::Destroy { tag };
                Ok(decide(view, person.node.keys(), &asked(&person, operation)).map_err(NodeError::from)?)
            });
            person.does(person.entry(act).of("key", tag), destroying).await?;
            person.service.anchor_soon();
            Ok(Json(RequestOutcome::Done))
        }
    }
}

/// What approvers read of a key that is to be destroyed. Which objects lie on a volume only the catalogs of movers
/// know.
fn told(view: View<'_>, key: &IssuedRecord, now_ns: i64) -> KeyTold {
    let volume = key.volser();
    let (record, issued) = (&key.stored.record, &key.issued);
    let unit = view.unit(volume);
    let first = match issued.issued_for {
        KeyUse::Append { first } => first,
        KeyUse::Begin | KeyUse::Elsewhere => record.tag,
    };
    let begun_ns = view.key(&first).and_then(|first| first.stored.record.activated_ns);
    let is_overwritten = issued
        .dropped_ns
        .zip(begun_ns)
        .zip(unit)
        .filter(|((dropped_ns, begun_ns), unit)| unit.cartridges.is_overwritten(*begun_ns, *dropped_ns));
    let others = unit.map_or(0, |unit| {
        unit.keys.iter().filter(|other| other.tag != record.tag && other.dropped_ns.is_none()).count()
    });
    let unreadable = match (record.activated_ns, is_overwritten) {
        (_, Some(((dropped_ns, _), _))) => {
            format!("nothing, as far as is known: the cartridge was relabelled or erased on {}", time(dropped_ns))
        }
        (None, None) if issued.issued_for == KeyUse::Begin => {
            format!("nothing, as far as is known: no mover has reported that it began volume {volume} with it")
        }
        (begun_ns, None) => {
            let from = begun_ns.map(|ns| format!(" from {} on", time(ns))).unwrap_or_default();
            let until = record.retired_ns.map(|ns| format!(" until {}", time(ns))).unwrap_or_default();
            let rest = match others {
                0 => String::from("the volume has no other key in use"),
                others => format!("the volume has {others} other keys, which read what is under them"),
            };
            let dropped = issued
                .dropped_ns
                .map_or("", |_| "; its barcode was labelled again since, perhaps on another cartridge");
            format!(
                "what was written on volume {volume} under it{from}{until}; {rest}{dropped}; `capstan show` of its mover names the objects"
            )
        }
    };
    KeyTold {
        volume: volume.to_string(),
        group: issued.group.to_string(),
        state: state_of(view, key, now_ns).name().to_owned(),
        agent: key.origin.agent.to_string(),
        unreadable,
    }
}

/// Whether a key still reads what was written with it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ReadsStill {
    Yes,
    No,
}

fn reads_still(view: View<'_>, tag: &KeyTag, now_ns: i64) -> Result<ReadsStill, Refusal> {
    let key = view.key(tag).ok_or_else(|| missing(view, tag))?;
    let extended = view.unit(key.volser()).and_then(|unit| unit.read_until_ns).is_some_and(|until| now_ns < until);
    let policy = view.ledger().realm().policy_of(&key.issued.group);
    let over = policy.is_ok_and(|policy| policy.cryptoperiod.is_over(key.issued.issued_ns, now_ns));
    let gone = key.stored.record.state == KeyState::Destroyed;
    Ok(if gone || (over && !extended) { ReadsStill::No } else { ReadsStill::Yes })
}

fn missing(view: View<'_>, tag: &KeyTag) -> Refusal {
    if recovered(view.ledger(), tag).is_some() {
        return Refusal::conflict(format!(
            "Key {tag} was in the pool of a node that was lost, and no volume has named it yet. Read the volume, or confirm the key first: \
             `keyd keys confirm {tag} --volume VOLUME --group GROUP`."
        ));
    }
    Refusal::not_found(format!("No key {tag} was ever issued."))
}

fn listed(view: View<'_>, key: &IssuedRecord, now_ns: i64) -> KeyListed {
    KeyListed {
        volume: key.volser().clone(),
        of: key_of_volume(view, key, now_ns),
        agent: key.origin.agent.clone(),
        kma: key.origin.kma.clone(),
    }
}
