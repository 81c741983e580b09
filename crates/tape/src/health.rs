//! What a drive tells of its own health and of the loaded volume's: alerts, counts, cleaning.

use serde::{Deserialize, Serialize};

/// Counts of the drive since it was powered on or since the medium was loaded, as the drive has it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriveStatistics {
    /// Bytes that hosts sent with WRITE.
    pub host_written_bytes: Option<u64>,
    /// Bytes written to the medium.
    pub medium_written_bytes: Option<u64>,
    /// Bytes read from the medium.
    pub medium_read_bytes: Option<u64>,
    /// Bytes that hosts got with READ.
    pub host_read_bytes: Option<u64>,
    /// Ratio of compression of what was read, in hundredths.
    pub read_compression_percent: Option<u64>,
    /// Ratio of compression of what was written, in hundredths.
    pub write_compression_percent: Option<u64>,
    /// Conditions that the drive told of as recovered since it was opened here.
    pub recovered_errors: u64,
    /// Whether it wants to be cleaned, by log page or by sense data.
    pub cleaning: Option<Cleaning>,
    /// Cartridges that it has loaded in its life.
    pub loads: Option<u64>,
    /// Metres of tape that have passed its heads in its life.
    pub metres: Option<u64>,
    /// The loaded volume.
    pub volume: VolumeStatistics,
}

/// Counts over the life of the loaded volume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VolumeStatistics {
    /// Times it was threaded.
    pub mounts: Option<u64>,
    /// Data sets written.
    pub data_sets_written: Option<u64>,
    /// Data sets that were written again because the first try failed.
    pub write_retries: Option<u64>,
    /// Writes that failed.
    pub write_errors: Option<u64>,
    /// Data sets read.
    pub data_sets_read: Option<u64>,
    /// Reads that needed another try.
    pub read_retries: Option<u64>,
    /// Reads that failed.
    pub read_errors: Option<u64>,
    /// MB written, of 10^6 bytes.
    pub written_mb: Option<u64>,
    /// MB read, of 10^6 bytes.
    pub read_mb: Option<u64>,
}

/// Whether the drive has asked to be cleaned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Cleaning {
    /// It has not.
    NotAsked,
    /// It has (0/00/17 or 1/00/17): finish the volume, load a cleaning cartridge, go on.
    Asked,
}

/// What an operator is to do about an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AlertDemand {
    /// To know of it: drive or medium may be to blame, or nobody.
    Attention,
    /// To write on another medium: this one is worn, damaged, or not what it should be.
    OtherMedium,
    /// To clean the drive.
    Cleaning,
    /// To have the drive repaired.
    Repair,
}

/// A flag that a drive has raised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TapeAlert {
    /// Its number (SSC-5, annex A).
    pub flag: u16,
    /// What it means and what to do; none for flags of the vendor.
    pub meaning: Option<&'static str>,
    /// What is to be done.
    pub demand: AlertDemand,
}

impl TapeAlert {
    /// The flag of a number, as it is kept.
    pub fn of_flag(flag: u16) -> Self {
        match TAPE_ALERTS.iter().find(|(number, ..)| *number == flag) {
            Some((_, demand, text)) => Self { flag, meaning: Some(text), demand: *demand },
            None => Self { flag, meaning: None, demand: AlertDemand::Attention },
        }
    }
}

/// TapeAlert flags (SSC-5, annex A), by number; those that are missing are obsolete or reserved.
const TAPE_ALERTS: &[(u16, AlertDemand, &str)] = &[
    (1, AlertDemand::Attention, "read warning: the drive has trouble reading"),
    (2, AlertDemand::Attention, "write warning: the drive has trouble writing"),
    (3, AlertDemand::Attention, "hard error: data could not be read or written"),
    (4, AlertDemand::OtherMedium, "the medium can no longer be written or read: copy what is on it to another one"),
    (5, AlertDemand::Attention, "the tape is damaged, or the drive is: the read failed"),
    (6, AlertDemand::Attention, "the tape is damaged, or the drive is: the write failed"),
    (7, AlertDemand::OtherMedium, "the medium has reached the end of its life: copy it to a new one"),
    (8, AlertDemand::OtherMedium, "not of data grade: use another medium"),
    (9, AlertDemand::Attention, "the medium is write-protected"),
    (10, AlertDemand::Attention, "removal of the medium is prevented"),
    (11, AlertDemand::Attention, "a cleaning cartridge is in the drive"),
    (12, AlertDemand::Attention, "the cartridge is of a kind that this drive does not take"),
    (
        13,
        AlertDemand::OtherMedium,
        "the tape has broken, or the cartridge is damaged: it can be taken out, not used again",
    ),
    (
        14,
        AlertDemand::Repair,
        "the tape has broken in the drive, or the cartridge is damaged and stuck: call the drive's service",
    ),
    (15, AlertDemand::OtherMedium, "the cartridge's memory has failed"),
    (16, AlertDemand::Attention, "the medium was ejected by force in mid-operation"),
    (17, AlertDemand::Attention, "the medium is of a format that the drive only reads"),
    (18, AlertDemand::Attention, "the tape directory is damaged: searching is slow until it is read to its end"),
    (19, AlertDemand::OtherMedium, "the medium is nearly worn out"),
    (20, AlertDemand::Cleaning, "the drive must be cleaned now"),
    (21, AlertDemand::Cleaning, "the drive is due for its periodic cleaning"),
    (22, AlertDemand::Attention, "the cleaning cartridge is used up"),
    (23, AlertDemand::Attention, "not a cleaning cartridge that this drive takes"),
    (24, AlertDemand::Attention, "the tape should be retensioned: wind it to its end and back"),
    (25, AlertDemand::Attention, "an interface of the drive has trouble, or only one of two works: look at its cables"),
    (26, AlertDemand::Repair, "a fan in the drive or its enclosure has failed"),
    (
        27,
        AlertDemand::Repair,
        "a power supply of the drive or its enclosure has failed: replace it while the other one works",
    ),
    (28, AlertDemand::Attention, "the drive takes more power than it should"),
    (29, AlertDemand::Attention, "the drive is due for preventive maintenance"),
    (30, AlertDemand::Repair, "the drive's hardware failed: it must be reset"),
    (31, AlertDemand::Repair, "the drive's hardware failed: it must be repaired"),
    (32, AlertDemand::Attention, "the host interface has trouble"),
    (33, AlertDemand::Attention, "the operation failed: take the cartridge out, put it in again, and try once more"),
    (34, AlertDemand::Attention, "new firmware was not taken: it is the wrong one, or came damaged"),
    (35, AlertDemand::Attention, "the air in the drive is too humid or too dry"),
    (36, AlertDemand::Attention, "the drive is too hot, or too cold"),
    (37, AlertDemand::Attention, "the drive's supply voltage is out of its limits"),
    (38, AlertDemand::Repair, "the drive expects its hardware to fail: have it looked at before it does"),
    (39, AlertDemand::Repair, "the drive may have failed: run its diagnostics"),
    (50, AlertDemand::Attention, "statistics of the medium were lost"),
    (51, AlertDemand::Attention, "the tape directory is wrong: it is made anew while the tape is read"),
    (52, AlertDemand::OtherMedium, "the tape could not write its system area"),
    (53, AlertDemand::OtherMedium, "the tape could not read its system area"),
    (54, AlertDemand::OtherMedium, "the start of data was not found"),
    (55, AlertDemand::Attention, "the tape could not be loaded"),
    (56, AlertDemand::Repair, "the cartridge cannot be unloaded: it is stuck in the drive; call its service"),
    (57, AlertDemand::Attention, "drive and library do not understand each other: look at the connection between them"),
    (58, AlertDemand::Attention, "the drive's firmware has failed: reset the drive, and update the firmware"),
    (59, AlertDemand::OtherMedium, "the medium is not a genuine WORM cartridge"),
    (60, AlertDemand::Attention, "a write over what is on a WORM cartridge was tried, and refused"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alert_says_what_is_to_be_done() {
        assert_eq!(TapeAlert::of_flag(7).demand, AlertDemand::OtherMedium);
        assert_eq!(TapeAlert::of_flag(20).demand, AlertDemand::Cleaning);
        assert_eq!(TapeAlert::of_flag(31).demand, AlertDemand::Repair);
        let unknown = TapeAlert { flag: 64, meaning: None, demand: AlertDemand::Attention };
        assert_eq!(TapeAlert::of_flag(64), unknown);
        let unnamed: Vec<u16> = (1..=60).filter(|flag| TapeAlert::of_flag(*flag).meaning.is_none()).collect();
        assert_eq!(unnamed, (40..=49).collect::<Vec<_>>(), "obsolete or reserved in the standard");
        assert!(TAPE_ALERTS.is_sorted_by_key(|(number, ..)| *number));
    }
}
