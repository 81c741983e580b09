//! Acts that take a quorum: as an approver reads them, and as they are carried out.
//!
//! Where somebody is to enrol, whoever asks draws the passphrase with the request and is the only one who ever sees it.
//! The enrolment waits at `enrolling/ID`, of no use to anybody, until the request is approved; the request names it by
//! its SHA-256.

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use capstan_format::KeyTag;
use capstan_keys::Name;
use capstan_keys::api::{ExportWhat, PeerId, PeerKind};
use capstan_service::enrolment::Enrolment;
use capstan_service::problem::Refusal;

use super::super::registrar::{enrolment_path, joining_path};
use super::carrying::Carrying;
use super::leaving;
use super::peers::{enrolment_expires_ns, revoking, valid_certificates};
use super::{broken, kma_changes, rule_of, sites, user_path, users_of};
use crate::authority::{
    Act, Arguments, InvalidArgument, Mandate, PendingId, QuorumRule, Role, Roles, User, UserStatus, Users,
};
use crate::desk::{Asked, Decided, DeskError, Operation, decide};
use crate::node::NodeError;
use crate::path::Path;
use crate::record::KmaRecord;

/// What an approver reads of a user who enrols anew.
const REVOKED_WITH_IT: &str = "the existing ones are revoked; a disabled user is enabled again";

/// What an approver reads of a node that is to unlock itself, or not.
const UNLOCKS_ITSELF: &str = "on: without holders after a start; whoever has all files of its machine has the keys";

/// What an approver reads of a core security backup.
const OPENS_ALL: &str = "every key of the cluster: so many custodians have it with a database backup or a node's disk";

/// Something that a quorum decides on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Proposal {
    /// `root` is the SHA-256 of what waits to be the sealed root key.
    SplitRoot {
        holders: String,
        needed: u8,
        root: String,
    },
    /// A core security backup for these custodians.
    BackUpCore {
        custodians: Vec<Name>,
        needed: u8,
    },
    AddKma {
        name: Name,
        address: String,
        site: String,
    },
    /// `remaining` is who is left, in words: what an approver agrees to, and nothing else.
    RemoveKma {
        name: Name,
        remaining: String,
    },
    MoveKma {
        name: Name,
        address: String,
        site: String,
    },
    /// That a node may unlock itself.
    AutonomousUnlock {
        name: Name,
    },
    ChangeQuorum {
        needed: u8,
        waits_seconds: u32,
    },
    AddUser {
        name: Name,
        roles: Roles,
    },
    ChangeRoles {
        name: Name,
        roles: Roles,
    },
    EnrolUser {
        name: Name,
    },
    EnableUser {
        name: Name,
    },
    /// What approvers read of the key, as it was when somebody asked; none in a request of an older program.
    DestroyKey {
        tag: KeyTag,
        told: Option<KeyTold>,
    },
    ExportKeys {
        what: ExportWhat,
    },
    ImportKeys {
        group: Name,
        keys: u32,
        sha256: String,
    },
}

/// A key that is to be destroyed, in words: its tag tells an approver nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyTold {
    pub(super) volume: String,
    pub(super) group: String,
    pub(super) state: String,
    pub(super) agent: String,
    pub(super) unreadable: String,
}

/// With what an approved request is carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CarriedOut {
    /// With the last approval.
    AtOnce,
    /// By whoever asked, once: it takes what only they have.
    ByRequester,
}

impl Proposal {
    pub(super) fn act(&self) -> Act {
        match self {
            Self::AddKma { .. } => Act::AddKma,
            Self::RemoveKma { .. } => Act::RemoveKma,
            Self::MoveKma { .. } => Act::ChangeKma,
            Self::AutonomousUnlock { .. } => Act::SetAutonomousUnlock,
            Self::ChangeQuorum { .. } => Act::ChangeQuorum,
            Self::SplitRoot { .. } => Act::ChangeCredentials,
            Self::BackUpCore { .. } => Act::BackUpCoreSecurity,
            Self::AddUser { .. } | Self::ChangeRoles { .. } | Self::EnrolUser { .. } | Self::EnableUser { .. } => {
                Act::ChangeUsers
            }
            Self::DestroyKey { .. } => Act::DestroyKeys,
            Self::ExportKeys { .. } => Act::ExportKeys,
            Self::ImportKeys { .. } => Act::ImportKeys,
        }
    }

    /// When what was approved is carried out.
    pub(super) fn carried_out(act: Act) -> CarriedOut {
        match act {
            Act::ExportKeys | Act::ImportKeys | Act::BackUpCoreSecurity => CarriedOut::ByRequester,
            _ => CarriedOut::AtOnce,
        }
    }

    /// As an approver reads it.
    pub(super) fn arguments(&self, enrolment: Option<&Enrolment>) -> Result<Arguments, InvalidArgument> {
        let none = Arguments::default();
        let arguments = match self {
            Self::AddKma { name, address, site } | Self::MoveKma { name, address, site } => {
                none.with("kma", name.as_str())?.with("address", address)?.with("site", site)?
            }
            Self::SplitRoot { holders, needed, root } => {
                none.with("holders", holders)?.with("needed", &needed.to_string())?.with("root", root)?
            }
            Self::BackUpCore { custodians, needed } => {
                let names = custodians.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
                none.with("custodians", &names)?.with("needed", &needed.to_string())?.with("opens", OPENS_ALL)?
            }
            Self::RemoveKma { name, remaining } => none.with("kma", name.as_str())?.with("remaining", remaining)?,
            Self::AutonomousUnlock { name } => {
                none.with("kma", name.as_str())?.with("autonomous-unlock", UNLOCKS_ITSELF)?
            }
            Self::ChangeQuorum { needed, waits_seconds } => {
                none.with("approvals", &needed.to_string())?.with("seconds-to-wait", &waits_seconds.to_string())?
            }
            Self::AddUser { name, roles } => {
                none.with("change", "add")?.with("user", name.as_str())?.with("roles", &roles.to_string())?
            }
            Self::ChangeRoles { name, roles } => {
                none.with("change", "roles")?.with("user", name.as_str())?.with("roles", &roles.to_string())?
            }
            Self::EnrolUser { name } => {
                none.with("change", "enrol")?.with("user", name.as_str())?.with("certificates", REVOKED_WITH_IT)?
            }
            Self::EnableUser { name } => none.with("change", "enable")?.with("user", name.as_str())?,
            Self::DestroyKey { tag, told: None } => none.with("key", &tag.to_string())?,
            Self::DestroyKey { tag, told: Some(KeyTold { volume, group, state, agent, unreadable }) } => {
                let named = none.with("key", &tag.to_string())?.with("volume", volume)?.with("group", group)?;
                named.with("state", state)?.with("asked-for-by", agent)?.with("becomes-unreadable", unreadable)?
            }
            Self::ExportKeys { what: ExportWhat::All } => none.with("keys", "all that policies let go")?,
            Self::ExportKeys { what: ExportWhat::Group(group) } => none.with("of-group", group.as_str())?,
            Self::ExportKeys { what: ExportWhat::Unit(unit) } => none.with("of-unit", unit.as_str())?,
            Self::ImportKeys { group, keys, sha256 } => {
                none.with("group", group.as_str())?.with("keys", &keys.to_string())?.with("sha256", sha256)?
            }
        };
        match enrolment {
            Some(enrolment) => arguments.with("enrolment", &fingerprint(&enrolment.encode())),
            None => Ok(arguments),
        }
    }

    /// What [`Proposal::arguments`] wrote.
    pub(super) fn read(act: Act, arguments: &Arguments) -> Option<Self> {
        let name = |of: &str| arguments.get(of)?.parse().ok();
        let text = |of: &str| arguments.get(of).map(str::to_owned);
        match (act, arguments.get("change")) {
            (Act::AddKma, None) => {
                Some(Self::AddKma { name: name("kma")?, address: text("address")?, site: text("site")? })
            }
            (Act::RemoveKma, None) => Some(Self::RemoveKma { name: name("kma")?, remaining: text("remaining")? }),
            (Act::ChangeKma, None) => {
                Some(Self::MoveKma { name: name("kma")?, address: text("address")?, site: text("site")? })
            }
            (Act::ChangeCredentials, None) => Some(Self::SplitRoot {
                holders: text("holders")?,
                needed: arguments.get("needed")?.parse().ok()?,
                root: text("root")?,
            }),
            (Act::BackUpCoreSecurity, None) if arguments.get("opens")? == OPENS_ALL => {
                let names = arguments.get("custodians")?.split(", ");
                let custodians = names.map(|name| name.parse().ok()).collect::<Option<_>>()?;
                Some(Self::BackUpCore { custodians, needed: arguments.get("needed")?.parse().ok()? })
            }
            (Act::SetAutonomousUnlock, None) => {
                let is_it = arguments.get("autonomous-unlock")? == UNLOCKS_ITSELF;
                Some(Self::AutonomousUnlock { name: name("kma").filter(|_| is_it)? })
            }
            (Act::ChangeQuorum, None) => Some(Self::ChangeQuorum {
                needed: arguments.get("approvals")?.parse().ok()?,
                waits_seconds: arguments.get("seconds-to-wait")?.parse().ok()?,
            }),
            (Act::ChangeUsers, Some("add")) => Some(Self::AddUser { name: name("user")?, roles: roles(arguments)? }),
            (Act::ChangeUsers, Some("roles")) => {
                Some(Self::ChangeRoles { name: name("user")?, roles: roles(arguments)? })
            }
            (Act::ChangeUsers, Some("enrol")) => Some(Self::EnrolUser { name: name("user")? }),
            (Act::ChangeUsers, Some("enable")) => Some(Self::EnableUser { name: name("user")? }),
            (Act::ExportKeys, None) => {
                let what = match (arguments.get("of-group"), arguments.get("of-unit"), arguments.get("keys")) {
                    (Some(group), None, None) => ExportWhat::Group(group.parse().ok()?),
                    (None, Some(unit), None) => ExportWhat::Unit(unit.parse().ok()?),
                    (None, None, Some("all that policies let go")) => ExportWhat::All,
                    _ => return None,
                };
                Some(Self::ExportKeys { what })
            }
            (Act::ImportKeys, None) => Some(Self::ImportKeys {
                group: name("group")?,
                keys: arguments.get("keys")?.parse().ok()?,
                sha256: text("sha256")?,
            }),
            (Act::DestroyKeys, None) => {
                let told = || {
                    let (volume, group, state) = (text("volume")?, text("group")?, text("state")?);
                    let (agent, unreadable) = (text("asked-for-by")?, text("becomes-unreadable")?);
                    Some(KeyTold { volume, group, state, agent, unreadable })
                };
                Some(Self::DestroyKey { tag: arguments.get("key")?.parse().ok()?, told: told() })
            }
            _ => None,
        }
    }

    /// Whether it could be carried out if it were approved now: nobody is to be asked for what cannot be.
    pub(super) fn check(&self, on: Carrying<'_>) -> Result<(), Refusal> {
        self.decided(on).map(drop)
    }

    fn decided(&self, on: Carrying<'_>) -> Result<Decided, Refusal> {
        let Carrying { view, now_ns, .. } = on;
        match self {
            Self::AddKma { name, address, site } => {
                if view.ledger().kmas().contains_key(name) {
                    return Err(Refusal::conflict(format!("There is a node {name} already.")));
                }
                if view.ledger().removed(name).is_some() {
                    return Err(Refusal::conflict(format!(
                        "There was a node {name}: its journal and its audit log have that name for good. Name another."
                    )));
                }
                let at_site = sites::check(view, site)?;
                let record = KmaRecord { site: site.clone(), address: address.clone(), joined_ns: now_ns };
                let record = serde_json::to_vec(&record).map_err(|error| broken(&error))?;
                let peer = PeerId { kind: PeerKind::Kma, name: name.clone() };
                let mut decided = Decided::records(vec![(joining_path(&peer), record)], Vec::new());
                decided.rests_on.extend(at_site);
                Ok(decided)
            }
            // What it is was checked before it was asked for; the split waits beside the request.
            Self::SplitRoot { .. } | Self::BackUpCore { .. } => Ok(Decided::records(Vec::new(), Vec::new())),
            Self::RemoveKma { name, remaining } => kma_changes::removed(on, name, remaining),
            Self::MoveKma { name, address, site } => kma_changes::moved(on, name, address, site),
            Self::AutonomousUnlock { name } => kma_changes::autonomous(on, name),
            Self::ChangeQuorum { needed, waits_seconds } => {
                let impossible = || Refusal::malformed(format!("A quorum of {needed} cannot be: 1 to 16 approve."));
                let rule = QuorumRule::new(*needed, *waits_seconds).ok_or_else(impossible)?;
                if rule_of(view)? == rule {
                    return Err(Refusal::conflict("The quorum is so already."));
                }
                users_of(view)?.check(&rule)?;
                let put = (Path::Other("quorum".to_owned()), rule.encode());
                Ok(Decided::records(vec![put, users_changed(on.id.0)], Vec::new()))
            }
            Self::AddUser { name, roles } => {
                if users_of(view)?.get(name).is_some() {
                    return Err(Refusal::conflict(format!(
                        "There is or was a user {name}: a name is never given to another person."
                    )));
                }
                with_user(on, &User::new(name.clone(), *roles))
            }
            Self::ChangeRoles { name, roles } => {
                let user = known(&users_of(view)?, name)?;
                with_user(on, &User { roles: *roles, ..user })
            }
            Self::EnableUser { name } => {
                let user = known(&users_of(view)?, name)?;
                with_user(on, &User { standing: UserStatus::Enabled, ..user })
            }
            Self::EnrolUser { name } => {
                // Lost is as good as stolen: nothing of what they had lets anybody in from here on, and no enabling
                // brings it back.
                let user = known(&users_of(view)?, name)?;
                let user = User { standing: UserStatus::Enabled, certificates: BTreeSet::new(), ..user };
                let peer = PeerId { kind: PeerKind::User, name: name.clone() };
                let certificates = valid_certificates(view, now_ns)?;
                let serials: Vec<_> = certificates.get(&peer).into_iter().flatten().copied().collect();
                let revoked = revoking(&serials, on.by, now_ns);
                let mut decided = with_user(on, &user)?;
                decided.puts.extend(revoked.puts);
                decided.rests_on.extend(revoked.rests_on);
                Ok(decided)
            }
            Self::DestroyKey { tag, .. } => {
                let operation = Operation::Destroy { tag: *tag };
                let (by, kma) = (on.by.clone(), on.node.name().clone());
                let asked = Asked { operation, request: on.id.0, by, kma, now_ns };
                Ok(decide(view, on.node.keys(), &asked).map_err(NodeError::from)?)
            }
            Self::ExportKeys { what } => {
                leaving::check(view, what)?;
                Ok(Decided::records(Vec::new(), Vec::new()))
            }
            Self::ImportKeys { group, .. } => {
                view.ledger()
                    .realm()
                    .check_import(group)
                    .map_err(|refusal| NodeError::from(DeskError::from(refusal)))?;
                Ok(Decided::records(Vec::new(), Vec::new()))
            }
        }
    }
}

/// What a quorum's leave does, to be committed with the request that it ends.
pub(super) fn carry_out(mandate: &Mandate, on: Carrying<'_>) -> Result<Decided, Refusal> {
    let unreadable = || Refusal::conflict("What was approved is of a newer program: approve it at a newer node.");
    let arguments = mandate.arguments();
    let mut decided = Proposal::read(mandate.act(), arguments).ok_or_else(unreadable)?.decided(on)?;
    if let Some(named) = arguments.get("root") {
        let waiting = enrolling_path(mandate.id());
        let bytes = on.view.ledger().other(&waiting.to_string()).filter(|bytes| fingerprint(bytes) == named);
        let gone = || Refusal::conflict("What belongs to it is gone, or another than was approved: ask again.");
        decided.puts.push((Path::root_key(), bytes.ok_or_else(gone)?.to_vec()));
        decided.removes.push(waiting);
    }
    if let Some(named) = arguments.get("enrolment") {
        let waiting = enrolling_path(mandate.id());
        let gone = || Refusal::conflict("The enrolment that belongs to it is gone: ask again.");
        let bytes = on.view.ledger().other(&waiting.to_string()).ok_or_else(gone)?;
        if fingerprint(bytes) != named {
            return Err(Refusal::conflict("The enrolment that belongs to it is another than was approved: ask again."));
        }
        let mut enrolment = Enrolment::decode(bytes).map_err(|error| broken(&error))?;
        if enrolment.is_of_older_program() {
            return Err(Refusal::conflict("The enrolment that belongs to it was made by an older program: ask again."));
        }
        enrolment.expires_ns = enrolment_expires_ns(on.now_ns);
        decided.puts.push((enrolment_path(&enrolment.peer), enrolment.encode().to_vec()));
        decided.removes.push(waiting);
    }
    Ok(decided)
}

/// Where what belongs to a request waits: an enrolment, or a sealed root key.
pub(super) fn enrolling_path(id: PendingId) -> Path {
    Path::Other(format!("enrolling/{id}"))
}

/// A record that each change of users writes anew: two of them never pass each other unseen, so that what
/// [`Users::check`] said holds.
pub(super) fn users_changed(by: [u8; 16]) -> (Path, Vec<u8>) {
    (Path::Other("users-changed".to_owned()), by.to_vec())
}

fn with_user(on: Carrying<'_>, user: &User) -> Result<Decided, Refusal> {
    let mut users = users_of(on.view)?;
    users.put(user.clone());
    users.check(&rule_of(on.view)?)?;
    Ok(Decided::records(vec![(user_path(&user.name), user.encode()), users_changed(on.id.0)], Vec::new()))
}

fn known(users: &Users, name: &Name) -> Result<User, Refusal> {
    users.get(name).cloned().ok_or_else(|| Refusal::not_found(format!("There is no user {name}.")))
}

fn roles(arguments: &Arguments) -> Option<Roles> {
    match arguments.get("roles")? {
        "no role" => Some(Roles::default()),
        names => names.split(", ").map(Role::named).collect(),
    }
}

pub(super) fn fingerprint(bytes: &[u8]) -> String {
    digest(&SHA256, bytes).as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn what_an_approver_reads_is_what_is_carried_out() {
        let name = || "anna".parse::<Name>().unwrap();
        let both = [Role::Operator, Role::QuorumMember].into_iter().collect();
        let proposals = [
            Proposal::AddKma { name: name(), address: "a:1".to_owned(), site: String::new() },
            Proposal::RemoveKma { name: name(), remaining: "kma1 (north), kma3".to_owned() },
            Proposal::MoveKma { name: name(), address: "a:1".to_owned(), site: "south".to_owned() },
            Proposal::AutonomousUnlock { name: name() },
            Proposal::ChangeQuorum { needed: 3, waits_seconds: 3600 },
            Proposal::SplitRoot { holders: "ann, bob".to_owned(), needed: 2, root: "07".to_owned() },
            Proposal::BackUpCore { custodians: vec![name(), "dan".parse().unwrap()], needed: 2 },
            Proposal::AddUser { name: name(), roles: both },
            Proposal::ChangeRoles { name: name(), roles: Roles::default() },
            Proposal::EnrolUser { name: name() },
            Proposal::EnableUser { name: name() },
            Proposal::DestroyKey { tag: KeyTag([7; 16]), told: None },
            Proposal::DestroyKey {
                tag: KeyTag([7; 16]),
                told: Some(KeyTold {
                    volume: "A00001".to_owned(),
                    group: "vault".to_owned(),
                    state: "process-only".to_owned(),
                    agent: "mover1".to_owned(),
                    unreadable: "what was written under it".to_owned(),
                }),
            },
            Proposal::ExportKeys { what: ExportWhat::All },
            Proposal::ExportKeys { what: ExportWhat::Group(name()) },
            Proposal::ExportKeys { what: ExportWhat::Unit("A00001".parse().unwrap()) },
            Proposal::ImportKeys { group: name(), keys: 12, sha256: "ab".to_owned() },
        ];
        for proposal in proposals {
            let arguments = proposal.arguments(None).unwrap();
            assert_eq!(Proposal::read(proposal.act(), &arguments), Some(proposal.clone()));
            // Neither under another act nor with something left out.
            assert_eq!(Proposal::read(Act::ReadStatus, &arguments), None);
            assert_eq!(Proposal::read(proposal.act(), &Arguments::default()), None);
        }
    }
}
