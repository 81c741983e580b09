//! Sense data in words, for messages.

use std::fmt;

use super::sense::{About, Sense};

const KEYS: [&str; 16] = [
    "no sense",
    "recovered error",
    "not ready",
    "medium error",
    "hardware error",
    "illegal request",
    "unit attention",
    "data protect",
    "blank check",
    "vendor's own",
    "copy aborted",
    "aborted command",
    "reserved",
    "volume overflow",
    "miscompare",
    "completed",
];

/// Codes and qualifiers that tapes and libraries use (SPC-5, annex F), in the standard's words, shortened.
const CODES: &[(u8, u8, &str)] = &[
    (0x00, 0x01, "filemark"),
    (0x00, 0x02, "end of medium"),
    (0x00, 0x04, "beginning of medium"),
    (0x00, 0x05, "end of data"),
    (0x00, 0x07, "programmable early warning"),
    (0x00, 0x17, "cleaning requested"),
    (0x04, 0x00, "not ready, cause not reportable"),
    (0x04, 0x01, "becoming ready"),
    (0x04, 0x02, "must be loaded"),
    (0x04, 0x03, "a person must intervene"),
    (0x04, 0x07, "an operation is in progress"),
    (0x04, 0x12, "offline"),
    (0x08, 0x00, "communication failure inside"),
    (0x09, 0x00, "track following error"),
    (0x0c, 0x00, "write error"),
    (0x10, 0x01, "logical block guard check failed"),
    (0x11, 0x00, "unrecovered read error"),
    (0x14, 0x00, "recorded entity not found"),
    (0x14, 0x03, "end of data not found"),
    (0x15, 0x01, "mechanical positioning error"),
    (0x1a, 0x00, "parameter list length error"),
    (0x20, 0x00, "command not known"),
    (0x21, 0x01, "no such element"),
    (0x24, 0x00, "field in command not valid"),
    (0x25, 0x00, "no such logical unit"),
    (0x26, 0x00, "field in parameters not valid"),
    (0x26, 0x10, "too many keys were tried"),
    (0x27, 0x00, "write-protected"),
    (0x28, 0x00, "the medium may have changed"),
    (0x28, 0x01, "the mail slot or a door was opened"),
    (0x29, 0x00, "power on or reset"),
    (0x2a, 0x01, "mode parameters changed"),
    (0x2a, 0x03, "reservations preempted"),
    (0x2a, 0x04, "reservations released"),
    (0x2a, 0x05, "registrations preempted"),
    (0x2a, 0x11, "encryption parameters changed by another host"),
    (0x2a, 0x12, "encryption parameters changed by a vendor's event"),
    (0x2a, 0x13, "encryption key instance counter has changed"),
    (0x2c, 0x00, "command sequence error"),
    (0x30, 0x00, "incompatible medium"),
    (0x30, 0x03, "cleaning cartridge installed"),
    (0x30, 0x05, "cannot write medium of this format"),
    (0x30, 0x0c, "WORM medium may not be overwritten"),
    (0x31, 0x00, "medium format corrupted"),
    (0x3a, 0x00, "no medium"),
    (0x3a, 0x01, "no medium, tray closed"),
    (0x3a, 0x02, "no medium, a door or tray is open"),
    (0x3b, 0x0d, "destination full"),
    (0x3b, 0x0e, "source empty"),
    (0x3b, 0x12, "magazine not accessible"),
    (0x3e, 0x01, "hardware failure"),
    (0x44, 0x00, "internal target failure"),
    (0x50, 0x00, "append error"),
    (0x53, 0x00, "load or eject failed"),
    (0x53, 0x02, "removal prevented"),
    (0x74, 0x01, "unable to decrypt"),
    (0x74, 0x02, "unencrypted data met while decrypting"),
    (0x74, 0x03, "incorrect encryption key"),
    (0x74, 0x04, "cryptographic integrity check failed"),
    (0x74, 0x05, "error while decrypting"),
    (0x74, 0x09, "encryption mode mismatch"),
    (0x74, 0x21, "encryption configuration is not the application's"),
    (0x74, 0x61, "the key manager cannot be reached"),
    (0x74, 0x63, "the key manager does not have the key"),
];

impl fmt::Display for Sense {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { about, key, asc, ascq } = *self;
        if about == About::AnEarlierCommand {
            f.write_str("deferred ")?;
        }
        write!(f, "{}, ", KEYS[usize::from(key & 0x0f)])?;
        if let Some((.., text)) = CODES.iter().find(|(code, qualifier, _)| (*code, *qualifier) == (asc, ascq)) {
            write!(f, "{text}, ")?;
        }
        write!(f, "sense {key:x}/{asc:02X}/{ascq:02X}")
    }
}
