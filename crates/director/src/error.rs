//! What the director can't do, each with what to do next.

mod blame;
mod words;

use std::path::PathBuf;

pub(crate) use blame::refuses_part;
use capstan_catalog::CatalogError;
use capstan_format::{ObjectId, Volser};
use capstan_keys::KeyError;
use capstan_mover::devices::DevicesError;
use capstan_mover::extract::ExtractError;
use capstan_mover::{MoverError, SourceError};
use capstan_tape::{ChangerError, DriveError};
use thiserror::Error;
pub(crate) use words::until_words;
pub use words::{DrivesOwner, meant_by};
use words::{copies_text, further_sources, held_text, more_drives, shortage_advice, shortage_text, tried_as};

use crate::elsewhere::Elsewhere;
use crate::pools::Shortage;

/// Why a request was not carried out.
#[derive(Debug, Error)]
pub enum DirectorError {
    /// Operator: no state directory there.
    #[error("{} holds no Capstan state: run `capstan init` first, or name another directory with --state", path.display())]
    NotInitialised {
        /// Where it was looked for.
        path: PathBuf,
    },
    /// Host: the catalog is gone from a state directory.
    #[error(
        "{} holds no catalog: if it is on a disk of its own, mount that disk; if it is lost, `capstan rebuild` makes it anew from the volumes",
        path.display()
    )]
    CatalogMissing {
        /// Where it should be.
        path: PathBuf,
    },
    /// Operator: there is one, perhaps, and it is somebody else's.
    #[error("the state directory {} cannot be used: run capstan as the user it belongs to", path.display())]
    StateUnreadable {
        /// Where it is.
        path: PathBuf,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
    /// Host: nothing can be recorded.
    #[error(
        "the state directory {} cannot be written: its file system is read-only, or belongs to somebody else. Lists, verify, restore and cat \
         work all the same; for everything else make it writable", path.display()
    )]
    StateReadOnly {
        /// Where it is.
        path: PathBuf,
    },
    /// Operator: there is one already.
    #[error("{} holds a Capstan state already: it is left as it is", path.display())]
    AlreadyInitialised {
        /// Where.
        path: PathBuf,
    },
    /// Operator: the settings cannot be used.
    #[error("{} cannot be used: {reason}", path.display())]
    Config {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// Operator: another process has the state directory for itself, or would have to end for this one to have it.
    #[error(
        "another capstan (process {holder}) is working in this state directory, and one of the two (such as a rebuild) \
         must have it for itself: wait until that process has ended. `capstan backup --wait`, or a job with wait = \
         true, waits by itself"
    )]
    Busy {
        /// Its process id, as it left it.
        holder: String,
    },
    /// Operator: two backups of one source.
    #[error(
        "source {source_name} is being backed up by {holder}: wait until it has ended; `capstan backup --wait`, or wait = true of a job, \
         does so by itself"
    )]
    SourceInUse {
        /// The source.
        source_name: String,
        /// Who backs it up.
        holder: String,
    },
    /// Operator: another job has what this one needs.
    #[error("{what} is in use by {holder}: wait until it has ended")]
    InUse {
        /// What.
        what: String,
        /// Who has it.
        holder: String,
    },
    /// Caller: a vault, or what is to go there.
    #[error("{reason}")]
    Vault {
        /// Why it cannot be.
        reason: String,
    },
    /// Operator: no such object.
    #[error("no object matches {wanted:?}{}: `capstan objects` lists them", meant_by(like.as_deref()))]
    UnknownObject {
        /// What was asked for.
        wanted: String,
        /// The source that may have been meant.
        like: Option<String>,
    },
    /// Operator: several objects.
    #[error("{wanted:?} matches {count} objects: write more of the id")]
    AmbiguousObject {
        /// What was asked for.
        wanted: String,
        /// How many match.
        count: usize,
    },
    /// Operator: a source that several machines have.
    #[error(
        "several clients have {wanted} ({}): name one of its objects by the id (`capstan objects` lists them), or with \
         find, ls, versions and restore the client (--of)",
        clients.join(", ")
    )]
    AmbiguousSource {
        /// What was asked for.
        wanted: String,
        /// The clients.
        clients: Vec<String>,
    },
    /// Operator: the clock may be wrong.
    #[error(
        "the clock is {apart}, so nothing expires. If the clock is wrong, set it; if it is right, run \
         `capstan clock --confirm` once"
    )]
    ClockInDoubt {
        /// How far it is from the newest record.
        apart: String,
    },
    /// Operator: it is not to be forgotten.
    #[error("object {object} is kept: {reason}")]
    ObjectKept {
        /// The object.
        object: ObjectId,
        /// Why, and what to do.
        reason: String,
    },
    /// Operator: no such path.
    #[error("object {object} of {source_name} has no path {path:?}{}{elsewhere}", tried_as(tried))]
    UnknownPath {
        /// The object.
        object: String,
        /// Its source.
        source_name: String,
        /// What was asked for.
        path: String,
        /// The paths that it could have been.
        tried: Vec<String>,
        /// Where it may be found.
        elsewhere: Box<Elsewhere>,
    },
    /// Operator: more copies at once than drives.
    #[error(
        "{} are written at once, each on its own drive, and the library has {drives}: {}, or back up one copy and add others with `capstan copy`",
        copies_text(*copies), more_drives(owner)
    )]
    TooFewDrives {
        /// Copies that were asked for.
        copies: u8,
        /// Drives that there are.
        drives: u32,
        /// Who decides on how many there are.
        owner: DrivesOwner,
    },
    /// Operator: a volume is read and another one written in a library of one drive.
    #[error(
        "library {library} has one drive, and a copy that is read and written in it needs two: {}, or copy to a pool \
         in another library (`unit` of a policy, --unit)",
        more_drives(owner)
    )]
    OneDrive {
        /// The library.
        library: String,
        /// Who decides on how many there are.
        owner: DrivesOwner,
    },
    /// Operator: a pool that something needs.
    #[error("pool {pool} is not removed: {reason}")]
    PoolNeeded {
        /// Its name.
        pool: String,
        /// By what.
        reason: String,
    },
    /// Operator: standard input under a name that no path in an object may have.
    #[error("{reason}")]
    StreamName {
        /// Why not.
        reason: String,
    },
    /// Operator: a tag is none, or there are too many.
    #[error("{tag:?} cannot be a tag: {reason}")]
    Tag {
        /// The tag.
        tag: String,
        /// Why not.
        reason: String,
    },
    /// The client that has the sources is gone, or cannot be asked.
    #[error(transparent)]
    SourceHost(#[from] SourceError),
    /// Operator: patterns that leave nothing.
    #[error(
        "--include and --exclude leave nothing of object {object}: a pattern without a slash is a name, one with a slash a path below the source"
    )]
    NothingChosen {
        /// The object.
        object: String,
    },
    /// Operator: so many components that nothing is left of a path.
    #[error("--strip {strip} leaves no name for {path:?}: take {most} at most, or leave it out with --exclude")]
    StripsAll {
        /// The path.
        path: String,
        /// How many were to be taken.
        strip: usize,
        /// How many can be.
        most: usize,
    },
    /// Operator: so many components that two paths become one.
    #[error(
        "--strip {strip} makes {name:?} of both {other:?} and {path:?}: strip less, or restore them one after the other"
    )]
    StripsAlike {
        /// A path.
        path: String,
        /// The other.
        other: String,
        /// What both would be.
        name: String,
        /// How many components were to be taken.
        strip: usize,
    },
    /// Operator: different things are stored under one path.
    #[error(
        "objects {} and {} have different versions of {path:?}: restore one after the other, or to different \
         directories",
        objects[0], objects[1]
    )]
    TwoVersions {
        /// The path.
        path: String,
        /// The objects.
        objects: [String; 2],
    },
    /// Operator: no such volume.
    #[error("there is no volume {volser}: `capstan volumes` lists them")]
    UnknownVolume {
        /// What was asked for.
        volser: String,
    },
    /// Medium: no volume gives the list of files of an object.
    #[error(
        "the list of files of object {object} cannot be read from any volume that holds it ({}): bring in those that are missing, or back \
         its source up again with --full (of a client: `capstan queue add POLICY --full`)", problems.iter().map(|(volser, why)| format!("{volser}: {why}")).collect::<Vec<_>>().join("; ")
    )]
    IndexOutOfReach {
        /// The object.
        object: ObjectId,
        /// Volumes that were tried, and why each was of no use.
        problems: Vec<(Volser, String)>,
    },
    /// Operator: nothing is lost.
    #[error("the key store {} is whole and opens: it is left as it is", path.display())]
    KeyStoreWhole {
        /// Where it is.
        path: PathBuf,
    },
    /// Operator: no such run.
    #[error("there is no run {run}: `capstan history` lists them")]
    UnknownRun {
        /// What was asked for.
        run: i64,
    },
    /// Operator: no such policy.
    #[error("there is no policy {name}: `capstan policies` lists them, `capstan policies apply FILE` adds them")]
    UnknownPolicy {
        /// What was asked for.
        name: String,
    },
    /// Operator: a policy that cannot be run on this machine.
    #[error("policy {name} cannot be run: {reason}")]
    PolicyFault {
        /// The policy.
        name: String,
        /// Why.
        reason: String,
    },
    /// Operator: a policy of copies is to run by how full a library is that does not say it.
    #[error(
        "when_above: how full library {libraries} is, nobody knows or it cannot be asked now: use when_owed, or a schedule"
    )]
    FillUnknown {
        /// Libraries that it copies from.
        libraries: String,
    },
    /// Operator: another server is at work here.
    #[error("a server runs on this state directory already{}: stop it first", process.map_or(String::new(), |process| format!(" (process {process})")))]
    ServerRuns {
        /// Its process, if it can be told.
        process: Option<u32>,
    },
    /// Operator: a rebuild put another catalog in the place of the one that was opened.
    #[error("the catalog was rebuilt a moment ago: start the server again")]
    CatalogReplaced,
    /// Operator: a rebuild reads with drives of this host.
    #[error(
        "library {library} is that of mover {mover}, and a rebuild reads volumes with drives of this host: stop that mover, \
         connect its library here, and in capstan.toml name its changer, or its folder, in place of the mover; put the \
         mover back when the catalog is rebuilt"
    )]
    RebuildAtMover {
        /// The library.
        library: String,
        /// Its mover.
        mover: String,
    },
    /// Operator: a rebuild would forget volumes that hold something.
    #[error(
        "the catalog knows volumes that are not in the library, and a rebuild would forget what they hold: {volumes}. \
         Bring them in, or add --forget-absent if they are lost or are to be forgotten"
    )]
    RebuildForgets {
        /// Their barcodes.
        volumes: String,
    },
    /// Operator: no such library.
    #[error("there is no library {name:?} in capstan.toml: there are {known}")]
    UnknownLibrary {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Operator: no such storage unit.
    #[error("there is no storage unit or library {name:?} in capstan.toml: there are {known}")]
    UnknownUnit {
        /// What was asked for.
        name: String,
        /// Those that there are.
        known: String,
    },
    /// Operator: no mover has a label of a storage unit.
    #[error("storage unit {name} has no library: no mover has a label of it: `capstan mover label` gives one")]
    UnitWithoutLibrary {
        /// The storage unit.
        name: String,
    },
    /// Operator: no such pool.
    #[error("there is no pool {pool:?}: `capstan pools` lists them, `capstan pools add` makes one")]
    UnknownPool {
        /// What was asked for.
        pool: String,
    },
    /// Operator: a name that cannot be one.
    #[error("{name:?} cannot be a pool's name: use 1 to 63 of a-z 0-9 - _ and begin with a letter")]
    PoolName {
        /// What was asked for.
        name: String,
    },
    /// Operator: the pool is not what was meant.
    #[error("pool {pool:?} is and stays {is}, not {wanted}: leave the cipher out, or choose another name")]
    PoolDiffers {
        /// The pool.
        pool: String,
        /// How it encrypts.
        is: &'static str,
        /// How it was to.
        wanted: &'static str,
    },
    /// Operator: the pool has run out.
    #[error("pool {pool} has no volume to write to ({}): {}", shortage_text(shortage), shortage_advice(pool, shortage))]
    NoVolume {
        /// The pool.
        pool: String,
        /// What there is instead.
        shortage: Shortage,
    },
    /// Operator: all drives that are fit for a volume are in use.
    #[error(
        "none of the drives that are fit for volume {volser} became free ({source}), and no other volume of the pool can be \
         written in one that is. Add volumes for the other drives, or let fewer copies or jobs write at once"
    )]
    NoFitDrive {
        /// The volume.
        volser: Volser,
        /// Who has a drive.
        source: ChangerError,
    },
    /// Operator: there is data on it.
    #[error("volume {volser} holds {}. Use --force to do it anyway", held_text(*objects, *standing))]
    VolumeHoldsData {
        /// The volume.
        volser: Volser,
        /// How many objects.
        objects: usize,
        /// How many others are based on them.
        standing: usize,
    },
    /// Operator: the catalog does not know of it.
    #[error(
        "volume {volser} holds what the catalog does not know: {reason}. Nothing was changed. `capstan rebuild` reads what \
         the volumes hold into the catalog; --force gives it up"
    )]
    HoldsUnknown {
        /// The volume.
        volser: Volser,
        /// How that is seen.
        reason: String,
    },
    /// Operator: nobody may take it away.
    #[error(
        "volume {volser} holds object {object}, and its retention, or that of an object that is based on it, is locked, {}. \
         Nothing was changed",
        until_words(*until_ns)
    )]
    RetentionLocked {
        /// The volume.
        volser: Volser,
        /// The object whose lock ends last.
        object: ObjectId,
        /// When that is.
        until_ns: i64,
    },
    /// Operator: a lock that would never end.
    #[error(
        "a locked retention must end: give the policy or job a `retention`, or pool {pool} one (`capstan pools add {pool} \
         --retention 90d`). Nothing was backed up"
    )]
    LockWithoutRetention {
        /// The pool.
        pool: String,
    },
    /// Operator: a volume on its way out, or in.
    #[error("volume {volser} lies in {place}, which counts as outside: `capstan library import` brings it in")]
    InMailSlot {
        /// The volume.
        volser: Volser,
        /// The mail slot.
        place: String,
    },
    /// Operator: only what is lost is forgotten.
    #[error(
        "volume {volser} is in the library: take it out first (`capstan library export {volser}`, then out of the mail slot; of a virtual \
         library its file out of the folder `mail`). To use it again instead, make it blank: `capstan erase {volser}`"
    )]
    VolumePresent {
        /// The volume.
        volser: Volser,
    },
    /// Operator: it is WORM, and what was to be done needs one that can be written over.
    #[error("volume {volser} is WORM: {because}")]
    WriteOnce {
        /// The volume.
        volser: Volser,
        /// What bars it.
        because: WriteOnceBar,
    },
    /// Medium: its drive says that it is worn or damaged.
    #[error(
        "volume {volser} is no longer written: {reason}. Use another volume, and copy the data of this one while it \
         can be read"
    )]
    VolumeWorn {
        /// The volume.
        volser: Volser,
        /// What the drive says.
        reason: String,
    },
    /// Medium: the volume is not what the catalog knows.
    #[error(
        "volume {volser} does not match the catalog: {reason}. Nothing was written to it, and it is set aside as \
         suspect: `capstan verify {volser}` says what can be read"
    )]
    VolumeDiffers {
        /// The volume.
        volser: Volser,
        /// How.
        reason: String,
    },
    /// Library: the robot brought another cartridge than it was asked for, or labels are stuck on the wrong ones.
    #[error(
        "the library was asked for volume {volser}, but the cartridge in drive {drive} says that it is {found}: \
         nothing was read or written. Have all barcodes read again (`capstan library initialize`), and check whether a \
         barcode is on the wrong cartridge, or this one had another before"
    )]
    WrongCartridge {
        /// The volume asked for.
        volser: Volser,
        /// What its memory, or its label, says.
        found: Volser,
        /// Where it is.
        drive: String,
    },
    /// Operator: keys are needed and were not unlocked.
    #[error("this needs the key store: give its passphrase (CAPSTAN_PASSPHRASE, or type it) or --key-file")]
    KeysLocked,
    /// Operator: what was asked for is done where the keys are kept.
    #[error(
        "a key cluster ({nodes}) keeps the keys of this site. It needs no passphrase here, and is managed on one of \
         its nodes: `keyd --help` there lists the commands"
    )]
    KeysInCluster {
        /// Where it is.
        nodes: String,
    },
    /// Source: it cannot be read at all.
    #[error("source {} cannot be read{}", path.display(), further_sources(missing))]
    Source {
        /// The source.
        path: PathBuf,
        /// Others that cannot, either.
        missing: Vec<PathBuf>,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Operator: the source is what it would be written to.
    #[error("source {} holds the virtual library itself: exclude it, or move the library", path.display())]
    SourceHoldsLibrary {
        /// The source.
        path: PathBuf,
    },
    /// Operator: the disk below a virtual library is not what it was.
    #[error(
        "no cartridge is made in {}: it holds none of the {known} that the catalog knows. If they are on a disk that is not mounted, mount \
         it. If they were all taken out on purpose, make one with `capstan label BARCODE --pool {pool}`",
        path.display()
    )]
    CartridgesGone {
        /// The library's directory.
        path: PathBuf,
        /// Cartridges that the catalog knows.
        known: usize,
        /// The pool that wants a new one.
        pool: String,
    },
    /// Operator: a pattern that is none.
    #[error("{glob:?} is not a pattern: {reason}")]
    Glob {
        /// The pattern.
        glob: String,
        /// What is wrong.
        reason: String,
    },
    /// Every copy failed; what was flushed before stays.
    #[error(
        "no copy could be finished; what was reported as protected is kept, and the next backup continues from there"
    )]
    CopiesFailed(#[source] MoverError),
    /// As [`DirectorError::CopiesFailed`], of a session that other jobs shared.
    #[error(
        "no copy could be finished: {reason}; what was reported as protected is kept, and the next backup continues \
         from there"
    )]
    SessionFailed {
        /// Why.
        reason: String,
        /// Whether a pool had no volume.
        lacks_volume: bool,
    },
    /// Operator: Ctrl-C.
    #[error("stopped; what was reported as protected is kept, and the next backup continues from there")]
    Interrupted,
    /// Operator: Ctrl-C in a restore.
    #[error(
        "stopped; files that were being written are removed, those that were finished stay: restore again with \
         --overwrite changed to go on"
    )]
    RestoreInterrupted,
    /// Operator: two copies in one pool could share a volume.
    #[error(
        "object {object} has a copy in pool {pool} already: copy it to another pool; `capstan repair` mends a copy that lacks something"
    )]
    CopyInPool {
        /// The object.
        object: String,
        /// The pool.
        pool: String,
    },
    /// Medium: damage hit every copy in the same place.
    #[error(
        "{bytes} bytes of object {object} can no longer be read from any copy: `capstan ls -R {object}` flags the \
         files. Back up {source_name} again with --full (of a client: `capstan queue add POLICY --full`)"
    )]
    NoCopyLeft {
        /// The object.
        object: String,
        /// Its source.
        source_name: String,
        /// How much of its streams is lost.
        bytes: u64,
    },
    /// Operator: an object of which no full one can be made.
    #[error("no full object is made of object {object}: {reason}")]
    NotConsolidated {
        /// The object.
        object: ObjectId,
        /// Why not, and what to do.
        reason: String,
    },
    /// Operator: Ctrl-C in a consolidation.
    #[error("stopped; what was written is kept, and `capstan consolidate {object}` goes on from there")]
    ConsolidationStopped {
        /// The object that a full one is made of.
        object: ObjectId,
    },
    /// Operator: Ctrl-C while volumes are emptied.
    #[error("stopped; what was moved counts, and the next `capstan reclaim` goes on with the rest")]
    ReclaimStopped,
    /// Operator: a generation that no volume has.
    #[error("no volume is of generation {generation}: `capstan volumes --json` has the generation of each")]
    UnknownGeneration {
        /// Its name, as it was given.
        generation: String,
    },
    /// Operator: an object has as many copies as there are numbers.
    #[error("object {object} has had 255 copies: erase volumes of copies that are not needed")]
    TooManyCopies {
        /// The object.
        object: String,
    },
    /// Operator: only files have content.
    #[error("{path} is not a file with content: `capstan ls` shows what it is, and `capstan restore` brings it back")]
    NotAFile {
        /// The path.
        path: String,
    },
    /// Medium or output: content could not be given out.
    #[error("cannot give out the content: {reason}")]
    Output {
        /// Why.
        reason: String,
    },
    /// The target of a restore.
    #[error(transparent)]
    Extract(ExtractError),
    /// The catalog.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The keys.
    #[error(transparent)]
    Keys(#[from] KeyError),
    /// The mover.
    #[error(transparent)]
    Mover(MoverError),
    /// The drive.
    #[error(transparent)]
    Drive(DriveError),
    /// The drive, with a volume in it.
    #[error("volume {volser}: {source}")]
    Volume {
        /// The volume.
        volser: Volser,
        /// What the drive said.
        #[source]
        source: DriveError,
    },
    /// The library's robot.
    #[error(transparent)]
    Changer(ChangerError),
    /// Network: a mover does not answer.
    #[error("the mover cannot be reached: see that it runs, then begin again")]
    MoverLost(#[source] std::io::Error),
    /// The host.
    #[error("cannot {what} {}", path.display())]
    Host {
        /// What was done.
        what: &'static str,
        /// To what.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

/// Why a WORM volume is not written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WriteOnceBar {
    /// It would be labelled anew, or erased.
    #[error(
        "it can be neither erased nor labelled again, with or without --force: keep it for as long as its data is \
         needed, and use another volume"
    )]
    HoldsData,
    /// What it begins with is no label that the catalog knows.
    #[error(
        "its label is incomplete, or is not the one in the catalog (perhaps labelling was interrupted), and it cannot \
         be labelled again: it is retired, and another volume is used"
    )]
    NoLabel,
    /// A session was ended amid blocks that no checkpoint counts.
    #[error(
        "an interrupted session left {blocks} blocks behind its last checkpoint, and they cannot be overwritten: it \
         counts as full, and another volume is used. What was reported as protected on it can be read as before"
    )]
    Tail {
        /// How many blocks and filemarks.
        blocks: u64,
    },
    /// Scratch volumes are labelled again.
    #[error("it can be labelled only once, and a scratch volume is labelled again: name its pool with --pool")]
    Scratch,
}

/// A block's key that could not be had is a matter of the keys, and says so in their words, wherever it was met.
impl From<DriveError> for DirectorError {
    fn from(error: DriveError) -> Self {
        match error {
            DriveError::KeyUnavailable { lbn, tag, source } => match source.downcast::<Self>() {
                Ok(own) => *own,
                Err(source) => Self::Drive(DriveError::KeyUnavailable { lbn, tag, source }),
            },
            other => Self::Drive(other),
        }
    }
}

impl From<MoverError> for DirectorError {
    fn from(error: MoverError) -> Self {
        match error {
            MoverError::Drive { source: source @ DriveError::KeyUnavailable { .. }, volser } => match source.into() {
                Self::Drive(source) => Self::Mover(MoverError::Drive { volser, source }),
                own => own,
            },
            other => Self::Mover(other),
        }
    }
}

impl From<DevicesError> for DirectorError {
    fn from(error: DevicesError) -> Self {
        match error {
            DevicesError::Changer(error) | DevicesError::NoDrive(error) => Self::Changer(error),
            DevicesError::Mover(error) => match error.into() {
                Self::Mover(MoverError::Drive { volser, source }) => Self::Volume { volser, source },
                other => other,
            },
            DevicesError::InMailSlot { volser, place } => Self::InMailSlot { volser, place },
            DevicesError::WrongCartridge { volser, found, drive } => Self::WrongCartridge { volser, found, drive },
            DevicesError::Stopped => Self::Interrupted,
            DevicesError::Connection(source) => Self::MoverLost(source),
        }
    }
}

impl DirectorError {
    pub(crate) fn host(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.into();
        move |source| Self::Host { what, path, source }
    }
}
