//! One batch: the view it works on, the ID placeholder, and which operation goes where.

use std::sync::Arc;

use super::fields::{Fields, Required};
use super::{Permitted, Refused, adjust, attributes, create, cryptography, get, life, locate, query, rekey};
use crate::codec::Codec;
use crate::enumeration::{Operation, ResultReason, UniqueIdentifierOf};
use crate::object::ManagedObject;
use crate::ttlv::{Item, Tag, Value};
use crate::version::Version;
use crate::view::View;

/// What an operation answers with.
pub(crate) struct Done {
    pub(crate) operation: Operation,
    pub(crate) payload: Vec<Item>,
}

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
    told: Vec<(Operation, String)>,
}

type Handler = fn(&mut Batch<'_>, &Item) -> Result<Vec<Item>, Refused>;

/// What is done here: the operation, the first version that has it, and who does it.
const OPERATIONS: &[(Operation, Version, Handler)] = &[
    (Operation::Query, Version::V1_0, query::query),
    (Operation::DiscoverVersions, Version::V1_1, query::discover_versions),
    (Operation::Create, Version::V1_0, create::create),
    (Operation::Register, Version::V1_0, create::register),
    (Operation::ReKey, Version::V1_0, rekey::rekey),
    (Operation::Locate, Version::V1_0, locate::locate),
    (Operation::Check, Version::V1_0, life::check),
    (Operation::Get, Version::V1_0, get::get),
    (Operation::GetAttributes, Version::V1_0, attributes::get),
    (Operation::GetAttributeList, Version::V1_0, attributes::list),
    (Operation::AddAttribute, Version::V1_0, attributes::add),
    (Operation::ModifyAttribute, Version::V1_0, attributes::modify),
    (Operation::DeleteAttribute, Version::V1_0, attributes::delete),
    (Operation::SetAttribute, Version::V2_0, attributes::set),
    (Operation::AdjustAttribute, Version::V2_0, adjust::adjust),
    (Operation::Activate, Version::V1_0, life::activate),
    (Operation::Revoke, Version::V1_0, life::revoke),
    (Operation::Destroy, Version::V1_0, life::destroy),
    (Operation::Encrypt, Version::V1_2, cryptography::encrypt),
    (Operation::Decrypt, Version::V1_2, cryptography::decrypt),
    (Operation::Mac, Version::V1_2, cryptography::mac),
    (Operation::MacVerify, Version::V1_2, cryptography::mac_verify),
    (Operation::Hash, Version::V1_2, cryptography::hash),
    (Operation::RngRetrieve, Version::V1_2, cryptography::rng_retrieve),
    (Operation::RngSeed, Version::V1_2, cryptography::rng_seed),
    (Operation::Interop, Version::V2_0, query::interop),
    (Operation::Ping, Version::V2_1, query::ping),
];

/// The operations that a client of this version is told of.
pub(crate) fn operations(version: Version) -> impl Iterator<Item = Operation> {
    OPERATIONS.iter().filter(move |(_, since, _)| *since <= version).map(|(operation, ..)| *operation)
}

impl<'a> Batch<'a> {
    pub(crate) fn new(view: View<'a>, version: Version, now_s: i64) -> Self {
        let codec = Codec::of(version);
        Self { view, version, codec, now_s, placeholder: None, uids: Vec::new(), told: Vec::new() }
    }

    /// Does one item, or leaves everything as it was.
    pub(crate) fn item(&mut self, item: &Item, permitted: &Permitted) -> Result<Done, Refused> {
        let number = item.number(Tag::OPERATION)?.required(Tag::OPERATION)?;
        let (operation, _, handler) = OPERATIONS
            .iter()
            .find(|(operation, since, _)| u32::from(*operation) == number && *since <= self.version)
            .ok_or_else(|| Refused::new(ResultReason::OperationNotSupported, "this operation is not done here"))?;
        permitted.check(*operation)?;
        if let Some(extension) = item.child(Tag::MESSAGE_EXTENSION)
            && extension.boolean(Tag::CRITICALITY_INDICATOR)?.unwrap_or(false)
        {
            return Err(Refused::feature("no Message Extension is known here, and this one is said to be critical"));
        }
        let nothing = Item::structure(Tag::REQUEST_PAYLOAD, Vec::new());
        if let Some(payload) = item.child(Tag::REQUEST_PAYLOAD) {
            item.structure(payload.tag)?;
        }
        let payload = item.child(Tag::REQUEST_PAYLOAD).unwrap_or(&nothing);
        let mark = self.view.mark();
        match handler(self, payload) {
            Ok(payload) => {
                self.told.extend(payload.iter().filter_map(|item| match (&item.value, item.tag) {
                    (Value::TextString(uid), Tag::UNIQUE_IDENTIFIER) => Some((*operation, uid.clone())),
                    _ => None,
                }));
                Ok(Done { operation: *operation, payload })
            }
            Err(refused) => {
                self.view.back_to(mark);
                Err(refused)
            }
        }
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

    /// The Unique Identifier that a field means: itself, or, as KMIP 2.x has it, that of an operation of this batch, or the nth told in it.
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
