//! The queue of the quorum: what was asked for, who approved exactly that, and that it was executed once.

use std::fmt;

use capstan_keys::Name;

use super::{Act, Arguments, QuorumRule, Role, User, Users, may};
use capstan_service::roles::ActPermission;
use capstan_service::time::rfc3339;

mod record;
mod refused;

pub use refused::Refused;

/// Who else decides by then has nothing to add: it takes at most 16 approvals.
const DECISIONS_MAX: usize = 32;
/// How far the clocks of two nodes may be apart before one of them is not believed.
const CLOCK_TOLERANCE_NS: i64 = 5 * 60 * 1_000_000_000;

/// The name of a request: 16 random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PendingId(pub [u8; 16]);

impl fmt::Display for PendingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// SHA-256 of everything that is asked for; an approval names it, and is one of nothing else.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestDigest(pub [u8; 32]);

impl fmt::Display for RequestDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a quorum member says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vote {
    /// Yes.
    Approved,
    /// No: the request ends.
    Rejected,
}

/// A quorum member's word on one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Whose.
    pub who: Name,
    /// Yes or no.
    pub vote: Vote,
    /// When, in nanoseconds since 1970.
    pub at_ns: i64,
    /// To exactly what.
    pub digest: RequestDigest,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    Withdrawn { at_ns: i64 },
    Executed { by: Name, at_ns: i64 },
}

/// An act that waits for its quorum; the record `pending/<id>` of the ledger.
///
/// What was asked for never changes: the fields are read, and a change is a new record by [`Pending::approve`] and its
/// like, which the caller commits by compare-and-set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pending {
    id: PendingId,
    act: Act,
    arguments: Arguments,
    requested_by: Name,
    requested_ns: i64,
    expires_ns: i64,
    needed: u8,
    decisions: Vec<Decision>,
    end: Option<End>,
}

/// Where a request stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Stage {
    /// More approvals are needed.
    Waiting {
        /// Those that count at this moment.
        approvals: usize,
        /// Those that it takes.
        needed: u8,
    },
    /// It can be executed.
    Approved,
    /// Nobody executed it in time.
    Expired,
    /// A quorum member said no.
    Rejected {
        /// Who.
        by: Name,
    },
    /// Who asked for it does no longer.
    Withdrawn,
    /// It was done.
    Executed {
        /// Who did it.
        by: Name,
        /// When, in nanoseconds since 1970.
        at_ns: i64,
    },
}

/// The quorum's leave to do one thing once. Nothing makes one but [`Pending::execute`], so a function that takes it
/// cannot be called without.
#[derive(Debug)]
pub struct Mandate {
    id: PendingId,
    act: Act,
    arguments: Arguments,
}

impl Mandate {
    /// The request that it comes from.
    pub fn id(&self) -> PendingId {
        self.id
    }

    /// What may be done.
    pub fn act(&self) -> Act {
        self.act
    }

    /// With exactly what.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }
}

impl Pending {
    /// Asks for an act that takes a quorum. `id` is random.
    pub fn request(
        id: PendingId,
        by: &User,
        act: Act,
        arguments: Arguments,
        rule: &QuorumRule,
        now_ns: i64,
    ) -> Result<Self, Refused> {
        match may(by, act)? {
            ActPermission::AtOnce => Err(Refused::NoQuorumNeeded { act }),
            ActPermission::ByQuorum => Ok(Self {
                id,
                act,
                arguments,
                requested_by: by.name.clone(),
                requested_ns: now_ns,
                expires_ns: rule.expires_ns(now_ns),
                needed: rule.needed(),
                decisions: Vec::new(),
                end: None,
            }),
        }
    }

    /// With a quorum member's yes to what has this digest: the one that was shown to them.
    pub fn approve(&self, by: &User, digest: RequestDigest, now_ns: i64) -> Result<Self, Refused> {
        self.decide(by, Act::ApprovePending, Vote::Approved, digest, now_ns)
    }

    /// With a quorum member's no, which ends it.
    pub fn reject(&self, by: &User, digest: RequestDigest, now_ns: i64) -> Result<Self, Refused> {
        self.decide(by, Act::RejectPending, Vote::Rejected, digest, now_ns)
    }

    fn decide(&self, by: &User, act: Act, vote: Vote, digest: RequestDigest, now_ns: i64) -> Result<Self, Refused> {
        may(by, act)?;
        self.check_open(now_ns)?;
        if by.name == self.requested_by && vote == Vote::Approved {
            return Err(Refused::OwnRequest { who: by.name.clone() });
        }
        if self.decisions.iter().any(|decision| decision.who == by.name) || self.decisions.len() == DECISIONS_MAX {
            return Err(Refused::DecidedAlready { who: by.name.clone() });
        }
        if digest != self.digest() {
            return Err(Refused::OtherRequest);
        }
        let mut decided = self.clone();
        decided.decisions.push(Decision { who: by.name.clone(), vote, at_ns: now_ns, digest });
        Ok(decided)
    }

    /// Withdrawn, by whoever asked for it.
    pub fn withdraw(&self, by: &User, now_ns: i64) -> Result<Self, Refused> {
        may(by, Act::WithdrawPending)?;
        self.check_open(now_ns)?;
        if by.name != self.requested_by {
            return Err(Refused::NotOwn { requested_by: self.requested_by.clone() });
        }
        Ok(Self { end: Some(End::Withdrawn { at_ns: now_ns }), ..self.clone() })
    }

    /// Executed: what to commit together with what the act changes, in one transaction that expects this record as it
    /// was read; and the leave to do it. Whoever does it says again what is to be done, and could have asked for it.
    pub fn execute(
        &self,
        users: &Users,
        by: &User,
        act: Act,
        arguments: &Arguments,
        now_ns: i64,
    ) -> Result<(Self, Mandate), Refused> {
        may(by, self.act)?;
        self.check_open(now_ns)?;
        if act != self.act || *arguments != self.arguments {
            return Err(Refused::OtherAct { id: self.id });
        }
        // The requester may have lost the role since.
        match users.get(&self.requested_by) {
            Some(requester) => drop(may(requester, self.act)?),
            None => return Err(Refused::Ended { by: self.requested_by.clone() }),
        }
        let approvals = self.approvals(users);
        if approvals < usize::from(self.needed) {
            return Err(Refused::TooFew { approvals, needed: self.needed });
        }
        let executed = Self { end: Some(End::Executed { by: by.name.clone(), at_ns: now_ns }), ..self.clone() };
        Ok((executed, Mandate { id: self.id, act, arguments: self.arguments.clone() }))
    }

    /// Where it stands.
    pub fn stage(&self, users: &Users, now_ns: i64) -> Stage {
        match &self.end {
            Some(End::Withdrawn { .. }) => return Stage::Withdrawn,
            Some(End::Executed { by, at_ns }) => return Stage::Executed { by: by.clone(), at_ns: *at_ns },
            None => {}
        }
        if let Some(no) = self.rejection() {
            return Stage::Rejected { by: no.who.clone() };
        }
        match self.approvals(users) {
            _ if now_ns >= self.expires_ns => Stage::Expired,
            approvals if approvals < usize::from(self.needed) => Stage::Waiting { approvals, needed: self.needed },
            _ => Stage::Approved,
        }
    }

    /// Whether its record may be removed: whatever state of it somebody puts back is expired on every node's clock.
    pub fn is_removable(&self, now_ns: i64) -> bool {
        now_ns >= self.expires_ns.saturating_add(CLOCK_TOLERANCE_NS)
    }

    /// The approvals that count: of this very request, by people who are quorum members now, and not by who asked.
    fn approvals(&self, users: &Users) -> usize {
        let digest = self.digest();
        let counts = |approval: &&Decision| {
            approval.vote == Vote::Approved
                && approval.digest == digest
                && approval.who != self.requested_by
                && users.get(&approval.who).is_some_and(|user| user.is(Role::QuorumMember))
        };
        // No two are one person's: neither `decide` nor `decode` lets them in.
        self.decisions.iter().filter(counts).count()
    }

    fn rejection(&self) -> Option<&Decision> {
        self.decisions.iter().find(|decision| decision.vote == Vote::Rejected)
    }

    fn check_open(&self, now_ns: i64) -> Result<(), Refused> {
        match &self.end {
            Some(End::Withdrawn { .. }) => return Err(Refused::Ended { by: self.requested_by.clone() }),
            Some(End::Executed { by, at_ns }) => return Err(Refused::Executed { by: by.clone(), at_ns: *at_ns }),
            None => {}
        }
        if let Some(no) = self.rejection() {
            return Err(Refused::Ended { by: no.who.clone() });
        }
        if now_ns >= self.expires_ns {
            return Err(Refused::Expired { expired_ns: self.expires_ns });
        }
        // Else a clock set back would bring what has expired to life again.
        let known_ns = self.decisions.iter().map(|decision| decision.at_ns).fold(self.requested_ns, i64::max);
        if now_ns < known_ns.saturating_sub(CLOCK_TOLERANCE_NS) {
            return Err(Refused::ClockBehind { now_ns, known_ns });
        }
        Ok(())
    }

    /// Its name.
    pub fn id(&self) -> PendingId {
        self.id
    }

    /// What is asked for.
    pub fn act(&self) -> Act {
        self.act
    }

    /// With what.
    pub fn arguments(&self) -> &Arguments {
        &self.arguments
    }

    /// By whom.
    pub fn requested_by(&self) -> &Name {
        &self.requested_by
    }

    /// When it was asked for, in nanoseconds since 1970.
    pub fn requested_ns(&self) -> i64 {
        self.requested_ns
    }

    /// When it ends by itself, in nanoseconds since 1970.
    pub fn expires_ns(&self) -> i64 {
        self.expires_ns
    }

    /// How many approvals it takes.
    pub fn needed(&self) -> u8 {
        self.needed
    }

    /// What was said to it.
    pub fn decisions(&self) -> &[Decision] {
        &self.decisions
    }
}

impl fmt::Display for Pending {
    /// What an approver reads: all that is asked for, an argument a line.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} asks to {}, with", self.requested_by, self.act.words())?;
        self.arguments.iter().try_for_each(|(name, value)| writeln!(f, "  {name} = {value}"))?;
        writeln!(f, "asked on {}, expires on {}", rfc3339(self.requested_ns), rfc3339(self.expires_ns))?;
        writeln!(f, "takes {} approvals of others", self.needed)?;
        write!(f, "request {}, digest {}", self.id, self.digest())
    }
}

#[cfg(test)]
mod tests;
