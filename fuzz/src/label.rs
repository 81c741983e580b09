//! The first two blocks of a volume.

use capstan_format::{VolumeHeader, vol1_decode, vol1_encode};

use crate::mend;

/// An ANSI label and a volume header of any bytes: what is accepted says the same when it is written again.
pub fn label(data: &[u8]) {
    if let Ok(volser) = vol1_decode(data) {
        assert_eq!(vol1_decode(&vol1_encode(&volser)), Ok(volser), "VOL1 label");
    }
    volume_header(data);
    let mut mended = data.to_vec();
    mend::tail(&mut mended);
    volume_header(&mended);
}

fn volume_header(bytes: &[u8]) {
    if let Ok(header) = VolumeHeader::decode(bytes) {
        assert_eq!(VolumeHeader::decode(&header.encode()), Ok(header), "volume header");
    }
}
