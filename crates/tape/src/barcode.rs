//! What a barcode tells of a cartridge: LTO barcodes end in two characters that name the generation and the kind of the
//! medium.
//!
//! `A00001L9` is a cartridge of LTO-9, `A00001LZ` a WORM one of the same, and what begins with `CLN` cleans. A barcode
//! without such an end says nothing, and nothing is concluded from it.

use capstan_format::Volser;

use crate::model::{Access, built_in, drives_for};
use crate::{DriveIdentity, GenerationError, Rewritability};

/// Whether the cartridge cleans drives. No data are on it, and each load takes one of its few uses.
pub fn is_cleaning(volser: &Volser) -> bool {
    volser.as_str().starts_with("CLN")
}

/// The generation, and whether the medium is WORM, as the last two of eight characters say.
fn media_id(volser: &Volser) -> Option<(u8, Rewritability)> {
    let text = volser.as_str();
    let id = text.get(6..8).filter(|_| text.len() == 8 && !is_cleaning(volser))?;
    match id.as_bytes() {
        // A cartridge of LTO-7 with the format of LTO-8: drives of LTO-8 alone use it.
        b"M8" => Some((8, Rewritability::Rewritable)),
        [b'L', digit @ b'1'..=b'9'] => Some((digit - b'0', Rewritability::Rewritable)),
        [b'L', letter @ b'T'..=b'Z'] => Some((letter - b'T' + 3, Rewritability::WriteOnce)),
        _ => None,
    }
}

/// Whether a cartridge is WORM, as far as its barcode tells.
pub fn rewritability(volser: &Volser) -> Rewritability {
    media_id(volser).map_or(Rewritability::Unknown, |(_, rewritability)| rewritability)
}

/// Why this drive can do nothing with the cartridge, as its barcode says: its generation is one that the drive does not
/// even read.
pub fn foreign_to(volser: &Volser, drive: &DriveIdentity) -> Option<GenerationError> {
    let (number, _) = media_id(volser)?;
    let (generation, model) = (format!("LTO-{number}"), built_in(&drive.model).ok()?);
    (model.access(&generation) == Access::None).then(|| GenerationError::Foreign {
        drive: drive.name.clone(),
        model: format!("a drive of {}", model.name),
        instead: drives_for(&generation, Access::ReadOnly),
        generation,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn volser(text: &str) -> Volser {
        Volser::new(text).expect("a volser")
    }

    #[test]
    fn the_end_of_a_barcode_names_generation_and_kind() {
        use Rewritability::{Rewritable, Unknown, WriteOnce};
        for (barcode, kind) in [
            ("A00001L9", Rewritable),
            ("A00001LZ", WriteOnce),
            ("A00001LT", WriteOnce),
            ("A00001M8", Rewritable),
            ("A00001", Unknown),
            ("A0001L9", Unknown),
            ("CLN001L1", Unknown),
        ] {
            assert_eq!(rewritability(&volser(barcode)), kind, "{barcode}");
        }
        assert!(
            is_cleaning(&volser("CLN001L1")) && is_cleaning(&volser("CLNU01CU")) && !is_cleaning(&volser("A00001L9"))
        );
    }

    #[test]
    fn a_drive_is_not_given_what_it_cannot_read() {
        let drive =
            |model: &str| DriveIdentity { name: "/dev/sg1".to_owned(), model: model.to_owned(), encrypts: true };
        let told = foreign_to(&volser("A00001L6"), &drive("LTO-8")).map(|error| error.to_string()).unwrap_or_default();
        assert_eq!(
            told,
            "drive /dev/sg1, a drive of LTO-8, cannot use a cartridge of LTO-6: take a drive of LTO-6 or LTO-7"
        );
        for (barcode, model) in [
            ("A00001L7", "LTO-8"),
            ("A00001LY", "LTO-8"),
            ("A00001", "LTO-8"),
            ("A00001L6", "virtual"),
            ("A00001L5", "LTO-7"),
        ] {
            assert!(foreign_to(&volser(barcode), &drive(model)).is_none(), "{barcode} in {model}");
        }
    }
}
