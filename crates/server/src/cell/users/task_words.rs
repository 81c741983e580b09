//! What users have the server do with cartridges, and how they hear of it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `POST /v1/volumes/label`: volumes are labelled that hold nothing.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct LabelVolumes {
    /// Their barcodes.
    pub volumes: Vec<String>,
    /// The pool; scratch if it is left out.
    #[serde(default)]
    pub pool: Option<String>,
    /// The library in which a new cartridge is made; the main one if it is left out.
    #[serde(default)]
    pub library: Option<String>,
    /// Bytes that a new cartridge holds; as the settings say if it is left out.
    #[serde(default)]
    pub size: Option<u64>,
}

/// `POST /v1/library/move`: cartridges are moved.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct MoveCartridges {
    /// The library; the main one if it is left out.
    #[serde(default)]
    pub library: Option<String>,
    /// How.
    #[serde(flatten)]
    pub what: CartridgeMove,
}

/// A move of cartridges.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "move", rename_all = "kebab-case")]
pub enum CartridgeMove {
    /// A volume is brought into a drive.
    Load {
        /// The volume.
        volume: String,
        /// The drive's number.
        drive: u32,
    },
    /// What is in a drive is brought back to its slot.
    Unload {
        /// The drive's number.
        drive: u32,
    },
    /// A volume is brought into a drive in exchange for the one that is there.
    Exchange {
        /// The volume.
        volume: String,
        /// The drive's number.
        drive: u32,
    },
    /// Cartridges are brought from mail slots to free slots.
    Import {
        /// The mail slots; all that are full if none is named.
        mail_slots: Vec<u32>,
    },
    /// Volumes are brought to mail slots.
    Export {
        /// The volumes.
        volumes: Vec<String>,
    },
    /// The robot looks at every element.
    Initialize,
    /// Volumes go to a vault, by the mail slot where they are in a library.
    Send {
        /// The volumes; all that are to go there if none is named.
        volumes: Vec<String>,
        /// The vault; that of their policies if it is left out.
        #[serde(default)]
        vault: Option<String>,
    },
    /// Volumes are not at a vault any more.
    Back {
        /// The volumes.
        volumes: Vec<String>,
    },
}

impl CartridgeMove {
    /// Its name, and the drive that it uses.
    pub(super) fn word_and_drive(&self) -> (&'static str, Option<u32>) {
        match self {
            Self::Load { drive, .. } => ("load", Some(*drive)),
            Self::Unload { drive } => ("unload", Some(*drive)),
            Self::Exchange { drive, .. } => ("exchange", Some(*drive)),
            Self::Import { .. } => ("import", None),
            Self::Export { .. } => ("export", None),
            Self::Initialize => ("initialize", None),
            Self::Send { .. } => ("send", None),
            Self::Back { .. } => ("back", None),
        }
    }

    /// The volumes that it names.
    #[must_use]
    pub fn volumes(&self) -> &[String] {
        match self {
            Self::Load { volume, .. } | Self::Exchange { volume, .. } => std::slice::from_ref(volume),
            Self::Export { volumes } | Self::Send { volumes, .. } | Self::Back { volumes } => volumes,
            Self::Unload { .. } | Self::Import { .. } | Self::Initialize => &[],
        }
    }
}

/// What `library` or `vault` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum LibraryEvent {
    /// A volume is in a drive.
    Loaded {
        /// The volume.
        volume: String,
        /// The drive's number.
        drive: u32,
    },
    /// A drive is empty.
    Unloaded {
        /// The drive's number.
        drive: u32,
    },
    /// A volume is in a drive, in exchange for the one that was there.
    Exchanged {
        /// The volume.
        volume: String,
        /// The drive's number.
        drive: u32,
    },
    /// What was in the mail slots is in slots.
    Imported {
        /// How many cartridges.
        cartridges: usize,
    },
    /// Volumes are in the mail slots.
    Exported {
        /// Which.
        volumes: Vec<String>,
    },
    /// The robot has looked at everything; the directory of a virtual library belongs to this catalog.
    Initialized,
    /// Volumes go to vaults.
    Sent {
        /// Those in the mail slots, to be taken out.
        in_mail_slot: Vec<SentRow>,
        /// Those that are in no library: only where they are was noted.
        noted: Vec<SentRow>,
        /// Those that were not sent.
        left: Vec<NotSentRow>,
    },
    /// Volumes are at no vault any more, as far as they were.
    Back {
        /// Which.
        volumes: Vec<String>,
    },
}

/// A volume that goes to a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SentRow {
    /// Its barcode.
    pub volume: String,
    /// The vault.
    pub vault: String,
}

/// A volume that was not sent to a vault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NotSentRow {
    /// Its barcode.
    pub volume: String,
    /// Why.
    pub reason: String,
}

/// A task that has begun: the server works on it, whoever waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskBegun {
    /// Its number.
    pub task: u64,
}

/// `POST /v1/tasks/stop`: a task is to stop, as soon as it waits for something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StopTask {
    /// Its number.
    pub task: u64,
}

/// `GET /v1/tasks`: which task is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskQuery {
    /// Its number.
    pub task: u64,
    /// How many of its messages have been heard.
    #[serde(default)]
    pub heard: usize,
}

/// The answer, once there is something new within the time that the question stays open.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskSeen {
    /// What has been said since.
    pub messages: Vec<String>,
    /// How it ended, if it has.
    pub ended: Option<TaskEnd>,
}

/// How a task ended: `label`, as a user of a cell.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TaskEnd {
    /// Why it was not done, if it was not.
    pub failure: Option<String>,
    /// The volumes that were labelled.
    #[serde(default)]
    pub labelled: Vec<String>,
    /// Those that were not.
    #[serde(default)]
    pub not_labelled: Vec<VolumeNotLabelled>,
    /// What was moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub moved: Option<LibraryEvent>,
}

/// A volume that was not labelled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VolumeNotLabelled {
    /// Its barcode.
    pub volume: String,
    /// Why.
    pub reason: String,
}
