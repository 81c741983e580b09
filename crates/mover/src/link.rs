//! Messages over a connection.
//!
//! ```text
//!  0  4  bytes of the message (little endian)
//!  4  4  bytes that are attached to it
//!  8     the message: JSON
//!        what is attached: a catalog part, a key, or a list of files, as bytes
//! ```
//! A key is never part of the JSON, so no buffer that is not wiped ever holds it.

use std::io::{self, Read, Write};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

/// Longest message: an inventory of a large library is a tenth of it.
const MESSAGE_LEN_MAX: usize = 16 << 20;
/// Longest attachment: as long as a catalog part may be.
const ATTACHED_LEN_MAX: usize = 1 << 30;
/// Longest message of somebody who has not shown that he may send longer ones.
const SHORT_LEN_MAX: usize = 4 << 10;
/// How much room is made before bytes have come.
const ROOM_STEP: usize = 1 << 20;

/// Bytes that are wiped.
type Bytes = Zeroizing<Vec<u8>>;

/// What each message has that opens a connection, in every version.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// The message if it is of a version that is known, or its version.
fn in_version<T: DeserializeOwned>(message: &[u8], known: RangeInclusive<u32>) -> io::Result<Result<T, u32>> {
    let Versioned { version } = serde_json::from_slice(message)?;
    if known.contains(&version) { Ok(Ok(serde_json::from_slice(message)?)) } else { Ok(Err(version)) }
}

/// One end of a connection that carries messages.
pub(crate) struct Link<S>(pub(crate) S);

impl<S: Read + Write> Link<S> {
    pub(crate) fn send(&mut self, message: &impl Serialize, attached: &[u8]) -> io::Result<()> {
        let message = serde_json::to_vec(message)?;
        if message.len() > MESSAGE_LEN_MAX || attached.len() > ATTACHED_LEN_MAX {
            return Err(io::Error::other("the message is longer than any may be"));
        }
        let mut head = [0; 8];
        head[..4].copy_from_slice(&(message.len() as u32).to_le_bytes());
        head[4..].copy_from_slice(&(attached.len() as u32).to_le_bytes());
        self.0.write_all(&head)?;
        self.0.write_all(&message)?;
        self.0.write_all(attached)?;
        self.0.flush()
    }

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<(T, Bytes)> {
        self.receive_within(ATTACHED_LEN_MAX)
    }

    /// The first byte of the next message, if one comes before `stop` is set; it is looked at as often as the
    /// connection's time-out says.
    pub(crate) fn first_byte(&mut self, stop: &AtomicBool) -> io::Result<Option<u8>> {
        let mut byte = [0];
        loop {
            match self.0.read(&mut byte) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(_) => return Ok(Some(byte[0])),
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    if stop.load(Ordering::Relaxed) {
                        return Ok(None);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// As [`Link::receive`], where the first byte was taken.
    pub(crate) fn receive_behind<T: DeserializeOwned>(&mut self, first: u8) -> io::Result<(T, Bytes)> {
        let head = self.head_behind(first)?;
        self.receive_headed(head, (MESSAGE_LEN_MAX, ATTACHED_LEN_MAX))
    }

    /// As [`Link::receive`], from an end that has no more than so much to attach.
    pub(crate) fn receive_within<T: DeserializeOwned>(&mut self, attached_max: usize) -> io::Result<(T, Bytes)> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head)?;
        self.receive_headed(head, (MESSAGE_LEN_MAX, attached_max))
    }

    /// As [`Link::receive_behind`], a message that says its version: only that is looked at if it is not known.
    pub(crate) fn open_behind<T: DeserializeOwned>(
        &mut self,
        first: u8,
        known: RangeInclusive<u32>,
    ) -> io::Result<Result<(T, Bytes), u32>> {
        let head = self.head_behind(first)?;
        let (message, attached) = self.bytes_headed(head, (MESSAGE_LEN_MAX, ATTACHED_LEN_MAX))?;
        Ok(in_version(&message, known)?.map(|message| (message, attached)))
    }

    /// The same of somebody who has not shown that he may send long ones, with nothing attached.
    pub(crate) fn open_short<T: DeserializeOwned>(&mut self, known: RangeInclusive<u32>) -> io::Result<Result<T, u32>> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head)?;
        in_version(&self.bytes_headed(head, (SHORT_LEN_MAX, 0))?.0, known)
    }

    fn head_behind(&mut self, first: u8) -> io::Result<[u8; 8]> {
        let mut head = [first; 8];
        self.0.read_exact(&mut head[1..])?;
        Ok(head)
    }

    fn receive_headed<T: DeserializeOwned>(&mut self, head: [u8; 8], max: (usize, usize)) -> io::Result<(T, Bytes)> {
        let (message, attached) = self.bytes_headed(head, max)?;
        Ok((serde_json::from_slice(&message)?, attached))
    }

    /// A message and what is attached to it.
    fn bytes_headed(
        &mut self,
        head: [u8; 8],
        (message_max, attached_max): (usize, usize),
    ) -> io::Result<(Bytes, Bytes)> {
        let len = |bytes: &[u8]| bytes.iter().rev().fold(0, |len, byte| (len << 8) | usize::from(*byte));
        Ok((self.bytes(len(&head[..4]), message_max)?, self.bytes(len(&head[4..]), attached_max)?))
    }

    fn bytes(&mut self, len: usize, max: usize) -> io::Result<Bytes> {
        if len > max {
            return Err(io::Error::other(format!("a message of {len} bytes is not believed")));
        }
        // Room is made for what comes, not for what is announced. A short one, such as a key, never moves.
        let mut bytes = Zeroizing::new(Vec::with_capacity(len.min(ROOM_STEP)));
        (&mut self.0).take(len as u64).read_to_end(&mut bytes)?;
        if bytes.len() < len {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::*;

    #[test]
    fn what_is_too_long_or_cut_short_is_refused() {
        let announced = |bytes: &[u8]| {
            let mut link = Link(io::Cursor::new(bytes.to_vec()));
            link.receive::<String>().map(|(text, _)| text)
        };
        assert_eq!(announced(b"\x04\0\0\0\0\0\0\0\"ab\"").unwrap(), "ab");
        assert_eq!(announced(b"\x05\0\0\0\0\0\0\0\"ab\"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        let long = announced(b"\xff\xff\xff\xff\0\0\0\0").unwrap_err().to_string();
        assert!(long.contains("not believed"), "{long}");
        // A gigabyte that does not come takes no gigabyte.
        assert_eq!(announced(b"\x04\0\0\0\0\0\0\x40\"ab\"").unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        announced(b"\x02\0\0\0\0\0\0\0{]").unwrap_err();
        let short = |bytes: &[u8]| Link(io::Cursor::new(bytes.to_vec())).open_short::<String>(1..=2);
        for long in [&b"\x01\x10\0\0\0\0\0\0"[..], b"\x04\0\0\0\x01\0\0\0\"ab\"x"] {
            let refused = short(long).unwrap_err().to_string();
            assert!(refused.contains("not believed"), "{refused}");
        }
    }

    /// Whoever is of a later version may say anything behind it.
    #[test]
    fn of_a_version_that_is_not_known_nothing_but_that_is_looked_at() {
        #[derive(Debug, Deserialize)]
        #[allow(dead_code, reason = "it is only read")]
        struct Opening {
            version: u32,
            purpose: u8,
        }

        let open = |text: &str| {
            let mut bytes = [(text.len() as u32).to_le_bytes(), [0; 4]].concat();
            bytes.extend_from_slice(text.as_bytes());
            Link(io::Cursor::new(bytes)).open_short::<Opening>(1..=2)
        };
        assert_eq!(open(r#"{"version":2,"purpose":7}"#).unwrap().unwrap().purpose, 7);
        assert_eq!(open(r#"{"version":3,"purpose":{"of":"another kind"},"more":[]}"#).unwrap().unwrap_err(), 3);
        assert_eq!(open(r#"{"purpose":7,"version":0}"#).unwrap().unwrap_err(), 0);
        assert!(open(r#"{"version":2,"purpose":"another kind"}"#).is_err());
        assert!(open(r#"{"purpose":7}"#).is_err());
    }
}
