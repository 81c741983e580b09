//! Volumes, pools and what lies on them.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::backup::Cipher;

#[derive(Debug, Args)]
pub(crate) struct Verify {
    /// Objects or volumes
    #[arg(required = true, value_name = "OBJECT|VOLUME")]
    pub(crate) what: Vec<String>,
    /// Also verify the objects that a named object is based on; for a source, Capstan always does so
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
    /// The objects; or sources, for their latest objects and all objects that these are based on
    #[arg(value_name = "OBJECT", required = true)]
    pub(crate) objects: Vec<String>,
    /// Also copy the objects that a named object is based on; for a source, Capstan always does so
    #[arg(long)]
    pub(crate) chain: bool,
    /// Pool to write the copies to
    #[arg(long, value_name = "POOL")]
    pub(crate) to_pool: String,
    /// Storage unit, or library, to write the copy to [default: the library that has volumes of the pool]
    #[arg(long)]
    pub(crate) unit: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct Consolidate {
    /// The objects; or sources, for their latest objects [default: the latest object of each source that is an
    /// incremental]
    #[arg(value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Only sources with so many incrementals, or more, on their last full backup
    #[arg(long, value_name = "COUNT", conflicts_with = "objects", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) after: Option<u32>,
    /// Only objects of this policy
    #[arg(long, conflicts_with = "objects")]
    pub(crate) policy: Option<String>,
    /// Pool to write to [default: the first one of the object's policy, else the one that the object is in]
    #[arg(long)]
    pub(crate) pool: Option<String>,
    /// Storage unit, or library, to write to [default: the library that has volumes of the pool]
    #[arg(long)]
    pub(crate) unit: Option<String>,
    /// Wait for a volume if the pool has none, instead of failing
    #[arg(long)]
    pub(crate) wait: bool,
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

#[derive(Debug, Args)]
pub(crate) struct Rebuild {
    /// Only the lists of files of these objects, from their own volumes, if an index file is damaged or missing
    #[arg(value_name = "OBJECT", conflicts_with = "discard_old")]
    pub(crate) objects: Vec<String>,
    /// Delete the old catalog once the new one is made; without this it stays in the state directory as
    /// catalog.old-TIME
    #[arg(long)]
    pub(crate) discard_old: bool,
    /// Forget volumes that the catalog knows and that are not in the library
    #[arg(long, conflicts_with = "objects")]
    pub(crate) forget_absent: bool,
    /// Put the new catalog's tables into another database than the old ones: sqlite, or postgres://USER@HOST/NAME
    #[arg(long, value_name = "DATABASE", conflicts_with = "objects")]
    pub(crate) database: Option<capstan_catalog::Database>,
}

#[derive(Debug, Args)]
pub(crate) struct Expire {
    /// Objects to forget now, whatever their retention; with --undo, objects to bring back
    #[arg(value_name = "OBJECT")]
    pub(crate) objects: Vec<String>,
    /// Only say what would be forgotten
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Only objects that were made under this policy or job; also several times
    #[arg(long = "policy", value_name = "POLICY", conflicts_with_all = ["objects", "undo"])]
    pub(crate) policies: Vec<String>,
    /// Of each source, keep the last N objects that can be restored
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) keep_last: u16,
    /// Record that this source is gone for good, so that its last object may expire too. Capstan remembers this until
    /// the source is backed up again
    #[arg(long, value_name = "SOURCE|HOST:SOURCE")]
    pub(crate) gone: Vec<OsString>,
    /// Trust the clock although it is in doubt, as if `capstan clock --confirm` had been run before
    #[arg(long)]
    pub(crate) trust_clock: bool,
    /// Bring back the objects that the last run forgot, or the named ones
    #[arg(long, conflicts_with_all = ["dry_run", "keep_last", "gone", "trust_clock", "yes"])]
    pub(crate) undo: bool,
    /// Do not ask, even before more than half of all objects, or of what a policy kept, are forgotten
    #[arg(long)]
    pub(crate) yes: bool,
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
    /// The pool; any pool can take a volume of `scratch`
    #[arg(long, default_value = "scratch")]
    pub(crate) pool: String,
    /// Library in which a new cartridge is made [default: main]
    #[arg(long)]
    pub(crate) library: Option<String>,
    /// Capacity of a new cartridge [default: from capstan.toml]
    #[arg(long, value_parser = crate::units::parse_bytes)]
    pub(crate) size: Option<u64>,
    /// Label the volume although it holds objects: they are lost
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

#[derive(Debug, Args)]
pub(crate) struct CatalogOf {
    #[command(subcommand)]
    pub(crate) action: CatalogAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CatalogAction {
    /// Copy what no volume has: the catalog, capstan.toml and the cell's identities
    #[command(after_help = "Example:\n  capstan catalog copy /backup/capstan-state")]
    Copy {
        /// Directory of the copy: a new one, or that of an earlier copy, which is brought up to date
        directory: PathBuf,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum PoolAction {
    /// Make a pool, or change the retention of an existing one
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
    /// Cipher of its volumes: gcm if not given; that of a pool that exists stays
    #[arg(long, value_enum)]
    pub(crate) encrypt: Option<Cipher>,
    /// Same as --encrypt none
    #[arg(long, conflicts_with = "encrypt")]
    pub(crate) plain: bool,
    /// How long its objects are kept: 30d, 12w, 10y, or forever, as for a new pool without it; an existing one keeps
    /// what it has
    #[arg(long)]
    pub(crate) retention: Option<String>,
}
