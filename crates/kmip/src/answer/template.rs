//! The attributes that a request gives to a new object: its own, and those of the templates that it names.

use super::batch::Batch;
use crate::codec::{Given, Wanted, read_of_template};
use crate::enumeration::{ObjectType, ResultReason};
use crate::fields::Fields;
use crate::object::{Client, Instances, ManagedObject, Named, name_text};
use crate::refusal::Refused;
use crate::term::Term;
use crate::ttlv::{Item, Tag, Value};

/// Most attributes of one object.
pub(crate) const ATTRIBUTES_MAX: usize = 256;

/// The attributes of a payload, with those of templates first, as the request's own go before them.
pub(crate) fn attributes(batch: &Batch<'_>, payload: &Item) -> Result<Vec<Given>, Refused> {
    let Wanted { templates, own } = batch.codec.wanted(payload)?;
    let mut given = Vec::new();
    for name in &templates {
        let template = named_template(batch, name)?;
        for item in template.template.iter().filter(|item| item.tag == Tag::ATTRIBUTE) {
            let theirs = read_of_template(item)?;
            // The Name within is the template's; a client's own attributes are of both, however many.
            let is_own_name = theirs.name == "Name" && name_text(&theirs.value) == name_text(name);
            let is_said = own.iter().any(|own| own.name == theirs.name);
            let stays = !is_said || matches!(theirs.rule, Named::Custom) && !own.iter().any(|own| own.same(&theirs));
            if stays && !is_own_name {
                given.push(theirs);
            }
        }
    }
    given.extend(own);
    if given.len() > ATTRIBUTES_MAX {
        return Err(Refused::field(format!("an object has at most {ATTRIBUTES_MAX} attributes here")));
    }
    Ok(given)
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
pub(crate) fn give(batch: &Batch<'_>, object: &mut ManagedObject, given: &[Given]) -> Result<(), Refused> {
    for Given { name, value, rule } in given {
        if rule.client() == Client::Never {
            return Err(Refused::new(ResultReason::ReadOnlyAttribute, format!("{name} is set by the server alone")));
        }
        if rule.instances() == Instances::One && object.first(name).is_some() {
            return Err(Refused::field(format!("{name} is given twice")));
        }
        check_new(batch, object, name, value)?;
        object.add(name, batch.settled(value)?);
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
            if taken {
                Err(Refused::new(ResultReason::NonUniqueNameAttribute, "another object has this Name"))
            } else {
                Ok(())
            }
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
