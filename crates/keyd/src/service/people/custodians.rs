//! Core security backups: what the quorum is asked for, and what whoever asked then carries out, once, with the
//! custodians in the room.
//!
//! ```text
//!  POST /v1/core-backups      these custodians, so many of them       -> waits for the quorum
//!  GET  /v1/core-backups/ID   whom the quorum has approved            passphrases are asked for after that
//!  POST /v1/core-backups/ID   each custodian's passphrase             -> record `core-backup/SHA256`, and the file
//! ```
//! Its custodians have every key, with a database backup or the disk of a node. Were it one officer's word, all that
//! takes a quorum could be had without one. So nobody is asked for less than what protects the root key ([`least`]),
//! and that is looked at again when it is carried out. A record that an approval was used outlives the request: who
//! puts the request back does not get a second file.
//!
//! **What this cannot tell** is who types a passphrase. Holders and custodians need not be users; that they were there
//! is for people to see.

use axum::Json;
use capstan_keys::Name;
use capstan_keys::api::Requested;
use capstan_service::problem::{Input, Refusal};

use super::super::access::NodeRoutes;
use super::super::backups::{
    AskCoreBackup, CoreBackupMade, Custodian, MakeCoreBackup, core_backups, core_path, make_core,
};
use super::super::request_id::id_of;
use super::proposal::Proposal;
use super::queue::{self, execute_own};
use super::{Of, Person, broken, rule_of};
use crate::authority::{Act, PendingId, QuorumRule};
use crate::desk::Decided;
use crate::root::{Opens, Quorum};
use crate::state::View;

/// Where an act takes the word of several others, nobody alone has the keys.
const NOBODY_ALONE: u8 = 2;

pub(super) fn routes() -> NodeRoutes {
    NodeRoutes::new()
        .post("/v1/core-backups", Act::BackUpCoreSecurity, ask)
        .get("/v1/core-backups/{id}", Act::BackUpCoreSecurity, approved)
        .post("/v1/core-backups/{id}", Act::BackUpCoreSecurity, make)
}

async fn ask(person: Person, Input(asked): Input<AskCoreBackup>) -> Result<Json<Requested>, Refusal> {
    person.permitted(Act::BackUpCoreSecurity).await?;
    suffices(&person, &asked)?;
    let AskCoreBackup { custodians, needed } = asked;
    queue::request(&person, Proposal::BackUpCore { custodians, needed }, None).await.map(Json)
}

/// What whoever asked may carry out now.
async fn approved(person: Person, Of(id): Of<String>) -> Result<Json<AskCoreBackup>, Refusal> {
    person.permitted(Act::BackUpCoreSecurity).await?;
    let id = id_of(&id)?;
    let (asked, _) = person.node.view_or_look_again(|view| executed(&person, view, id)).await?;
    suffices(&person, &asked)?;
    Ok(Json(asked))
}

async fn make(
    person: Person,
    Of(id): Of<String>,
    Input(MakeCoreBackup { custodians }): Input<MakeCoreBackup>,
) -> Result<Json<CoreBackupMade>, Refusal> {
    person.permitted(Act::BackUpCoreSecurity).await?;
    let id = id_of(&id)?;
    let (asked, _) = person.node.view_or_look_again(|view| executed(&person, view, id)).await?;
    suffices(&person, &asked)?;
    let custodians = as_approved(&asked.custodians, custodians)?;
    let noted = person.entry(Act::BackUpCoreSecurity).of("pending", id);
    let noted = noted.with("custodians", asked.custodians.as_slice()).with("needed", u64::from(asked.needed));
    let making = async {
        let (by, cost) = (person.user.name.clone(), person.service.custodian_cost);
        let made = make_core(&person.node, by, id, custodians, asked.needed, cost).await?;
        let record = serde_json::to_vec(&made.record).map_err(|error| broken(&error))?;
        // Of two that were made meanwhile one is committed, and only that one is given out.
        let commit = person.change(|view| {
            let (_, mut decided) = executed(&person, view, id)?;
            decided.puts.push((core_path(&made.record.sha256), record.clone()));
            Ok(decided)
        });
        commit.await.map(|()| made)
    };
    let made = person.does(noted, making).await?;
    person.service.anchor_soon();
    Ok(Json(made))
}

/// What was approved, if it is this person's and was not carried out yet; and the commit that says it was.
fn executed(person: &Person, view: View<'_>, id: PendingId) -> Result<(AskCoreBackup, Decided), Refusal> {
    if is_used(view, id) {
        return Err(Refusal::conflict(format!(
            "Request {id} was carried out already, and a core security backup was made: for another ask the quorum again."
        )));
    }
    let (mandate, decided) = execute_own(person, view, id, Act::BackUpCoreSecurity)?;
    match Proposal::read(mandate.act(), mandate.arguments()) {
        Some(Proposal::BackUpCore { custodians, needed }) => Ok((AskCoreBackup { custodians, needed }, decided)),
        _ => Err(Refusal::conflict("What was approved is of a newer program: carry it out at a newer node.")),
    }
}

/// Whether there is a core security backup of this request.
fn is_used(view: View<'_>, id: PendingId) -> bool {
    let name = id.to_string();
    core_backups(view).iter().any(|known| known.request.as_ref() == Some(&name))
}

/// Whether so many of these custodians are a quorum, and enough of one.
fn suffices(person: &Person, AskCoreBackup { custodians, needed }: &AskCoreBackup) -> Result<(), Refusal> {
    let names: Vec<&Name> = custodians.iter().collect();
    Quorum::check(*needed, &names).map_err(|error| Refusal::malformed(format!("{error}.")))?;
    let rule = person.node.view(rule_of)?;
    let (least, why) = least(&person.service.sealed_root().opens(), &rule);
    if *needed < least {
        return Err(Refusal::conflict(format!(
            "A core security backup opens every key, and {needed} of its custodians are too few: {why}. Let {least} of them be needed, or more."
        )));
    }
    Ok(())
}

/// How many custodians it takes at least, and why. Where holders have the root key, as many as open it: else a core
/// security backup would be the easier way to the same keys. A token says nothing of people, so there it is as many as
/// approve an act; more than 16 approvals no quorum takes, and a core security backup has up to 32 custodians, so that
/// this can always be met.
fn least(root: &Opens, rule: &QuorumRule) -> (u8, String) {
    let approvals = rule.needed();
    let alone = NOBODY_ALONE.min(approvals);
    match root {
        Opens::Quorum { threshold, .. } if *threshold >= alone => {
            (*threshold, format!("it takes {threshold} of its holders to open the root key"))
        }
        Opens::Quorum { .. } => {
            (alone, format!("acts take {approvals} approvals here, so that nobody has the keys alone"))
        }
        Opens::Token { label } => {
            (approvals, format!("the root key is in token {label}, and acts by quorum take {approvals} approvals"))
        }
    }
}

/// The custodians with their passphrases in the order that was approved; nobody else, and nobody left out.
fn as_approved(names: &[Name], mut custodians: Vec<Custodian>) -> Result<Vec<Custodian>, Refusal> {
    let place = |custodian: &Custodian| names.iter().position(|name| *name == custodian.name);
    custodians.sort_by_key(place);
    let are_they = custodians.iter().map(|custodian| &custodian.name).eq(names);
    are_they.then_some(custodians).ok_or_else(|| {
        let names = names.iter().map(Name::as_str).collect::<Vec<_>>().join(", ");
        Refusal::conflict(format!(
            "Approved is a core security backup for {names}: give the passphrase of each, and of nobody else."
        ))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use jiff::Timestamp;
    use zeroize::Zeroizing;

    use super::*;
    use crate::service::CoreBackupRecord;
    use crate::state::{LedgerState, Mark};

    #[test]
    fn a_core_security_backup_is_no_easier_way_to_the_keys() {
        let split = |threshold| Opens::Quorum { threshold, holders: Vec::new() };
        let token = Opens::Token { label: "hsm".to_owned() };
        for (root, approvals, expected) in [
            (split(3), 2, 3),
            (split(2), 5, 2),
            (split(1), 2, 2),
            (split(1), 16, 2),
            // A cluster of so few people that one word suffices.
            (split(1), 1, 1),
            (split(2), 1, 2),
            (token.clone(), 1, 1),
            (token.clone(), 2, 2),
            (token, 16, 16),
        ] {
            let rule = QuorumRule::new(approvals, 60).unwrap();
            assert_eq!(least(&root, &rule).0, expected, "{root:?}, {approvals} approvals");
        }
    }

    /// A request that was put back as it was before it was carried out would be carried out again.
    #[test]
    fn an_approval_is_used_once_whatever_its_record_says() {
        let record = |request: Option<PendingId>| CoreBackupRecord {
            made: Timestamp::UNIX_EPOCH,
            by: "sam".parse().unwrap(),
            epoch: 1,
            cluster_key: String::new(),
            custodians: Vec::new(),
            needed: 2,
            sha256: request.map_or("old".to_owned(), |id| id.to_string()),
            request: request.map(|id| id.to_string()),
        };
        let mut state = LedgerState::default();
        for (revision, record) in (1..).zip([record(None), record(Some(PendingId([7; 16])))]) {
            let path = core_path(&record.sha256).to_string();
            state.put(&path, Mark { revision, change: 1 }, &serde_json::to_vec(&record).unwrap()).unwrap();
        }
        assert!(is_used(View::of(&state), PendingId([7; 16])));
        assert!(!is_used(View::of(&state), PendingId([8; 16])));
    }

    #[test]
    fn passphrases_are_of_those_who_were_approved() {
        let name = |text: &str| text.parse::<Name>().unwrap();
        let given = |names: &[&str]| {
            let custodian =
                |text: &&str| Custodian { name: name(text), passphrase: Zeroizing::new((*text).to_owned()) };
            names.iter().map(custodian).collect::<Vec<_>>()
        };
        let names = ["dan", "eve", "flo"].map(name);
        let ordered = as_approved(&names, given(&["flo", "dan", "eve"])).unwrap();
        assert!(ordered.iter().zip(&names).all(|(one, name)| one.name == *name && *one.passphrase == name.as_str()));
        for others in [
            &["dan", "eve"][..],
            &["dan", "eve", "gus"],
            &["dan", "eve", "flo", "gus"],
            &["dan", "dan", "eve", "flo"],
            &[],
        ] {
            assert!(as_approved(&names, given(others)).is_err(), "{others:?}");
        }
    }
}
