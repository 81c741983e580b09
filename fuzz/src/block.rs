//! Block headers and the envelopes of encrypted blocks.

use capstan_format::{BLOCK_HEADER_LEN, BlockHeader, ENVELOPE_PREFIX_LEN, Envelope};

use crate::mend;

/// A block and an envelope of any bytes: what is accepted is what a writer writes, byte for byte.
pub fn block(data: &[u8]) {
    open(data);
    let mut mended = data.to_vec();
    mend::block(&mut mended);
    open(&mended);

    if let Ok((envelope, sealed)) = Envelope::decode(data) {
        assert_eq!((&envelope.encode()[..], sealed), data.split_at(ENVELOPE_PREFIX_LEN), "envelope");
        assert_eq!(envelope.nonce()[4..], envelope.counter.to_be_bytes());
        assert_eq!(envelope.additional_data(u64::MAX)[ENVELOPE_PREFIX_LEN..], [0xff; 8]);
    }
}

fn open(block: &[u8]) {
    if let Ok((header, payload)) = BlockHeader::open(block) {
        assert_eq!(payload, &block[BLOCK_HEADER_LEN..]);
        let mut again = block.to_vec();
        header.seal(&mut again);
        assert_eq!(again, block, "a block that no writer writes was taken");
    }
}
