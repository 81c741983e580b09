//! Get Attributes, Get Attribute List, Add, Set, Modify and Delete Attribute.

use std::sync::Arc;

use super::batch::{Batch, uid_item};
use super::create::{fits, quantum_safe_if_required};
use super::cryptography::usage_limits;
use super::template::check_new;
use crate::codec::{Given, Instance};
use crate::enumeration::ResultReason;
use crate::fields::{Fields, Required};
use crate::lifecycle::State;
use crate::object::{Attribute, Client, Instances, ManagedObject, Named, named, spoken};
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::view::Weight;

pub(crate) fn get(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let names = batch.codec.names(payload)?;
    if let Some(twice) = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name)) {
        return Err(Refused::message(format!("the name {:?} is there twice", twice.1)));
    }
    let shown = shown(batch, &object);
    let mut response = vec![uid_item(&object.uid)];
    if names.is_empty() {
        response.extend(batch.codec.show(shown.iter()));
    } else {
        // In the order that was asked for; what the object does not have is left out.
        let asked = names.iter().flat_map(|name| shown.iter().filter(move |attribute| attribute.name == *name));
        response.extend(batch.codec.show(asked));
    }
    Ok(response)
}

pub(crate) fn list(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let mut names = Vec::new();
    for attribute in shown(batch, &object) {
        if !names.contains(&attribute.name) {
            names.push(attribute.name);
        }
    }
    let mut response = vec![uid_item(&object.uid)];
    response.extend(batch.codec.show_names(names.iter().map(AsRef::as_ref)));
    Ok(response)
}

/// The attributes that a client of this version knows.
pub(crate) fn shown(batch: &Batch<'_>, object: &ManagedObject) -> Vec<Attribute> {
    let mut shown = object.shown(batch.now_s);
    shown.retain(|attribute| spoken(&attribute.name, batch.version));
    shown
}

pub(crate) fn add(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let given = batch.codec.added(payload)?;
    added(batch, &object, &given)
}

/// Sets the one instance that there is to be: a second would have to be told from the first.
pub(crate) fn set(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let given = batch.codec.added(payload)?;
    match object.first(&given.name) {
        None => added(batch, &object, &given),
        Some(_) => modified(batch, &object, &Instance::Only, &given),
    }
}

pub(crate) fn modify(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let (instance, given) = batch.codec.modified(payload)?;
    modified(batch, &object, &instance, &given)
}

fn added(batch: &mut Batch<'_>, object: &Arc<ManagedObject>, given: &Given) -> Result<Vec<Item>, Refused> {
    may_set(batch, object, given)?;
    if given.rule.instances() == Instances::One && object.first(&given.name).is_some() {
        return Err(Refused::new(
            ResultReason::AttributeSingleValued,
            format!("there is one {} already: modify it", given.name),
        ));
    }
    check_new(batch, object, &given.name, &given.value)?;
    let value = settled(batch, given)?;
    let mut changed = ManagedObject::clone(object);
    let index = changed.add(&given.name, value.clone());
    store(batch, changed, &[Attribute { name: given.name.clone(), index, value }])
}

/// Puts another value in the place of an instance.
pub(crate) fn modified(
    batch: &mut Batch<'_>,
    object: &Arc<ManagedObject>,
    instance: &Instance,
    given: &Given,
) -> Result<Vec<Item>, Refused> {
    may_set(batch, object, given)?;
    let mut changed = ManagedObject::clone(object);
    let mut gone = taken(&mut changed, &given.name, instance)?;
    let Some(Attribute { index, .. }) = gone.pop().filter(|_| gone.is_empty()) else {
        return Err(several(&given.name));
    };
    // The instance that is modified may keep its Name.
    check_new(batch, &changed, &given.name, &given.value)?;
    may_change(object, given)?;
    let attribute = Attribute { name: given.name.clone(), index, value: settled(batch, given)? };
    changed.attributes.push(attribute.clone());
    store(batch, changed, &[attribute])
}

pub(crate) fn delete(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let (name, instance) = batch.codec.deleted(payload)?;
    let rule = named(&name)
        .ok_or_else(|| Refused::new(ResultReason::UnsupportedAttribute, "there is no attribute of this name"))?;
    if rule.client() != Client::Any {
        let why = format!("{} is not for a client to delete", name_of(rule, &name));
        return Err(Refused::new(ResultReason::AttributeReadOnly, why));
    }
    let mut changed = ManagedObject::clone(&object);
    let gone = taken(&mut changed, &name, &instance)?;
    store(batch, changed, &gone)
}

/// Takes the instances that are meant off an object.
fn taken(object: &mut ManagedObject, name: &str, instance: &Instance) -> Result<Vec<Attribute>, Refused> {
    if object.first(name).is_none() {
        return Err(Refused::new(ResultReason::AttributeNotFound, "the object does not have this attribute"));
    }
    if matches!(instance, Instance::Only) && object.all(name).nth(1).is_some() {
        return Err(several(name));
    }
    let meant = |attribute: &mut Attribute| {
        attribute.name == name
            && match instance {
                Instance::Numbered(index) => attribute.index == *index,
                Instance::Valued(value) => attribute.value == *value,
                Instance::Only | Instance::All => true,
            }
    };
    let gone: Vec<Attribute> = object.attributes.extract_if(.., meant).collect();
    if gone.is_empty() {
        return Err(Refused::new(ResultReason::AttributeInstanceNotFound, "the attribute has no such instance"));
    }
    Ok(gone)
}

/// There are several instances, and nobody knows which is meant.
pub(crate) fn several(name: &str) -> Refused {
    Refused::new(
        ResultReason::MultiValuedAttribute,
        format!("there are several of {name}: say which by its Current Attribute"),
    )
}

fn store(batch: &mut Batch<'_>, mut changed: ManagedObject, told: &[Attribute]) -> Result<Vec<Item>, Refused> {
    changed.set("Last Change Date", Value::DateTime(batch.now_s));
    if told.iter().any(|attribute| attribute.name == "Quantum Safe") {
        quantum_safe_if_required(&changed)?;
    }
    fits(&changed)?;
    let mut response = vec![uid_item(&changed.uid)];
    response.extend(told.iter().filter_map(|attribute| batch.codec.show_changed(attribute)));
    batch.placeholder = Some(changed.uid.clone());
    batch.view.replace(changed, Weight::Needed);
    Ok(response)
}

/// A value as it is kept: of limits nothing is used yet.
fn settled(batch: &Batch<'_>, given: &Given) -> Result<Value, Refused> {
    match &given.value {
        Value::Structure(limits) if given.name == "Usage Limits" => {
            let (total, unit) = (total_of(limits)?, limits.as_slice().number(Tag::USAGE_LIMITS_UNIT)?);
            Ok(usage_limits(total, total, unit.required(Tag::USAGE_LIMITS_UNIT)?))
        }
        value => batch.settled(value),
    }
}

fn total_of(limits: &[Item]) -> Result<i64, Refused> {
    limits.long(Tag::USAGE_LIMITS_TOTAL)?.required(Tag::USAGE_LIMITS_TOTAL)
}

fn left_of(limits: &[Item]) -> Result<i64, Refused> {
    Ok(limits.long(Tag::USAGE_LIMITS_COUNT)?.unwrap_or(0))
}

/// Refuses what is not a client's to set, or not any more.
fn may_set(batch: &Batch<'_>, object: &Arc<ManagedObject>, given: &Given) -> Result<(), Refused> {
    let name = name_of(given.rule, &given.name);
    let read_only = |why: &str| Err(Refused::new(ResultReason::AttributeReadOnly, format!("{name} {why}")));
    match given.rule.client() {
        Client::Any | Client::Keep => Ok(()),
        // Nobody has counted on them yet.
        Client::AtFirst if given.name == "Usage Limits" => match object.first("Usage Limits") {
            Some(Value::Structure(limits)) if left_of(limits)? == total_of(limits)? => Ok(()),
            Some(_) => read_only("was used already, and stays"),
            None => Ok(()),
        },
        Client::AtFirst => read_only("is given with the object, and stays"),
        Client::Never => read_only("is set by the server alone"),
        Client::Date => {
            let state = object.state(batch.now_s);
            let came = object.date(&given.name).is_some_and(|date| date <= batch.now_s);
            let in_time = match given.name.as_ref() {
                "Activation Date" => state == State::PreActive,
                "Deactivation Date" => matches!(state, State::PreActive | State::Active),
                _ => matches!(state, State::PreActive | State::Active) && !came,
            };
            if in_time {
                Ok(())
            } else {
                Err(Refused::new(ResultReason::WrongKeyLifecycleState, format!("it is too late to set {name}")))
            }
        }
    }
}

/// Protection is not taken back: what is sensitive stays so, what may not leave may not leave later.
fn may_change(object: &ManagedObject, given: &Given) -> Result<(), Refused> {
    match (given.name.as_ref(), &given.value) {
        ("Sensitive", Value::Boolean(false)) if object.flag("Sensitive") => {
            Err(Refused::denied("what is sensitive stays sensitive"))
        }
        ("Extractable", Value::Boolean(true)) if !object.flag("Extractable") => {
            Err(Refused::denied("what is not extractable does not become so"))
        }
        _ => Ok(()),
    }
}

fn name_of(rule: Named, name: &str) -> &str {
    match rule {
        Named::Standard(rule) => rule.name,
        Named::Custom | Named::Vendor => name,
        Named::Server => "an attribute that begins with y-",
    }
}
