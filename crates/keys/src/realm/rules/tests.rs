//! The rules, one by one.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;
use crate::holdings::Holdings;
use crate::realm::{Period, RealmRecord};
use crate::{KeyError, KeyPlace, Revocation, StoredKey};

const DAY: u32 = 86_400;
const DAY_NS: i64 = 86_400_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

/// Groups `offsite` (encrypts for 7 days, decrypts for 30, GCM, stays here) and `plain` (policy `default`), and a
/// volume that was begun with key 1 of `offsite` at time 0.
fn realm() -> Realm {
    let mut realm = Realm::default();
    realm.put(RealmRecord::Policy(Policy {
        algorithm: Some(Algorithm::Aes256Gcm),
        encryption_period: Period::Seconds(7 * DAY),
        cryptoperiod: Period::Seconds(30 * DAY),
        export: Permission::Forbidden,
        import: Permission::Forbidden,
        ..Policy::unlimited(name("monthly"))
    }));
    realm.put(RealmRecord::Group(KeyGroup { name: name("offsite"), policy: name("monthly") }));
    realm.put(RealmRecord::Group(KeyGroup { name: name("plain"), policy: Name::default() }));
    let issued = IssuedKey {
        tag: KeyTag([1; 16]),
        group: name("offsite"),
        issued_for: KeyUse::Begin,
        issued_ns: 0,
        dropped_ns: None,
    };
    realm.put(RealmRecord::Issue { volser: volser(), key: issued });
    realm
}

fn record(tag: u8, state: KeyState) -> KeyRecord {
    KeyRecord {
        tag: KeyTag([tag; 16]),
        volser: volser(),
        algorithm: Algorithm::Aes256Gcm,
        state,
        created_ns: 0,
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: None,
        imported_ns: None,
    }
}

fn anybody() -> Agent {
    Agent::anything(name("CPT1"))
}

#[test]
fn a_volume_is_begun_with_a_new_key_of_its_pools_group() {
    let realm = realm();
    assert_eq!(realm.group_of_pool("offsite"), name("offsite"));
    assert_eq!(realm.group_of_pool("another"), Name::default());
    assert_eq!(realm.group_of_pool("not a name"), Name::default());
    let new = realm.key_to_begin(&anybody(), &name("offsite"), Algorithm::Aes256Gcm).unwrap();
    assert_eq!(new, NewKey { group: name("offsite"), algorithm: Algorithm::Aes256Gcm });
    let refused = realm.key_to_begin(&anybody(), &name("offsite"), Algorithm::Aes256Ccm).unwrap_err();
    assert!(matches!(refused, RuleRefusal::OtherCipher { .. }), "{refused}");
    assert!(realm.key_to_begin(&anybody(), &Name::default(), Algorithm::Aes256Ccm).is_ok());
    let refused = realm.key_to_begin(&anybody(), &name("nowhere"), Algorithm::Aes256Gcm).unwrap_err();
    assert_eq!(refused, RuleRefusal::UnknownGroup { group: name("nowhere") });
}

#[test]
fn an_append_keeps_the_key_within_its_encryption_period_and_gets_a_new_one_after_it() {
    let (realm, record) = (realm(), record(1, KeyState::ProtectAndProcess));
    assert_eq!(realm.key_to_append(&anybody(), &record, 7 * DAY_NS - 1).unwrap(), AppendKey::Same);
    let new = AppendKey::New(NewKey { group: name("offsite"), algorithm: Algorithm::Aes256Gcm });
    for now_ns in [7 * DAY_NS, 30 * DAY_NS, i64::MAX] {
        assert_eq!(realm.key_to_append(&anybody(), &record, now_ns).unwrap(), new);
    }
}

#[test]
fn a_key_that_is_out_of_use_is_followed_by_a_new_one() {
    let realm = realm();
    for state in KeyState::ALL {
        let append = realm.key_to_append(&anybody(), &record(1, state), 0).unwrap();
        let in_use = matches!(state, KeyState::Ready | KeyState::ProtectAndProcess);
        assert_eq!(append == AppendKey::Same, in_use, "{state}");
    }
}

#[test]
fn keys_are_read_with_until_their_cryptoperiod_is_over_or_somebody_extends_it() {
    let (mut realm, key) = (realm(), record(1, KeyState::ProcessOnly));
    assert_eq!(realm.check_reading(&anybody(), &key, 30 * DAY_NS - 1), Ok(()));
    let refused = realm.check_reading(&anybody(), &key, 30 * DAY_NS).unwrap_err();
    let RuleRefusal::CryptoperiodOver { ended_ns, ref policy, .. } = refused else { panic!("{refused}") };
    assert_eq!((ended_ns, policy), (30 * DAY_NS, &name("monthly")));
    let said = KeyError::from(refused).to_string();
    assert!(said.contains("keys extend-decryption A00001"), "{said}");
    let mut unit = realm.unit(&volser()).unwrap().clone();
    unit.read_until_ns = Some(40 * DAY_NS);
    realm.put(RealmRecord::Unit(unit));
    assert_eq!(realm.check_reading(&anybody(), &key, 40 * DAY_NS - 1), Ok(()));
    assert!(realm.check_reading(&anybody(), &key, 40 * DAY_NS).is_err());
    // Data under a key that others may know has to be moved, which begins with reading it.
    assert_eq!(realm.check_reading(&anybody(), &record(1, KeyState::Compromised), i64::MAX), Ok(()));
}

#[test]
fn a_key_from_before_there_were_policies_has_no_limits() {
    let (realm, key) = (realm(), record(9, KeyState::ProtectAndProcess));
    assert_eq!(realm.issued(&key).group, Name::default());
    assert_eq!(realm.key_to_append(&anybody(), &key, i64::MAX).unwrap(), AppendKey::Same);
    assert_eq!(realm.check_reading(&anybody(), &key, i64::MAX), Ok(()));
}

#[test]
fn a_drive_gets_keys_of_its_groups_only() {
    let realm = realm();
    let agent = Agent { groups: [name("plain")].into(), default_group: name("plain"), ..anybody() };
    let refused = RuleRefusal::GroupNotAllowed { agent: agent.name.clone(), group: name("offsite") };
    let key = record(1, KeyState::ProtectAndProcess);
    assert_eq!(realm.key_to_begin(&agent, &name("offsite"), Algorithm::Aes256Gcm), Err(refused.clone()));
    assert_eq!(realm.key_to_append(&agent, &key, 0), Err(refused.clone()));
    assert_eq!(realm.check_reading(&agent, &key, 0), Err(refused.clone()));
    assert!(realm.key_to_begin(&agent, &name("plain"), Algorithm::Aes256Gcm).is_ok());
    assert_eq!(realm.check_agent(&agent), Ok(()));
    assert_eq!(realm.check_agent(&Agent { default_group: name("offsite"), ..agent }), Err(refused));
}

#[test]
fn what_was_used_stays_as_it_is() {
    let mut realm = realm();
    let monthly = realm.policy_of(&name("offsite")).unwrap().clone();
    assert_eq!(realm.check_policy(&monthly, KnownPolicy::Stays), Ok(()), "said again");
    let longer = Policy { encryption_period: Period::Seconds(8 * DAY), ..monthly };
    assert!(matches!(realm.check_policy(&longer, KnownPolicy::Replaced), Err(RuleRefusal::Exists { .. })));
    let spare = Policy::unlimited(name("spare"));
    realm.put(RealmRecord::Policy(spare.clone()));
    let changed = Policy { export: Permission::Forbidden, ..spare };
    assert_eq!(realm.check_policy(&changed, KnownPolicy::Replaced), Ok(()), "no key was issued under it");
    let default = Policy { export: Permission::Forbidden, ..Policy::unlimited(Name::default()) };
    assert!(matches!(realm.check_policy(&default, KnownPolicy::Replaced), Err(RuleRefusal::Exists { .. })));
    let moved = KeyGroup { name: name("offsite"), policy: name("spare") };
    assert!(matches!(realm.check_group(&moved), Err(RuleRefusal::Exists { .. })));
    let nowhere = KeyGroup { name: name("new"), policy: name("nowhere") };
    assert_eq!(realm.check_group(&nowhere), Err(RuleRefusal::UnknownPolicy { policy: name("nowhere") }));
}

#[test]
fn keys_leave_and_join_as_their_policy_allows() {
    let realm = realm();
    let key = record(1, KeyState::ProcessOnly);
    assert!(matches!(realm.check_export(&key), Err(RuleRefusal::ExportForbidden { .. })));
    assert_eq!(realm.check_export(&record(9, KeyState::ProcessOnly)), Ok(()));
    assert!(matches!(realm.check_import(&name("offsite")), Err(RuleRefusal::ImportForbidden { .. })));
    assert_eq!(realm.check_import(&Name::default()), Ok(()));
}

/// What becomes of a key in each state when an agent takes it out of use: allowed by the policy, forbidden by it, and
/// for an agent that may not use the key at all.
#[test]
fn an_agent_takes_a_key_out_of_use_only_where_its_policy_says_so() {
    use KeyState::{Compromised, Deactivated, Destroyed, Generated, ProcessOnly, ProtectAndProcess, Ready};
    // Before, compromised, retired; none where there is nothing to take out of use.
    let table = [
        (Generated, Some(Compromised), Generated),
        (Ready, Some(Compromised), ProcessOnly),
        (ProtectAndProcess, Some(Compromised), ProcessOnly),
        (ProcessOnly, Some(Compromised), ProcessOnly),
        (Deactivated, Some(Compromised), Deactivated),
        (Compromised, Some(Compromised), Compromised),
        (Destroyed, None, Destroyed),
    ];
    assert_eq!(table.map(|(before, ..)| before), KeyState::ALL);
    let other = Agent { groups: [name("plain")].into(), default_group: name("plain"), ..anybody() };
    for agents_revoke in [Permission::Allowed, Permission::Forbidden] {
        let mut realm = realm();
        let monthly = realm.policy_of(&name("offsite")).unwrap().clone();
        realm.put(RealmRecord::Policy(Policy { agents_revoke, ..monthly }));
        for (before, compromised, retired) in table {
            for (why, after) in [(Revocation::Compromised, compromised), (Revocation::Retired, Some(retired))] {
                let gone = before == Destroyed;
                let record = KeyRecord { destroyed_ns: gone.then_some(5), ..record(1, before) };
                let key = StoredKey { record, wrapped: (!gone).then_some([0; 40]) };
                let revoke = |agent: &Agent| {
                    let mut holdings = Holdings::new(KeyPlace::Cluster, realm.clone(), vec![key.clone()]);
                    let revoked = holdings.revoke(&KeyTag([1; 16]), why, agent, 9);
                    let changed = holdings.finish().keys.into_iter().map(|key| key.record.state).collect::<Vec<_>>();
                    (revoked, changed)
                };
                let case = format!("{before} {why:?} {agents_revoke:?}");
                let (refused, changed) = revoke(&other);
                assert!(matches!(refused, Err(KeyError::Refused(RuleRefusal::GroupNotAllowed { .. }))), "{case}");
                assert_eq!(changed, [], "{case}");
                match (agents_revoke, revoke(&anybody())) {
                    (Permission::Allowed, (Ok(record), changed)) => {
                        assert_eq!(Some(record.state), after, "{case}");
                        assert_eq!(changed, Vec::from_iter(after.filter(|after| *after != before)), "{case}");
                    }
                    (Permission::Allowed, (Err(KeyError::KeyDestroyed { .. }), changed)) => {
                        assert_eq!((after, changed), (None, vec![]), "{case}");
                    }
                    (Permission::Forbidden, (Err(error), changed)) => {
                        let said = error.to_string();
                        assert!(
                            said.contains("policy monthly") && said.contains("compliance officer"),
                            "{case}: {said}"
                        );
                        assert_eq!(changed, [], "{case}");
                    }
                    (_, (other, _)) => panic!("{case}: {other:?}"),
                }
            }
        }
    }
}
