//! A command: its descriptor block, and the data that come for it.

use super::buffer::Buffer;
use super::pdu::{NO_TAG, READ, WRITE};
use crate::device::Cancel;

/// A command descriptor block as a header has it.
const CDB_LEN: usize = 16;

/// A command descriptor block of any length.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cdb {
    head: [u8; CDB_LEN],
    /// Set where it is longer than what a header holds.
    whole: Option<Vec<u8>>,
}

impl Cdb {
    /// From a header and its additional segments; `None` where these make no sense.
    pub(crate) fn new(head: [u8; CDB_LEN], mut ahs: &[u8]) -> Option<Self> {
        const EXTENDED_CDB: u8 = 1;
        const FRAME_LEN: usize = 3;
        let mut whole = None;
        while let Some((&[high, low, kind], rest)) = ahs.split_first_chunk::<FRAME_LEN>() {
            let len = usize::from(u16::from_be_bytes([high, low]));
            let content = rest.get(..len)?;
            if kind == EXTENDED_CDB {
                let (_reserved, extension) = content.split_first()?;
                whole = Some([&head[..], extension].concat());
            }
            let padded_len = (FRAME_LEN + len).next_multiple_of(4) - FRAME_LEN;
            ahs = rest.get(padded_len..)?;
        }
        ahs.is_empty().then_some(Self { head, whole })
    }

    /// As long as its operation code says (SAM-5, 5.2).
    pub(crate) fn bytes(&self) -> &[u8] {
        if let Some(whole) = &self.whole {
            return whole;
        }
        match self.head[0] >> 5 {
            0 => &self.head[..6],
            1 | 2 => &self.head[..10],
            5 => &self.head[..12],
            _ => &self.head,
        }
    }
}

/// Data of a command that were asked for and have not all come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) target_tag: u32,
    /// Offset behind the last of them.
    pub(crate) end: u32,
}

/// A command.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) tag: u32,
    /// The LUN as the wire has it, and as a number.
    pub(crate) wire_lun: u64,
    pub(crate) lun: u64,
    pub(crate) immediate: bool,
    pub(crate) flags: u8,
    pub(crate) expected_len: u32,
    pub(crate) cdb: Cdb,
    /// Room for data; the first `received` bytes have come.
    pub(crate) data: Buffer,
    pub(crate) received: u32,
    /// More data come without being asked for.
    pub(crate) unsolicited: bool,
    pub(crate) asked: Option<Asked>,
    /// Number of the next R2T.
    pub(crate) request_number: u32,
    /// Number of the next Data-Out of this sequence.
    pub(crate) data_number: u32,
    /// Ordered when it is taken away while it runs.
    pub(crate) cancel: Cancel,
}

/// What a Data-Out PDU does that it must not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfOrder;

impl Task {
    /// Bytes that the initiator has for the command.
    pub(crate) fn out_len(&self) -> u32 {
        if self.flags & WRITE != 0 { self.expected_len } else { 0 }
    }

    /// Bytes that the initiator takes from the command.
    pub(crate) fn in_len(&self) -> u32 {
        if self.flags & READ != 0 { self.expected_len } else { 0 }
    }

    /// Whether the next data may be these: `len` bytes for `offset`, the `number`th PDU of what `target_tag` asked for.
    pub(crate) fn expects(
        &self,
        target_tag: u32,
        number: u32,
        offset: u32,
        len: usize,
        unsolicited_max: u32,
    ) -> Result<(), OutOfOrder> {
        let end = match self.asked {
            Some(asked) if asked.target_tag == target_tag => asked.end,
            None if self.unsolicited && target_tag == NO_TAG => unsolicited_max.min(self.out_len()),
            _ => return Err(OutOfOrder),
        };
        let fits = offset == self.received && len as u64 <= u64::from(end) - u64::from(self.received.min(end));
        if fits && number == self.data_number { Ok(()) } else { Err(OutOfOrder) }
    }

    /// `len` more bytes have come; `last` ends their sequence.
    pub(crate) fn took(&mut self, len: usize, last: bool) -> Result<(), OutOfOrder> {
        self.received += len as u32;
        self.data_number += 1;
        if last {
            // A sequence that ends before all that was asked for has come would never be asked for again.
            if self.asked.is_some_and(|asked| asked.end != self.received) {
                return Err(OutOfOrder);
            }
            self.asked = None;
            self.unsolicited = false;
            self.data_number = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    /// A command that writes so many bytes, or reads none.
    pub(in super::super) fn task(tag: u32, lun: u64, out_len: u32) -> Task {
        Task {
            tag,
            wire_lun: lun << 48,
            lun,
            immediate: false,
            flags: if out_len > 0 { WRITE } else { READ },
            expected_len: out_len,
            cdb: Cdb::new([0; 16], &[]).unwrap(),
            data: Buffer::default(),
            received: 0,
            unsolicited: false,
            asked: None,
            request_number: 0,
            data_number: 0,
            cancel: Cancel::default(),
        }
    }

    #[test]
    fn data_out_of_order_are_noticed() {
        let mut write = task(1, 0, 250);
        write.unsolicited = true;
        assert_eq!(write.expects(NO_TAG, 0, 0, 80, 80), Ok(()));
        for (tag, number, offset, len) in [(7, 0, 0, 80), (NO_TAG, 1, 0, 80), (NO_TAG, 0, 1, 79), (NO_TAG, 0, 0, 81)] {
            assert_eq!(write.expects(tag, number, offset, len, 80), Err(OutOfOrder), "{tag} {number} {offset} {len}");
        }
        write.took(80, true).unwrap();
        assert_eq!(write.expects(NO_TAG, 0, 80, 1, 80), Err(OutOfOrder), "nothing more was announced");
        write.asked = Some(Asked { target_tag: 3, end: 180 });
        assert_eq!(write.took(99, true), Err(OutOfOrder), "a sequence ends before its end");
    }

    #[test]
    fn blocks_are_as_long_as_their_operation_says() {
        let len = |operation: u8| {
            let mut head = [0; 16];
            head[0] = operation;
            Cdb::new(head, &[]).unwrap().bytes().len()
        };
        assert_eq!([0x00, 0x2b, 0x4d, 0xa3, 0x88, 0xc0].map(len), [6, 10, 10, 12, 16, 16]);
        let long = Cdb::new([0x7f; 16], &[0, 5, 1, 0, 9, 8, 7, 6]).unwrap();
        assert_eq!(long.bytes()[14..], [0x7f, 0x7f, 9, 8, 7, 6]);
        for wrong in [&[0, 9, 1, 0][..], &[0, 0, 1, 0], &[0, 2, 1, 0], &[0]] {
            assert!(Cdb::new([0; 16], wrong).is_none(), "{wrong:?}");
        }
    }
}
