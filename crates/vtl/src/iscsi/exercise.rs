//! Doors for a fuzzer: hostile bytes through the parsers, without a socket.

use super::config::{ChapCredentials, ChapSecret, TargetConfig};
use super::login::Login;
use super::pdu::{HEADER_LEN, LoginRequest, Numbers, written_again};
use super::wire::{Digest, Digests, PduReader, PduWriter};

/// Longest data segment that is read here, in bytes.
const SEGMENT_MAX: usize = 8192;

/// Reads all PDUs that stand in `bytes`.
///
/// # Panics
/// When one that was read is another when it is written again.
pub fn exercise_pdus(bytes: &[u8], header: Digest, data: Digest) {
    let digests = Digests { header, data };
    let mut reader = PduReader::new(bytes);
    reader.digests = digests;
    let mut rest = bytes;
    while let Ok(mut header) = reader.header() {
        let (ahs, mut segment) = (reader.ahs().to_vec(), Vec::new());
        if reader.append_data(&header, &mut segment, SEGMENT_MAX).is_err() {
            return;
        }
        let (read, left) = rest.split_at(rest.len() - reader.source().len());
        rest = left;
        let mut written = Vec::new();
        let mut writer = PduWriter::new(&mut written);
        writer.digests = digests;
        if writer.write_with_ahs(header, &ahs, &segment).is_err() {
            unreachable!("memory takes every byte");
        }
        // Padding may be anything when it comes, and zeros when it goes.
        assert_eq!(written.len(), read.len(), "another length");
        let header_digest_len = if digests.header == Digest::Crc32c { 4 } else { 0 };
        let segment_end = HEADER_LEN + ahs.len() + header_digest_len + segment.len();
        assert_eq!(written[..segment_end], read[..segment_end], "other bytes");
        if let Some(again) = written_again(&header) {
            assert_eq!(written_again(&again), Some(again), "a header that changes");
        }
        let numbers = Numbers { status: 1, expected_command: 2, command_max: 3 };
        header.stamp(numbers);
        assert_eq!(header.numbers(), numbers);
    }
}

/// Sends the login requests that stand in `bytes` to a target, which is open or wants a proof.
///
/// # Panics
/// When an answer does not fit into a login PDU, or when a login is complete that proved nothing where it had to.
pub fn exercise_login(bytes: &[u8], proof: Option<ChapSecret>) {
    let closed = proof.is_some();
    let chap = proof.map(|secret| ChapCredentials { name: "host".to_owned(), secret });
    let config = TargetConfig { chap, ..TargetConfig::new("iqn.2026-01.org.capstan:fuzz") };
    let (mut login, mut reader) = (Login::new(&config), PduReader::new(bytes));
    while let Ok(header) = reader.header() {
        let mut text = Vec::new();
        if reader.append_data(&header, &mut text, SEGMENT_MAX).is_err() {
            return;
        }
        let Ok(answer) = login.request(&LoginRequest::decode(&header), &text) else { return };
        assert!(answer.text.len() <= SEGMENT_MAX, "an answer of {} bytes", answer.text.len());
        let Some((identity, parameters)) = answer.complete else { continue };
        // Whoever guesses 32 random bytes and a secret may come in.
        assert!(!closed || identity.kind == super::SessionKind::Discovery, "{} came in", identity.initiator);
        assert!(parameters.unsolicited_max() <= parameters.burst && parameters.send_segment >= 512);
        return;
    }
}
