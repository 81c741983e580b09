//! Rows of lists about volumes, pools, drives and libraries. Commands print them as they are (`--json`), whether they
//! were made here or came over the network.

use capstan_catalog::{MediumKind, Pool, Volume, VolumeState};
use capstan_director::{
    DriveRow, Inventory, LibraryPlace, NeededUntil, VaultAct, VaultVolume, Whereabouts, generation_of,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::words::Word;

/// `GET /v1/volumes`: which volumes are listed.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct VolumesQuery {
    /// Only those of this pool.
    pub pool: Option<String>,
}

/// The volumes.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct VolumesAnswer {
    /// In the order of their barcodes.
    pub volumes: Vec<VolumeRow>,
    /// How many libraries there are.
    pub libraries: usize,
}

/// A volume: a line of `volumes`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VolumeRow {
    /// Its barcode.
    pub volume: String,
    /// Its pool; null for scratch.
    pub pool: Option<String>,
    /// `blank`, `scratch`, `filling`, `full`, `suspect` or `retired`.
    pub state: Word,
    /// Whether it can be written once only.
    pub worm: bool,
    /// The id of its life.
    pub id: Option<String>,
    /// The cipher; null for none.
    pub encryption: Option<Word>,
    /// The tag of its key.
    pub key: Option<String>,
    /// What it holds, if that is known.
    pub capacity_bytes: Option<u64>,
    /// What is written on it.
    pub written_bytes: u64,
    /// When it was labelled, nanoseconds since 1970.
    pub labelled_ns: Option<i64>,
    /// When it was last written.
    pub written_ns: Option<i64>,
    /// How often it was mounted.
    pub mounts: u64,
    /// Errors that were met on it.
    pub errors: u64,
    /// How many lives it had before.
    pub recycled: u32,
    /// Blocks that are on record as damaged.
    pub damaged_blocks: u64,
    /// When all of it was last read back, nanoseconds since 1970; null if it never was.
    pub verified_ns: Option<i64>,
    /// Whether there is anything on it to be read back.
    pub has_checkpoint: bool,
    /// Whether it is in a slot or a drive of the library. What lies in a mail slot is outside.
    pub in_library: bool,
    /// Where: an element of the library, `outside`, `shelf`, or `unknown` if its library does not answer.
    pub place: String,
    /// The vault that it was sent to, if it has not been seen in a library since.
    #[serde(default)]
    pub vault: Option<String>,
    /// The library that it was last seen in.
    pub library: String,
    /// The generation of the cartridge, as `LTO-9`: as its drive or, before it was mounted, its barcode says; null if
    /// neither does.
    pub generation: Option<String>,
}

impl VolumeRow {
    pub(super) fn new(
        volume: &Volume,
        (place, vault): (Whereabouts, Option<&String>),
        damaged_blocks: u64,
        verified_ns: Option<i64>,
    ) -> Self {
        Self {
            volume: volume.volser.to_string(),
            pool: volume.pool.clone(),
            state: volume_state_word(volume.state).into(),
            worm: volume.medium == MediumKind::WriteOnce,
            id: volume.id.map(|id| id.to_string()),
            encryption: volume.key.map(|key| key.algorithm.name().into()),
            key: volume.key.map(|key| key.tag.to_string()),
            capacity_bytes: volume.capacity,
            written_bytes: volume.written,
            labelled_ns: volume.labelled_ns,
            written_ns: volume.written_ns,
            mounts: volume.mounts,
            errors: volume.errors,
            recycled: volume.recycled,
            damaged_blocks,
            verified_ns,
            has_checkpoint: volume.checkpoint_lbn > 0,
            in_library: place.is_inside(),
            place: place.to_string(),
            vault: vault.cloned(),
            library: volume.library.clone(),
            generation: generation_of(volume),
        }
    }
}

/// `GET /v1/vault`: volumes that are at vaults, are to go there, or are to be fetched.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct VaultAnswer {
    /// First those that are to be fetched, then those that are to go.
    pub volumes: Vec<VaultRow>,
}

/// A volume that is at a vault, is to go there, or is to be fetched: a line of `vault`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VaultRow {
    /// Its barcode.
    pub volume: String,
    /// Its pool; null for scratch.
    pub pool: Option<String>,
    /// `blank`, `scratch`, `filling`, `full`, `suspect` or `retired`.
    pub state: Word,
    /// The vault where it is, or that it is to go to; null if it is outside and nobody said where.
    pub vault: Option<String>,
    /// Where, as in `volumes`.
    pub place: String,
    /// When it was sent, nanoseconds since 1970.
    pub sent_ns: Option<i64>,
    /// Whether something on it is needed.
    pub is_needed: bool,
    /// Until when; null if nothing on it is, or for ever, or as long as a keep rule keeps it.
    pub needed_until_ns: Option<i64>,
    /// What a person is to do with it: `fetch`, `send`, or `keep` for nothing.
    pub act: Word,
    /// Why.
    pub reasons: Vec<String>,
}

impl From<VaultVolume> for VaultRow {
    fn from(volume: VaultVolume) -> Self {
        Self {
            volume: volume.volser.to_string(),
            pool: volume.pool,
            state: volume_state_word(volume.state).into(),
            vault: volume.vault,
            place: volume.place.to_string(),
            sent_ns: volume.sent_ns,
            is_needed: volume.needed != NeededUntil::Nothing,
            needed_until_ns: match volume.needed {
                NeededUntil::At(at_ns) => Some(at_ns),
                NeededUntil::Nothing | NeededUntil::Open => None,
            },
            act: match volume.act {
                VaultAct::Fetch => "fetch",
                VaultAct::Send => "send",
                VaultAct::Keep => "keep",
            }
            .into(),
            reasons: volume.reasons,
        }
    }
}

/// The state of a volume, in the word that lists have for it.
#[must_use]
pub fn volume_state_word(state: VolumeState) -> &'static str {
    match state {
        VolumeState::Blank => "blank",
        VolumeState::Scratch => "scratch",
        VolumeState::Filling => "filling",
        VolumeState::Full => "full",
        VolumeState::Suspect => "suspect",
        VolumeState::Retired => "retired",
    }
}

/// `GET /v1/pools`: the pools.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PoolsAnswer {
    /// By name.
    pub pools: Vec<PoolRow>,
    /// How many volumes are in none.
    pub scratch: usize,
}

/// A pool: a line of `pools`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct PoolRow {
    /// Its name.
    pub pool: String,
    /// The cipher; null for none.
    pub encryption: Option<Word>,
    /// For how long its objects are kept, in nanoseconds; null for ever.
    pub retention_ns: Option<u64>,
    /// How many volumes it has.
    pub volumes: usize,
}

impl PoolRow {
    /// A pool, with its volumes counted among these.
    #[must_use]
    pub fn new(pool: &Pool, volumes: &[Volume]) -> Self {
        Self {
            pool: pool.name.clone(),
            encryption: pool.encryption.map(|cipher| cipher.name().into()),
            retention_ns: pool.retention_ns,
            volumes: volumes.iter().filter(|volume| volume.pool.as_ref() == Some(&pool.name)).count(),
        }
    }
}

/// `GET /v1/drives`: the drives of all libraries.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct DrivesAnswer {
    /// By library and number.
    pub drives: Vec<DriveLine>,
    /// Libraries that do not answer, each with why.
    pub silent: Vec<SilentLibrary>,
    /// How many libraries there are.
    pub libraries: usize,
}

/// A library that does not answer.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct SilentLibrary {
    /// Its name.
    pub library: String,
    /// Why.
    pub reason: String,
}

/// A drive of a library: a line of `drives`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct DriveLine {
    /// The library whose drive it is.
    pub library: String,
    /// Its number.
    pub drive: u32,
    /// Its maker's name for it, if it is known.
    pub model: Option<String>,
    /// The model that says what it can do, as `LTO-9`, if it is known.
    pub class: Option<String>,
    /// Its serial number, if it is known.
    pub serial: Option<String>,
    /// Its device; null for a virtual one.
    pub device: Option<String>,
    /// The volume in it.
    pub volume: Option<String>,
}

impl DriveLine {
    pub(super) fn new(library: &str, row: &DriveRow) -> Self {
        Self {
            library: library.to_owned(),
            drive: row.number,
            model: row.description.model.clone(),
            class: row.description.class.clone(),
            serial: row.description.serial.clone(),
            device: row.description.path.as_ref().map(|path| path.display().to_string()),
            volume: row.volser.as_ref().map(ToString::to_string),
        }
    }
}

/// `GET /v1/library`: which library is looked at.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct LibraryQuery {
    /// Its name; the main one if it is left out.
    pub library: Option<String>,
}

/// What is in a library: `library inventory`.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct InventoryRow {
    /// Every slot, drive and mail slot.
    pub places: Vec<LibraryPlaceRow>,
    /// Volumes that the catalog knows and the library has not.
    pub absent: Vec<KnownVolume>,
    /// What a person has to put right.
    pub findings: Vec<String>,
    /// The folders of a virtual library that has rules for the room in them.
    #[serde(default)]
    pub folders: Vec<FolderRow>,
}

/// A folder of a virtual library.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct FolderRow {
    /// Its path, at the host that has the library.
    pub folder: String,
    /// How many volumes lie in it.
    pub volumes: u64,
    /// Bytes of its file system.
    pub total_bytes: u64,
    /// Bytes of it that are free.
    pub free_bytes: u64,
    /// Whether that is so much more than is to stay free that backups begin to write there.
    pub has_room: bool,
}

impl From<&Inventory> for InventoryRow {
    fn from(inventory: &Inventory) -> Self {
        let folders = inventory.rooms.iter().map(|room| FolderRow {
            folder: room.folder.clone(),
            volumes: room.volumes.len() as u64,
            total_bytes: room.total_bytes,
            free_bytes: room.free_bytes,
            has_room: room.has_room(),
        });
        Self {
            places: inventory.places.iter().map(LibraryPlaceRow::from).collect(),
            absent: inventory.absent.iter().map(KnownVolume::from).collect(),
            findings: inventory.findings.iter().map(ToString::to_string).collect(),
            folders: folders.collect(),
        }
    }
}

/// A place of a library.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LibraryPlaceRow {
    /// `slot`, `drive` or `mail slot`.
    pub kind: Word,
    /// Its number.
    pub number: u32,
    /// The barcode of what is in it; null where it is empty, or the barcode cannot be read.
    pub volume: Option<String>,
    /// What the catalog knows of that volume; null for nothing.
    pub known: Option<KnownVolume>,
}

impl From<&LibraryPlace> for LibraryPlaceRow {
    fn from(place: &LibraryPlace) -> Self {
        let (kind, number) = place.kind_and_number();
        let volume = place.element.volser.as_ref().map(ToString::to_string);
        Self { kind: kind.into(), number, volume, known: place.known.as_ref().map(KnownVolume::from) }
    }
}

/// A volume as the catalog knows it.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct KnownVolume {
    /// Its barcode.
    pub volume: String,
    /// Its pool; null for scratch.
    pub pool: Option<String>,
    /// `blank`, `scratch`, `filling`, `full`, `suspect` or `retired`.
    pub state: Word,
}

impl From<&Volume> for KnownVolume {
    fn from(volume: &Volume) -> Self {
        let (volser, pool) = (volume.volser.to_string(), volume.pool.clone());
        Self { volume: volser, pool, state: volume_state_word(volume.state).into() }
    }
}
