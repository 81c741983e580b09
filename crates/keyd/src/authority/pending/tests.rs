//! Requests of a quorum: the usual way, every way around it, bytes, and random orders of steps.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeSet;

use aws_lc_rs::digest::{SHA256, digest};
use proptest::prelude::*;

use super::super::bytes::check_hostile;
use super::super::{Denied, Roles, UserStatus};
use super::*;

const ID: PendingId = PendingId([7; 16]);
const HOUR_NS: i64 = 3600 * 1_000_000_000;
const NOW_NS: i64 = 1_790_000_000_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn user(who: &str, roles: &[Role]) -> User {
    User::new(name(who), roles.iter().copied().collect())
}

fn users() -> Users {
    let members = ["m1", "m2", "m3"].map(|who| user(who, &[Role::QuorumMember]));
    let both = user("anna", &[Role::SecurityOfficer, Role::QuorumMember]);
    members.into_iter().chain([both, user("bo", &[Role::SecurityOfficer]), user("op", &[Role::Operator])]).collect()
}

fn arguments() -> Arguments {
    Arguments::default().with("name", "kma3").unwrap().with("address", "192.0.2.3:5700").unwrap()
}

fn rule() -> QuorumRule {
    QuorumRule::new(2, 3600).unwrap()
}

fn asked() -> Pending {
    Pending::request(ID, users().get(&name("anna")).unwrap(), Act::AddKma, arguments(), &rule(), NOW_NS).unwrap()
}

fn approved(pending: &Pending, who: &[&str]) -> Pending {
    who.iter().fold(pending.clone(), |pending, who| {
        pending.approve(users().get(&name(who)).unwrap(), pending.digest(), NOW_NS + 1).unwrap()
    })
}

fn execute(pending: &Pending, who: &str, now_ns: i64) -> Result<(Pending, Mandate), Refused> {
    pending.execute(&users(), users().get(&name(who)).unwrap(), Act::AddKma, &arguments(), now_ns)
}

#[test]
fn two_approvals_of_others_and_it_is_done_once() {
    let pending = asked();
    assert_eq!(pending.stage(&users(), NOW_NS), Stage::Waiting { approvals: 0, needed: 2 });
    let pending = approved(&pending, &["m1"]);
    assert_eq!(execute(&pending, "anna", NOW_NS + 2).unwrap_err(), Refused::TooFew { approvals: 1, needed: 2 });
    let pending = approved(&pending, &["m3"]);
    assert_eq!(pending.stage(&users(), NOW_NS + 2), Stage::Approved);

    let (executed, mandate) = execute(&pending, "bo", NOW_NS + 2).unwrap();
    assert_eq!((mandate.id(), mandate.act(), mandate.arguments()), (ID, Act::AddKma, &arguments()));
    let done = Refused::Executed { by: name("bo"), at_ns: NOW_NS + 2 };
    assert_eq!(execute(&executed, "anna", NOW_NS + 3).unwrap_err(), done);
    assert_eq!(executed.stage(&users(), i64::MAX), Stage::Executed { by: name("bo"), at_ns: NOW_NS + 2 });
}

#[test]
fn nobody_approves_what_they_asked_for_and_nobody_twice() {
    let pending = asked();
    let all = users();
    let anna = all.get(&name("anna")).unwrap();
    assert_eq!(pending.approve(anna, pending.digest(), NOW_NS), Err(Refused::OwnRequest { who: name("anna") }));
    let pending = approved(&pending, &["m1"]);
    let twice = pending.approve(all.get(&name("m1")).unwrap(), pending.digest(), NOW_NS);
    assert_eq!(twice, Err(Refused::DecidedAlready { who: name("m1") }));
    let not_a_member = pending.approve(all.get(&name("bo")).unwrap(), pending.digest(), NOW_NS);
    assert!(matches!(not_a_member, Err(Refused::Denied(Denied::Role { .. }))), "{not_a_member:?}");
}

#[test]
fn an_approval_is_of_exactly_what_was_asked() {
    let pending = asked();
    let all = users();
    let m1 = all.get(&name("m1")).unwrap();
    // The same act with another address, asked for by the same person in the same moment.
    let elsewhere = arguments().with("address", "198.51.100.1:5700").unwrap();
    let anna = all.get(&name("anna")).unwrap();
    let other = Pending::request(ID, anna, Act::AddKma, elsewhere.clone(), &rule(), NOW_NS).unwrap();
    assert_eq!(pending.approve(m1, other.digest(), NOW_NS), Err(Refused::OtherRequest));
    let pending = approved(&pending, &["m1", "m2"]);
    let done = pending.execute(&all, anna, Act::AddKma, &elsewhere, NOW_NS);
    assert_eq!(done.unwrap_err(), Refused::OtherAct { id: ID });
    let done = pending.execute(&all, anna, Act::RemoveKma, &arguments(), NOW_NS);
    assert_eq!(done.unwrap_err(), Refused::OtherAct { id: ID });
    // Somebody who can write records moves the approvals over: they do not count there.
    let moved = Pending { decisions: pending.decisions.clone(), ..other };
    let done = moved.execute(&all, anna, Act::AddKma, &elsewhere, NOW_NS);
    assert_eq!(done.unwrap_err(), Refused::TooFew { approvals: 0, needed: 2 });
}

#[test]
fn who_is_thrown_out_takes_their_word_along() {
    let pending = approved(&asked(), &["m1", "m2"]);
    for gone in ["m1", "anna"] {
        let mut fewer = users();
        fewer.put(User { standing: UserStatus::Disabled, ..fewer.get(&name(gone)).unwrap().clone() });
        let bo = fewer.get(&name("bo")).unwrap().clone();
        assert!(pending.execute(&fewer, &bo, Act::AddKma, &arguments(), NOW_NS).is_err(), "{gone}");
        fewer.put(User { roles: Roles::default(), ..users().get(&name(gone)).unwrap().clone() });
        assert!(pending.execute(&fewer, &bo, Act::AddKma, &arguments(), NOW_NS).is_err(), "{gone} without roles");
    }
}

#[test]
fn a_request_ends_by_its_time_by_a_no_and_by_its_requester() {
    let all = users();
    let pending = approved(&asked(), &["m1", "m2"]);
    let expired_ns = NOW_NS + HOUR_NS;
    assert!(execute(&pending, "anna", expired_ns - 1).is_ok());
    assert_eq!(execute(&pending, "anna", expired_ns).unwrap_err(), Refused::Expired { expired_ns });
    assert_eq!(pending.stage(&all, expired_ns), Stage::Expired);

    let rejected = pending.reject(all.get(&name("m3")).unwrap(), pending.digest(), NOW_NS).unwrap();
    assert_eq!(execute(&rejected, "anna", NOW_NS).unwrap_err(), Refused::Ended { by: name("m3") });
    assert_eq!(rejected.stage(&all, NOW_NS), Stage::Rejected { by: name("m3") });

    let not_own = pending.withdraw(all.get(&name("bo")).unwrap(), NOW_NS);
    assert_eq!(not_own, Err(Refused::NotOwn { requested_by: name("anna") }));
    let withdrawn = pending.withdraw(all.get(&name("anna")).unwrap(), NOW_NS).unwrap();
    assert_eq!(execute(&withdrawn, "anna", NOW_NS).unwrap_err(), Refused::Ended { by: name("anna") });
}

/// The state before its execution, put back after its record was removed, is not executed again.
#[test]
fn what_is_removed_cannot_be_executed_again() {
    let pending = approved(&asked(), &["m1", "m2"]);
    let (executed, _) = execute(&pending, "bo", NOW_NS + 2).unwrap();
    assert!(!executed.is_removable(NOW_NS + HOUR_NS));
    let removed_ns = NOW_NS + HOUR_NS + CLOCK_TOLERANCE_NS;
    assert!(executed.is_removable(removed_ns));
    assert!(matches!(execute(&pending, "anna", removed_ns - CLOCK_TOLERANCE_NS), Err(Refused::Expired { .. })));
}

/// A clock that is set back by years would bring what has expired to life again.
#[test]
fn a_clock_that_is_behind_is_not_believed() {
    let pending = approved(&asked(), &["m1", "m2"]);
    let error = execute(&pending, "anna", NOW_NS - HOUR_NS).unwrap_err();
    assert_eq!(error, Refused::ClockBehind { now_ns: NOW_NS - HOUR_NS, known_ns: NOW_NS + 1 });
    assert!(execute(&pending, "anna", NOW_NS - 1_000_000_000).is_ok(), "a second is what clocks are apart");
}

#[test]
fn only_what_takes_a_quorum_is_asked_of_it() {
    let all = users();
    let request =
        |who: &str, act| Pending::request(ID, all.get(&name(who)).unwrap(), act, Arguments::default(), &rule(), NOW_NS);
    let at_once = request("anna", Act::DisableUser);
    assert_eq!(at_once.unwrap_err(), Refused::NoQuorumNeeded { act: Act::DisableUser });
    assert!(matches!(request("op", Act::AddKma), Err(Refused::Denied(_))));
}

#[test]
fn an_approver_reads_all_of_it() {
    let shown = asked().to_string();
    let digest = asked().digest();
    assert_eq!(
        shown,
        format!(
            "anna asks to add a node, with\n  address = 192.0.2.3:5700\n  name = kma3\n\
             asked on 2026-09-21T14:13:20.000000000Z, expires on 2026-09-21T15:13:20.000000000Z\n\
             takes 2 approvals of others\nrequest 07070707070707070707070707070707, digest {digest}"
        )
    );
}

#[test]
fn bytes_are_as_documented() {
    let time = |time_ns: i64| time_ns.to_le_bytes();
    let request = [
        &[7; 16][..],
        b"\x0b\0\x04anna",
        &time(NOW_NS),
        &time(NOW_NS + HOUR_NS),
        b"\x02\x02\x07address\x0e\x00192.0.2.3:5700\x04name\x04\0kma3",
    ]
    .concat();
    assert_eq!(asked().encode(), [b"\x01", &request[..], b"\0\0"].concat());

    let digest = digest(&SHA256, &[b"capstan quorum request v1\0", &request[..]].concat());
    assert_eq!(asked().digest().0, digest.as_ref());
    let full = execute(&approved(&asked(), &["m1", "m2"]), "bo", NOW_NS + 2).unwrap().0;
    let decision = |who: &[u8]| [b"\x02", who, b"\x01", &time(NOW_NS + 1), digest.as_ref()].concat();
    let parts = [b"\x01", &request[..], b"\x02", &decision(b"m1"), &decision(b"m2"), b"\x02\x02bo", &time(NOW_NS + 2)];
    assert_eq!(full.encode(), parts.concat());

    let all = users();
    let rejected = asked().reject(all.get(&name("m1")).unwrap(), asked().digest(), 5 + NOW_NS).unwrap();
    let withdrawn = asked().withdraw(all.get(&name("anna")).unwrap(), NOW_NS).unwrap();
    for record in [asked(), full, rejected, withdrawn] {
        check_hostile(&record, &record.encode(), Pending::decode);
    }
}

#[derive(Debug, Clone)]
enum Step {
    Approve { who: usize, other_digest: bool },
    Reject { who: usize },
    Withdraw { who: usize },
    Execute { who: usize, other_act: bool },
    Wait { seconds: i64 },
    Throw { who: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let who = 0..6usize;
    let step = prop_oneof![
        6 => (who.clone(), proptest::bool::weighted(0.1))
            .prop_map(|(who, other_digest)| Step::Approve { who, other_digest }),
        1 => who.clone().prop_map(|who| Step::Reject { who }),
        1 => who.clone().prop_map(|who| Step::Withdraw { who }),
        6 => (who.clone(), proptest::bool::weighted(0.1)).prop_map(|(who, other_act)| Step::Execute { who, other_act }),
        2 => (-2000..2000i64).prop_map(|seconds| Step::Wait { seconds }),
        1 => who.prop_map(|who| Step::Throw { who }),
    ];
    proptest::collection::vec(step, 0..40)
}

proptest! {
    /// Whatever people do in whatever order: nothing is done with fewer than m different members who are not its
    /// requester, after its time, after a no, or twice. What is right is kept here on its own, by names.
    #[test]
    fn no_order_of_steps_gets_past_the_quorum(steps in steps(), needed in 1..4u8) {
        let mut all = users();
        let rule = QuorumRule::new(needed, 3600).unwrap();
        let who = |all: &Users, at: usize| all.iter().nth(at).unwrap().clone();
        let anna = all.get(&name("anna")).unwrap().clone();
        let mut pending = Pending::request(ID, &anna, Act::AddKma, arguments(), &rule, NOW_NS).unwrap();
        let (mut now_ns, mut yes, mut ended, mut executed) = (NOW_NS, BTreeSet::new(), false, 0);
        for step in steps {
            // What is kept in the ledger between two steps is bytes.
            pending = Pending::decode(&pending.encode()).unwrap();
            match step {
                Step::Approve { who: at, other_digest } => {
                    let by = who(&all, at);
                    let digest = if other_digest { RequestDigest([0; 32]) } else { pending.digest() };
                    if let Ok(next) = pending.approve(&by, digest, now_ns) {
                        prop_assert!(!other_digest && by.is(Role::QuorumMember) && by.name != anna.name);
                        prop_assert!(!ended && executed == 0 && now_ns < NOW_NS + HOUR_NS);
                        prop_assert!(yes.insert(by.name.clone()), "{} twice", by.name);
                        pending = next;
                    }
                }
                Step::Reject { who: at } => {
                    if let Ok(next) = pending.reject(&who(&all, at), pending.digest(), now_ns) {
                        (pending, ended) = (next, true);
                    }
                }
                Step::Withdraw { who: at } => {
                    if let Ok(next) = pending.withdraw(&who(&all, at), now_ns) {
                        prop_assert_eq!(who(&all, at).name, name("anna"));
                        (pending, ended) = (next, true);
                    }
                }
                Step::Execute { who: at, other_act } => {
                    let act = if other_act { Act::RemoveKma } else { Act::AddKma };
                    let members = |who: &&Name| all.get(who).unwrap().is(Role::QuorumMember);
                    let enough = yes.iter().filter(members).count() >= usize::from(needed);
                    match pending.execute(&all, &who(&all, at), act, &arguments(), now_ns) {
                        Ok((next, mandate)) => {
                            prop_assert!(enough && !ended && executed == 0 && !other_act);
                            prop_assert!(now_ns < NOW_NS + HOUR_NS);
                            prop_assert_eq!(mandate.act(), Act::AddKma);
                            (pending, executed) = (next, executed + 1);
                        }
                        Err(Refused::TooFew { .. }) => prop_assert!(!enough),
                        Err(_) => {}
                    }
                }
                Step::Wait { seconds } => now_ns += seconds * 1_000_000_000,
                Step::Throw { who: at } => {
                    let thrown = User { standing: UserStatus::Disabled, ..who(&all, at) };
                    all.put(thrown);
                }
            }
        }
    }

    /// No bytes make the decoders panic.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let _ = (Pending::decode(&bytes), User::decode(&bytes), QuorumRule::decode(&bytes));
    }
}
