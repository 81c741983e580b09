//! Policies, key groups, data units: what keys are for.

use axum::Json;
use axum::extract::Query;
use capstan_format::{Algorithm, Volser};
use capstan_keys::api::{ExtendUnit, GroupSaid, KeyOfVolume, Leave, Page, PolicySaid, RequestOutcome, UnitListed};
use capstan_keys::{DataUnit, KeyGroup, KeyState, KnownPolicy, Period, Permission, Policy};
use capstan_service::problem::{Input, Refusal};
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::access::NodeRoutes;
use super::super::agents::cartridges_listed;
use super::{Of, Person, broken, time};
use crate::authority::Act;
use crate::desk::Operation;
use crate::record::IssuedRecord;
use crate::state::View;

/// Entries of one part of a list.
pub(super) const PAGE_LEN: usize = 1000;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .get("/v1/policies", Act::ListPolicies, policies)
        .post("/v1/policies", Act::AddPolicy, add_policy)
        .get("/v1/groups", Act::ListGroups, groups)
        .post("/v1/groups", Act::AddGroup, add_group)
        .get("/v1/units", Act::ListDataUnits, units)
        .get("/v1/units/{volume}", Act::ListDataUnits, unit)
        .post("/v1/units/{volume}/extend", Act::ExtendKeys, extend)
}

async fn policies(person: Person) -> Result<Json<Vec<PolicySaid>>, Refusal> {
    person
        .looks(Act::ListPolicies, |view, _| Ok(Json(view.ledger().realm().policies().map(policy_said).collect())))
        .await
}

async fn add_policy(person: Person, Input(asked): Input<PolicySaid>) -> Result<Json<RequestOutcome>, Refusal> {
    person.permitted(Act::AddPolicy).await?;
    let known = if asked.replace { KnownPolicy::Replaced } else { KnownPolicy::Stays };
    let noted = person.entry(Act::AddPolicy).of("policy", &asked.name);
    ask(&person, noted, Operation::PutPolicy { known, policy: policy(asked)? }).await
}

async fn groups(person: Person) -> Result<Json<Vec<GroupSaid>>, Refusal> {
    let said = |group: &KeyGroup| GroupSaid { name: group.name.clone(), policy: group.policy.clone() };
    person.looks(Act::ListGroups, |view, _| Ok(Json(view.ledger().realm().groups().map(said).collect()))).await
}

async fn add_group(person: Person, Input(asked): Input<GroupSaid>) -> Result<Json<RequestOutcome>, Refusal> {
    person.permitted(Act::AddGroup).await?;
    let noted = person.entry(Act::AddGroup).of("group", &asked.name).with("policy", &asked.policy);
    // A group that is there keeps its key, and this one comes to nothing.
    let (_, wrapped) = person.node.keys().new_group_key(&asked.name).map_err(|error| broken(&error))?;
    let group = KeyGroup { name: asked.name, policy: asked.policy };
    ask(&person, noted, Operation::PutGroup { group, wrapped }).await
}

/// Where a list begins.
#[derive(Deserialize, JsonSchema)]
pub(super) struct After {
    pub(super) after: Option<String>,
}

async fn units(person: Person, Query(After { after }): Query<After>) -> Result<Json<Page<UnitListed>>, Refusal> {
    let look = |view: View<'_>, _| {
        let all = view.ledger().realm().units();
        let wanted = all.filter(|unit| after.as_ref().is_none_or(|after| unit.volser.to_string() > *after));
        let items: Vec<_> = wanted.take(PAGE_LEN + 1).map(unit_listed).collect();
        Ok(Json(page(items, |unit| unit.volume.to_string())))
    };
    person.looks(Act::ListDataUnits, look).await
}

async fn unit(person: Person, Of(volume): Of<Volser>) -> Result<Json<Vec<KeyOfVolume>>, Refusal> {
    let look = |view: View<'_>, now_ns| {
        let unknown = || Refusal::not_found(format!("No key was ever issued for volume {volume}."));
        let keys = &view.unit(&volume).ok_or_else(unknown)?.keys;
        let known = keys.iter().filter_map(|issued| view.key(&issued.tag));
        Ok(Json(known.map(|record| key_of_volume(view, record, now_ns)).collect()))
    };
    person.looks(Act::ListDataUnits, look).await
}

async fn extend(
    person: Person,
    Of(volser): Of<Volser>,
    Input(asked): Input<ExtendUnit>,
) -> Result<Json<RequestOutcome>, Refusal> {
    person.permitted(Act::ExtendKeys).await?;
    let until_ns = i64::try_from(asked.until.as_nanosecond())
        .map_err(|_| Refusal::malformed("The time is too far away to be kept."))?;
    let noted = person.entry(Act::ExtendKeys).of("unit", &volser).with("until-ns", until_ns);
    ask(&person, noted, Operation::ExtendReading { volser, until_ns }).await
}

/// Asks the desk for something that is done on one person's word.
pub(super) async fn ask(
    person: &Person,
    noted: capstan_service::audit::AuditEntry,
    operation: Operation,
) -> Result<Json<RequestOutcome>, Refusal> {
    let asking = async { Ok(person.node.ask(operation, &person.user.name, person.request.0).await?) };
    person.does(noted, asking).await?;
    Ok(Json(RequestOutcome::Done))
}

/// A part of a list, which was taken with one more than there is room for.
pub(super) fn page<T>(mut items: Vec<T>, name: impl Fn(&T) -> String) -> Page<T> {
    let more = items.len() > PAGE_LEN;
    items.truncate(PAGE_LEN);
    let next = items.last().filter(|_| more).map(name);
    Page { items, next }
}

fn unit_listed(unit: &DataUnit) -> UnitListed {
    UnitListed {
        volume: unit.volser.clone(),
        keys: unit.keys.len(),
        first_seen: time(unit.first_seen_ns),
        last_seen: time(unit.last_seen_ns),
        read_until: unit.read_until_ns.map(time),
        serial: unit.cartridges.own().copied(),
        cartridges: cartridges_listed(unit),
        warning: warning(unit),
    }
}

/// What people should look into: another cartridge has the barcode.
fn warning(unit: &DataUnit) -> Option<String> {
    let others: Vec<_> = unit.cartridges.others().filter_map(|other| other.serial).collect();
    let last = others.last()?;
    let others = if others.len() > 1 { format!(", and {} more", others.len() - 1) } else { String::new() };
    Some(format!("another cartridge has this barcode: {last}{others}"))
}

fn policy_said(policy: &Policy) -> PolicySaid {
    let seconds = |period| match period {
        Period::Unlimited => None,
        Period::Seconds(seconds) => Some(seconds),
    };
    let leave = |permission| match permission {
        Permission::Allowed => Leave::Allowed,
        Permission::Forbidden => Leave::Forbidden,
    };
    PolicySaid {
        name: policy.name.clone(),
        algorithm: policy.algorithm.map(|algorithm| algorithm.name().to_owned()),
        encryption_seconds: seconds(policy.encryption_period),
        cryptoperiod_seconds: seconds(policy.cryptoperiod),
        export: leave(policy.export),
        import: leave(policy.import),
        agents_revoke: leave(policy.agents_revoke),
        isolation_seconds: seconds(policy.isolation_limit),
        replace: false,
    }
}

fn policy(said: PolicySaid) -> Result<Policy, Refusal> {
    let cipher = |name: String| {
        let known = [Algorithm::Aes256Gcm, Algorithm::Aes256Ccm].into_iter().find(|known| known.name() == name);
        known.ok_or_else(|| Refusal::malformed(format!("{name:?} is no cipher: give AES-256-GCM or AES-256-CCM.")))
    };
    let period = |seconds: Option<u32>| seconds.map_or(Period::Unlimited, Period::Seconds);
    let permission = |leave| match leave {
        Leave::Allowed => Permission::Allowed,
        Leave::Forbidden => Permission::Forbidden,
    };
    Ok(Policy {
        name: said.name,
        algorithm: said.algorithm.map(cipher).transpose()?,
        encryption_period: period(said.encryption_seconds),
        cryptoperiod: period(said.cryptoperiod_seconds),
        export: permission(said.export),
        import: permission(said.import),
        agents_revoke: permission(said.agents_revoke),
        isolation_limit: period(said.isolation_seconds),
    })
}

pub(super) fn state_of(view: View<'_>, key: &IssuedRecord, now_ns: i64) -> KeyState {
    let state = key.stored.record.state;
    let policy = view.ledger().realm().policy_of(&key.issued.group);
    policy.map_or(state, |policy| policy.effective_state(state, key.issued.issued_ns, now_ns))
}

/// A key as it is listed, in its state as time has made it.
pub(super) fn key_of_volume(view: View<'_>, key: &IssuedRecord, now_ns: i64) -> KeyOfVolume {
    let (record, issued) = (&key.stored.record, &key.issued);
    KeyOfVolume {
        key: record.tag,
        group: issued.group.clone(),
        algorithm: record.algorithm,
        state: state_of(view, key, now_ns),
        issued: time(issued.issued_ns),
        activated: record.activated_ns.map(time),
        destroyed: record.destroyed_ns.map(time),
        dropped: issued.dropped_ns.map(time),
    }
}
