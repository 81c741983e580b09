//! The command line: what can be asked for.

use capstan_officer::{Asking, People};
use clap::{Parser, Subcommand};

use super::arguments::{Enrol, Init, Join, Reenrol, Renew, Run, Status, Unlock};
use super::audit::Audit;
use super::root::Root;

/// A node of a key-management cluster: keys for tape drives that are never lost, never leaked, and there when a drive
/// mounts
#[derive(Debug, Parser)]
#[command(name = "keyd", version, max_term_width = 120)]
pub(crate) struct Keyd {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Found a cluster: its first node, root key and users
    #[command(alias = "found")]
    Init(Init),
    /// Make this machine a further node, with a passphrase that a security officer was given for it
    Join(Join),
    /// Run the node of a state directory
    Run(Run),
    /// Enrol a person, a drive or a KMIP client: get a certificate for a one-time passphrase
    Enrol(Enrol),
    /// Renew the certificate of a program that is not ours: a new one under the old one, which stays valid until its
    /// end
    Renew(Renew),
    /// Give a holder's passphrase to a node that is locked
    Unlock(Unlock),
    /// Let a user enrol anew, on the word of the holders at the node's own machine: where nobody is left who could let
    /// anybody in
    Reenrol(Reenrol),
    /// Lock a node, at once: from then on its holders open it, and nothing else
    Lock(Asking),
    /// Say how a node is
    Status(Status),
    #[command(flatten)]
    People(People),
    /// The root key: split anew for other holders
    #[command(subcommand)]
    Root(Root),
    /// The audit log
    #[command(subcommand)]
    Audit(Audit),
    /// Back up the database: made, restored in memory, written and read again
    Backup(super::backups::Backup),
    /// The database backups that are known
    Backups(super::backups::Backups),
    /// Back up what opens database backups, split among custodians: ask the quorum for it, then carry it out
    CoreBackup(super::custodians::CoreBackup),
    /// Found the cluster anew from its backups, or from what one node holds, in a new epoch
    Restore(super::recovery::Restore),
    /// Prove that every key of every data unit can be had back: here, at another node, from the latest backup
    Prove(super::recovery::Prove),
    /// Certify that a key is destroyed everywhere, or say what is missing until then
    Certify(super::recovery::Certify),
}
