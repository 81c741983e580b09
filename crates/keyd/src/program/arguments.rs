//! What can be said on the command line.

use std::path::PathBuf;

use crate::authority::{Role, Roles};
use crate::service::FirstUser;
use capstan_keys::Name;
use capstan_keys::api::PeerKind;
use capstan_officer::Asking;
use clap::Args;

use super::log::LogForm;

/// Where a node is.
#[derive(Debug, Args)]
pub(crate) struct Place {
    /// The node's name
    #[arg(long)]
    pub(crate) name: Name,
    /// The site it stands at
    #[arg(long, default_value = "")]
    pub(crate) site: String,
    /// Where agents, people and other nodes reach it: host and port
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) address: String,
    /// Where it listens for them [default: all interfaces, the port of its address]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) listen: Option<String>,
    /// Where it listens for enrolments [default: it takes none]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) enrol_listen: Option<String>,
    /// Where it listens for KMIP clients, usually at port 5696 [default: it serves none]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) kmip_listen: Option<String>,
    /// Where it serves its metrics, in plain HTTP: a loopback address such as 127.0.0.1:9444 [default: no metrics]
    #[arg(long, value_name = "IP:PORT")]
    pub(crate) metrics_listen: Option<String>,
    /// A client address of a member of etcd, that of this node's own member first; may be given several times
    #[arg(long = "etcd", value_name = "URL", required = true)]
    pub(crate) etcd: Vec<String>,
    /// The certificates of etcd's authority, if etcd uses TLS
    #[arg(long, value_name = "PEM", requires = "etcd_certificate")]
    pub(crate) etcd_authority: Option<PathBuf>,
    /// The node's certificate for etcd
    #[arg(long, value_name = "PEM", requires = "etcd_key")]
    pub(crate) etcd_certificate: Option<PathBuf>,
    /// Its private key
    #[arg(long, value_name = "PEM", requires = "etcd_authority")]
    pub(crate) etcd_key: Option<PathBuf>,
    /// How many keys the node keeps in its pool
    #[arg(long, default_value_t = 1000, value_name = "KEYS")]
    pub(crate) pool: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// The state directory, which must not exist or be empty
    #[arg(long)]
    pub(crate) state: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    #[command(flatten)]
    pub(crate) root: Root,
    /// A first user and their roles: security-officer, compliance-officer, operator, backup-operator, auditor,
    /// quorum-member
    #[arg(long = "user", value_name = "NAME:ROLE,ROLE", value_parser = first_user, required = true)]
    pub(crate) users: Vec<FirstUser>,
    /// Approvals that an act by quorum takes
    #[arg(long, default_value_t = 2, value_name = "NUMBER")]
    pub(crate) approvals: u8,
}

/// What opens the root key.
#[derive(Debug, Args)]
pub(crate) struct Root {
    /// A holder of a share of the root key, who is asked for a passphrase; may be given several times
    #[arg(long = "holder", value_name = "NAME", required_unless_present = "token")]
    pub(crate) holders: Vec<Name>,
    /// How many holders open the root key
    #[arg(long, value_name = "NUMBER", default_value_t = 2)]
    pub(crate) needed: u8,
    /// File with a holder's passphrase [default: the holder is asked]
    #[arg(long, value_name = "NAME=FILE", value_parser = of_name)]
    pub(crate) passphrase_file: Vec<(Name, PathBuf)>,
    /// Instead of holders: the label of a PKCS#11 token in which the root key is made, and which it never leaves
    #[arg(long, value_name = "LABEL", conflicts_with = "holders", requires = "token_module")]
    pub(crate) token: Option<String>,
    /// The token's module, as /usr/lib/softhsm/libsofthsm2.so
    #[arg(long, value_name = "FILE")]
    pub(crate) token_module: Option<PathBuf>,
    /// A file with the token's PIN, readable by its owner alone: the node unlocks itself with it at each start
    /// [default: asked for]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_pin_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Join {
    /// If the root key is in a token: the token's module on this machine
    #[arg(long, value_name = "FILE")]
    pub(crate) token_module: Option<PathBuf>,
    /// File with the token's PIN: the node unlocks itself with it at each start
    #[arg(long, value_name = "FILE", requires = "token_module")]
    pub(crate) token_pin_file: Option<PathBuf>,
    /// The state directory, which must not exist or be empty
    #[arg(long)]
    pub(crate) state: PathBuf,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Where a node listens for those who enrol
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) enrol_at: String,
    /// Where that node answers members
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) node: String,
    /// The one-time passphrase is in a file [default: asked for]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Run {
    /// The state directory
    #[arg(long)]
    pub(crate) state: PathBuf,
    /// How the log on standard error is written [default: text on a terminal, else json]
    #[arg(long, value_enum, value_name = "FORM")]
    pub(crate) log: Option<LogForm>,
}

#[derive(Debug, Args)]
pub(crate) struct Enrol {
    /// Where a node listens for those who enrol
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) at: String,
    /// What is enrolled: user, agent, kmip
    #[arg(long, default_value = "user", value_parser = kind)]
    pub(crate) kind: PeerKind,
    /// Its name
    #[arg(long)]
    pub(crate) name: Name,
    /// The one-time passphrase is in a file [default: asked for]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Where certificate and key are put; nothing is overwritten
    #[arg(long, value_name = "FILE", required_unless_present = "split")]
    pub(crate) identity: Option<PathBuf>,
    /// For programs that need three files, instead of --identity: a new folder for cert.pem, key.pem and ca.pem
    #[arg(long, value_name = "FOLDER", conflicts_with = "identity")]
    pub(crate) split: Option<PathBuf>,
}

/// A program that cannot renew its certificate by itself: its three files, and where the new ones go.
#[derive(Debug, Args)]
pub(crate) struct Renew {
    /// The folder with its cert.pem, key.pem and ca.pem
    #[arg(long, value_name = "FOLDER")]
    pub(crate) split: PathBuf,
    /// A new folder for the renewed files; nothing is overwritten
    #[arg(long, value_name = "FOLDER")]
    pub(crate) into: PathBuf,
    /// A node: where agents and people reach it
    #[arg(long, value_name = "HOST:PORT", env = "KEYD_NODE")]
    pub(crate) node: String,
}

#[derive(Debug, Args)]
pub(crate) struct Unlock {
    /// The state directory of the node, on its own machine
    #[arg(long, required_unless_present = "node")]
    pub(crate) state: Option<PathBuf>,
    /// From another machine, instead of --state: the identity file of the person who gives the share
    #[arg(long, value_name = "FILE", env = "KEYD_IDENTITY")]
    pub(crate) identity: Option<PathBuf>,
    /// From another machine: the node to unlock
    #[arg(long, value_name = "HOST:PORT", env = "KEYD_NODE")]
    pub(crate) node: Option<String>,
    /// The holder whose share is given
    #[arg(long, value_name = "NAME", required_unless_present = "token")]
    pub(crate) holder: Option<Name>,
    /// If the root key is in a token: ask for its PIN instead of a holder's passphrase
    #[arg(long, conflicts_with = "holder")]
    pub(crate) token: bool,
    /// The holder's passphrase, or the PIN, is in a file [default: asked for]
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Reenrol {
    /// The state directory of the node, on its own machine
    #[arg(long)]
    pub(crate) state: PathBuf,
    /// Who is to enrol anew
    #[arg(long, value_name = "NAME")]
    pub(crate) user: Name,
    /// A holder who is present; name as many holders as it takes to open the root key
    #[arg(long = "holder", value_name = "NAME", required_unless_present = "token")]
    pub(crate) holders: Vec<Name>,
    /// The root key is in a token instead: asked for the PIN
    #[arg(long, conflicts_with = "holders")]
    pub(crate) token: bool,
    /// A holder's passphrase is in a file [default: asked for]
    #[arg(long = "passphrase-file", value_name = "NAME=FILE", value_parser = of_name, conflicts_with = "token")]
    pub(crate) passphrase_files: Vec<(Name, PathBuf)>,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Answer in JSON, for programs
    #[arg(long)]
    pub(crate) json: bool,
}

pub(super) fn of_name(text: &str) -> Result<(Name, PathBuf), String> {
    let (name, file) = text.split_once('=').ok_or("give NAME=FILE")?;
    Ok((name.parse().map_err(|error: capstan_keys::InvalidName| error.to_string())?, PathBuf::from(file)))
}

fn first_user(text: &str) -> Result<FirstUser, String> {
    let (name, roles) = text.split_once(':').ok_or("give NAME:ROLE, or several roles with commas between them")?;
    let role = |name: &str| Role::named(name).ok_or_else(|| format!("{name:?} is no role"));
    let roles: Roles = roles.split(',').map(role).collect::<Result<_, _>>()?;
    Ok(FirstUser { name: name.parse().map_err(|error: capstan_keys::InvalidName| error.to_string())?, roles })
}

fn kind(text: &str) -> Result<PeerKind, String> {
    let found = PeerKind::OF_KEY_CLUSTER.into_iter().find(|kind| kind.as_str() == text);
    found.ok_or_else(|| format!("{text:?} is no kind of peer: give kma, agent, user or kmip"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A cell has kinds of peers of its own, which no node enrols.
    #[test]
    fn kinds_of_a_cell_are_none_of_a_key_cluster() {
        for kind_of_cell in ["server", "mover", "client"] {
            let refused = kind(kind_of_cell).expect_err("it is none");
            assert!(refused.contains("give kma, agent, user or kmip"), "{refused}");
        }
        assert!(PeerKind::OF_KEY_CLUSTER.iter().all(|known| kind(known.as_str()) == Ok(*known)));
    }
}
