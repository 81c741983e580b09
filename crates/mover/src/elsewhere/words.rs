//! What crosses connections between whoever decides and a mover elsewhere.

use std::io;

use capstan_format::{KeyTag, MediumSerial, ObjectId, ObjectRecord, SessionRecord, Volser};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::between::BetweenForm;
use crate::damage::FailedMember;
use crate::devices::KeyWanted;
use crate::feed::ReadReport;
use crate::intake::StreamStart;
use crate::meters::MeterCounts;
use crate::network::NetworkStream;
use crate::read::VolumePlace;
use crate::{JobToken, Load, MountId, SessionOptions};

/// The version of what follows. Where words of an older one change, both ends go on knowing them, down to [`OLDEST`];
/// `words/movers-VERSION.txt` keeps how they were.
pub(super) const VERSION: u32 = 10;
/// From here on, whoever decides knows [`crate::VolumeEnd::WriteFailed`].
pub(super) const WITH_FAILED_WRITES: u32 = 8;
/// From here on, a mover tells what is where while its robot works.
pub(super) const TELLS_AT_ONCE: u32 = 8;
/// The oldest that is understood.
pub(super) const OLDEST: u32 = 4;

/// The client that a mover takes for whoever decides. No client has this name.
pub(super) const OWN: &str = "";

/// A connection that carries these.
pub(super) type MoverLink = crate::link::Link<Box<dyn NetworkStream>>;

/// What comes first.
#[derive(Serialize, Deserialize)]
pub(super) struct Opening {
    pub(super) version: u32,
    pub(super) call: MoverCall,
}

/// What a connection is for.
#[derive(Serialize, Deserialize)]
pub(super) enum MoverCall {
    /// Orders to its devices follow.
    Devices { owner: JobToken },
    /// The mover asks on it for the keys of volumes that this owner mounts.
    Keys { owner: JobToken },
    /// A session begins; [`SessionOrder`]s follow.
    Session(Box<SessionCall>),
    /// A read begins; what is wanted is attached.
    Read(Box<ReadCall>),
    /// The host that a session or a read expects: the mover asks on it.
    Host { of: JobToken, number: u8 },
    /// What a client sends on a connection of data follows.
    Data,
}

/// The answer to an opening.
#[derive(Serialize, Deserialize)]
pub(super) enum Opened {
    Taken,
    Refused(String),
    /// The mover does not know the version of whoever calls. It knows this one, and older ones.
    Speaks(u32),
}

/// A key that the mover asks for.
#[derive(Serialize, Deserialize)]
pub(super) struct AskKey {
    tag: KeyTag,
    volser: Volser,
    cartridge: Option<MediumSerial>,
    drive: Option<String>,
}

impl From<&KeyWanted> for AskKey {
    fn from(wanted: &KeyWanted) -> Self {
        let KeyWanted { tag, volser, cartridge, drive } = wanted.clone();
        Self { tag, volser, cartridge, drive }
    }
}

impl From<AskKey> for KeyWanted {
    fn from(asked: AskKey) -> Self {
        let AskKey { tag, volser, cartridge, drive } = asked;
        Self { tag, volser, cartridge, drive }
    }
}

/// The answer: the key is attached, or why there is none.
#[derive(Serialize, Deserialize)]
pub(super) enum KeyAnswer {
    Key(capstan_format::Algorithm),
    None(String),
}

/// A session that begins.
#[derive(Serialize, Deserialize)]
pub(super) struct SessionCall {
    /// Whose mounts it writes to.
    pub(super) owner: JobToken,
    pub(super) options: SessionOptions,
    pub(super) record: SessionRecord,
    pub(super) copies: u8,
}

/// What a session or a read waits for.
#[derive(Serialize, Deserialize)]
pub(super) struct Expects {
    /// Hosts, one a copy, come with this.
    pub(super) hosts: JobToken,
    /// Whoever takes what is read comes with this, and for this restore.
    pub(super) pieces: Option<(JobToken, u64)>,
}

/// What whoever decides sends to a session.
#[derive(Serialize, Deserialize)]
pub(super) enum SessionOrder {
    /// A way in for one more job; its number.
    Intake,
    IntakeEnds(u32),
    Begin(u32, Box<ObjectRecord>, Vec<(u16, u64)>),
    End(u32, ObjectId, Option<i64>),
    Expect {
        intake: u32,
        client: String,
        object: ObjectId,
        streams: Vec<StreamStart>,
    },
    HaveCome(u64),
    /// How those who come in are to be held, and of which jobs counters are wanted.
    Watch(Vec<IntakeTerms>, Vec<u32>),
    Close,
}

/// How a way in is to be held.
#[derive(Serialize, Deserialize)]
pub(super) struct IntakeTerms {
    pub(super) intake: u32,
    pub(super) stops: bool,
    /// Bytes a second; none for no bound.
    pub(super) rate: Option<u64>,
}

/// What a session answers.
#[derive(Serialize, Deserialize)]
pub(super) enum SessionReport {
    Done,
    /// No copy is left that writes.
    Stopped,
    Failed(String),
    Intake(u32),
    /// What whoever brings the streams comes with; and what they are called, there and for [`SessionOrder::HaveCome`].
    Expected {
        token: JobToken,
        reading: u64,
        number: u64,
    },
    Came(bool),
    Watched {
        session: MeterCounts,
        intakes: Vec<(u32, MeterCounts)>,
    },
}

/// A read that begins.
#[derive(Serialize, Deserialize)]
pub(super) struct ReadCall {
    /// Whose mounts it reads from.
    pub(super) owner: JobToken,
    pub(super) kind: ReadKind,
    pub(super) between: Option<BetweenForm>,
    /// Bytes a second that a client gets of it at first; none for no bound. Since version 7.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) rate: Option<u64>,
}

/// What becomes of what is read.
#[derive(Serialize, Deserialize)]
pub(super) enum ReadKind {
    /// It is sent to a client.
    Send { client: String },
    /// Its checksums are compared.
    Verify,
    /// Nothing but blocks between others is read, of a volume that is mounted.
    Between { mount: MountId, place: VolumePlace, end_lbn: u64 },
}

/// What whoever decides answers to a report of a read.
#[derive(Serialize, Deserialize)]
pub(super) enum ReadAnswer {
    GoOn,
    /// No faster than so many bytes a second, until it is said anew. Since version 7.
    GoOnAt(u64),
    Stop,
}

/// What the mover says of a read.
#[derive(Serialize, Deserialize)]
pub(super) enum ReadTold {
    Progress(ReadCounts),
    /// It is over; what it met, a [`ReadDone`], is attached.
    Done(ReadCounts),
}

/// How far a read is.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ReadCounts {
    pub(super) load: Load,
    pub(super) members: u64,
    pub(super) bytes: u64,
    pub(super) taken: u64,
}

/// What a read met.
#[derive(Default, Serialize, Deserialize)]
pub(super) struct ReadDone {
    /// None where whoever was to take it did not come.
    pub(super) read: Option<ReadReport>,
    pub(super) failed: Vec<FailedMember>,
    pub(super) between: Option<BetweenForm>,
    /// Why it was not done.
    pub(super) broken: Option<String>,
}

/// Longest attachment that is believed, unpacked.
const UNPACKED_LEN_MAX: u64 = 4 << 30;

/// What may be long, as it is attached.
pub(super) fn pack(what: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut packed = zstd::Encoder::new(Vec::new(), 1)?;
    serde_json::to_writer(&mut packed, what)?;
    packed.finish()
}

/// The same, unpacked.
pub(super) fn unpack<T: DeserializeOwned>(packed: &[u8]) -> io::Result<T> {
    let plain = io::Read::take(zstd::Decoder::new(packed)?, UNPACKED_LEN_MAX);
    Ok(serde_json::from_reader(io::BufReader::new(plain))?)
}

/// The other end does not keep to the protocol.
pub(super) fn other_answer() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other end answers another question: it is of another version")
}
