//! One batch: the view it works on, the ID placeholder, and which operation goes where.

use std::sync::Arc;

use super::fields::{Fields, Required};
use super::{Permitted, Refused, Version, attributes, create, cryptography, get, life, locate, query, rekey};
use crate::enumeration::{Operation, ResultReason};
use crate::object::ManagedObject;
use crate::ttlv::{Item, Tag};
use crate::view::View;

/// What an operation answers with.
pub(crate) struct Done {
    pub(crate) operation: Operation,
    pub(crate) payload: Vec<Item>,
}

pub(crate) struct Batch<'a> {
    pub(crate) view: View<'a>,
    pub(crate) version: Version,
    pub(crate) now_s: i64,
    /// The Unique Identifier that items without one are about: what an earlier item made or found.
    pub(crate) placeholder: Option<String>,
    /// What the item at hand is about, for the audit log.
    pub(crate) uids: Vec<String>,
}

type Handler = fn(&mut Batch<'_>, &Item) -> Result<Vec<Item>, Refused>;

/// What is done here: the operation, the first minor version of KMIP 1 that has it, and who does it.
const OPERATIONS: &[(Operation, i32, Handler)] = &[
    (Operation::Query, 0, query::query),
    (Operation::DiscoverVersions, 1, query::discover_versions),
    (Operation::Create, 0, create::create),
    (Operation::Register, 0, create::register),
    (Operation::ReKey, 0, rekey::rekey),
    (Operation::Locate, 0, locate::locate),
    (Operation::Check, 0, life::check),
    (Operation::Get, 0, get::get),
    (Operation::GetAttributes, 0, attributes::get),
    (Operation::GetAttributeList, 0, attributes::list),
    (Operation::AddAttribute, 0, attributes::add),
    (Operation::ModifyAttribute, 0, attributes::modify),
    (Operation::DeleteAttribute, 0, attributes::delete),
    (Operation::Activate, 0, life::activate),
    (Operation::Revoke, 0, life::revoke),
    (Operation::Destroy, 0, life::destroy),
    (Operation::Encrypt, 2, cryptography::encrypt),
    (Operation::Decrypt, 2, cryptography::decrypt),
    (Operation::Mac, 2, cryptography::mac),
    (Operation::MacVerify, 2, cryptography::mac_verify),
    (Operation::Hash, 2, cryptography::hash),
    (Operation::RngRetrieve, 2, cryptography::rng_retrieve),
    (Operation::RngSeed, 2, cryptography::rng_seed),
];

/// The operations that a client of this version is told of.
pub(crate) fn operations(version: Version) -> impl Iterator<Item = Operation> {
    OPERATIONS.iter().filter(move |(_, since, _)| *since <= version.minor).map(|(operation, ..)| *operation)
}

impl<'a> Batch<'a> {
    pub(crate) fn new(view: View<'a>, version: Version, now_s: i64) -> Self {
        Self { view, version, now_s, placeholder: None, uids: Vec::new() }
    }

    /// Does one item, or leaves everything as it was.
    pub(crate) fn item(&mut self, item: &Item, permitted: &Permitted) -> Result<Done, Refused> {
        let number = item.number(Tag::OPERATION)?.required(Tag::OPERATION)?;
        let (operation, _, handler) = OPERATIONS
            .iter()
            .find(|(operation, since, _)| u32::from(*operation) == number && *since <= self.version.minor)
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
            Ok(payload) => Ok(Done { operation: *operation, payload }),
            Err(refused) => {
                self.view.back_to(mark);
                Err(refused)
            }
        }
    }

    /// The object that a payload is about: the one it names, or that of the ID placeholder.
    pub(crate) fn object(&mut self, payload: &Item) -> Result<Arc<ManagedObject>, Refused> {
        let uid = match payload.text(Tag::UNIQUE_IDENTIFIER)? {
            Some(uid) => uid.to_owned(),
            None => self.placeholder.clone().ok_or_else(|| {
                Refused::new(
                    ResultReason::ItemNotFound,
                    "no Unique Identifier, and no earlier item of the batch gave one",
                )
            })?,
        };
        self.uids.push(uid.clone());
        self.view.find(&uid)
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

/// The field that begins most responses.
pub(crate) fn uid_item(uid: &str) -> Item {
    Item::text(Tag::UNIQUE_IDENTIFIER, uid)
}
