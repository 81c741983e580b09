//! Keys of this node's copy, opened and compared with their tags.

use std::collections::BTreeMap;

use capstan_format::KeyTag;
use capstan_keys::Name;

use crate::kmip::opens;
use crate::node::Node;
use crate::record::IssuedRecord;
use crate::root::{ClusterKeys, GroupKey};
use crate::state::View;

/// What is opened before others are let in: some milliseconds of work.
pub(super) const BATCH: usize = 256;

/// Opens keys, and remembers the keys of their groups.
pub(super) struct Opener<'a> {
    keys: &'a ClusterKeys,
    groups: BTreeMap<Name, Option<GroupKey>>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(keys: &'a ClusterKeys) -> Self {
        Self { keys, groups: BTreeMap::new() }
    }

    /// Opens a key; none if it is destroyed. The error says why it cannot be had back.
    pub(super) fn key(&mut self, view: View<'_>, record: &IssuedRecord) -> Option<Result<(), String>> {
        let wrapped = record.stored.wrapped.as_ref()?;
        let (tag, algorithm, name) = (record.stored.record.tag, record.stored.record.algorithm, &record.issued.group);
        if !self.groups.contains_key(name) {
            let group = view.ledger().group(name);
            let opened = group.and_then(|group| self.keys.group_key(name, &group.wrapped).ok());
            self.groups.insert(name.clone(), opened);
        }
        Some(match self.groups.get(name).and_then(Option::as_ref) {
            Some(group) => group.unwrap(tag, algorithm, wrapped).map(drop).map_err(|error| error.to_string()),
            None => Err(format!("the key of group {name} is not there, or does not open")),
        })
    }

    /// Opens the material of a KMIP object, likewise; with it comes the commit that put it there.
    pub(super) fn object(&self, view: View<'_>, uid: &str) -> Option<(i64, Result<(), String>)> {
        let (wrapped, mark) = view.ledger().kmip().wrapped(uid)?;
        Some((mark.revision, opens(self.keys, uid, wrapped).map_err(|error| error.to_string())))
    }
}

/// Every key and object of a copy, opened.
pub(super) struct Opened {
    pub(super) keys: u64,
    pub(super) objects: u64,
    /// What did not open, by name ([`named`]), and why.
    pub(super) refused: BTreeMap<String, String>,
}

impl Opened {
    pub(super) fn of(node: &Node) -> Self {
        let mut opener = Opener::new(node.keys());
        let mut opened = Self { keys: 0, objects: 0, refused: BTreeMap::new() };
        let tags: Vec<KeyTag> = node.view(|view| view.ledger().keys().map(|key| key.stored.record.tag).collect());
        for batch in tags.chunks(BATCH) {
            node.view(|view| {
                for record in batch.iter().filter_map(|tag| view.ledger().key(tag)) {
                    match opener.key(view, record) {
                        None => {}
                        Some(Ok(())) => opened.keys += 1,
                        Some(Err(why)) => drop(opened.refused.insert(record.stored.record.tag.to_string(), why)),
                    }
                }
            });
        }
        for batch in objects(node).chunks(BATCH) {
            node.view(|view| {
                for uid in batch {
                    match opener.object(view, uid) {
                        None => {}
                        Some((_, Ok(()))) => opened.objects += 1,
                        Some((_, Err(why))) => drop(opened.refused.insert(named(uid), why)),
                    }
                }
            });
        }
        opened
    }
}

/// The objects that there are at this moment and have material.
pub(super) fn objects(node: &Node) -> Vec<String> {
    node.view(|view| view.ledger().kmip().with_material().map(str::to_owned).collect())
}

/// The name of an object among those of keys.
pub(super) fn named(uid: &str) -> String {
    format!("kmip/{uid}")
}
