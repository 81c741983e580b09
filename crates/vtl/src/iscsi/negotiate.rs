//! What the two sides of a session agree upon (RFC 7143, section 13).

use super::config::TargetLimits;
use super::text::{number, put};
use super::wire::{Digest, Digests};

/// Lengths of segments and bursts that the standard allows, in bytes.
const LEN_MIN: u32 = 512;
const LEN_MAX: u32 = (1 << 24) - 1;

/// What was agreed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parameters {
    pub(crate) digests: Digests,
    /// Data that do not come with their command are sent only when they are asked for.
    pub(crate) initial_r2t: bool,
    /// Data may come with their command.
    pub(crate) immediate_data: bool,
    /// Most data that come without being asked for.
    pub(crate) first_burst: u32,
    /// Most data of one sequence.
    pub(crate) burst: u32,
    /// Longest data segment that this side sends: the other one said so.
    pub(crate) send_segment: u32,
    /// Longest data segment that this side receives.
    pub(crate) receive_segment: u32,
}

impl Default for Parameters {
    /// What holds where nobody says anything.
    fn default() -> Self {
        Self {
            digests: Digests::default(),
            initial_r2t: true,
            immediate_data: true,
            first_burst: 65_536,
            burst: 262_144,
            send_segment: 8192,
            receive_segment: 8192,
        }
    }
}

impl Parameters {
    /// What may come with a command or right behind it, when so much is expected at all.
    pub(crate) fn unsolicited_max(&self) -> u32 {
        self.first_burst.min(self.burst)
    }
}

/// What a session is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SessionKind {
    /// Commands.
    Normal,
    /// Asking which targets there are.
    Discovery,
}

/// A target's part of the negotiation.
pub(crate) struct Negotiation {
    pub(crate) parameters: Parameters,
    limits: TargetLimits,
    declared: bool,
}

/// The answer to a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reply {
    /// The key only tells something.
    None,
    Value(String),
}

impl Reply {
    fn of(value: &str) -> Self {
        Self::Value(value.to_owned())
    }

    fn reject() -> Self {
        Self::of("Reject")
    }
}

impl Negotiation {
    pub(crate) fn new(limits: &TargetLimits) -> Self {
        Self { parameters: Parameters::default(), limits: limits.clone(), declared: false }
    }

    /// Takes what the initiator says about an operational key, and says what holds.
    pub(crate) fn reply(&mut self, key: &str, value: &str, kind: SessionKind) -> Reply {
        let irrelevant = [
            "MaxConnections",
            "InitialR2T",
            "ImmediateData",
            "MaxBurstLength",
            "FirstBurstLength",
            "MaxOutstandingR2T",
            "DataPDUInOrder",
            "DataSequenceInOrder",
        ];
        if kind == SessionKind::Discovery && irrelevant.contains(&key) {
            return Reply::of("Irrelevant");
        }
        let parameters = &mut self.parameters;
        match key {
            "HeaderDigest" => digest(value, &mut parameters.digests.header),
            "DataDigest" => digest(value, &mut parameters.digests.data),
            // We need no R2T for the first burst, and take data with commands.
            "InitialR2T" => switch(value, &mut parameters.initial_r2t),
            "ImmediateData" => switch(value, &mut parameters.immediate_data),
            "MaxBurstLength" => least(value, self.limits.burst_bytes, &mut parameters.burst),
            "FirstBurstLength" => least(value, self.limits.first_burst_bytes, &mut parameters.first_burst),
            "MaxRecvDataSegmentLength" => match number(value) {
                Some(len @ LEN_MIN..=LEN_MAX) => {
                    parameters.send_segment = len;
                    Reply::None
                }
                _ => Reply::reject(),
            },
            // One connection, one R2T, everything in order, no recovery within a session, nothing kept after it.
            "MaxConnections" => constant(value, 1..=65_535, "1"),
            "MaxOutstandingR2T" => constant(value, 1..=65_535, "1"),
            "ErrorRecoveryLevel" => constant(value, 0..=2, "0"),
            "DefaultTime2Retain" => constant(value, 0..=3600, "0"),
            "DefaultTime2Wait" => match number(value) {
                Some(seconds @ 0..=3600) => Reply::Value(seconds.to_string()),
                _ => Reply::reject(),
            },
            "DataPDUInOrder" | "DataSequenceInOrder" => switch_to(value, "Yes"),
            // Markers of RFC 3720, which RFC 7143 took away.
            "IFMarker" | "OFMarker" => switch_to(value, "No"),
            "IFMarkInt" | "OFMarkInt" => Reply::of("Irrelevant"),
            "TaskReporting" if value.split(',').any(|offered| offered == "RFC3720") => Reply::of("RFC3720"),
            "iSCSIProtocolLevel" => constant(value, 1..=31, "1"),
            "TaskReporting" | "SendTargets" => Reply::reject(),
            "InitiatorAlias" => Reply::None,
            _ => Reply::of("NotUnderstood"),
        }
    }

    /// What the target tells of its own accord, once.
    pub(crate) fn declare(&mut self, text: &mut Vec<u8>) {
        if !self.declared {
            self.declared = true;
            self.parameters.receive_segment = self.limits.segment_bytes;
            put(text, "MaxRecvDataSegmentLength", &self.limits.segment_bytes.to_string());
        }
    }
}

/// The first checksum of the initiator's list that we know.
fn digest(list: &str, agreed: &mut Digest) -> Reply {
    let known = list.split(',').find_map(|name| match name {
        "CRC32C" => Some((Digest::Crc32c, "CRC32C")),
        "None" => Some((Digest::None, "None")),
        _ => None,
    });
    match known {
        Some((digest, name)) => {
            *agreed = digest;
            Reply::of(name)
        }
        None => Reply::reject(),
    }
}

fn yes_or_no(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// A switch that is as the initiator wants it.
fn switch(value: &str, agreed: &mut bool) -> Reply {
    match yes_or_no(value) {
        Some(on) => {
            *agreed = on;
            Reply::of(value)
        }
        None => Reply::reject(),
    }
}

/// A switch that is as we want it.
fn switch_to(value: &str, answer: &str) -> Reply {
    if yes_or_no(value).is_some() { Reply::of(answer) } else { Reply::reject() }
}

/// The lesser of two lengths.
fn least(value: &str, ours: u32, agreed: &mut u32) -> Reply {
    match number(value) {
        Some(theirs @ LEN_MIN..=LEN_MAX) => {
            *agreed = theirs.min(ours);
            Reply::Value(agreed.to_string())
        }
        _ => Reply::reject(),
    }
}

/// A number that we answer always in the same way, if it is one.
fn constant(value: &str, allowed: std::ops::RangeInclusive<u32>, answer: &str) -> Reply {
    match number(value) {
        Some(number) if allowed.contains(&number) => Reply::of(answer),
        _ => Reply::reject(),
    }
}

/// An initiator's part: what it would like.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) digests: Digests,
    pub(crate) initial_r2t: bool,
    pub(crate) immediate_data: bool,
    pub(crate) first_burst: u32,
    pub(crate) burst: u32,
    pub(crate) receive_segment: u32,
}

impl Wish {
    /// What it offers.
    pub(crate) fn offer(&self, kind: SessionKind, text: &mut Vec<u8>) {
        // Whoever wants a checksum does without if the target has none.
        let list = |digest| if digest == Digest::Crc32c { "CRC32C,None" } else { "None" };
        let switch = |on| if on { "Yes" } else { "No" };
        put(text, "HeaderDigest", list(self.digests.header));
        put(text, "DataDigest", list(self.digests.data));
        put(text, "MaxRecvDataSegmentLength", &self.receive_segment.to_string());
        put(text, "DefaultTime2Wait", "0");
        put(text, "DefaultTime2Retain", "0");
        put(text, "ErrorRecoveryLevel", "0");
        if kind == SessionKind::Normal {
            put(text, "InitialR2T", switch(self.initial_r2t));
            put(text, "ImmediateData", switch(self.immediate_data));
            put(text, "FirstBurstLength", &self.first_burst.to_string());
            put(text, "MaxBurstLength", &self.burst.to_string());
            put(text, "MaxConnections", "1");
            put(text, "MaxOutstandingR2T", "1");
            put(text, "DataPDUInOrder", "Yes");
            put(text, "DataSequenceInOrder", "Yes");
        }
    }

    /// Takes the target's answer to a key. `None` where it is no possible answer.
    pub(crate) fn settle(&self, parameters: &mut Parameters, key: &str, value: &str) -> Option<()> {
        let len = |value| number(value).filter(|len| (LEN_MIN..=LEN_MAX).contains(len));
        let digest = |wish| match value {
            "CRC32C" if wish == Digest::Crc32c => Some(Digest::Crc32c),
            "None" => Some(Digest::None),
            _ => None,
        };
        parameters.receive_segment = self.receive_segment;
        match key {
            "HeaderDigest" => parameters.digests.header = digest(self.digests.header)?,
            "DataDigest" => parameters.digests.data = digest(self.digests.data)?,
            "InitialR2T" => parameters.initial_r2t = yes_or_no(value)? || self.initial_r2t,
            "ImmediateData" => parameters.immediate_data = yes_or_no(value)? && self.immediate_data,
            "FirstBurstLength" => parameters.first_burst = len(value)?.min(self.first_burst),
            "MaxBurstLength" => parameters.burst = len(value)?.min(self.burst),
            "MaxRecvDataSegmentLength" => parameters.send_segment = len(value)?,
            _ => {}
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::super::text::parse;
    use super::*;

    fn reply(negotiation: &mut Negotiation, key: &str, value: &str) -> String {
        match negotiation.reply(key, value, SessionKind::Normal) {
            Reply::Value(value) => value,
            Reply::None => "-".to_owned(),
        }
    }

    /// Every key of RFC 7143, section 13, with answers that follow from its result function and our own value.
    #[test]
    fn every_key_is_answered_as_the_standard_says() {
        let mut negotiation = Negotiation::new(&TargetLimits::default());
        for (key, value, answer) in [
            ("HeaderDigest", "CRC32C,None", "CRC32C"),
            ("DataDigest", "None,CRC32C", "None"),
            ("DataDigest", "MD9", "Reject"),
            ("MaxConnections", "8", "1"),
            ("MaxConnections", "0", "Reject"),
            ("InitialR2T", "No", "No"),
            ("InitialR2T", "Yes", "Yes"),
            ("InitialR2T", "maybe", "Reject"),
            ("ImmediateData", "No", "No"),
            ("ImmediateData", "Yes", "Yes"),
            ("MaxRecvDataSegmentLength", "65536", "-"),
            ("MaxRecvDataSegmentLength", "511", "Reject"),
            ("MaxRecvDataSegmentLength", "16777216", "Reject"),
            ("MaxBurstLength", "16776192", "1048576"),
            ("MaxBurstLength", "512", "512"),
            ("FirstBurstLength", "0x10000", "65536"),
            ("FirstBurstLength", "16776192", "262144"),
            ("DefaultTime2Wait", "2", "2"),
            ("DefaultTime2Wait", "3601", "Reject"),
            ("DefaultTime2Retain", "20", "0"),
            ("MaxOutstandingR2T", "16", "1"),
            ("DataPDUInOrder", "No", "Yes"),
            ("DataSequenceInOrder", "No", "Yes"),
            ("ErrorRecoveryLevel", "2", "0"),
            ("ErrorRecoveryLevel", "3", "Reject"),
            ("IFMarker", "Yes", "No"),
            ("OFMarker", "No", "No"),
            ("OFMarkInt", "2048~8192", "Irrelevant"),
            ("TaskReporting", "FastAbort,RFC3720", "RFC3720"),
            ("TaskReporting", "FastAbort", "Reject"),
            ("iSCSIProtocolLevel", "2", "1"),
            ("SendTargets", "All", "Reject"),
            ("InitiatorAlias", "host", "-"),
            ("X-com.example.frob", "1", "NotUnderstood"),
        ] {
            assert_eq!(reply(&mut negotiation, key, value), answer, "{key}={value}");
        }
        assert_eq!(
            negotiation.parameters,
            Parameters {
                digests: Digests { header: Digest::Crc32c, data: Digest::None },
                initial_r2t: true,
                immediate_data: true,
                first_burst: 262_144,
                burst: 512,
                send_segment: 65_536,
                receive_segment: 8192,
            }
        );
        assert_eq!(negotiation.parameters.unsolicited_max(), 512);
    }

    #[test]
    fn discovery_has_no_data_to_talk_about() {
        let mut negotiation = Negotiation::new(&TargetLimits::default());
        let reply = negotiation.reply("FirstBurstLength", "65536", SessionKind::Discovery);
        assert_eq!(reply, Reply::of("Irrelevant"));
        let reply = negotiation.reply("HeaderDigest", "None", SessionKind::Discovery);
        assert_eq!(reply, Reply::of("None"));
    }

    #[test]
    fn both_sides_come_to_the_same() {
        for (initial_r2t, immediate_data, digest) in
            [(true, true, Digest::None), (false, false, Digest::Crc32c), (false, true, Digest::None)]
        {
            let digests = Digests { header: digest, data: digest };
            let wish = Wish {
                digests,
                initial_r2t,
                immediate_data,
                first_burst: 1 << 20,
                burst: 1 << 19,
                receive_segment: 4096,
            };
            let (mut offer, mut answer) = (Vec::new(), Vec::new());
            wish.offer(SessionKind::Normal, &mut offer);
            let mut target = Negotiation::new(&TargetLimits::default());
            for (key, value) in parse(&offer).unwrap() {
                if let Reply::Value(value) = target.reply(key, value, SessionKind::Normal) {
                    put(&mut answer, key, &value);
                }
            }
            target.declare(&mut answer);
            let mut ours = Parameters::default();
            for (key, value) in parse(&answer).unwrap() {
                wish.settle(&mut ours, key, value).unwrap();
            }
            let (send_segment, receive_segment) = (ours.receive_segment, ours.send_segment);
            assert_eq!(target.parameters, Parameters { send_segment, receive_segment, ..ours });
        }
    }
}
