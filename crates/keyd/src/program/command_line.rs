//! The command line: what can be asked for.

use std::path::PathBuf;

use capstan_officer::{Asking, People};
use clap::{Parser, Subcommand};
use clap_complete::Shell;

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
    /// Make this machine another node of the cluster, with the one-time passphrase that a security officer got for it
    Join(Join),
    /// Run the node of a state directory
    Run(Run),
    /// Enrol a person, a drive or a KMIP client: get a certificate for a one-time passphrase
    Enrol(Enrol),
    /// Renew the certificate of a program that cannot do so itself, such as a KMIP client; the old certificate stays
    /// valid until it expires
    Renew(Renew),
    /// Give a holder's passphrase to a node that is locked
    Unlock(Unlock),
    /// Let a user enrol again, approved by the holders at the node's own machine, if nobody is left who could approve
    /// it otherwise
    Reenrol(Reenrol),
    /// Lock a node at once: from then on, only its holders can unlock it
    Lock(Asking),
    /// Show the state of a node
    Status(Status),
    #[command(flatten)]
    People(People),
    /// Split the root key among other holders
    #[command(subcommand)]
    Root(Root),
    /// The audit log
    #[command(subcommand)]
    Audit(Audit),
    /// Back up the database; the node restores the backup in memory, and the written file is read again
    Backup(super::backups::Backup),
    /// The database backups that are known
    Backups(super::backups::Backups),
    /// Make a core security backup, which opens database backups and is split among custodians: first ask the quorum,
    /// then carry it out
    CoreBackup(super::custodians::CoreBackup),
    /// Found the cluster again, in a new epoch, from its backups or from the disk of one node
    Restore(super::recovery::Restore),
    /// Prove that every key of every data unit can be retrieved: at this node, at another node, from the latest backup
    Prove(super::recovery::Prove),
    /// Certify that a key is destroyed everywhere, or say what is missing until then
    Certify(super::recovery::Certify),
    /// Write the man pages of all commands into a folder
    #[command(after_help = "Example:\n  keyd man --dir /usr/local/share/man/man1")]
    Man {
        /// The folder
        #[arg(long)]
        dir: PathBuf,
    },
    /// Print shell completions
    #[command(after_help = "Example:\n  keyd completions bash > /etc/bash_completion.d/keyd")]
    Completions {
        /// The shell
        shell: Shell,
    },
}
