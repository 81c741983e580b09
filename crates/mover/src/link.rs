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
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

/// Longest message: an inventory of a large library is a tenth of it.
const MESSAGE_LEN_MAX: usize = 16 << 20;
/// Longest attachment: as long as a catalog part may be.
const ATTACHED_LEN_MAX: usize = 1 << 30;
/// Longest message of somebody who has not shown that he may send longer ones.
const SHORT_LEN_MAX: usize = 4 << 10;
/// How much room is made before bytes have come.
const ROOM_STEP: usize = 1 << 20;

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

    pub(crate) fn receive<T: DeserializeOwned>(&mut self) -> io::Result<(T, Zeroizing<Vec<u8>>)> {
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
    pub(crate) fn receive_behind<T: DeserializeOwned>(&mut self, first: u8) -> io::Result<(T, Zeroizing<Vec<u8>>)> {
        let mut head = [0; 8];
        head[0] = first;
        self.0.read_exact(&mut head[1..])?;
        self.receive_headed(head, (MESSAGE_LEN_MAX, ATTACHED_LEN_MAX))
    }

    /// As [`Link::receive`], from an end that has no more than so much to attach.
    pub(crate) fn receive_within<T: DeserializeOwned>(
        &mut self,
        attached_max: usize,
    ) -> io::Result<(T, Zeroizing<Vec<u8>>)> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head)?;
        self.receive_headed(head, (MESSAGE_LEN_MAX, attached_max))
    }

    /// A message of somebody who has not shown that he may send long ones.
    pub(crate) fn receive_short<T: DeserializeOwned>(&mut self) -> io::Result<T> {
        let mut head = [0; 8];
        self.0.read_exact(&mut head)?;
        Ok(self.receive_headed(head, (SHORT_LEN_MAX, 0))?.0)
    }

    fn receive_headed<T: DeserializeOwned>(
        &mut self,
        head: [u8; 8],
        (message_max, attached_max): (usize, usize),
    ) -> io::Result<(T, Zeroizing<Vec<u8>>)> {
        let len = |bytes: &[u8]| bytes.iter().rev().fold(0, |len, byte| (len << 8) | usize::from(*byte));
        let message = self.bytes(len(&head[..4]), message_max)?;
        let attached = self.bytes(len(&head[4..]), attached_max)?;
        Ok((serde_json::from_slice(&message)?, attached))
    }

    fn bytes(&mut self, len: usize, max: usize) -> io::Result<Zeroizing<Vec<u8>>> {
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
        let short = |bytes: &[u8]| Link(io::Cursor::new(bytes.to_vec())).receive_short::<String>();
        assert_eq!(short(b"\x04\0\0\0\0\0\0\0\"ab\"").unwrap(), "ab");
        for long in [&b"\x01\x10\0\0\0\0\0\0"[..], b"\x04\0\0\0\x01\0\0\0\"ab\"x"] {
            let refused = short(long).unwrap_err().to_string();
            assert!(refused.contains("not believed"), "{refused}");
        }
    }
}
