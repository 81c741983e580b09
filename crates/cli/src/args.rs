//! The command line: one definition for parsing, help, completions and the man page.

mod list;
mod restore;

use std::ffi::OsString;
use std::path::PathBuf;

use capstan_director::Name;
use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

pub(crate) use list::{FileType, Find, Ls, Objects, Show, Versions};
pub(crate) use restore::{Cat, Overwrite, Restore};

/// Where options stand in lists that each command has: behind those of its own.
const OF_ALL_COMMANDS: usize = 900;

/// Exit codes, shown by `--help` and in the man page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; the message says what to do
  2    the command line is wrong
  3    done, but some files could not be read, or some data could not be given back as it was: they are listed
  4    keys: wrong passphrase, missing or destroyed key, tampered key store, or no node of the key cluster answers
  5    no volume to write to
  6    another capstan is writing in this state directory
  130  stopped by Ctrl-C; what was reported as protected stays, and the next run goes on from there";

/// Tape backup that keeps the drive streaming, encrypts every volume with its own key, and finds one file among billions.
#[derive(Debug, Parser)]
#[command(name = "capstan", version, about, after_help = EXIT_CODES, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    /// State directory: catalog, virtual library, sealed key store [env: CAPSTAN_STATE] [default: $XDG_STATE_HOME/capstan]
    #[arg(long, global = true, value_name = "DIR", display_order = OF_ALL_COMMANDS)]
    pub(crate) state: Option<PathBuf>,

    /// File that unlocks the key store instead of the passphrase [env: CAPSTAN_KEY_FILE]
    #[arg(long, global = true, value_name = "FILE", display_order = OF_ALL_COMMANDS)]
    pub(crate) key_file: Option<PathBuf>,

    /// Print JSON, an object a line: a row each of lists, an event each of work, one object for `status` and `show`
    #[arg(long, global = true, display_order = OF_ALL_COMMANDS)]
    pub(crate) json: bool,

    /// Print nothing but errors and results
    #[arg(long, short, global = true, display_order = OF_ALL_COMMANDS)]
    pub(crate) quiet: bool,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// With what the environment says where the command line does not. Were it for the parser to look there, each of its usage lines
    /// would name these options, as if they had to be given.
    pub(crate) fn with_environment(mut self) -> Self {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.state = self.state.or_else(|| from("CAPSTAN_STATE"));
        self.key_file = self.key_file.or_else(|| from("CAPSTAN_KEY_FILE"));
        if let Command::Keys(keys) = &mut self.command {
            keys.identity = keys.identity.take().or_else(|| from("KEYD_IDENTITY"));
        }
        self
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a state directory: catalog, virtual library, sealed key store
    #[command(
        after_help = "Examples:\n  capstan init --volume-size 100G\n  capstan init --changer /dev/tape/by-id/scsi-3500110a-changer\n  capstan init --by-hand --drive /dev/nst0 --encrypt none\n  capstan init --key-cluster kma1:7443 --key-cluster kma2:7443 --key-identity /etc/capstan/agent.pem\n\nThe passphrase is asked for, or taken from CAPSTAN_PASSPHRASE; --key-file makes a key file instead. With --key-cluster there is neither: the cluster keeps the keys."
    )]
    Init(Init),
    /// Back up files, directories, a block device, or standard input
    #[command(
        after_help = "Examples:\n  capstan backup /home /etc --connections 4 --copies 2\n  capstan backup /home --incremental --exclude node_modules --exclude ada/tmp --exclude-caches\n  pg_dump shop | capstan backup --stdin shop.sql\n  capstan backup --stdin shop.sql --from-command -- pg_dump shop\n  capstan backup nightly"
    )]
    Backup(Backup),
    /// List the jobs of capstan.toml: what each backs up, how it went last, and what it does next
    #[command(
        after_help = "Examples:\n  capstan jobs\n  capstan backup nightly\n  capstan jobs --units /etc/systemd/system\n\nEnds with 3 where a job cannot do all of its work."
    )]
    Jobs(Jobs),
    /// List objects (backup images)
    #[command(
        after_help = "Examples:\n  capstan objects --source /home\n  capstan objects --last 1\n  capstan objects --since 7d --policy nightly"
    )]
    Objects(Objects),
    /// List a directory of an object
    #[command(
        after_help = "Examples:\n  capstan ls /home:ada/letters\n  capstan ls /home:ada --at 3d\n  capstan ls 7f3a90c1:/etc"
    )]
    Ls(Ls),
    /// Find paths by pattern in all objects
    #[command(
        after_help = "Examples:\n  capstan find '*.tex'\n  capstan find '*' --latest --type file --size +1G --since 30d"
    )]
    Find(Find),
    /// List the versions of one path
    #[command(after_help = "Example:\n  capstan versions /etc/fstab")]
    Versions(Versions),
    /// Show everything about one object or volume
    #[command(after_help = "Example:\n  capstan show 7f3a90c1")]
    Show(Show),
    /// Write files back
    #[command(
        after_help = "Examples:\n  capstan restore /home --to /tmp/back\n  capstan restore /home:ada/thesis.tex --to /tmp/back --at 2026-11-01\n  capstan restore /home:'ada/*.tex' --to /tmp/back --strip 2\n  capstan restore /home --include '*.tex' --exclude old --to /tmp/back\n  capstan restore 7f3a90c1 --to /tmp/back --dry-run"
    )]
    Restore(Restore),
    /// Write an object as a pax stream, or one file, to standard output
    #[command(after_help = "Examples:\n  capstan cat /etc | tar tvf -\n  capstan cat /etc:fstab --at 2026-11-01")]
    Cat(Cat),
    /// Read back every block and every file's checksum
    #[command(after_help = "Examples:\n  capstan verify /home --against-source\n  capstan verify A00001")]
    Verify(Verify),
    /// Copy an object to another pool, each of its streams in one piece
    #[command(after_help = "Example:\n  capstan copy /home --to-pool vault")]
    Copy(Copy),
    /// Make copies whole that lack something, or that were promised and never made
    #[command(after_help = "Examples:\n  capstan repair\n  capstan repair /home --wait")]
    Repair(Repair),
    /// Make the catalog anew from the volumes alone
    #[command(after_help = "Examples:\n  capstan rebuild\n  capstan rebuild 7f3a90c1")]
    Rebuild(Rebuild),
    /// Forget objects whose retention has ended, or the ones named
    #[command(
        after_help = "Examples:\n  capstan expire --dry-run\n  capstan expire --yes\n  capstan expire 7f3a90c1\n  capstan expire --gone /srv/old\n  capstan expire --undo\n\nThe last object of each source that can be restored is kept, unless the source is said to be gone; nothing is forgotten by time while the clock is in doubt."
    )]
    Expire(Expire),
    /// Make a volume blank: all that is on it is gone
    #[command(after_help = "Example:\n  capstan erase A00001 --yes")]
    Erase(GiveUp),
    /// Forget a volume that is lost or destroyed; `repair` then copies what it held anew
    #[command(after_help = "Example:\n  capstan forget A00001 && capstan repair")]
    Forget(GiveUp),
    /// Label volumes for a pool, making virtual cartridges where they do not exist
    #[command(after_help = "Example:\n  capstan label A00001 A00002 --pool daily")]
    Label(Label),
    /// List volumes
    #[command(after_help = "Example:\n  capstan volumes --pool daily")]
    Volumes(Volumes),
    /// List the library's drives; find what this host has; show how they fare; try a drive
    #[command(
        after_help = "Examples:\n  capstan drives\n  capstan drives scan\n  capstan drives report\n  capstan drives exercise /dev/sg1 --report drive.md"
    )]
    Drives(crate::drives::Drives),
    /// Look into the library and move cartridges
    #[command(
        subcommand,
        after_help = "Examples:\n  capstan library inventory\n  capstan library export A00001L9\n  capstan library import"
    )]
    Library(crate::library::Library),
    /// List, make or change pools
    #[command(
        after_help = "Examples:\n  capstan pools\n  capstan pools add vault --encrypt ccm --retention 10y\n  capstan pools add scratchpad --plain"
    )]
    Pools(Pools),
    /// What is protected, what is in use, what needs attention
    #[command(
        after_help = "Examples:\n  capstan status --max-age 26h\n  capstan status --metrics --output /var/lib/node_exporter/capstan.prom\n\nEnds with 3 where one of its lines asks for attention."
    )]
    Status(Status),
    /// List what ran and how it ended; or one run, with what it said
    #[command(
        after_help = "Examples:\n  capstan history\n  capstan history --kind backup --since 7d\n  capstan history nightly\n  capstan history 42"
    )]
    History(History),
    /// Whether the clock is believed, and which objects were made while it was in doubt
    #[command(after_help = "Examples:\n  capstan clock\n  capstan clock --confirm")]
    Clock(Clock),
    /// List, export, import or destroy keys
    #[command(
        after_help = "Examples:\n  capstan keys list\n  capstan keys export /media/stick/capstan.keys\n  capstan keys passphrase\n  capstan keys add --new-key-file /media/stick/capstan.key\n  capstan keys destroy A00001 --yes\n  capstan keys policies add yearly --encrypt-for 7d --decrypt-for 10y\n  capstan keys groups add offsite --policy yearly\n  capstan keys status"
    )]
    Keys(Keys),
    /// Run a drive's model in virtual time, under a trace of rates or a job of files
    #[command(
        after_help = "Examples:\n  capstan simulate --drive LTO-6 --files 1923x13M --sync\n  capstan simulate --drive T10000D --trace host.csv --svg t10000d.svg"
    )]
    Simulate(crate::lab::Simulate),
    /// The laboratory: what each part of a backup gives, what all give together, and what to change
    #[command(
        subcommand,
        after_help = "Examples:\n  capstan lab advise /srv --measure\n  capstan lab report --output report.html"
    )]
    Lab(crate::lab::Lab),
    /// Serve a virtual tape library that other programs use over iSCSI
    #[command(subcommand, after_help = "Examples:\n  capstan vtl init /srv/vtl\n  capstan vtl serve /srv/vtl")]
    Vtl(crate::vtl::Vtl),
    /// List the drives that have a model
    #[command(after_help = "Example:\n  capstan models")]
    Models,
    /// Print shell completions
    #[command(after_help = "Example:\n  capstan completions bash > /etc/bash_completion.d/capstan")]
    Completions {
        /// The shell
        shell: Shell,
    },
    /// Print a man page, or write those of all commands
    #[command(after_help = "Examples:\n  capstan man --dir /usr/local/share/man/man1\n  capstan man backup | man -l -")]
    Man(Man),
}

#[derive(Debug, Args)]
pub(crate) struct Man {
    /// Write capstan.1 and a page for each command into this directory
    #[arg(long, value_name = "DIR", conflicts_with = "command")]
    pub(crate) dir: Option<PathBuf>,
    /// The command, as in `keys policies add` [default: the page of the program]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Init {
    /// Capacity of a new virtual cartridge: 500M, 100G, 12T
    #[arg(long, default_value = "100G", value_parser = crate::units::parse_bytes)]
    pub(crate) volume_size: u64,
    /// Most cartridges the library makes by itself; 0 makes none
    #[arg(long, default_value_t = 1000)]
    pub(crate) volumes_max: u32,
    /// How many virtual drives
    #[arg(long, default_value_t = 4)]
    pub(crate) drives: u32,
    /// Where the virtual library lies [default: in the state directory]
    #[arg(long, value_name = "DIR")]
    pub(crate) library: Option<PathBuf>,
    /// A real library instead: the device of its changer (capstan drives scan)
    #[arg(long, value_name = "DEVICE", conflicts_with = "library", group = "real")]
    pub(crate) changer: Option<PathBuf>,
    /// Drives of the real library to use [default: all that this host finds]
    #[arg(long = "drive", value_name = "DEVICE", requires = "real")]
    pub(crate) devices: Vec<PathBuf>,
    /// Drives without a changer: a person is asked for cartridges
    #[arg(long, conflicts_with_all = ["changer", "library"], requires = "devices", group = "real")]
    pub(crate) by_hand: bool,
    /// Cipher of the default pool
    #[arg(long, value_enum, default_value_t = Cipher::Gcm)]
    pub(crate) encrypt: Cipher,
    #[command(flatten)]
    pub(crate) keys: KeyCluster,
}

/// A key cluster instead of the key store of this machine.
#[derive(Debug, Args)]
pub(crate) struct KeyCluster {
    /// Keys from a key cluster: a node of it; may be given several times
    #[arg(long = "key-cluster", value_name = "HOST:PORT", requires = "identity")]
    pub(crate) nodes: Vec<String>,
    /// Who this machine is for the key cluster: the file that `capstan keys enrol` made
    #[arg(long = "key-identity", value_name = "FILE", requires = "nodes")]
    pub(crate) identity: Option<PathBuf>,
    /// The site whose nodes are asked first
    #[arg(long = "key-site", value_name = "SITE", requires = "nodes")]
    pub(crate) site: Option<String>,
}

/// A pool's cipher.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Cipher {
    /// AES-256-GCM
    Gcm,
    /// AES-256-CCM
    Ccm,
    /// No encryption
    None,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Backup {
    /// Files, directories, or block devices; or a job of capstan.toml by its name (write ./NAME for a path of that name)
    #[arg(required_unless_present = "stdin", value_name = "SOURCE|JOB")]
    pub(crate) sources: Vec<PathBuf>,
    /// Pool to write to [default: default]
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Name of the policy that asks for this backup, for the records; a job's is its name [default: manual]
    #[arg(long)]
    pub(crate) policy: Option<String>,
    /// Streams that read at the same time [default: one a core, at most 8]
    #[arg(long, short = 'j', value_parser = clap::value_parser!(u16).range(1..=256))]
    pub(crate) connections: Option<u16>,
    /// Copies written at once, each to volumes of its own [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=4))]
    pub(crate) copies: Option<u8>,
    /// Only what changed since the last object of the same source that can be restored
    #[arg(long, conflicts_with = "full")]
    pub(crate) incremental: bool,
    /// Everything (the default)
    #[arg(long)]
    pub(crate) full: bool,
    /// An incremental, or a full backup where the last full one is as old as this: 7d, 4w
    #[arg(long, value_name = "TIME", conflicts_with = "full")]
    pub(crate) full_every: Option<String>,
    /// Leave out what matches, with all below it: a name (*.o), a path below the source (a/node_modules), or one from the root (/srv/a);
    /// may be given several times
    #[arg(long, value_name = "GLOB")]
    pub(crate) exclude: Vec<String>,
    /// Leave out what the patterns of a file match, one a line; lines that begin with # are comments
    #[arg(long, value_name = "FILE")]
    pub(crate) exclude_from: Vec<PathBuf>,
    /// Of directories that a CACHEDIR.TAG calls caches store nothing but that tag
    #[arg(long)]
    pub(crate) exclude_caches: bool,
    /// Stay on the source's file system
    #[arg(long, short = 'x')]
    pub(crate) one_file_system: bool,
    /// Back up standard input under this name
    #[arg(long, value_name = "NAME")]
    pub(crate) stdin: Option<String>,
    /// Run the program given behind `--` and back up what it prints; unless it ends with 0, none of it counts
    #[arg(long, requires = "stdin")]
    pub(crate) from_command: bool,
    /// Where blocks go
    #[arg(long, value_enum, default_value_t = Device::Virtual)]
    pub(crate) device: Device,
    /// Do not count files first; progress then has no percentage
    #[arg(long)]
    pub(crate) no_tree_walk: bool,
    /// zstd level, -7 (fastest) to 19, 0 for none [default: from capstan.toml]
    #[arg(long, allow_negative_numbers = true, value_parser = clap::value_parser!(i32).range(-7..=19))]
    pub(crate) compression: Option<i32>,
    /// Wait for another capstan that writes, and for a volume when the pool has none, instead of failing; `--wait=writer` waits
    /// for the other capstan alone
    #[arg(long, value_name = "FOR", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    pub(crate) wait: Option<WaitFor>,
    /// The machine that the sources are of, for one that was renamed or whose backups go on here [default: client of
    /// capstan.toml, or the host's name]
    #[arg(long, value_name = "HOST")]
    pub(crate) client: Option<String>,
}

/// Where a backup's blocks go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Device {
    /// The virtual library
    Virtual,
    /// Nowhere: measures the source and the data path
    Null,
}

#[derive(Debug, Args)]
pub(crate) struct Status {
    /// Call a source to attention whose last backup is older: 26h, 8d [default: attention.backup_hours of capstan.toml]
    #[arg(long, value_name = "TIME")]
    pub(crate) max_age: Option<String>,
    /// Print OpenMetrics text for a collector; ends with 0 whatever it says
    #[arg(long)]
    pub(crate) metrics: bool,
    /// Write the metrics to this file, whole or not at all
    #[arg(long, value_name = "FILE", requires = "metrics")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct Jobs {
    /// Write the systemd service and timer that run a job by the clock into this directory, with the paths of this machine
    #[arg(long, value_name = "DIR")]
    pub(crate) units: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct History {
    /// The number of a run: everything about it, and what it said; or a job, a source or a volume: the runs that name it
    #[arg(value_name = "RUN|NAME")]
    pub(crate) run: Option<String>,
    /// The last so many
    #[arg(long, short = 'n', default_value_t = 50)]
    pub(crate) last: u32,
    /// Only what was begun since: 7d, 2026-11-01
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,
    /// Only these: backup, restore, verify, copy, repair, expire, label, erase, forget, rebuild
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Objects or volumes
    #[arg(required = true, value_name = "OBJECT|VOLUME")]
    pub(crate) what: Vec<String>,
    /// The objects that a named one stands on, too; always so where a source is named
    #[arg(long)]
    pub(crate) chain: bool,
    /// Compare with the files as they are now, too
    #[arg(long)]
    pub(crate) against_source: bool,
    /// With --against-source: further patterns to leave out, besides those that the backup left out
    #[arg(long, value_name = "GLOB", requires = "against_source")]
    pub(crate) exclude: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Copy {
    /// The object; a source for the latest object of it and all that it stands on
    pub(crate) object: String,
    /// The objects that a named one stands on, too; always so where a source is named
    #[arg(long)]
    pub(crate) chain: bool,
    /// Pool to write the copy to
    #[arg(long, value_name = "POOL")]
    pub(crate) to_pool: String,
}

#[derive(Debug, Args)]
pub(crate) struct Repair {
    /// Only copies of these objects [default: all that lack something]
    #[arg(value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Wait for a volume when a pool has none, instead of failing
    #[arg(long)]
    pub(crate) wait: bool,
}

/// What a backup waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WaitFor {
    /// Another capstan that writes, and a volume
    All,
    /// Another capstan that writes
    Writer,
}

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// Only the list of files of these objects, from their own volumes: where one index file is damaged or gone
    #[arg(value_name = "OBJECT", conflicts_with = "discard_old")]
    pub(crate) objects: Vec<String>,
    /// Delete the old catalog once the new one is made; without this it stays in the state directory as catalog.old-TIME
    #[arg(long)]
    pub(crate) discard_old: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Expire {
    /// Objects to forget now, whatever their retention; with --undo, to take back
    #[arg(value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Only say what would be forgotten
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Keep so many of the last objects of each source that can be restored
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep_last: u16,
    /// This source is gone for good: its last object needs no keeping. Noted until it is backed up again
    #[arg(long, value_name = "SOURCE|HOST:SOURCE")]
    pub(crate) gone: Vec<OsString>,
    /// The clock is right although it is in doubt: same as `capstan clock --confirm` before
    #[arg(long)]
    pub(crate) trust_clock: bool,
    /// Take back what the last run forgot, or the objects named
    #[arg(long, conflicts_with_all = ["dry_run", "keep_last", "gone", "trust_clock", "yes"])]
    pub(crate) undo: bool,
    /// Do not ask, even if it takes more than half
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Clock {
    /// Say that the clock is right now, whatever is recorded
    #[arg(long)]
    pub(crate) confirm: bool,
}

// No doc comment: it would become the text of both commands.
#[derive(Debug, Args)]
pub(crate) struct GiveUp {
    /// The volume
    pub(crate) volume: String,
    /// Do it although objects on it would lose their last copy
    #[arg(long)]
    pub(crate) force: bool,
    /// Give up the copies that it held; without this `capstan repair` makes them again
    #[arg(long)]
    pub(crate) drop_copies: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Label {
    /// Barcodes: 1 to 8 characters A-Z 0-9
    #[arg(required = true, value_name = "VOLUME")]
    pub(crate) volumes: Vec<String>,
    /// The pool; `scratch` feeds all pools
    #[arg(long, default_value = "scratch")]
    pub(crate) pool: String,
    /// Capacity of a new cartridge [default: from capstan.toml]
    #[arg(long, value_parser = crate::units::parse_bytes)]
    pub(crate) size: Option<u64>,
    /// Label although there are objects on it: they are gone
    #[arg(long)]
    pub(crate) force: bool,
    /// Give up the copies that it held; without this `capstan repair` makes them again
    #[arg(long)]
    pub(crate) drop_copies: bool,
    /// Do not ask
    #[arg(long)]
    pub(crate) yes: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Volumes {
    /// Only volumes of this pool
    #[arg(long)]
    pub(crate) pool: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Pools {
    #[command(subcommand)]
    pub(crate) action: Option<PoolAction>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolAction {
    /// Make a pool, or give one that there is another retention
    #[command(after_help = "Example:\n  capstan pools add vault --retention 10y")]
    Add(PoolAdd),
    /// Remove a pool that has no volumes
    #[command(after_help = "Example:\n  capstan pools remove vault")]
    Remove {
        /// Its name
        name: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct PoolAdd {
    /// Its name
    pub(crate) name: String,
    /// Cipher of its volumes
    #[arg(long, value_enum, default_value_t = Cipher::Gcm)]
    pub(crate) encrypt: Cipher,
    /// Same as --encrypt none
    #[arg(long, conflicts_with = "encrypt")]
    pub(crate) plain: bool,
    /// How long its objects are kept: 30d, 12w, 10y; for ever if not given
    #[arg(long)]
    pub(crate) retention: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Keys {
    /// Who asks a key cluster for what a machine may not: the file of a person, that `keyd enrol` made [env: KEYD_IDENTITY]
    #[arg(long, global = true, value_name = "FILE", display_order = OF_ALL_COMMANDS)]
    pub(crate) identity: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) action: KeyAction,
}

/// What a key cluster is asked, in the words of `keyd`.
#[derive(Debug, Args)]
pub(crate) struct Words {
    /// As `keyd` takes it, as in `list`, `add NAME`; `keyd help` has all of it [default: list or show]
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) words: Vec<OsString>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyAction {
    /// Make a key policy; once a key was issued under it, it stays as it is
    Add(PolicyAdd),
}

#[derive(Debug, Args)]
pub(crate) struct PolicyAdd {
    /// Its name
    pub(crate) name: Name,
    /// For how long a key encrypts, from its first issue: 24h, 7d, 1y; then its volume goes on with a new one [default: for ever]
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
    /// Keys of other stores may not join
    #[arg(long)]
    pub(crate) no_import: bool,
    /// Drives may report its keys as known to others
    #[arg(long)]
    pub(crate) agents_revoke: bool,
    /// For how long a node of a key cluster gives its keys out while it is cut off from the others [default: for ever]
    #[arg(long, value_name = "TIME")]
    pub(crate) isolated_for: Option<String>,
    /// Say one anew that is there, all of it: what is not said here it has no more. Only while no key was issued under it
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
        /// Its policy, for good
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
        /// A group it may use, the first one unasked; may be given several times
        #[arg(long = "group", value_name = "GROUP", required = true)]
        groups: Vec<Name>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct Enrol {
    /// The enrolment door of a node: host and port
    #[arg(value_name = "HOST:PORT")]
    pub(crate) node: String,
    /// The name of this machine in the cluster, as the enrolment was opened for
    #[arg(long)]
    pub(crate) name: Name,
    /// The file to make
    #[arg(long, value_name = "FILE")]
    pub(crate) key_identity: PathBuf,
}

/// What a person asked a key cluster for, and others approved.
#[derive(Debug, clap::Args)]
pub(crate) struct Approved {
    /// With a key cluster: carry out what was asked for under this number and approved
    #[arg(long, value_name = "ID")]
    pub(crate) request: Option<String>,
    /// With a key cluster: carry out one's own newest request of that kind that was approved
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
    /// Say who keeps the keys; of a key cluster, which nodes answer, and until when this machine's certificate holds
    Status,
    /// Become an agent of a key cluster; the one-time passphrase is asked for, or taken from CAPSTAN_ENROLMENT_PASSPHRASE
    Enrol(Enrol),
    /// List keys: never the keys themselves
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
    /// Give the keys of a volume out for reading though their time is over
    Extend {
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
    /// Let a passphrase or key file open the key store no more
    Remove {
        /// Its slot, as `capstan keys slots` lists it
        slot: u8,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Take the keys of a volume out of use for encryption: what is appended gets another
    Retire {
        /// The volume, or a key's tag
        what: String,
        /// Do not ask
        #[arg(long)]
        yes: bool,
    },
    /// Note that others may know the keys of a volume: they encrypt no more, and what they encrypted should be moved
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
