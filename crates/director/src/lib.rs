//! Decides: pools, mounts, plans, and the loop that runs them.
//!
//! [`Site`] is one state directory; everything a person can ask of it is a method of it. What to do is decided by pure
//! functions of what the catalog holds (which volume a pool writes to next, in which order blocks are read); the rest
//! carries it out.

mod admin;
mod against_source;
mod append;
mod backup;
mod base;
mod baseline;
mod care;
mod cat;
mod catch_up;
mod chains;
mod chosen;
mod claims;
mod clock;
mod config;
mod consolidate;
mod copy;
mod copy_policy;
mod copy_start;
mod copy_terms;
mod damage;
mod drive_classes;
mod drive_faults;
mod drive_history;
mod drive_keys;
mod drive_waits;
mod earlier_attempts;
mod elsewhere;
mod error;
mod estimate;
mod events;
mod expiry;
mod file_search;
mod hold;
mod in_order;
mod jobs;
mod journal;
mod keep;
mod keys;
mod known_policies;
mod label;
mod lacks;
mod left_out;
mod libraries;
mod library;
#[cfg(test)]
mod library_in_tests;
mod library_marker;
mod lifetime;
mod limits;
mod missing_path;
mod mounter;
mod mounts;
mod mover_socket;
mod names;
mod null;
mod path_choice;
mod path_filter;
mod paths;
mod plan;
mod policies;
mod pools;
mod presence;
mod process;
mod protection;
mod ranges;
mod read_at_once;
mod read_only;
mod rebuild;
mod rebuild_index;
mod reclaim;
mod repair;
mod request;
mod restore;
mod retention_lock;
mod room;
mod scrub;
mod select;
mod server_term;
mod sessions;
mod shared;
mod shared_volumes;
mod site;
mod sources;
mod stage_choice;
mod unentered;
mod vault;
mod verify;
mod verify_object;
mod volume_lifetimes;
mod whole_runs;

pub use admin::{DestroyedKey, Loss, Overwritten};
pub use backup::{BackupReport, BackupWatch, SourceOutcome};
pub use cat::FileGiven;
pub use config::{
    AttentionConfig, Bandwidth, Config, DataConfig, JobConfig, JobLevel, KeysConfig, MANUAL, MailConfig, MailSecurity,
    NetworkConfig, NetworkRuns, NetworkShare, PolicyTiming, ServerConfig, StageWhen, StorageUnit, TellEvent, TellRule,
    UnitConfig, find_settings, parse_age,
};
pub use consolidate::Consolidated;
pub use copy::{CopyReport, HeldCopy};
pub use copy_policy::{CopiesOwed, CopyRunReport, OwedCopy};
pub use copy_start::{CopiesStarted, NothingOwed, StartedCopies};
pub use copy_terms::{CopyKept, CopyLifetime, CopyMaker, KeptUntil, Migration};
pub use damage::LostParts;
pub use drive_history::{Concern, DriveHistory, Fare, Rise, Stay};
pub use earlier_attempts::EarlierObject;
pub use elsewhere::Elsewhere;
pub use error::{DirectorError, DrivesOwner, WriteOnceBar, meant_by};
pub use events::{BaseUnavailable, Event, Events};
pub use expiry::{
    CopyingPolicy, ExpiryPlan, ExpiryRefusal, ExpiryRequest, ExpirySnapshot, ForgottenCopy, FullFolders, KeepReduction,
    Kept, PolicyChoice, UnaskedExpiry, Unexpired, kept_reason, plan_expiry,
};
pub use file_search::{FileSearch, FoundFile, SearchCursor, SearchEnd, Searched, SearchedFor};
pub use journal::{FailedJob, HistoryEntry, JobJournal, Tally, subject_of_job};
pub use keep::{KeepRule, KeptBy};
pub use keys::create_key_store;
pub use known_policies::BackupPolicy;
pub use library::{DriveRow, Inventory, LibraryPlace, Whereabouts, barcode};
pub use lifetime::{Lifetime, LifetimeSpan};
pub use limits::reserved_at_the_end;
pub use mounter::generation_of;
pub use mover_socket::{MOVER_SOCKET, MoverSocketHello};
pub use path_filter::{PathFilter, check_patterns};
pub use paths::{PathPattern, index_path, path_pattern};
pub use plan::{OlderVersion, PassRow, RestorePlan};
pub use policies::{OtherPolicies, PolicyChange, PolicyChanges, PolicySetting};
pub use pools::{Candidate, Choice, DEFAULT_POOL, Fill, Refill, Shortage, WantedVolume, choose_volume};
pub use process::number_of as process_number;
pub use protection::Protection;
pub use rebuild::{RebuildOptions, RebuildReport, rebuild};
pub use rebuild_index::IndexReport;
pub use reclaim::{ReclaimOptions, ReclaimPlan, ReclaimRequest, ReclaimableVolume, Reclaimed, VolumeFate};
pub use repair::{RepairReport, RepairedCopy};
pub use request::{BackupRequest, Level, MissingSource, Retention, Shortfall, Target};
pub use restore::{FailedFile, RestoreReport};
pub use scrub::{
    ScrubAmount, ScrubPlan, ScrubReport, ScrubRequest, ScrubbedVolume, UnscrubbedVolume, bad_at_most, to_be_drawn,
};
pub use select::Place;
pub use server_term::{
    AUDIT_ANCHOR_FACT, DriveUse, RunAsked, RunLevel, RunStart, ServerTerm, SourceInUse, VolumeInUse,
};
pub use sessions::SessionTerms;
pub use shared::Clock;
pub use site::{InitOptions, Site, check_writable, key_cluster, key_store_path};
pub use sources::SourceRow;
pub use stage_choice::StageChoice;
pub use vault::{NeededUntil, Sent, VaultAct, VaultVolume};
pub use verify_object::VerifiedCopy;
