//! Get Attributes, Get Attribute List, Add, Modify and Delete Attribute.

use std::sync::Arc;

use super::Refused;
use super::batch::{Batch, uid_item};
use super::create::fits;
use super::fields::{Fields, Required};
use super::template::{Given, check_new, given};
use crate::enumeration::ResultReason;
use crate::lifecycle::State;
use crate::object::{Attribute, Client, Instances, ManagedObject, Named, RULES, named, shared_name};
use crate::ttlv::{Item, Tag, Value};
use crate::view::Weight;

pub(crate) fn get(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let mut names = Vec::new();
    for item in payload.items().iter().filter(|item| item.tag == Tag::ATTRIBUTE_NAME) {
        match &item.value {
            Value::TextString(name) => names.push(name.as_str()),
            _ => return Err(Refused::message("Attribute Name is of another type")),
        }
    }
    let shown = shown(batch, &object);
    let mut response = vec![uid_item(&object.uid)];
    if names.is_empty() {
        response.extend(shown.iter().map(Attribute::item));
    } else {
        // In the order that was asked for; what the object does not have is left out.
        for name in names {
            response.extend(shown.iter().filter(|attribute| attribute.name == name).map(Attribute::item));
        }
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
    response.extend(names.into_iter().map(|name| Item::text(Tag::ATTRIBUTE_NAME, name.as_ref())));
    Ok(response)
}

/// The attributes that a client of this version knows.
fn shown(batch: &Batch<'_>, object: &ManagedObject) -> Vec<Attribute> {
    let later = |name: &str| RULES.iter().any(|rule| rule.name == name && rule.since_minor > batch.version.minor);
    object.shown(batch.now_s).into_iter().filter(|attribute| !later(&attribute.name)).collect()
}

pub(crate) fn add(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let given = given(payload.child(Tag::ATTRIBUTE).required(Tag::ATTRIBUTE)?)?;
    if given.index.is_some() {
        return Err(Refused::field("the Attribute Index of what is added is the server's to choose"));
    }
    may_set(batch, &object, &given)?;
    if given.rule.instances() == Instances::One && object.first(given.name).is_some() {
        return Err(Refused::new(
            ResultReason::IllegalOperation,
            format!("there is one {} already: modify it", given.name),
        ));
    }
    check_new(batch, &object, given.name, given.value)?;
    let mut changed = ManagedObject::clone(&object);
    let index = changed.add(given.name, given.value.clone());
    store(batch, changed, &Attribute { name: shared_name(given.name), index, value: given.value.clone() })
}

pub(crate) fn modify(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let given = given(payload.child(Tag::ATTRIBUTE).required(Tag::ATTRIBUTE)?)?;
    may_set(batch, &object, &given)?;
    let index = given.index.unwrap_or(0);
    let mut changed = ManagedObject::clone(&object);
    // The instance that is modified may keep its Name.
    changed.attributes.retain(|attribute| !(attribute.name == given.name && attribute.index == index));
    if changed.attributes.len() == object.attributes.len() {
        return Err(no_instance(&object, given.name));
    }
    check_new(batch, &changed, given.name, given.value)?;
    may_change(&object, &given)?;
    let attribute = Attribute { name: shared_name(given.name), index, value: given.value.clone() };
    changed.attributes.push(attribute.clone());
    store(batch, changed, &attribute)
}

pub(crate) fn delete(batch: &mut Batch<'_>, payload: &Item) -> Result<Vec<Item>, Refused> {
    let object = batch.object(payload)?;
    let name = payload.text(Tag::ATTRIBUTE_NAME)?.required(Tag::ATTRIBUTE_NAME)?;
    let index = payload.integer(Tag::ATTRIBUTE_INDEX)?.unwrap_or(0);
    let rule = named(name).ok_or_else(|| Refused::field("there is no attribute of this name"))?;
    if rule.client() != Client::Any {
        return Err(Refused::denied(format!("{} is not for a client to delete", name_of(rule, name))));
    }
    let mut changed = ManagedObject::clone(&object);
    let at = changed
        .attributes
        .iter()
        .position(|attribute| attribute.name == name && i64::from(attribute.index) == i64::from(index))
        .ok_or_else(|| no_instance(&object, name))?;
    let attribute = changed.attributes.remove(at);
    store(batch, changed, &attribute)
}

fn store(batch: &mut Batch<'_>, mut changed: ManagedObject, told: &Attribute) -> Result<Vec<Item>, Refused> {
    changed.set("Last Change Date", Value::DateTime(batch.now_s));
    fits(&changed)?;
    let response = vec![uid_item(&changed.uid), told.item()];
    batch.placeholder = Some(changed.uid.clone());
    batch.view.replace(changed, Weight::Needed);
    Ok(response)
}

fn no_instance(object: &ManagedObject, name: &str) -> Refused {
    if object.first(name).is_some() {
        Refused::new(ResultReason::ItemNotFound, "the attribute has no instance with this Attribute Index")
    } else {
        Refused::new(ResultReason::ItemNotFound, "the object does not have this attribute")
    }
}

/// Refuses what is not a client's to set, or not any more.
fn may_set(batch: &Batch<'_>, object: &Arc<ManagedObject>, given: &Given<'_>) -> Result<(), Refused> {
    let name = name_of(given.rule, given.name);
    match given.rule.client() {
        Client::Any | Client::Keep => Ok(()),
        Client::AtFirst => Err(Refused::denied(format!("{name} is given with the object, and stays"))),
        Client::Never => Err(Refused::denied(format!("{name} is set by the server alone"))),
        Client::Date => {
            let state = object.state(batch.now_s);
            let came = object.date(given.name).is_some_and(|date| date <= batch.now_s);
            let in_time = match given.name {
                "Activation Date" => state == State::PreActive,
                "Deactivation Date" => matches!(state, State::PreActive | State::Active),
                _ => matches!(state, State::PreActive | State::Active) && !came,
            };
            if in_time { Ok(()) } else { Err(Refused::denied(format!("it is too late to set {name}"))) }
        }
    }
}

/// Protection is not taken back: what is sensitive stays so, what may not leave may not leave later.
fn may_change(object: &ManagedObject, given: &Given<'_>) -> Result<(), Refused> {
    match (given.name, given.value) {
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
        Named::Custom => name,
        Named::Server => "an attribute that begins with y-",
    }
}
