//! Keys: of the sealed store, and of a key cluster.

use std::ffi::OsString;
use std::path::PathBuf;

use capstan_keys::Name;
use clap::{Args, Subcommand, ValueEnum};

use crate::globals::OF_ALL_COMMANDS;

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Identity file of a person, made by `keyd enrol`, to ask a key cluster for what a machine may not ask for [env:
    /// KEYD_IDENTITY]
    #[arg(long, global = true, value_name = "FILE", display_order = OF_ALL_COMMANDS)]
    pub(crate) identity: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: KeyAction,
}

/// What a key cluster is asked, in the words of `keyd`.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// The subcommand and its arguments, as for `keyd`: `list`, `add NAME`; `help` lists all [default: list or show]
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyAction {
    /// Make a key policy; it cannot be changed once a key was issued under it
    Add(PolicyAdd),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyAdd {
    /// Its name
    pub(crate) name: Name,
    /// How long a key encrypts, from its first issue: 24h, 7d, 1y; after that, its volume continues with a new key
    /// [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub(crate) encrypt_for: Option<String>,
    /// For how long a key decrypts, from its first issue [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub(crate) decrypt_for: Option<String>,
    /// Cipher of its keys [default: that of the pool]
    #[arg(long, value_enum)]
    pub(crate) cipher: Option<KeyCipher>,
    /// Its keys never leave the store in an export
    #[arg(long)]
    pub(crate) no_export: bool,
    /// Do not let keys of other stores be imported into its groups
    #[arg(long)]
    pub(crate) no_import: bool,
    /// Let drives and movers retire its keys, or mark them as compromised
    #[arg(long)]
    pub(crate) agents_revoke: bool,
    /// For how long a node of a key cluster gives its keys out while it is cut off from the others [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub(crate) isolated_for: Option<String>,
    /// Replace an existing policy, as long as no key was issued under it. Give all options again: those that are not
    /// given return to their defaults
    #[arg(long)]
    pub(crate) replace: bool,
}

/// Ciphers of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum KeyCipher {
    /// AES-256-GCM
    Gcm,
    /// AES-256-CCM
    Ccm,
}

#[derive(Debug, Subcommand)]
pub(crate) enum GroupAction {
    /// Make a key group
    Add {
        /// Its name: that of the pool whose keys it is for
        name: Name,
        /// Its policy, which cannot be changed later
        #[arg(long)]
        policy: Name,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum DriveAction {
    /// Say which key groups a drive may use
    Set {
        /// Its serial number
        serial: Name,
        /// A key group that it may use; the first one is its default; may be given several times
        #[arg(long = "group", value_name = "GROUP", required = true)]
        groups: Vec<Name>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Enrol {
    /// Host and port at which a node accepts enrolments
    #[arg(value_name = "HOST:PORT")]
    pub(crate) node: String,
    /// The name for which the enrolment was opened: that of this machine in the cluster
    #[arg(long)]
    pub(crate) name: Name,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    pub(crate) key_identity: PathBuf,
}

/// What a person asked a key cluster for, and others approved.
#[derive(Debug, clap::Args)]
pub(crate) struct Approved {
    /// With a key cluster: carry out the approved request with this id
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
    /// With a key cluster: carry out your own newest request of this kind that was approved
    #[arg(long, conflicts_with = "request")]
    pub(crate) last: bool,
}

impl Approved {
    /// As `keyd` is told; none where this is to be asked for first.
    pub(crate) fn words(&self) -> Option<Vec<String>> {
        let of_id = self.request.as_ref().map(|id| vec!["--request".to_owned(), id.clone()]);
        of_id.or_else(|| self.last.then(|| vec!["--last".to_owned()]))
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeyAction {
    /// Show where the keys are kept; for a key cluster, show which nodes answer and until when this machine's
    /// certificate is valid
    Status,
    /// Become an agent of a key cluster; the one-time passphrase is asked for, or taken from
    /// CAPSTAN_ENROLMENT_PASSPHRASE
    Enrol(Enrol),
    /// List keys and their states, without the secret keys themselves
    List,
    /// Make a new key store where it is lost or damaged; `keys import` then takes in the keys of an export
    Create,
    /// Write keys to a sealed file; a passphrase for it is asked for, or taken from CAPSTAN_EXPORT_PASSPHRASE
    Export {
        /// The file to make
        file: PathBuf,
        /// Only keys of these volumes
        #[arg(long, value_name = "VOLUME", conflicts_with_all = ["request", "last"])]
        volume: Vec<String>,
        #[command(flatten)]
        approved: Approved,
    },
    /// Take keys from a sealed file
    Import {
        /// The file
        file: PathBuf,
        /// The key group that the new ones join
        #[arg(long, default_value = "default", conflicts_with_all = ["request", "last"])]
        group: Name,
        #[command(flatten)]
        approved: Approved,
    },
    /// List key policies, or make one: for how long keys encrypt and decrypt
    Policies {
        #[command(subcommand)]
        action: Option<PolicyAction>,
    },
    /// List key groups, or make one: the keys of a pool belong to the group of its name, else to `default`
    Groups {
        #[command(subcommand)]
        action: Option<GroupAction>,
    },
    /// List drives that fetch keys themselves, or say which groups one may use
    Drives {
        #[command(subcommand)]
        action: Option<DriveAction>,
    },
    /// List volumes with the keys that were ever issued for them
    Volumes {
        /// Only these [default: all]
        volumes: Vec<String>,
    },
    /// Allow reading a volume for some time although the cryptoperiod of its keys is over
    #[command(alias = "extend")]
    ExtendDecryption {
        /// The volume
        volume: String,
        /// For how long from now: 12h, 7d
        #[arg(long = "for", value_name = "TIME")]
        time: String,
    },
    /// Drives that a key cluster knows: enrol, list, revoke (`keyd agents`); of a key store, as `drives`
    Agents(Words),
    /// Cartridges that a key cluster knows, with their keys (`keyd units`); of a key store, as `volumes`
    Units(Words),
    /// Users of a key cluster and their roles (`keyd users`)
    Users(Words),
    /// How many approvals an act takes in a key cluster (`keyd quorum`)
    Quorum(Words),
    /// What waits for a quorum in a key cluster (`keyd pending`)
    Pending(Words),
    /// Sites of a key cluster (`keyd sites`)
    Sites(Words),
    /// Backups of a key cluster's database (`keyd backups`)
    Backups(Words),
    /// The audit log of a key cluster (`keyd audit`)
    Audit(Words),
    /// List what opens the key store: each passphrase and key file has a slot
    Slots,
    /// Change the passphrase; the new one is asked for, or taken from CAPSTAN_NEW_PASSPHRASE
    Passphrase,
    /// Let one more passphrase or key file open the key store
    Add {
        /// A key file, which is made if it does not exist; without it a passphrase is asked for
        #[arg(long, value_name = "FILE")]
        new_key_file: Option<PathBuf>,
    },
    /// Remove a passphrase or key file, so that it no longer opens the key store
    Remove {
        /// Its slot, as `capstan keys slots` lists it
        slot: u8,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Stop the keys of a volume from encrypting: later appends get a new key
    Retire {
        /// The volume, or a key's tag
        what: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Mark the keys of a volume as compromised: they no longer encrypt; move the data that they encrypted
    Compromise {
        /// The volume, or a key's tag
        what: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Destroy the keys of a volume: the data on it is gone for good
    Destroy {
        /// The volume, or a key's tag
        what: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}
