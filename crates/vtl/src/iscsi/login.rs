//! A login as the target sees it (RFC 7143, section 6.3): requests in, answers out, no socket.
//!
//! ```text
//! security (0): names, AuthMethod, CHAP  --.
//!                                          +--> operational (1): all other keys --> full feature (3)
//! ```
//! Either stage may be left out by the initiator, the first of them only where nothing must be proved.

use super::chap::{Algorithm, Challenge};
use super::config::{Discovery, TargetConfig};
use super::negotiate::{Negotiation, Parameters, Reply, SessionKind};
use super::pdu::{CONTINUE, FINAL, LoginRequest, LoginStatus};
use super::text::{TEXT_LEN_MAX, is_name, parse, put};

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;
/// Most keys of a whole login, which are kept to know them again.
const NEGOTIATED_MAX: usize = 256;
/// The one portal group that there is.
pub(crate) const PORTAL_GROUP: &str = "1";

/// Who logs in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) initiator: String,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    pub(crate) kind: SessionKind,
}

/// What is answered to a login request that was not refused.
#[derive(Debug)]
pub(crate) struct Answer {
    /// Flags of the response.
    pub(crate) flags: u8,
    pub(crate) text: Vec<u8>,
    /// Set where the login is complete once this is sent.
    pub(crate) complete: Option<(Identity, Parameters)>,
}

enum Proof {
    /// Not spoken of yet.
    Open,
    /// CHAP was agreed upon.
    Chap,
    /// A challenge was put.
    Challenged(Challenge),
    /// Proved, or nothing to prove.
    Done,
}

/// A login that has begun.
pub(crate) struct Login<'a> {
    config: &'a TargetConfig,
    negotiation: Negotiation,
    /// The header of the first request, which the later ones agree with.
    first: Option<LoginRequest>,
    /// The name that was given, whether or not it may come in.
    claimed: Option<String>,
    identity: Option<Identity>,
    stage: u8,
    proof: Proof,
    /// Text of requests that are to be continued.
    text: Vec<u8>,
    negotiated: Vec<String>,
}

type Refused = LoginStatus;

impl<'a> Login<'a> {
    pub(crate) fn new(config: &'a TargetConfig) -> Self {
        Self {
            config,
            negotiation: Negotiation::new(&config.limits),
            first: None,
            claimed: None,
            identity: None,
            stage: SECURITY,
            proof: Proof::Open,
            text: Vec::new(),
            negotiated: Vec::new(),
        }
    }

    /// The name that the initiator gave.
    pub(crate) fn claimed(&self) -> Option<&str> {
        self.claimed.as_deref()
    }

    /// Takes a request. Whatever it refuses ends the login.
    pub(crate) fn request(&mut self, request: &LoginRequest, text: &[u8]) -> Result<Answer, Refused> {
        let (transit, stage, next) = (request.flags & FINAL != 0, request.flags >> 2 & 3, request.flags & 3);
        self.check_header(request, stage)?;
        if transit && (next <= stage || next == 2 || request.flags & CONTINUE != 0) {
            return Err(LoginStatus::InitiatorError);
        }
        if self.text.len() + text.len() > TEXT_LEN_MAX {
            return Err(LoginStatus::InitiatorError);
        }
        self.text.extend_from_slice(text);
        if request.flags & CONTINUE != 0 {
            return Ok(Answer { flags: stage << 2, text: Vec::new(), complete: None });
        }
        let whole = std::mem::take(&mut self.text);
        let pairs = parse(&whole).map_err(|_| LoginStatus::InitiatorError)?;
        let mut answer = Vec::new();
        let kind = match &self.identity {
            Some(identity) => identity.kind,
            None => self.identify(request, &pairs, &mut answer)?,
        };
        self.negotiate(&pairs, kind, stage, &mut answer)?;
        let proved = self.prove(&pairs, kind, stage, transit, &mut answer)?;
        if !(transit && proved) {
            return Ok(Answer { flags: stage << 2, text: answer, complete: None });
        }
        self.stage = next;
        let complete = if next == FULL_FEATURE {
            self.identity.clone().map(|identity| (identity, self.negotiation.parameters))
        } else {
            None
        };
        Ok(Answer { flags: FINAL | stage << 2 | next, text: answer, complete })
    }

    fn check_header(&mut self, request: &LoginRequest, stage: u8) -> Result<(), Refused> {
        if stage > OPERATIONAL {
            return Err(LoginStatus::InitiatorError);
        }
        let Some(first) = &self.first else {
            if request.version_min > 0 {
                return Err(LoginStatus::UnsupportedVersion);
            }
            self.first = Some(*request);
            self.stage = stage;
            return Ok(());
        };
        let same = (first.isid, first.tsih, first.cid, first.task_tag)
            == (request.isid, request.tsih, request.cid, request.task_tag);
        if same && stage == self.stage { Ok(()) } else { Err(LoginStatus::InitiatorError) }
    }

    /// Names and the kind of session, which stand in the first request.
    fn identify(
        &mut self,
        request: &LoginRequest,
        pairs: &[(&str, &str)],
        answer: &mut Vec<u8>,
    ) -> Result<SessionKind, Refused> {
        let value = |key| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let initiator = value("InitiatorName").ok_or(LoginStatus::MissingParameter)?;
        if !is_name(initiator) {
            return Err(LoginStatus::InitiatorError);
        }
        self.claimed = Some(initiator.to_ascii_lowercase());
        let kind = match value("SessionType") {
            None | Some("Normal") => SessionKind::Normal,
            Some("Discovery") => SessionKind::Discovery,
            Some(_) => return Err(LoginStatus::SessionType),
        };
        if kind == SessionKind::Normal {
            let target = value("TargetName").ok_or(LoginStatus::MissingParameter)?;
            if !target.eq_ignore_ascii_case(&self.config.name) {
                return Err(LoginStatus::NotFound);
            }
            put(answer, "TargetPortalGroupTag", PORTAL_GROUP);
        }
        let known = kind == SessionKind::Discovery && self.config.discovery == Discovery::Open;
        if !known && !self.config.admits(initiator) {
            return Err(LoginStatus::AuthorizationFailure);
        }
        let initiator = initiator.to_ascii_lowercase();
        let (isid, tsih, cid) = (request.isid, request.tsih, request.cid);
        self.identity = Some(Identity { initiator, isid, tsih, cid, kind });
        Ok(kind)
    }

    /// Answers all keys that neither name nor prove.
    fn negotiate(
        &mut self,
        pairs: &[(&str, &str)],
        kind: SessionKind,
        stage: u8,
        answer: &mut Vec<u8>,
    ) -> Result<(), Refused> {
        for (key, value) in pairs {
            let ours =
                ["InitiatorName", "TargetName", "SessionType", "AuthMethod"].contains(key) || key.starts_with("CHAP_");
            if ours {
                continue;
            }
            // Whoever bargains twice about one thing is not understood (RFC 7143, 6.3).
            if self.negotiated.iter().any(|done| done == key) || self.negotiated.len() == NEGOTIATED_MAX {
                return Err(LoginStatus::InitiatorError);
            }
            self.negotiated.push((*key).to_owned());
            if let Reply::Value(value) = self.negotiation.reply(key, value, kind) {
                put(answer, key, &value);
            }
        }
        if stage == OPERATIONAL {
            self.negotiation.declare(answer);
        }
        Ok(())
    }

    /// Goes on with authentication. Says whether nothing is left to prove.
    fn prove(
        &mut self,
        pairs: &[(&str, &str)],
        kind: SessionKind,
        stage: u8,
        transit: bool,
        answer: &mut Vec<u8>,
    ) -> Result<bool, Refused> {
        const FAILED: Refused = LoginStatus::AuthenticationFailure;
        let config = self.config;
        let needed = match kind {
            SessionKind::Discovery if config.discovery == Discovery::Open => None,
            _ => config.chap.as_ref(),
        };
        let value = |key| pairs.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        let method = value("AuthMethod");
        if stage == OPERATIONAL {
            if method.is_some() {
                return Err(LoginStatus::InitiatorError);
            }
            let proved = needed.is_none() || matches!(self.proof, Proof::Done);
            return if proved { Ok(true) } else { Err(FAILED) };
        }
        let offers = |wanted: &str| method.is_some_and(|list| list.split(',').any(|name| name == wanted));
        let step = std::mem::replace(&mut self.proof, Proof::Open);
        self.proof = match (step, needed) {
            (Proof::Open, None) if offers("None") => {
                put(answer, "AuthMethod", "None");
                Proof::Done
            }
            (Proof::Open, None) if method.is_none() => Proof::Open,
            (Proof::Open, Some(_)) if offers("CHAP") => {
                put(answer, "AuthMethod", "CHAP");
                Proof::Chap
            }
            // An initiator that says nothing yet may still speak of it, unless it wants to go on.
            (Proof::Open, Some(_)) if method.is_none() && !transit => Proof::Open,
            (Proof::Chap, Some(_)) => {
                let algorithm =
                    Algorithm::choose(value("CHAP_A").ok_or(LoginStatus::MissingParameter)?).ok_or(FAILED)?;
                let challenge = Challenge::new(algorithm).ok_or(LoginStatus::TargetError)?;
                put(answer, "CHAP_A", algorithm.number());
                challenge.put(answer);
                Proof::Challenged(challenge)
            }
            (Proof::Challenged(challenge), Some(credentials)) => {
                let name = value("CHAP_N").ok_or(LoginStatus::MissingParameter)?;
                let response = value("CHAP_R").ok_or(LoginStatus::MissingParameter)?;
                if !challenge.is_answered(credentials, name, response) {
                    return Err(FAILED);
                }
                if let (Some(id), Some(theirs)) = (value("CHAP_I"), value("CHAP_C")) {
                    let theirs = challenge.received_like(id, theirs).ok_or(FAILED)?;
                    if theirs.echoes(&challenge) {
                        return Err(FAILED);
                    }
                    theirs.answer(config.mutual.as_ref().ok_or(FAILED)?, answer);
                }
                Proof::Done
            }
            (Proof::Done, _) if method.is_none() => Proof::Done,
            _ => return Err(FAILED),
        };
        Ok(match self.proof {
            Proof::Done => true,
            Proof::Open => needed.is_none(),
            Proof::Chap | Proof::Challenged(_) => false,
        })
    }
}
