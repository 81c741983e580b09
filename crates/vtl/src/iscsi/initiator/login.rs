//! A login as the initiator sees it.

use super::super::chap::{Algorithm, Challenge};
use super::super::negotiate::{Parameters, SessionKind};
use super::super::pdu::{CONTINUE, FINAL, LoginRequest, LoginResponse};
use super::super::text::{TEXT_LEN_MAX, parse, put};
use super::{Initiator, InitiatorConfig, InitiatorError, broken};

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Requests after which a target that does not come to an end is given up.
const REQUESTS_MAX: usize = 16;

/// The answer to a request: the stage to which the target goes over, if it does, and the keys.
struct Reply {
    next: Option<u8>,
    text: Vec<u8>,
}

impl Reply {
    fn pairs(&self) -> Result<Vec<(&str, &str)>, InitiatorError> {
        parse(&self.text).or(broken("a login answer that is not key=value"))
    }

    fn value(&self, key: &'static str) -> Result<Option<&str>, InitiatorError> {
        Ok(self.pairs()?.into_iter().find(|(name, _)| *name == key).map(|(_, value)| value))
    }

    fn needed(&self, key: &'static str) -> Result<&str, InitiatorError> {
        self.value(key)?.ok_or(InitiatorError::Protocol { rule: "a login answer without a key that it needs" })
    }
}

/// A login that goes on.
struct Exchange<'a> {
    session: &'a mut Initiator,
    config: &'a InitiatorConfig,
}

/// Logs in, and leaves a session in its full feature phase.
pub(super) fn log_in(
    session: &mut Initiator,
    config: &InitiatorConfig,
    kind: SessionKind,
) -> Result<(), InitiatorError> {
    let mut exchange = Exchange { session, config };
    let mut text = Vec::new();
    put(&mut text, "InitiatorName", &config.name);
    match kind {
        SessionKind::Normal => {
            put(&mut text, "SessionType", "Normal");
            put(&mut text, "TargetName", &config.target);
        }
        SessionKind::Discovery => put(&mut text, "SessionType", "Discovery"),
    }
    exchange.authenticate(text)?;
    exchange.negotiate(kind)
}

impl Exchange<'_> {
    fn authenticate(&mut self, mut text: Vec<u8>) -> Result<(), InitiatorError> {
        // Whoever wants the target to prove itself must not be content with less.
        let methods = match (&self.config.chap, &self.config.mutual) {
            (None, _) => "None",
            (Some(_), None) => "CHAP,None",
            (Some(_), Some(_)) => "CHAP",
        };
        put(&mut text, "AuthMethod", methods);
        let mut reply = self.request(SECURITY, Some(OPERATIONAL), &text)?;
        if let (Some("CHAP"), Some(credentials)) = (reply.value("AuthMethod")?, &self.config.chap) {
            let mut text = Vec::new();
            put(&mut text, "CHAP_A", "7,5");
            let challenge = self.request(SECURITY, None, &text)?;
            let algorithm = Algorithm::choose(challenge.needed("CHAP_A")?);
            let (id, bytes) = (challenge.needed("CHAP_I")?, challenge.needed("CHAP_C")?);
            let challenge = algorithm.and_then(|algorithm| Challenge::received(algorithm, id, bytes));
            let Some(challenge) = challenge else { return broken("a challenge that is none") };
            let mut text = Vec::new();
            challenge.answer(credentials, &mut text);
            reply = self.prove_both(&challenge, algorithm, text)?;
        } else if self.config.mutual.is_some() {
            return Err(InitiatorError::Unproved);
        }
        if reply.next == Some(OPERATIONAL) { Ok(()) } else { broken("a login that does not go on") }
    }

    /// Sends our answer to the target's challenge, and a challenge of our own if the target is to prove itself.
    fn prove_both(
        &mut self,
        theirs: &Challenge,
        algorithm: Option<Algorithm>,
        mut text: Vec<u8>,
    ) -> Result<Reply, InitiatorError> {
        let Some(expected) = &self.config.mutual else { return self.request(SECURITY, Some(OPERATIONAL), &text) };
        let Some(ours) = algorithm.and_then(Challenge::new).filter(|ours| !ours.echoes(theirs)) else {
            return broken("no random bytes for a challenge");
        };
        ours.put(&mut text);
        let reply = self.request(SECURITY, Some(OPERATIONAL), &text)?;
        let (Some(name), Some(response)) = (reply.value("CHAP_N")?, reply.value("CHAP_R")?) else {
            return Err(InitiatorError::Unproved);
        };
        let proved = ours.is_answered(expected, name, response);
        if proved { Ok(reply) } else { Err(InitiatorError::Unproved) }
    }

    fn negotiate(&mut self, kind: SessionKind) -> Result<(), InitiatorError> {
        let wish = self.config.wish();
        let mut parameters = Parameters { receive_segment: wish.receive_segment, ..Parameters::default() };
        let mut text = Vec::new();
        wish.offer(kind, &mut text);
        for _ in 0..REQUESTS_MAX {
            let reply = self.request(OPERATIONAL, Some(FULL_FEATURE), &text)?;
            for (key, value) in reply.pairs()? {
                if wish.settle(&mut parameters, key, value).is_none() {
                    return broken("an answer to a key that is no possible answer");
                }
            }
            if reply.next == Some(FULL_FEATURE) {
                self.session.parameters = parameters;
                self.session.reader.digests = parameters.digests;
                self.session.writer.digests = parameters.digests;
                return Ok(());
            }
            text.clear();
        }
        broken("a login without end")
    }

    /// One request and its whole answer.
    fn request(&mut self, stage: u8, next: Option<u8>, text: &[u8]) -> Result<Reply, InitiatorError> {
        let mut answer = Vec::new();
        let (mut text, mut next) = (text, next);
        loop {
            let request = LoginRequest {
                flags: stage << 2 | next.map_or(0, |next| FINAL | next),
                version_max: 0,
                version_min: 0,
                isid: self.config.isid,
                tsih: 0,
                task_tag: 0,
                cid: 0,
                command_number: self.session.command_number,
                expected_status: self.session.expected_status,
            };
            self.session.writer.write(request.encode().immediate(), text)?;
            let header = self.session.reader.header()?;
            if header.opcode() != LoginResponse::OPCODE {
                return broken("no answer to a login request");
            }
            let response = LoginResponse::decode(&header);
            self.session.note(&header);
            let data = self.session.answer_data(&header)?;
            if response.status != 0 {
                return Err(InitiatorError::Refused { status: response.status });
            }
            answer.extend_from_slice(&data);
            if answer.len() > TEXT_LEN_MAX {
                return broken("a login answer without end");
            }
            if response.flags & CONTINUE == 0 {
                let next = (response.flags & FINAL != 0).then_some(response.flags & 3);
                return Ok(Reply { next, text: answer });
            }
            (text, next) = (&[], None);
        }
    }
}
