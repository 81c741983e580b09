//! Requests by their ids and digests, as people type them.

use capstan_service::problem::Refusal;

use crate::authority::{PendingId, RequestDigest};

pub(super) fn id_of(text: &str) -> Result<PendingId, Refusal> {
    bytes_of(text).map(PendingId)
}

pub(super) fn digest_of(text: &str) -> Result<RequestDigest, Refusal> {
    bytes_of(text).map(RequestDigest)
}

fn bytes_of<const LEN: usize>(text: &str) -> Result<[u8; LEN], Refusal> {
    let malformed = || Refusal::malformed(format!("{text:?} is not {} hexadecimal digits.", 2 * LEN));
    let mut bytes = [0; LEN];
    if text.len() != 2 * LEN || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return Err(malformed());
    }
    for (byte, at) in bytes.iter_mut().zip((0..).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| malformed())?;
    }
    Ok(bytes)
}
