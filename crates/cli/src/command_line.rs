//! The command line: one definition for parsing, help, completions and the man page.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use clap_complete::Shell;

use crate::args::{
    Audit, Backup, Cat, CatalogOf, Client, Clock, Consolidate, Copy, Expire, Find, Get, GiveUp, History, Init, Jobs,
    Keys, Label, Ls, Man, Mover, ObjectOf, Objects, Policies, Pools, Put, Queue, Rebuild, Reclaim, Repair, Restore,
    Schedule, Scrub, Server, Show, Status, User, Verify, Versions, Volumes,
};
use crate::globals::Globals;

/// Exit codes, shown by `--help` and in the man page.
pub(crate) const EXIT_CODES: &str = "\
Exit codes:
  0    done
  1    failed; the message says what to do
  2    the command line is wrong
  3    done, with problems: for example, some files could not be read or restored; the list names each
  4    keys: wrong passphrase, missing or destroyed key, tampered key store, or no node of the key cluster answers
  5    no volume to write to
  6    another job has what this one needs
  130  stopped by Ctrl-C; what was reported as protected is kept, and the next run continues from there";

/// Tape backup that keeps the drive streaming, encrypts every volume with its own key, and finds one file among
/// billions.
#[derive(Debug, Parser)]
#[command(name = "capstan", version, about, after_help = EXIT_CODES, max_term_width = 110, propagate_version = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) globals: Globals,

    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Cli {
    /// With what the environment says where the command line does not. Were it for the parser to look there, each of
    /// its usage lines would name these options, as if they had to be given.
    pub(crate) fn with_environment(mut self) -> Self {
        let from = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        self.globals.state = self.globals.state.or_else(|| from("CAPSTAN_STATE"));
        self.globals.key_file = self.globals.key_file.or_else(|| from("CAPSTAN_KEY_FILE"));
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
        after_help = "Examples:\n  capstan init --volume-size 100G\n  capstan init --changer /dev/tape/by-id/scsi-3500110a-changer\n  capstan init --standalone --drive /dev/nst0 --encrypt none\n  capstan init --key-cluster kma1:7443 --key-cluster kma2:7443 --key-identity /etc/capstan/agent.pem\n\nThe passphrase is asked for, or taken from CAPSTAN_PASSPHRASE; --key-file makes a key file instead. With --key-cluster there is neither: the cluster keeps the keys."
    )]
    Init(Init),
    /// Back up files, directories, a block device, or standard input
    #[command(
        after_help = "Examples:\n  capstan backup /home /etc --connections 4 --copies 2\n  capstan backup /home --incremental --exclude node_modules --exclude ada/tmp --exclude-caches\n  pg_dump shop | capstan backup --stdin shop.sql\n  capstan backup --stdin shop.sql --from-command -- pg_dump shop\n  capstan backup nightly"
    )]
    Backup(Backup),
    /// Store standard input, a file, or what a program prints, under a name
    #[command(
        after_help = "Examples:\n  pg_dump shop | capstan put dumps/shop.sql --tag release=1.2\n  capstan put app.log /var/log/app.log.1\n  capstan put dumps/shop.sql -- pg_dump shop\n\nEach time makes a version of its own; `capstan get` gives one back, and `capstan objects --source NAME` lists them."
    )]
    Put(Put),
    /// List the jobs of capstan.toml: what each backs up, how it went last, and what it does next
    #[command(
        after_help = "Examples:\n  capstan jobs\n  capstan backup nightly\n  capstan jobs --units /etc/systemd/system\n\nThe exit code is 3 if a job cannot do all of its work."
    )]
    Jobs(Jobs),
    /// List the policies, which a server runs when they are due; or change them by a file
    #[command(
        after_help = "Examples:\n  capstan policies\n  capstan policies apply cell.toml --dry-run\n  capstan policies export > cell.toml\n\nThe exit code is 3 if a policy cannot be run on this machine."
    )]
    Policies(Policies),
    /// List the runs that come next, by the schedules of the policies
    #[command(after_help = "Examples:\n  capstan schedule\n  capstan schedule home --days 30")]
    Schedule(Schedule),
    /// List what waits and why, and what runs; add, cancel, hold, release or repeat runs
    #[command(
        after_help = "Examples:\n  capstan queue\n  capstan queue add home\n  capstan queue cancel 17\n  capstan queue done"
    )]
    Queue(Queue),
    /// Run policies when they are due
    #[command(
        subcommand,
        after_help = "Example:\n  capstan server run --state /var/lib/capstan --key-file /etc/capstan/capstan.key"
    )]
    Server(Server),
    /// Let other machines join this cell, and list or revoke them; or, at such a machine, join and wait for orders
    #[command(
        subcommand,
        after_help = "Examples:\n  capstan client enrol tern\n  capstan client list\n  capstan client revoke tern\n\nAt the machine tern:\n  capstan client join backup.example.org:5702 --name tern\n  capstan client run"
    )]
    Client(Client),
    /// Let hosts with drives join this cell, and list or revoke them; or, at such a host, join and serve the cell
    #[command(
        subcommand,
        after_help = "Examples:\n  capstan mover enrol heron\n  capstan mover list\n  capstan mover revoke heron\n\nAt the host heron:\n  capstan mover join backup.example.org:5702 --name heron\n  capstan mover run"
    )]
    Mover(Mover),
    /// Let people use this cell over the network, each as far as a role goes; or, as one of them, join
    #[command(
        subcommand,
        after_help = "Examples:\n  capstan user enrol ada --role administrator\n  capstan user list\n  capstan user revoke ada\n\nWhere ada works:\n  capstan user join backup.example.org:5702 --name ada\n  capstan queue"
    )]
    User(User),
    /// Show what was done in this cell and by whom, and what was refused
    #[command(after_help = "Examples:\n  capstan audit --last 20\n  capstan audit verify")]
    Audit(Audit),
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
    /// Say which copies an object has and should have, why, and when the rest come
    #[command(after_help = "Example:\n  capstan object why 7f3a90c1")]
    Object(ObjectOf),
    /// Write files back
    #[command(
        after_help = "Examples:\n  capstan restore /home --to /tmp/back\n  capstan restore /home:ada/thesis.tex --to /tmp/back --at 2026-11-01\n  capstan restore /home:'ada/*.tex' --to /tmp/back --strip 2\n  capstan restore /home --include '*.tex' --exclude old --to /tmp/back\n  capstan restore 7f3a90c1 --to /tmp/back --dry-run"
    )]
    Restore(Restore),
    /// Give back what was stored under a name
    #[command(
        after_help = "Examples:\n  capstan get dumps/shop.sql --tag release=1.2 | psql shop\n  capstan get app.log --at 3d --to /tmp/app.log"
    )]
    Get(Get),
    /// Write an object as a pax stream, or one file, to standard output
    #[command(after_help = "Examples:\n  capstan cat /etc | tar tvf -\n  capstan cat /etc:fstab --at 2026-11-01")]
    Cat(Cat),
    /// Read back every block and every file's checksum
    #[command(after_help = "Examples:\n  capstan verify /home --against-source\n  capstan verify A00001")]
    Verify(Verify),
    /// Read back a sample of what volumes hold, and say how much of the rest is bad at most
    #[command(
        after_help = "Examples:\n  capstan scrub\n  capstan scrub --pool vault --one-in 10000\n  capstan scrub --share 5% --place 4096 --dry-run\n\n\
                      Each place is as likely to be drawn as every other one. What cannot be read is on record then: \
                      `capstan repair` copies it from other copies."
    )]
    Scrub(Scrub),
    /// Copy objects to another pool, each of their streams in one piece
    #[command(after_help = "Example:\n  capstan copy /home --to-pool vault")]
    Copy(Copy),
    /// Make full backups of incrementals and of what they are based on, without reading the clients
    #[command(
        after_help = "Examples:\n  capstan consolidate /home\n  capstan consolidate --after 14 --policy nightly\n\n\
                      A restore of the new object gives back what a restore of the incremental gives back. Later \
                      incrementals are based on it, so that `capstan expire` can forget what it was made of."
    )]
    Consolidate(Consolidate),
    /// Empty volumes of which little is needed, or that are to go: what is needed goes to others of their pools
    #[command(after_help = "Examples:\n  capstan reclaim --dry-run\n  capstan reclaim --below 40% --pool daily\n  \
                      capstan reclaim A00007\n  capstan reclaim --generation LTO-6 --volumes-max 4\n\n\
                      A volume that is empty then is scratch. Copies stay what they are, with the time that they are \
                      kept for. What was stopped goes on with the next run.")]
    Reclaim(Reclaim),
    /// Complete copies that lack something, and make copies that were promised and never made
    #[command(after_help = "Examples:\n  capstan repair\n  capstan repair /home --wait")]
    Repair(Repair),
    /// Rebuild the catalog from the volumes alone
    #[command(after_help = "Examples:\n  capstan rebuild\n  capstan rebuild 7f3a90c1")]
    Rebuild(Rebuild),
    /// Copy the catalog and what else no volume has, also while backups run
    #[command(after_help = "Example:\n  capstan catalog copy /backup/capstan-state")]
    Catalog(CatalogOf),
    /// Forget objects whose retention has ended, or the ones named
    #[command(
        after_help = "Examples:\n  capstan expire --dry-run\n  capstan expire --yes\n  capstan expire --policy nightly\n  capstan expire 7f3a90c1\n  capstan expire --gone /srv/old\n  capstan expire --undo\n\nexpire keeps the last object of each source that can be restored, unless --gone says that the source is gone. While the clock is in doubt, no object is forgotten because of its age."
    )]
    Expire(Expire),
    /// Make a volume blank: all data on it is lost
    #[command(after_help = "Example:\n  capstan erase A00001 --yes")]
    Erase(GiveUp),
    /// Remove a lost or destroyed volume from the catalog; `repair` then makes new copies of what it held
    #[command(after_help = "Example:\n  capstan forget A00001 && capstan repair")]
    Forget(GiveUp),
    /// Label volumes for a pool; virtual cartridges that do not exist are created
    #[command(after_help = "Example:\n  capstan label A00001 A00002 --pool daily")]
    Label(Label),
    /// List volumes
    #[command(after_help = "Example:\n  capstan volumes --pool daily")]
    Volumes(Volumes),
    /// List the library's drives, find the drives of this host, report their health, or test a drive
    #[command(
        after_help = "Examples:\n  capstan drives\n  capstan drives scan\n  capstan drives report\n  capstan drives exercise /dev/sg1 --report drive.md"
    )]
    Drives(crate::drives::Drives),
    /// List what is in the library, and move cartridges
    #[command(
        after_help = "Examples:\n  capstan library inventory\n  capstan library export A00001L9\n  capstan library import"
    )]
    Library(crate::library::Library),
    /// List volumes outside the libraries, what is to go there and what to be fetched, or send volumes
    #[command(
        after_help = "Examples:\n  capstan vault\n  capstan vault --to-fetch\n  capstan vault send A00001L9 --to \"Iron hill\""
    )]
    Vault(crate::vault::Vault),
    /// List, make or change pools
    #[command(
        after_help = "Examples:\n  capstan pools\n  capstan pools add vault --encrypt ccm --retention 10y\n  capstan pools add scratchpad --plain"
    )]
    Pools(Pools),
    /// What is protected, what is in use, what needs attention
    #[command(
        after_help = "Examples:\n  capstan status --max-age 26h\n  capstan status --metrics --output /var/lib/node_exporter/capstan.prom\n\nThe exit code is 3 if one of its lines asks for attention."
    )]
    Status(Status),
    /// List runs and how they ended, or show one run with its output
    #[command(
        after_help = "Examples:\n  capstan history\n  capstan history --kind backup --since 7d\n  capstan history nightly\n  capstan history 42"
    )]
    History(History),
    /// Show whether Capstan trusts the clock, and which objects were made while it was in doubt
    #[command(after_help = "Examples:\n  capstan clock\n  capstan clock --confirm")]
    Clock(Clock),
    /// List, export, import or destroy keys
    #[command(
        after_help = "Examples:\n  capstan keys list\n  capstan keys export /media/stick/capstan.keys\n  capstan keys passphrase\n  capstan keys add --new-key-file /media/stick/capstan.key\n  capstan keys destroy A00001 --yes\n  capstan keys policies add yearly --encrypt-for 7d --decrypt-for 10y\n  capstan keys groups add offsite --policy yearly\n  capstan keys status"
    )]
    Keys(Keys),
    /// Simulate a drive that has a model, for a series of data rates or a job of files
    #[command(
        after_help = "Examples:\n  capstan simulate --drive LTO-6 --files 1923x13M --sync\n  capstan simulate --drive T10000D --trace host.csv --svg t10000d.svg"
    )]
    Simulate(crate::lab::Simulate),
    /// Measure how fast each part of a backup is, predict the whole backup, and advise what to change
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
