//! Families of records, and how a record of each ends.
//!
//! Whoever may write to etcd may delete what lies there. So that a record is gone counts only where the cluster itself
//! has said so: a node puts a sealed **tombstone** in its place ([`crate::seal`]), which counts on as any other change
//! does. A record that is missing without one is a doubt: each node keeps the last version that it knew, and says so.
//! Tombstones stay as long as their epoch; a restore leaves them behind.
//!
//! What nodes delete bare, and why that harms nothing, stands in [`FAMILIES`]; a family that is not named there never
//! ends.

/// How a record of a family ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// Never: its states are said in the record.
    Never,
    /// By a sealed tombstone.
    Tombstone,
    /// It is deleted bare, and that is believed.
    Deletion,
}

/// The records whose paths begin with one word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// The first component of their paths.
    pub kind: &'static str,
    /// How one ends.
    pub ending: Ending,
    /// Why so.
    pub why: &'static str,
}

const fn family(kind: &'static str, ending: Ending, why: &'static str) -> Family {
    Family { kind, ending, why }
}

/// Every family that this program writes.
pub const FAMILIES: [Family; 36] = [
    family("key", Ending::Never, "a destroyed key's record says that it is destroyed, and since when"),
    family("unit", Ending::Never, "what was ever written on a volume stays known"),
    family("policy", Ending::Never, "keys were issued under it"),
    family("group", Ending::Never, "its key unwraps keys"),
    family(
        "pool",
        Ending::Deletion,
        "a million of them come and go; an issued key is never issued again whatever the pool says, and one that is lost before protects nothing",
    ),
    family("agent", Ending::Tombstone, "an agent without a record may use every group"),
    family("kma", Ending::Tombstone, "with fewer nodes a key of the pool would be ready sooner"),
    family("held", Ending::Tombstone, "put back, a node that was removed would count for a second copy again"),
    family("removed", Ending::Never, "without it a node that was removed would not know"),
    family("removed-journal", Ending::Never, "it says that what a removed node gave out is known"),
    family("kmip", Ending::Never, "a destroyed object says so itself"),
    family("kmip-client", Ending::Never, "whose objects a client sees"),
    family("authority", Ending::Never, "it is the cluster's for good"),
    family("enrolment", Ending::Tombstone, "put back, a spent passphrase would let somebody in again"),
    family("enrolling", Ending::Tombstone, "put back, an enrolment that was rejected could be carried out"),
    family("joining", Ending::Tombstone, "it says what a node will be"),
    family("certificate", Ending::Never, "one that is not known cannot be revoked"),
    family("revoked", Ending::Never, "without it a revoked certificate lets in again"),
    family("user", Ending::Never, "a name is never given to another person"),
    family("users-changed", Ending::Never, "by it two changes of users see each other"),
    family("quorum", Ending::Never, "how many must agree"),
    family("pending", Ending::Tombstone, "put back, a request that was carried out could be carried out again"),
    family("conflict", Ending::Never, "people must hear of it"),
    family("anchor", Ending::Never, "by it the end of an audit log is missed"),
    family("backup", Ending::Never, "a backup that is forgotten may hold a destroyed key"),
    family("core-backup", Ending::Never, "it says who has shares"),
    family("recovered", Ending::Tombstone, "a volume may name it, until it is on record as the key of one"),
    family("proof", Ending::Tombstone, "what was proved, and when, until the node is removed"),
    family("root", Ending::Never, "the root key, sealed for its holders"),
    family("export", Ending::Never, "keys that left the cluster are out there for good"),
    family("epoch", Ending::Never, "that the cluster has gone on"),
    family("autonomous", Ending::Never, "it says itself that a node may not unlock itself any more"),
    family("site", Ending::Tombstone, "put back, a misspelt site would count as one"),
    family("destruction", Ending::Never, "it is the proof of a destruction"),
    family(
        "wiped",
        Ending::Never,
        "how far a node's journal was clean, which counts for its disks after it is removed",
    ),
    family("wiped-copies", Ending::Never, "how far copies of journals that it kept were clean, likewise"),
];

/// Families whose records are rewritten all day, and why: that one of them is another than it was says nothing of the
/// ledger it lies in.
pub const REWRITTEN: [(&str, &str); 6] = [
    ("held", "a node says with each key that is drawn how far its disk is"),
    ("anchor", "each node's audit log is anchored each minute"),
    ("proof", "each node proves its keys now and then"),
    ("removed-journal", "a holder says again what its copy has, whenever that has grown"),
    ("wiped", "a node says after each key that is destroyed that its journal is empty"),
    ("wiped-copies", "and that its copies of journals are"),
];

/// Whether the record at a path is one of those that are rewritten all day.
pub fn is_rewritten(path: &str) -> bool {
    let kind = path.split('/').next().unwrap_or_default();
    REWRITTEN.iter().any(|(rewritten, _)| *rewritten == kind)
}

/// How the record at a path ends.
pub fn ending_of(path: &str) -> Ending {
    let kind = path.split('/').next().unwrap_or_default();
    FAMILIES.iter().find(|family| family.kind == kind).map_or(Ending::Never, |family| family.ending)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_rewritten_is_a_family() {
        for (kind, _) in REWRITTEN {
            assert!(FAMILIES.iter().any(|family| family.kind == kind), "{kind}");
        }
        assert!(is_rewritten("held/a") && !is_rewritten("key/00"));
    }
}
