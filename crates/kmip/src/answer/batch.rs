//! One batch: the view it works on, the ID placeholder, and what was told in it.

use std::sync::Arc;

use crate::codec::Codec;
use crate::enumeration::{Operation, ResultReason, UniqueIdentifierOf};
use crate::object::ManagedObject;
use crate::refusal::Refused;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;
use crate::view::View;

pub(crate) struct Batch<'a> {
    pub(crate) view: View<'a>,
    pub(crate) version: Version,
    pub(crate) codec: Codec,
    pub(crate) now_s: i64,
    /// The Unique Identifier that items without one are about: what an earlier item made or found.
    pub(crate) placeholder: Option<String>,
    /// What the item at hand is about, for the audit log.
    pub(crate) uids: Vec<String>,
    /// The Unique Identifiers that earlier items were answered with, which KMIP 2.x may count.
    pub(super) told: Vec<(Operation, String)>,
    /// The operations that a client of a version is told of.
    pub(super) operations: fn(Version) -> Vec<Operation>,
}

impl<'a> Batch<'a> {
    pub(super) fn new(view: View<'a>, version: Version, now_s: i64, operations: fn(Version) -> Vec<Operation>) -> Self {
        let codec = Codec::of(version);
        Self { view, version, codec, now_s, placeholder: None, uids: Vec::new(), told: Vec::new(), operations }
    }

    /// The object that a payload is about: the one it names, or that of the ID placeholder.
    pub(crate) fn object(&mut self, payload: &Item) -> Result<Arc<ManagedObject>, Refused> {
        let uid = match payload.child(Tag::UNIQUE_IDENTIFIER) {
            Some(item) => self.uid(item)?,
            None => self.placeholder.clone().ok_or_else(nothing_told)?,
        };
        self.uids.push(uid.clone());
        self.view.find(&uid)
    }

    /// The Unique Identifier that a field means: itself, or, as KMIP 2.x has it, that of an operation of this batch, or
    /// the nth told in it.
    pub(crate) fn uid(&self, field: &Item) -> Result<String, Refused> {
        let of = |operation| self.told.iter().rev().find(|(told_by, _)| *told_by == operation).map(|(_, uid)| uid);
        let meant = match (self.codec, &field.value) {
            (_, Value::TextString(uid)) => Some(uid),
            (Codec::Two, Value::Enumeration(number)) => match UniqueIdentifierOf::from_number(*number) {
                Some(UniqueIdentifierOf::IdPlaceholder) => self.placeholder.as_ref(),
                Some(UniqueIdentifierOf::Create) => of(Operation::Create),
                Some(UniqueIdentifierOf::Locate) => of(Operation::Locate),
                Some(UniqueIdentifierOf::Register) => of(Operation::Register),
                Some(UniqueIdentifierOf::ReKey) => of(Operation::ReKey),
                None => return Err(Refused::field("no operation that is done here gives this Unique Identifier")),
            },
            (Codec::Two, Value::Integer(place)) => {
                let told = i64::try_from(self.told.len()).unwrap_or(i64::MAX);
                let place = if *place < 0 { told + i64::from(*place) } else { i64::from(*place) };
                usize::try_from(place).ok().and_then(|place| self.told.get(place)).map(|(_, uid)| uid)
            }
            _ => return Err(Refused::message(format!("{} is of another type", field.tag))),
        };
        meant.cloned().ok_or_else(nothing_told)
    }

    /// A value as it is kept: what a Link points to is an object, whatever is done in later batches.
    pub(crate) fn settled(&self, value: &Value) -> Result<Value, Refused> {
        let Value::Structure(fields) = value else { return Ok(value.clone()) };
        let settle = |field: &Item| match field.tag {
            Tag::LINKED_OBJECT_IDENTIFIER => Ok(Item::text(field.tag, self.uid(field)?)),
            _ => Ok(field.clone()),
        };
        Ok(Value::Structure(fields.iter().map(settle).collect::<Result<_, Refused>>()?))
    }

    /// A new Unique Identifier.
    pub(crate) fn new_uid(&mut self) -> Result<String, Refused> {
        let mut random = [0; 16];
        aws_lc_rs::rand::fill(&mut random)
            .map_err(|_| Refused::new(ResultReason::GeneralFailure, "the random generator failed"))?;
        let uid: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        self.uids.push(uid.clone());
        Ok(uid)
    }
}

fn nothing_told() -> Refused {
    Refused::new(ResultReason::ItemNotFound, "no Unique Identifier, and no earlier item of the batch gave one")
}

/// The field that begins most responses.
pub(crate) fn uid_item(uid: &str) -> Item {
    Item::text(Tag::UNIQUE_IDENTIFIER, uid)
}
