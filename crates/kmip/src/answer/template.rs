//! The attributes that a request gives to a new object: its own, and those of the templates that it names.

use super::Refused;
use super::batch::Batch;
use super::fields::{Fields, Required};
use crate::enumeration::{ObjectType, ResultReason};
use crate::object::{Client, Instances, ManagedObject, Named, name_text, named};
use crate::term::Term;
use crate::ttlv::{Item, Tag, Value};

/// Most attributes of one object.
pub(crate) const ATTRIBUTES_MAX: usize = 256;

/// An attribute as a client gives it.
pub(crate) struct Given<'a> {
    pub(crate) name: &'a str,
    pub(crate) index: Option<u32>,
    pub(crate) value: &'a Value,
    pub(crate) rule: Named,
}

/// Reads an `Attribute` structure.
pub(crate) fn given(item: &Item) -> Result<Given<'_>, Refused> {
    let name = item.text(Tag::ATTRIBUTE_NAME)?.required(Tag::ATTRIBUTE_NAME)?;
    let rule = named(name).ok_or_else(|| {
        let shown: String = name.chars().take(64).collect();
        Refused::field(format!("there is no attribute {shown:?}; one of your own begins with x-"))
    })?;
    let index = match item.integer(Tag::ATTRIBUTE_INDEX)? {
        None => None,
        Some(index) => Some(u32::try_from(index).map_err(|_| Refused::field("a negative Attribute Index"))?),
    };
    let value = &item.child(Tag::ATTRIBUTE_VALUE).required(Tag::ATTRIBUTE_VALUE)?.value;
    rule.check(value)
        .map_err(|reason| Refused::new(reason, format!("{name} has a value of another type, or with other fields")))?;
    Ok(Given { name, index, value, rule })
}

/// The attributes of a payload's Template-Attribute, with those of templates first, as the request's own go before them.
pub(crate) fn attributes(batch: &Batch<'_>, payload: &Item, tag: Tag) -> Result<Vec<Item>, Refused> {
    let Some(own) = payload.structure(tag)? else { return Ok(Vec::new()) };
    let own_names: Vec<&str> = own
        .iter()
        .filter(|item| item.tag == Tag::ATTRIBUTE)
        .filter_map(|item| item.text(Tag::ATTRIBUTE_NAME).ok().flatten())
        .collect();
    let mut items = Vec::new();
    for reference in own.iter().filter(|item| item.tag == Tag::NAME) {
        let template = named_template(batch, &reference.value)?;
        let theirs = template.template.iter().filter(|item| item.tag == Tag::ATTRIBUTE);
        items.extend(
            theirs
                .filter(|item| {
                    let name = item.text(Tag::ATTRIBUTE_NAME).ok().flatten();
                    name.is_some_and(|name| !own_names.contains(&name))
                })
                .cloned(),
        );
    }
    items.extend(own.iter().filter(|item| item.tag == Tag::ATTRIBUTE).cloned());
    if items.len() > ATTRIBUTES_MAX {
        return Err(Refused::field(format!("an object has at most {ATTRIBUTES_MAX} attributes here")));
    }
    Ok(items)
}

fn named_template(batch: &Batch<'_>, name: &Value) -> Result<ManagedObject, Refused> {
    let text = name_text(name).ok_or_else(|| Refused::message("the Name of a template has no Name Value"))?;
    let mut found = None;
    batch.view.visit(Term::of("Name", name).as_slice(), &mut |object| {
        if object.object_type == ObjectType::Template && object.names().any(|name| name == text) {
            found = Some(ManagedObject::clone(object));
        }
    });
    found.ok_or_else(|| Refused::new(ResultReason::ItemNotFound, "there is no template with this Name"))
}

/// Gives a new object its attributes.
pub(crate) fn give(batch: &Batch<'_>, object: &mut ManagedObject, items: &[Item]) -> Result<(), Refused> {
    for item in items {
        let given = given(item)?;
        if given.rule.client() == Client::Never {
            return Err(Refused::field(format!("{} is set by the server alone", given.name)));
        }
        if given.rule.instances() == Instances::One && object.first(given.name).is_some() {
            return Err(Refused::field(format!("{} is given twice", given.name)));
        }
        check_new(batch, object, given.name, given.value)?;
        object.add(given.name, given.value.clone());
    }
    Ok(())
}

/// Refuses a Name that another object has, and a structure without a field that it needs.
pub(crate) fn check_new(batch: &Batch<'_>, object: &ManagedObject, name: &str, value: &Value) -> Result<(), Refused> {
    match name {
        "Name" => {
            let text = name_text(value).ok_or_else(|| Refused::field("a Name without text"))?;
            let mut taken = object.names().any(|own| own == text);
            batch.view.visit(Term::of("Name", value).as_slice(), &mut |other| {
                taken |= other.uid != object.uid && other.names().any(|own| own == text);
            });
            if taken { Err(Refused::field("another object has this Name")) } else { Ok(()) }
        }
        "Application Specific Information" => match value {
            Value::Structure(items) if items.as_slice().child(Tag::APPLICATION_DATA).is_some() => Ok(()),
            _ => Err(Refused::new(
                ResultReason::ApplicationNamespaceNotSupported,
                "no namespace has data that is made up here: give the Application Data too",
            )),
        },
        _ => Ok(()),
    }
}
