//! What a barcode tells of a cartridge: LTO barcodes end in two characters that name the generation and the kind of the
//! medium.
//!
//! `A00001L9` is a cartridge of LTO-9, `A00001LZ` a WORM one of the same, and what begins with `CLN` cleans. A barcode
//! without such an end says nothing, and nothing is concluded from it.

use capstan_format::Volser;

use crate::Rewritability;

/// Whether the cartridge cleans drives. No data are on it, and each load takes one of its few uses.
pub fn is_cleaning(volser: &Volser) -> bool {
    volser.as_str().starts_with("CLN")
}

/// The generation, and whether the medium is WORM, as the last two of eight characters say.
fn media_id(volser: &Volser) -> Option<(String, Rewritability)> {
    let text = volser.as_str();
    let id = text.get(6..8).filter(|_| text.len() == 8 && !is_cleaning(volser))?;
    match id.as_bytes() {
        // A cartridge of LTO-7 with the format of LTO-8: drives of LTO-8 alone use it.
        b"M8" => Some(("LTO-M8".to_owned(), Rewritability::Rewritable)),
        [b'L', digit @ b'1'..=b'9'] => Some((lto(digit - b'0'), Rewritability::Rewritable)),
        [b'L', letter @ b'T'..=b'Z'] => Some((lto(letter - b'T' + 3), Rewritability::WriteOnce)),
        _ => None,
    }
}

/// Whether a cartridge is WORM, as far as its barcode tells.
pub fn rewritability(volser: &Volser) -> Rewritability {
    media_id(volser).map_or(Rewritability::Unknown, |(_, rewritability)| rewritability)
}

/// The generation of the cartridge, as far as its barcode tells.
pub fn generation(volser: &Volser) -> Option<String> {
    media_id(volser).map(|(generation, _)| generation)
}

/// Whether these are two characters that say at the end of a barcode what kind of cartridge it is: of LTO, generations
/// to come included, a universal cleaning cartridge, or one for drives of 3592 or T10000.
pub fn is_media_type(end: &str) -> bool {
    match end.as_bytes() {
        b"M8" | b"CU" | b"T1" | b"T2" | b"TS" | b"TT" => true,
        [b'L', kind] => matches!(kind, b'1'..=b'9' | b'A'..=b'Z'),
        [b'J', kind] => kind.is_ascii_uppercase(),
        _ => false,
    }
}

fn lto(number: u8) -> String {
    format!("LTO-{number}")
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
        for (barcode, named) in [("A00001L9", Some("LTO-9")), ("A00001LY", Some("LTO-8")), ("A00001M8", Some("LTO-M8"))]
        {
            assert_eq!(generation(&volser(barcode)).as_deref(), named, "{barcode}");
        }
        assert!(["L1", "L9", "LT", "LZ", "LA", "M8", "CU", "JE", "T2"].into_iter().all(is_media_type));
        assert!(!["", "L", "0", "00", "L0", "L90", "AB", "M9"].into_iter().any(is_media_type));
        assert_eq!((generation(&volser("A00001")), generation(&volser("CLN001L1"))), (None, None));
        assert!(
            is_cleaning(&volser("CLN001L1")) && is_cleaning(&volser("CLNU01CU")) && !is_cleaning(&volser("A00001L9"))
        );
    }
}
