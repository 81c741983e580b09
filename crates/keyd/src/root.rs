//! The root key of the cluster: where it is had from, and what hangs under it.
//!
//! ```text
//! token (PKCS#11) ------------------------ key wrap ---+
//! m of n passphrases --Argon2id--> shares --> root key +--> cluster key --HKDF--> sealing key of each kind of record
//! key file (only if a quorum said so) ------> root key                  +-HKDF--> wrapping key of each group --> group key --> keys
//! ```
//! A node starts *locked*: it holds `root.sealed` ([`SealedRoot`]), in which the cluster key lies under the root key and the root
//! key under its quorum, and can open nothing. [`Gate`] is the state machine of its unlocking. Once the cluster key is there, the
//! root key is dropped again: whatever needs it (another quorum, an autonomous unlock) needs the quorum once more.
//!
//! Nothing here reads a clock or waits for the network. Argon2id takes some tenths of a second and a token takes what it takes:
//! whoever serves many peers calls these from a thread that may block.

mod hierarchy;

pub use hierarchy::{ClusterKeys, GroupKey, HierarchyError};
