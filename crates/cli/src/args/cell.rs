//! Arguments of `policies`, `schedule`, `queue`, `server`, `client`, `mover`, `user` and `audit`.

use std::path::PathBuf;

use capstan_keys::Name;
use clap::{Args, Subcommand};

use super::restore::Overwrite;

#[derive(Debug, Args)]
pub(crate) struct Policies {
    #[command(subcommand)]
    pub(crate) action: Option<BackupPolicyAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BackupPolicyAction {
    /// Add or change the policies that a file names
    #[command(
        after_help = "Examples:\n  capstan policies apply cell.toml --dry-run\n  capstan policies apply cell.toml --only"
    )]
    Apply {
        /// The file: docs/CELL.md says what it may say
        file: PathBuf,
        /// Show what would change, and change nothing
        #[arg(long)]
        dry_run: bool,
        /// Remove the policies that the file does not name
        #[arg(long)]
        only: bool,
        /// Do not ask before policies are removed
        #[arg(long)]
        yes: bool,
    },
    /// Print policies as a file that `apply` takes
    #[command(after_help = "Example:\n  capstan policies export > cell.toml")]
    Export {
        /// Policies; all if none is named
        names: Vec<String>,
    },
    /// Remove policies: their runs are cancelled, and what they backed up stays
    #[command(after_help = "Example:\n  capstan policies remove web")]
    Remove {
        /// The policies
        #[arg(required = true)]
        names: Vec<String>,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Schedule {
    /// Policies; all if none is named
    pub(crate) policies: Vec<String>,
    /// How many days ahead
    #[arg(long, default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..=3660))]
    pub(crate) days: u16,
    /// How many runs at most
    #[arg(long, default_value_t = 100)]
    pub(crate) most: usize,
}

#[derive(Debug, Args)]
pub(crate) struct Queue {
    #[command(subcommand)]
    pub(crate) action: Option<QueueAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueAction {
    /// List the runs that have ended
    #[command(after_help = "Example:\n  capstan queue done --last 20")]
    Done {
        /// How many, the latest ones
        #[arg(long, default_value_t = 20)]
        last: u32,
    },
    /// Put a run of each policy into the queue; it starts as soon as it can
    #[command(after_help = "Examples:\n  capstan queue add home\n  capstan queue add web --client web1 --full\n  \
                      capstan queue add mail --now")]
    Add {
        /// The policies
        #[arg(required = true)]
        policies: Vec<String>,
        /// A client that the policies name; all if none is named
        #[arg(long)]
        client: Option<String>,
        /// Back up everything, and not only what changed, whatever the policies say
        #[arg(long)]
        full: bool,
        /// Start outside the windows of the policies, too
        #[arg(long)]
        now: bool,
    },
    /// Cancel runs: one that is at work stops, and what it has flushed stays
    #[command(after_help = "Example:\n  capstan queue cancel 17")]
    Cancel {
        /// Their numbers
        #[arg(required = true)]
        runs: Vec<i64>,
    },
    /// Keep waiting runs from starting
    #[command(after_help = "Example:\n  capstan queue hold 17")]
    Hold {
        /// Their numbers
        #[arg(required = true)]
        runs: Vec<i64>,
    },
    /// Let held runs start
    #[command(after_help = "Example:\n  capstan queue release 17")]
    Release {
        /// Their numbers
        #[arg(required = true)]
        runs: Vec<i64>,
    },
    /// Run ended runs again
    #[command(after_help = "Example:\n  capstan queue rerun 17")]
    Rerun {
        /// Their numbers
        #[arg(required = true)]
        runs: Vec<i64>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Server {
    /// Run policies when they are due, until it is stopped
    #[command(
        after_help = "Examples:\n  capstan server run --state /var/lib/capstan --key-file /etc/capstan/capstan.key\n  capstan server run --listen 0.0.0.0:5701\n\nCtrl-C or SIGTERM stops it: runs at work flush what they have read, and continue when a server runs again."
    )]
    Run {
        /// Listen here for clients and movers of the cell [default: what capstan.toml says; nowhere]
        #[arg(long, value_name = "ADDRESS:PORT")]
        listen: Option<String>,
        /// Listen here for machines that join the cell [default: what capstan.toml says; the next port]
        #[arg(long, value_name = "ADDRESS:PORT")]
        enrolment: Option<String>,
        /// Listen here for the data of clients [default: what capstan.toml says; the port after that]
        #[arg(long, value_name = "ADDRESS:PORT")]
        data: Option<String>,
    },
    /// List whom the server tells what went wrong and what arrived; or try a rule
    #[command(
        after_help = "Examples:\n  capstan server tell\n  capstan server tell --test oncall\n\nRules are [tell.NAME] in capstan.toml. A test needs no running server."
    )]
    Tell {
        /// Send a test message by each way of this rule, and say what came of it
        #[arg(long, value_name = "RULE")]
        test: Option<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct MemberEnrol {
    /// The name, as the settings and lists of the server will have it
    pub(crate) name: Name,
    /// How long the passphrase is valid: 30m, 12h, 2d
    #[arg(long, default_value = "1h", value_name = "DURATION")]
    pub(crate) valid: String,
}

#[derive(Debug, Args)]
pub(crate) struct MemberJoin {
    /// Where the server listens for machines that join: host and port
    pub(crate) address: String,
    /// The name that was enrolled
    #[arg(long)]
    pub(crate) name: Name,
    /// The passphrase is in a file
    #[arg(long, value_name = "FILE")]
    pub(crate) passphrase_file: Option<PathBuf>,
    /// Join anew in place of the identity that is there
    #[arg(long)]
    pub(crate) replace: bool,
}

/// What a user may do.
#[derive(Debug, Clone, Args)]
pub(crate) struct UserRoles {
    /// A role: administrator, operator, restorer or auditor; may be given several times
    #[arg(long = "role", required = true, value_name = "ROLE", value_parser = ["administrator", "operator", "restorer", "auditor"])]
    pub(crate) roles: Vec<String>,
    /// A client whose backups a restorer may restore; may be given several times
    #[arg(long = "client", value_name = "NAME")]
    pub(crate) clients: Vec<Name>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum User {
    /// Let somebody join the cell once as a user
    #[command(
        after_help = "Examples:\n  capstan user enrol ada --role administrator\n  capstan user enrol bert --role restorer --client tern --client plover\n\nIt prints a one-time passphrase. The newest one of a name counts."
    )]
    Enrol {
        #[command(flatten)]
        enrol: MemberEnrol,
        #[command(flatten)]
        rights: UserRoles,
    },
    /// Where the user works: join a cell with the one-time passphrase that `user enrol` printed
    #[command(
        after_help = "Example:\n  capstan user join backup.example.org:5702 --name ada\n\nThe passphrase is asked for, or taken from CAPSTAN_ENROLMENT_PASSPHRASE."
    )]
    Join(MemberJoin),
    /// Show who is asking, and what that user may do
    #[command(after_help = "Example:\n  capstan user who")]
    Who,
    /// List the users of the cell and their roles
    #[command(after_help = "Example:\n  capstan user list")]
    List,
    /// Give a user other roles, in place of those before
    #[command(after_help = "Example:\n  capstan user change bert --role operator")]
    Change {
        /// The user
        name: Name,
        #[command(flatten)]
        rights: UserRoles,
    },
    /// Let a user in no more
    #[command(
        after_help = "Example:\n  capstan user revoke bert\n\nIt takes effect within seconds, on connections that are open too."
    )]
    Revoke {
        /// The user
        name: Name,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Audit {
    #[command(subcommand)]
    pub(crate) action: Option<AuditAction>,
    /// How many records, the latest ones; a server gives 1000 at most
    #[arg(long, default_value_t = 100)]
    pub(crate) last: u32,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditAction {
    /// Check that no record was changed, removed or added
    #[command(after_help = "Example:\n  capstan audit verify")]
    Verify,
}

#[derive(Debug, Args)]
pub(crate) struct MemberLabels {
    /// Its name
    pub(crate) name: Name,
    /// Its labels
    #[arg(required_unless_present = "none", conflicts_with = "none", value_name = "LABEL")]
    pub(crate) labels: Vec<Name>,
    /// Take all labels away
    #[arg(long)]
    none: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Mover {
    /// Let a host with drives join the cell once
    #[command(
        after_help = "Example:\n  capstan mover enrol heron --valid 2h\n\nIt prints a one-time passphrase. The newest one of a name counts."
    )]
    Enrol(MemberEnrol),
    /// At the host with drives: join a cell with the one-time passphrase that `mover enrol` printed
    #[command(
        after_help = "Example:\n  capstan mover join backup.example.org:5702 --name heron\n\nThe passphrase is asked for, or taken from CAPSTAN_ENROLMENT_PASSPHRASE."
    )]
    Join(MemberJoin),
    /// At the host with drives: serve the cell as a mover, until it is stopped
    #[command(
        after_help = "Example:\n  capstan mover run --state /var/lib/capstan-mover\n\nCtrl-C or SIGTERM stops it."
    )]
    Run,
    /// Give a mover labels, in place of those before; storage units name movers by them (mover_labels)
    #[command(after_help = "Examples:\n  capstan mover label heron cellar lto9\n  capstan mover label heron --none")]
    Label(MemberLabels),
    /// List the movers of the cell
    #[command(after_help = "Example:\n  capstan mover list")]
    List,
    /// Let a mover in no more
    #[command(
        after_help = "Example:\n  capstan mover revoke heron\n\nIt takes effect within seconds, on connections that are open too."
    )]
    Revoke {
        /// The mover
        name: Name,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Client {
    /// Let a machine join the cell once
    #[command(
        after_help = "Example:\n  capstan client enrol tern --valid 2h\n\nIt prints a one-time passphrase. The newest one of a name counts."
    )]
    Enrol(MemberEnrol),
    /// At the machine: join a cell with the one-time passphrase that `client enrol` printed
    #[command(
        after_help = "Example:\n  capstan client join backup.example.org:5702 --name tern\n\nThe passphrase is asked for, or taken from CAPSTAN_ENROLMENT_PASSPHRASE."
    )]
    Join(MemberJoin),
    /// At the machine: wait for the server's orders, until it is stopped
    #[command(
        after_help = "Example:\n  capstan client run --state /var/lib/capstan-client\n\nCtrl-C or SIGTERM stops it."
    )]
    Run,
    /// At the machine: list what was backed up of it
    #[command(after_help = "Example:\n  capstan client objects")]
    Objects,
    /// At the machine: find files in what was backed up of it
    #[command(after_help = "Examples:\n  capstan client find 'thesis*'\n  capstan client find '*.tex' --latest")]
    Find(super::FindWhat),
    /// At the machine: list a directory as it was backed up
    #[command(after_help = "Example:\n  capstan client ls /home:ada --at 3d")]
    Ls(super::LsWhat),
    /// At the machine: list the versions of a file that were backed up
    #[command(after_help = "Example:\n  capstan client versions /home/ada/thesis.tex")]
    Versions(super::VersionsWhat),
    /// At the machine: get back what was backed up of it
    #[command(
        after_help = "Examples:\n  capstan client restore /home:ada/thesis.tex --to /tmp/back\n  capstan client restore /home --to /srv/old --at 3d --include '*.tex'"
    )]
    Restore {
        /// What to restore, as SOURCE[:PATH] or OBJECT[:PATH]; PATH is a path from the root, a path below the source,
        /// or a pattern
        #[arg(required = true, value_name = "SOURCE[:PATH]")]
        places: Vec<String>,
        /// Directory to write below
        #[arg(long, value_name = "DIR", required_unless_present = "dry_run")]
        to: Option<PathBuf>,
        /// The state at this time instead of the latest: 2026-11-01, 2026-11-01T12:00, or an age such as 3d
        #[arg(long, value_name = "TIME")]
        at: Option<String>,
        /// Only what matches, with all below it; may be given several times
        #[arg(long, value_name = "GLOB")]
        include: Vec<String>,
        /// Leave out paths that match; may be given several times
        #[arg(long, value_name = "GLOB")]
        exclude: Vec<String>,
        /// Remove this many leading components from each path, as tar does
        #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
        strip: u16,
        /// Show the plan and stop
        #[arg(long)]
        dry_run: bool,
        /// What to do with files that exist
        #[arg(long, value_enum, default_value_t = Overwrite::Never)]
        overwrite: Overwrite,
        /// Keep what can be read of a damaged file, as its name with .damaged added: zeros stand for what is missing
        #[arg(long)]
        keep_damaged: bool,
        /// Restore what is there if a volume is not in the library, and do not wait for it
        #[arg(long)]
        partial: bool,
        /// Make device nodes too
        #[arg(long)]
        devices: bool,
    },
    /// Give a client labels, in place of those before; policies name clients by them (client_labels)
    #[command(after_help = "Examples:\n  capstan client label tern web production\n  capstan client label tern --none")]
    Label(MemberLabels),
    /// List the clients of the cell
    #[command(after_help = "Example:\n  capstan client list")]
    List,
    /// Let a client in no more
    #[command(
        after_help = "Example:\n  capstan client revoke tern\n\nIt takes effect within seconds, on connections that are open too."
    )]
    Revoke {
        /// The client
        name: Name,
    },
}
