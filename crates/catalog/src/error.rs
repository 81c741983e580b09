//! What can go wrong with the catalog, each with what to do next.

use std::fmt::Display;
use std::io;
use std::path::Path;

use capstan_format::{FormatError, ObjectId, Volser};
use thiserror::Error;

/// Why the catalog did not do what it was asked.
#[derive(Debug, Error)]
pub enum CatalogError {
    /// Host: the file system below the catalog is full.
    #[error("the disk below the catalog is full ({what}): free space and run again; what was recorded is safe")]
    DiskFull {
        /// What was being done.
        what: String,
    },
    /// Host: a system call failed.
    #[error("{what}")]
    Io {
        /// What was done to what.
        what: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Host: another process held the catalog's write lock for too long.
    #[error("the catalog is locked by another process: wait for it to end, then run again")]
    Busy,
    /// Host: a file of the catalog is damaged or gone.
    #[error("{what} is damaged: {reason}. The volumes hold everything it held: run {}", rebuild_of(what))]
    Corrupt {
        /// The file.
        what: String,
        /// What was found.
        reason: String,
    },
    /// Caller: the catalog was written by a later program.
    #[error("the catalog has schema version {found}, this program knows up to {supported}: use a newer Capstan")]
    Newer {
        /// Version found.
        found: i64,
        /// Highest version known.
        supported: i64,
    },
    /// Host: the database refused; none of the cases above.
    #[error("the catalog's database failed")]
    Database {
        /// The cause, in the database's words.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Host: no connection to the database, or it was lost.
    #[error(
        "the catalog's database {database} cannot be reached: start it, or find out why it does not answer, then run \
             again; what was reported as recorded is safe"
    )]
    Unreachable {
        /// The database, without a password.
        database: String,
        /// The cause, in the words of the connection.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Host: a connection was lost while a change was committed, and whether it was cannot be told any more.
    #[error(
        "it is not known whether the last change was recorded in {database}: the connection was lost, and it cannot be \
             looked for any more. Run again once the database answers: it continues from what is recorded"
    )]
    OutcomeUnknown {
        /// The database, without a password.
        database: String,
    },
    /// Caller: a database that cannot hold the catalog, or must not be changed so.
    #[error("the database {database} is refused: {reason}")]
    DatabaseRefused {
        /// The database, without a password.
        database: String,
        /// Why not.
        reason: String,
    },
    /// Caller: a job was not heard of for longer than its lease.
    #[error(
        "another job took over volume {volser}, because this job gave no sign of life for too long. What was reported \
         as protected is kept. Run the job again, and find out what held it up"
    )]
    ReservationLost {
        /// The volume that it had reserved.
        volser: Volser,
    },
    /// Caller: a server moved a run through the queue, and another one has taken over.
    #[error(
        "another server has taken over this state directory, because this one gave no sign of life for too long: it \
             begins nothing more. Find out what held it up"
    )]
    ServerReplaced,
    /// Caller: the policies are not those that a change was made for.
    #[error("somebody changed the policies at the same time: nothing was changed. Look at them, then run again")]
    PoliciesChanged,
    /// Caller: a number that the catalog cannot keep.
    #[error("{what} is {value}, above what the catalog can keep")]
    TooLarge {
        /// What the number counts.
        what: &'static str,
        /// The number.
        value: u64,
    },
    /// Caller: no such pool.
    #[error("there is no pool {0}: create it, or choose one that `capstan pools` lists")]
    UnknownPool(String),
    /// Caller: the pool still has volumes.
    #[error("pool {pool} still holds {volumes} volumes: erase or move them first")]
    PoolInUse {
        /// The pool.
        pool: String,
        /// Volumes in it.
        volumes: u64,
    },
    /// Caller: no such volume.
    #[error("volume {0} is not in the catalog: label it, or run `capstan rebuild` if it holds data")]
    UnknownVolume(Volser),
    /// Medium: the volume was labelled anew since the catalog last saw it, or two cartridges share a barcode.
    #[error(
        "volume {volser} has volume id {found}, the catalog knows it as {recorded}: it was labelled elsewhere, \
             or two cartridges carry one barcode"
    )]
    OtherLife {
        /// The volume.
        volser: Volser,
        /// The id in the catalog.
        recorded: String,
        /// The id that was given.
        found: String,
    },
    /// Caller: no such object.
    #[error("object {0} is not in the catalog: `capstan objects` lists those that are")]
    UnknownObject(ObjectId),
    /// Caller: the object was expired; its index is gone.
    #[error(
        "object {0} has expired: `capstan expire --undo {0}` takes it back, unless its volumes were written anew since"
    )]
    Expired(ObjectId),
    /// Caller: an index is sealed only when its object is complete.
    #[error("object {0} is still open: run its backup again to complete it")]
    NotComplete(ObjectId),
    /// Caller: incrementals stand on the object.
    #[error("object {object} is the base of {}: expire what is based on it first", kept(dependents))]
    BaseOfLiving {
        /// The object.
        object: ObjectId,
        /// Living objects whose base it is.
        dependents: Vec<ObjectId>,
    },
    /// Medium: an object of the chain below an incremental is missing, expired, or names itself.
    #[error(
        "object {object} is based on object {base}, which {reason}: restore an earlier full object, or rebuild \
             from the volume that holds the base"
    )]
    ChainBroken {
        /// The object whose base it is.
        object: ObjectId,
        /// The base.
        base: ObjectId,
        /// Why it is of no use.
        reason: &'static str,
    },
    /// Medium: a checkpoint's catalog part contradicts itself.
    #[error("the catalog part of volume {volser} at block {lbn} cannot be used: {reason}")]
    PartRefused {
        /// The volume.
        volser: Volser,
        /// The checkpoint's logical block number.
        lbn: u64,
        /// What is wrong.
        reason: String,
    },
    /// Medium: entries in a catalog part cannot be decoded.
    #[error("the catalog part of volume {volser} at block {lbn} cannot be decoded")]
    PartDamaged {
        /// The volume.
        volser: Volser,
        /// The checkpoint's logical block number.
        lbn: u64,
        /// The cause.
        #[source]
        source: FormatError,
    },
}

impl CatalogError {
    /// An error of a system call, with the full disk named as such.
    pub(crate) fn io(what: &str, path: &Path, source: io::Error) -> Self {
        let what = format!("{what} {}", path.display());
        match source.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull { what },
            _ => Self::Io { what: format!("cannot {what}"), source },
        }
    }

    /// The object whose index file is damaged or gone, if it is that: the rest of the catalog may be whole.
    pub fn damaged_index(&self) -> Option<ObjectId> {
        match self {
            Self::Corrupt { what, .. } => object_of_index(what),
            _ => None,
        }
    }

    /// A damaged file.
    pub(crate) fn corrupt(what: impl Display, reason: impl Display) -> Self {
        Self::Corrupt { what: format!("{what}"), reason: format!("{reason}") }
    }
}

/// The command that makes anew what is damaged: the whole catalog, or one index file.
/// Objects that are kept, by their number and the first of them.
fn kept(objects: &[ObjectId]) -> String {
    let first = objects.first().map(ToString::to_string).unwrap_or_default();
    match objects.len() {
        1 => format!("object {first}, which is kept"),
        many => format!("{many} objects that are kept, the first is {first}"),
    }
}

fn rebuild_of(what: &str) -> String {
    match object_of_index(what) {
        Some(object) => format!("`capstan rebuild {object}`"),
        None => "`capstan rebuild`".to_owned(),
    }
}

/// The object of an index file's path: `.../OBJECT.GENERATION.parquet`.
fn object_of_index(what: &str) -> Option<ObjectId> {
    let name = what.strip_suffix(".parquet")?.rsplit('/').next()?;
    let (digits, _) = name.split_once('.')?;
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32)?;
    Some(ObjectId(number.to_be_bytes()))
}
