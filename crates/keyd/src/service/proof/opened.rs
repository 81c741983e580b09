//! Keys of this node's copy, opened and compared with their tags.

use std::collections::BTreeMap;

use capstan_format::{Algorithm, KeyTag};
use capstan_keys::{Name, WrappedKey};

use crate::desk::{open_pool_key, recovered};
use crate::kmip::opens;
use crate::node::{LOOKED_AT_ONCE, Node};
use crate::path::Path;
use crate::record::IssuedRecord;
use crate::root::GroupKey;
use crate::state::View;

/// What it takes to see whether a key opens.
pub(super) struct Lying {
    pub(super) tag: KeyTag,
    algorithm: Algorithm,
    group: Name,
    wrapped: WrappedKey,
}

impl Lying {
    /// Nothing of a key that is destroyed.
    pub(super) fn of(record: &IssuedRecord) -> Option<Self> {
        let (tag, algorithm) = (record.stored.record.tag, record.stored.record.algorithm);
        Some(Self { tag, algorithm, group: record.issued.group.clone(), wrapped: record.stored.wrapped? })
    }
}

/// Opens keys, and remembers the keys of their groups.
pub(super) struct Opener<'a> {
    node: &'a Node,
    groups: BTreeMap<Name, Option<GroupKey>>,
}

impl<'a> Opener<'a> {
    pub(super) fn new(node: &'a Node) -> Self {
        Self { node, groups: BTreeMap::new() }
    }

    /// Unwraps a key, and compares it with its tag. The error says why it cannot be had back.
    pub(super) fn key(&mut self, key: &Lying) -> Result<(), String> {
        let Lying { tag, algorithm, group: name, wrapped } = key;
        let group = self.groups.entry(name.clone()).or_insert_with(|| {
            let record = self.node.view(|view| view.ledger().group(name).map(|group| group.wrapped))?;
            self.node.keys().group_key(name, &record).ok()
        });
        match group {
            Some(group) => group.unwrap(*tag, *algorithm, wrapped).map(drop).map_err(|error| error.to_string()),
            None => Err(format!("the key of group {name} is not there, or does not open")),
        }
    }

    /// Opens a key of a lost node's pool that no volume has named yet, likewise; with it comes the commit that put it
    /// there.
    pub(super) fn recovered(&self, view: View<'_>, tag: &KeyTag) -> Option<(i64, Result<(), String>)> {
        let kept = recovered(view.ledger(), tag)?;
        let commit = view.ledger().mark(&Path::recovered(tag)).revision;
        // Its tag is of its bytes alone, whichever cipher it is for.
        let opened = match open_pool_key(self.node.keys(), *tag, Algorithm::Aes256Gcm, &kept.wrapped) {
            Ok(Some(_)) => Ok(()),
            Ok(None) => Err("it does not open, or is another than its name says".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        Some((commit, opened))
    }

    /// Opens the material of a KMIP object, likewise; with it comes the commit that put it there.
    pub(super) fn object(&self, view: View<'_>, uid: &str) -> Option<(i64, Result<(), String>)> {
        let (wrapped, mark) = view.ledger().kmip().wrapped(uid)?;
        Some((mark.revision, opens(self.node.keys(), uid, wrapped).map_err(|error| error.to_string())))
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
    /// A slice at a time: agents are answered meanwhile. A key that changes meanwhile is opened as it was or as it is,
    /// and that it was changed behind the commit that is proved, its own commit says.
    pub(super) fn of(node: &Node) -> Self {
        let mut opener = Opener::new(node);
        let mut opened = Self { keys: 0, objects: 0, refused: BTreeMap::new() };
        let pick = |_: View<'_>, record: &IssuedRecord| Lying::of(record);
        node.walk_keys(pick, |slice| {
            for key in slice.into_iter().flatten() {
                match opener.key(&key) {
                    Ok(()) => opened.keys += 1,
                    Err(why) => drop(opened.refused.insert(key.tag.to_string(), why)),
                }
            }
        });
        for batch in recovered_keys(node).chunks(LOOKED_AT_ONCE) {
            node.view(|view| {
                for tag in batch {
                    match opener.recovered(view, tag) {
                        None => {}
                        Some((_, Ok(()))) => opened.keys += 1,
                        Some((_, Err(why))) => drop(opened.refused.insert(tag.to_string(), why)),
                    }
                }
            });
        }
        for batch in objects(node).chunks(LOOKED_AT_ONCE) {
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

/// The keys of lost nodes' pools that no volume has named at this moment.
pub(super) fn recovered_keys(node: &Node) -> Vec<KeyTag> {
    node.view(|view| view.ledger().recovered().map(|(tag, ..)| tag).collect())
}

/// The objects that there are at this moment and have material.
pub(super) fn objects(node: &Node) -> Vec<String> {
    node.view(|view| view.ledger().kmip().with_material().map(str::to_owned).collect())
}

/// The name of an object among those of keys.
pub(super) fn named(uid: &str) -> String {
    format!("kmip/{uid}")
}
