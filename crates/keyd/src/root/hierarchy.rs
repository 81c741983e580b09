//! What hangs under the root key: cluster key, group keys, keys.
//!
//! The cluster key lies in a locked page of its own ([`RootKey`], which is the type of such keys). Each level is
//! wrapped by AES key wrap with padding (RFC 5649) under a key that is derived for this one purpose and for this one
//! cluster or group, so that a wrapped group key opens as the key of no other group. A key of a group is checked
//! against its tag, which is computed from the key; and the record that holds it is sealed to its path.

use std::sync::Arc;

use capstan_format::{Algorithm, KeyTag};
use capstan_keys::{KeyError, Name, RootKey, Secret, VolumeKey, WrappedKey, tag_of, unwrap, wrap};
use thiserror::Error;

use crate::seal::Sealer;
use capstan_keys::api::ClusterId;

/// Why a wrapped key does not open.
#[derive(Debug, Error)]
pub enum HierarchyError {
    /// Peer or operator: a group's key that is not one of this cluster.
    #[error(
        "the key of group {group} does not open under this cluster's key: its record belongs to another cluster or was \
         altered. Compare it with the other nodes, and restore it from a backup"
    )]
    Group {
        /// The group.
        group: Name,
    },
    /// Peer: a key that does not open, or that is not the one its tag names.
    #[error(
        "key {tag} does not open under group {group}, or is another than its tag says: its record was altered. Compare it \
         with the other nodes, and restore it from a backup"
    )]
    Key {
        /// The key.
        tag: KeyTag,
        /// The group it should be of.
        group: Name,
    },
    /// Host: the cryptographic library failed.
    #[error(transparent)]
    Host(#[from] KeyError),
}

/// The keys of an unlocked node. They must never be printed, logged, cloned or written anywhere: no `Debug`, no
/// `Clone`.
pub struct ClusterKeys {
    cluster: ClusterId,
    key: Arc<RootKey>,
    sealer: Sealer,
}

impl ClusterKeys {
    /// New ones, for a cluster that is founded.
    pub fn create(cluster: ClusterId) -> Result<Self, KeyError> {
        Ok(Self::new(RootKey::random()?, cluster))
    }

    pub(crate) fn new(key: RootKey, cluster: ClusterId) -> Self {
        let key = Arc::new(key);
        Self { cluster, sealer: Sealer::new(key.clone(), cluster), key }
    }

    /// Out of [`ClusterKeys::wrap`], or none if this root key is not what they were wrapped under.
    pub fn unwrap(root: &RootKey, cluster: ClusterId, wrapped: &WrappedKey) -> Result<Option<Self>, KeyError> {
        let key = RootKey::unwrap(&cluster_wrapping(root, cluster)?, wrapped)?;
        Ok(key.map(|key| Self::new(key, cluster)))
    }

    /// The cluster key under a root key.
    pub fn wrap(&self, root: &RootKey) -> Result<WrappedKey, KeyError> {
        self.key.wrap(&cluster_wrapping(root, self.cluster)?)
    }

    /// The key itself, for a token that wraps it.
    pub(crate) fn key(&self) -> &RootKey {
        &self.key
    }

    /// The cluster they belong to.
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The public name of the cluster key: it tells nothing of it, and another key has another.
    pub fn tag(&self) -> KeyTag {
        tag_of(self.key.expose())
    }

    /// What seals and opens the records.
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// A key derived from the cluster key for another purpose: the MAC of a backup, the journal of a node.
    ///
    /// Each caller has a `purpose` of its own, beginning with `capstan keyd`.
    pub fn derive(&self, salt: &[u8], purpose: &str) -> Result<Secret, KeyError> {
        self.key.derive(salt, purpose)
    }

    /// A new key for a group, and as it lies in the group's record.
    pub fn new_group_key(&self, group: &Name) -> Result<(GroupKey, WrappedKey), KeyError> {
        let key = Secret::random()?;
        let wrapped = wrap(&self.group_wrapping(group)?, key.expose())?;
        Ok((GroupKey { group: group.clone(), key }, wrapped))
    }

    /// The key of a group, out of its record.
    pub fn group_key(&self, group: &Name, wrapped: &WrappedKey) -> Result<GroupKey, HierarchyError> {
        let key = unwrap(&self.group_wrapping(group)?, wrapped);
        let key = key.ok_or_else(|| HierarchyError::Group { group: group.clone() })?;
        Ok(GroupKey { group: group.clone(), key })
    }

    fn group_wrapping(&self, group: &Name) -> Result<Secret, KeyError> {
        self.key.derive(&self.cluster.0, &format!("capstan keyd group wrap v1 {group}"))
    }
}

fn cluster_wrapping(root: &RootKey, cluster: ClusterId) -> Result<Secret, KeyError> {
    root.derive(&cluster.0, "capstan keyd cluster wrap v1")
}

/// The key that wraps the keys of one group. No `Debug`, no `Clone`; zeroised.
pub struct GroupKey {
    group: Name,
    key: Secret,
}

impl GroupKey {
    /// A key of the group, as it lies in the record of the key.
    pub fn wrap(&self, key: &VolumeKey) -> Result<WrappedKey, KeyError> {
        wrap(&self.key, key.expose())
    }

    /// A key of the group, out of its record: only if it is the one of this tag.
    pub fn unwrap(&self, tag: KeyTag, algorithm: Algorithm, wrapped: &WrappedKey) -> Result<VolumeKey, HierarchyError> {
        unwrap(&self.key, wrapped)
            .map(|secret| VolumeKey::new(secret, algorithm))
            .filter(|key| key.tag() == tag)
            .ok_or_else(|| HierarchyError::Key { tag, group: self.group.clone() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    const CLUSTER: ClusterId = ClusterId([1; 16]);

    fn name(text: &str) -> Name {
        text.parse().unwrap()
    }

    #[test]
    fn each_level_opens_under_the_one_above_it_alone() {
        let (root, keys) = (RootKey::random().unwrap(), ClusterKeys::create(CLUSTER).unwrap());
        let wrapped = keys.wrap(&root).unwrap();
        let again = ClusterKeys::unwrap(&root, CLUSTER, &wrapped).unwrap().unwrap();
        assert_eq!(again.tag(), keys.tag());
        assert!(ClusterKeys::unwrap(&RootKey::random().unwrap(), CLUSTER, &wrapped).unwrap().is_none());
        assert!(ClusterKeys::unwrap(&root, ClusterId([2; 16]), &wrapped).unwrap().is_none());

        let (weekly, wrapped) = keys.new_group_key(&name("weekly")).unwrap();
        let key = VolumeKey::new(Secret::random().unwrap(), Algorithm::Aes256Gcm);
        let in_record = weekly.wrap(&key).unwrap();
        let weekly = again.group_key(&name("weekly"), &wrapped).unwrap();
        let read = weekly.unwrap(key.tag(), Algorithm::Aes256Gcm, &in_record).unwrap();
        assert_eq!(read.expose(), key.expose());

        assert!(matches!(again.group_key(&name("daily"), &wrapped).err(), Some(HierarchyError::Group { .. })));
        let other = VolumeKey::new(Secret::random().unwrap(), Algorithm::Aes256Gcm);
        let swapped = weekly.unwrap(other.tag(), Algorithm::Aes256Gcm, &in_record);
        assert!(matches!(swapped.err(), Some(HierarchyError::Key { tag, .. }) if tag == other.tag()));
    }
}
