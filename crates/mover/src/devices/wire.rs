//! Errors as they cross a socket, with what somebody decides by; the rest of an error becomes its words.

use std::io;

use capstan_format::{FormatError, KeyTag, Volser, VolumeId};
use capstan_tape::{Blame, ChangerError, DriveError, UnfitDrive, with_causes};
use serde::{Deserialize, Serialize};

use super::DevicesError;
use crate::{MountId, MoverError};

/// A [`DevicesError`].
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ErrorForm {
    Changer(ChangerForm),
    NoDrive(ChangerForm),
    Mover(MoverForm),
    InMailSlot { volser: Volser, place: String },
    WrongCartridge { volser: Volser, found: Volser, drive: String },
    Stopped,
    Connection { text: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ChangerForm {
    UnknownVolume { volser: Volser },
    Foreign { volser: Volser, source: UnfitDrive },
    CleaningCartridge { volser: Volser },
    UnknownDrive { drive: u32, drives: u32 },
    InUse { what: String, holder: String },
    VolserTaken { volser: Volser },
    FoldersFull { volser: Volser },
    Unusable { library: String, reason: String },
    Reported { text: String },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum MoverForm {
    Drive {
        volser: Volser,
        source: DriveForm,
    },
    Format {
        volser: Volser,
        lbn: u64,
        text: String,
        #[serde(default)]
        is_later: bool,
    },
    Misplaced {
        volser: Volser,
        lbn: u64,
        reason: String,
    },
    OtherVolume {
        volser: Volser,
        expected: VolumeId,
        found: VolumeId,
    },
    NotLabelled {
        volser: Volser,
        reason: String,
    },
    NotMounted {
        mount: MountId,
    },
    Stopped,
    Reported {
        text: String,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum DriveForm {
    NoMedium {
        drive: String,
    },
    WriteProtected {
        drive: String,
    },
    WriteOnce {
        drive: String,
    },
    EndOfMedium {
        lbn: u64,
    },
    NoKey {
        drive: String,
        lbn: u64,
        tag: KeyTag,
    },
    KeyUnavailable {
        lbn: u64,
        tag: KeyTag,
        text: String,
    },
    Reported {
        text: String,
        blames_medium: bool,
        /// Movers of before version 8 do not say it.
        #[serde(default)]
        blame: Option<Blame>,
        #[serde(default)]
        drive: Option<String>,
    },
}

impl From<&DevicesError> for ErrorForm {
    fn from(error: &DevicesError) -> Self {
        match error {
            DevicesError::Changer(error) => Self::Changer(error.into()),
            DevicesError::NoDrive(error) => Self::NoDrive(error.into()),
            DevicesError::Mover(error) => Self::Mover(error.into()),
            DevicesError::InMailSlot { volser, place } => {
                Self::InMailSlot { volser: volser.clone(), place: place.clone() }
            }
            DevicesError::WrongCartridge { volser, found, drive } => {
                Self::WrongCartridge { volser: volser.clone(), found: found.clone(), drive: drive.clone() }
            }
            DevicesError::Stopped => Self::Stopped,
            DevicesError::Connection(source) => Self::Connection { text: source.to_string() },
        }
    }
}

impl From<ErrorForm> for DevicesError {
    fn from(form: ErrorForm) -> Self {
        match form {
            ErrorForm::Changer(form) => Self::Changer(form.into()),
            ErrorForm::NoDrive(form) => Self::NoDrive(form.into()),
            ErrorForm::Mover(form) => Self::Mover(form.into()),
            ErrorForm::InMailSlot { volser, place } => Self::InMailSlot { volser, place },
            ErrorForm::WrongCartridge { volser, found, drive } => Self::WrongCartridge { volser, found, drive },
            ErrorForm::Stopped => Self::Stopped,
            ErrorForm::Connection { text } => Self::Connection(io::Error::other(text)),
        }
    }
}

impl From<&ChangerError> for ChangerForm {
    fn from(error: &ChangerError) -> Self {
        match error {
            ChangerError::UnknownVolume { volser } => Self::UnknownVolume { volser: volser.clone() },
            ChangerError::Foreign { volser, source } => {
                Self::Foreign { volser: volser.clone(), source: (**source).clone() }
            }
            ChangerError::CleaningCartridge { volser } => Self::CleaningCartridge { volser: volser.clone() },
            ChangerError::UnknownDrive { drive, drives } => Self::UnknownDrive { drive: *drive, drives: *drives },
            ChangerError::InUse { what, holder } => Self::InUse { what: what.clone(), holder: holder.clone() },
            ChangerError::VolserTaken { volser } => Self::VolserTaken { volser: volser.clone() },
            ChangerError::FoldersFull { volser } => Self::FoldersFull { volser: volser.clone() },
            ChangerError::Unusable { library, reason } => {
                Self::Unusable { library: library.clone(), reason: reason.clone() }
            }
            other => Self::Reported { text: with_causes(other) },
        }
    }
}

impl From<ChangerForm> for ChangerError {
    fn from(form: ChangerForm) -> Self {
        match form {
            ChangerForm::UnknownVolume { volser } => Self::UnknownVolume { volser },
            ChangerForm::Foreign { volser, source } => Self::Foreign { volser, source: Box::new(source) },
            ChangerForm::CleaningCartridge { volser } => Self::CleaningCartridge { volser },
            ChangerForm::UnknownDrive { drive, drives } => Self::UnknownDrive { drive, drives },
            ChangerForm::InUse { what, holder } => Self::InUse { what, holder },
            ChangerForm::VolserTaken { volser } => Self::VolserTaken { volser },
            ChangerForm::FoldersFull { volser } => Self::FoldersFull { volser },
            ChangerForm::Unusable { library, reason } => Self::Unusable { library, reason },
            ChangerForm::Reported { text } => Self::Reported { text },
        }
    }
}

impl From<&MoverError> for MoverForm {
    fn from(error: &MoverError) -> Self {
        match error {
            MoverError::Drive { volser, source } => Self::Drive { volser: volser.clone(), source: source.into() },
            MoverError::Format { volser, lbn, source } => {
                let (text, is_later) = (source.to_string(), source.is_of_later_version());
                Self::Format { volser: volser.clone(), lbn: *lbn, text, is_later }
            }
            MoverError::Misplaced { volser, lbn, reason } => {
                Self::Misplaced { volser: volser.clone(), lbn: *lbn, reason: reason.clone() }
            }
            MoverError::OtherVolume { volser, expected, found } => {
                Self::OtherVolume { volser: volser.clone(), expected: *expected, found: *found }
            }
            MoverError::NotLabelled { volser, reason } => {
                Self::NotLabelled { volser: volser.clone(), reason: reason.clone() }
            }
            MoverError::NotMounted { mount } => Self::NotMounted { mount: *mount },
            MoverError::Stopped => Self::Stopped,
            other => Self::Reported { text: with_causes(other) },
        }
    }
}

impl From<MoverForm> for MoverError {
    fn from(form: MoverForm) -> Self {
        match form {
            MoverForm::Drive { volser, source } => Self::Drive { volser, source: source.into() },
            MoverForm::Format { volser, lbn, text, is_later } => {
                Self::Format { volser, lbn, source: FormatError::Reported { text, is_later } }
            }
            MoverForm::Misplaced { volser, lbn, reason } => Self::Misplaced { volser, lbn, reason },
            MoverForm::OtherVolume { volser, expected, found } => Self::OtherVolume { volser, expected, found },
            MoverForm::NotLabelled { volser, reason } => Self::NotLabelled { volser, reason },
            MoverForm::NotMounted { mount } => Self::NotMounted { mount },
            MoverForm::Stopped => Self::Stopped,
            MoverForm::Reported { text } => Self::Host(text.into()),
        }
    }
}

impl From<&DriveError> for DriveForm {
    fn from(error: &DriveError) -> Self {
        match error {
            DriveError::NoMedium { drive } => Self::NoMedium { drive: drive.clone() },
            DriveError::WriteProtected { drive } => Self::WriteProtected { drive: drive.clone() },
            DriveError::WriteOnce { drive } => Self::WriteOnce { drive: drive.clone() },
            DriveError::EndOfMedium { lbn } => Self::EndOfMedium { lbn: *lbn },
            DriveError::NoKey { drive, lbn, tag } => Self::NoKey { drive: drive.clone(), lbn: *lbn, tag: *tag },
            DriveError::KeyUnavailable { lbn, tag, source } => {
                Self::KeyUnavailable { lbn: *lbn, tag: *tag, text: with_causes(source.as_ref()) }
            }
            other => Self::Reported {
                text: with_causes(other),
                blames_medium: other.blames_medium(),
                blame: Some(other.blame()),
                drive: other.drive().map(str::to_owned),
            },
        }
    }
}

impl From<DriveForm> for DriveError {
    fn from(form: DriveForm) -> Self {
        match form {
            DriveForm::NoMedium { drive } => Self::NoMedium { drive },
            DriveForm::WriteProtected { drive } => Self::WriteProtected { drive },
            DriveForm::WriteOnce { drive } => Self::WriteOnce { drive },
            DriveForm::EndOfMedium { lbn } => Self::EndOfMedium { lbn },
            DriveForm::NoKey { drive, lbn, tag } => Self::NoKey { drive, lbn, tag },
            DriveForm::KeyUnavailable { lbn, tag, text } => Self::KeyUnavailable { lbn, tag, source: text.into() },
            DriveForm::Reported { text, blames_medium, blame, drive } => {
                let blame = blame.unwrap_or(if blames_medium { Blame::Medium } else { Blame::Drive });
                Self::Reported { text, blames_medium, blame, drive }
            }
        }
    }
}

/// Errors, for [`crate::kept_words`].
#[cfg(test)]
pub(super) fn words_in_tests() -> Vec<crate::kept_words::Word> {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use crate::kept_words::Word;

    let volser = Volser::new("A00001").unwrap();
    let of_mover = |name, form| Word::of(name, &ErrorForm::Mover(form));
    let (text, drive) = ("no".to_owned(), Some("d".to_owned()));
    let reported = DriveForm::Reported { text: text.clone(), blames_medium: false, blame: Some(Blame::Either), drive };
    vec![
        Word::of("failed-stopped", &ErrorForm::Stopped),
        Word::of("failed-connection", &ErrorForm::Connection { text: text.clone() }),
        Word::of("failed-changer", &ErrorForm::Changer(ChangerForm::Reported { text: text.clone() })),
        of_mover("failed-drive", MoverForm::Drive { volser: volser.clone(), source: reported }),
        of_mover("failed-format", MoverForm::Format { volser: volser.clone(), lbn: 1, text, is_later: true }),
        of_mover("failed-label", MoverForm::NotLabelled { volser, reason: "no".to_owned() }),
    ]
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    /// An error as the other end has it.
    fn crossed(error: &DevicesError) -> DevicesError {
        let form = serde_json::to_vec(&ErrorForm::from(error)).unwrap();
        serde_json::from_slice::<ErrorForm>(&form).unwrap().into()
    }

    #[test]
    fn an_error_keeps_its_words_and_what_is_decided_by() {
        let volser = Volser::new("A00001").unwrap();
        let drive = |source| DevicesError::Mover(MoverError::Drive { volser: volser.clone(), source });
        let io = || io::Error::other("the cable");
        let bad = DriveError::ReadFailed { lbn: 7, reason: "nothing there".to_owned() };
        let torn = FormatError::Magic { what: "block" };
        let later = FormatError::Version { what: "label", found: 9, supported: 1 };
        let broken = DriveError::Hardware { drive: "one".to_owned(), reason: "dust".to_owned() };
        let foreign = DriveError::Incompatible { drive: "one".to_owned(), reason: "LTO-3".to_owned() };
        for (error, blames_medium) in [
            (drive(DriveError::WriteProtected { drive: "one".to_owned() }), false),
            (drive(bad), true),
            (drive(broken), false),
            (drive(foreign), false),
            (drive(DriveError::Host { what: "cannot ask".to_owned(), source: io() }), false),
            (drive(DriveError::KeyUnavailable { lbn: 3, tag: KeyTag([3; 16]), source: io().into() }), false),
            (DevicesError::Mover(MoverError::Format { volser: volser.clone(), lbn: 1, source: torn }), true),
            (DevicesError::Mover(MoverError::Format { volser: volser.clone(), lbn: 1, source: later }), true),
            (DevicesError::Mover(MoverError::Thread(io())), false),
            (DevicesError::NoDrive(ChangerError::InUse { what: "drive 0".into(), holder: "a job".into() }), false),
            (DevicesError::Changer(ChangerError::DriveEmpty { drive: 3 }), false),
            (DevicesError::Stopped, false),
        ] {
            let there = crossed(&error);
            assert_eq!(with_causes(&there), with_causes(&error));
            let told = |error: &DevicesError| match error {
                DevicesError::Mover(MoverError::Drive { source, .. }) => {
                    Some((source.blame(), source.drive().map(str::to_owned)))
                }
                DevicesError::Mover(MoverError::Format { source, .. }) => {
                    source.is_of_later_version().then_some((Blame::Medium, None))
                }
                _ => None,
            };
            assert_eq!(told(&there), told(&error), "{error}");
            let blames = matches!(&there, DevicesError::Mover(error) if error.blames_medium());
            assert_eq!(blames, blames_medium, "{error}");
        }
        let there = crossed(&DevicesError::NoDrive(ChangerError::InUse { what: "a".into(), holder: "b".into() }));
        assert!(matches!(there, DevicesError::NoDrive(ChangerError::InUse { .. })), "{there:?}");
    }
}
