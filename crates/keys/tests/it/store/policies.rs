//! Policies, groups, agents and data units, kept by a store.

use std::sync::Mutex;

use capstan_format::MediumSerial;
use capstan_keys::{
    Agent, Cartridge, ExportSelection, ImportOutcome, KeyError, KeyGroup, KeyProvider, KeyState, KeyUse, Name, Period,
    Permission, Policy, RuleRefusal, SeenAs,
};

use super::*;

const DAY: u32 = 86_400;
const DAY_NS: i64 = 86_400_000_000_000;

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

/// A store with a group `offsite` whose keys encrypt for 7 days, decrypt for 30, and stay.
fn store() -> (TempDir, PathBuf, SealedStore) {
    let (directory, path, mut store) = new_store();
    let monthly = Policy {
        encryption_period: Period::Seconds(7 * DAY),
        cryptoperiod: Period::Seconds(30 * DAY),
        export: Permission::Forbidden,
        import: Permission::Forbidden,
        ..Policy::unlimited(name("monthly"))
    };
    store.put_policy(monthly).unwrap();
    store.put_group(KeyGroup { name: name("offsite"), policy: name("monthly") }).unwrap();
    (directory, path, store)
}

/// Begins a volume with a key of `offsite`.
fn begin(store: &mut SealedStore, volume: &str, now_ns: i64) -> KeyTag {
    let key = store.key_for_new_volume(&volser(volume), &drive(), &name("offsite"), GCM, now_ns).unwrap();
    store.activate(&volser(volume), &key.tag(), now_ns).unwrap();
    key.tag()
}

#[test]
fn a_volume_goes_on_with_a_new_key_when_the_encryption_period_is_over() {
    let (_directory, path, mut store) = store();
    let first = begin(&mut store, "A00001", NOW_NS);
    let append = |store: &mut SealedStore, tag, now_ns| {
        store.key_for_append(&volser("A00001"), tag, &drive(), now_ns).unwrap().tag()
    };
    assert_eq!(append(&mut store, &first, NOW_NS + 7 * DAY_NS - 1), first, "too early");
    let later = NOW_NS + 7 * DAY_NS;
    let next = append(&mut store, &first, later);
    assert_ne!(next, first, "its period is over");
    let states: Vec<_> = store.list().unwrap().iter().map(|key| (key.tag, key.state)).collect();
    assert_eq!(
        states,
        [(first, KeyState::ProcessOnly), (next, KeyState::ProtectAndProcess)],
        "on record before a block"
    );

    // Both read; both are known of the volume, in order; nothing was dropped, for the volume holds blocks under both.
    let store = reopen(&path);
    let realm = store.realm().unwrap();
    let unit = realm.unit(&volser("A00001")).unwrap();
    let keys: Vec<_> = unit.keys.iter().map(|key| (key.tag, key.issued_for, key.issued_ns, key.dropped_ns)).collect();
    assert_eq!(keys, [(first, KeyUse::Begin, NOW_NS, None), (next, KeyUse::Append { first }, later, None)]);
    assert_eq!((unit.first_seen_ns, unit.last_seen_ns), (NOW_NS, later));
    for tag in [first, next] {
        assert_eq!(store.key_for_reading(&volser("A00001"), &tag, &drive(), later).unwrap().tag(), tag);
    }
}

#[test]
fn a_volume_that_is_begun_anew_drops_its_keys_and_keeps_their_history() {
    let (_directory, _path, mut store) = store();
    let first = begin(&mut store, "A00001", NOW_NS);
    let second = begin(&mut store, "A00001", NOW_NS + 5);
    let realm = store.realm().unwrap();
    let dropped: Vec<_> =
        realm.unit(&volser("A00001")).unwrap().keys.iter().map(|key| (key.tag, key.dropped_ns)).collect();
    assert_eq!(dropped, [(first, Some(NOW_NS + 5)), (second, None)]);
}

/// A label that was stuck on a second cartridge made two volumes one: nobody was told.
#[test]
fn another_cartridge_under_a_label_is_noted_and_refused_nothing() {
    let (_directory, path, store) = store();
    let store = Mutex::new(store);
    let volser = volser("A00001");
    let [one, two] = ["HPE 1", "HPE 2"].map(|text| MediumSerial::new(text).unwrap());
    let on = |serial| Cartridge { volser: &volser, serial };
    let first = store.key_for_new_volume(&volser, None, None, GCM, NOW_NS).unwrap().tag();
    store.activate(on(None), &first, NOW_NS).unwrap();
    let seen = || -> Vec<_> {
        let realm = reopen(&path).realm().unwrap();
        let seen =
            realm.unit(&volser).unwrap().cartridges.iter().map(|seen| (seen.serial, seen.since_ns, seen.seen_as));
        seen.collect()
    };
    assert_eq!(seen(), [], "older programs read the record still");
    store.key_for_reading(on(Some(&two)), &first, None, NOW_NS + 1).unwrap();
    assert_eq!(seen(), [], "what is read alone changes nothing");
    store.key_for_append(on(Some(&one)), &first, None, NOW_NS + 2).unwrap();
    let own = (Some(one), NOW_NS + 2, SeenAs::Own);
    assert_eq!(seen(), [own]);
    for later in 3..5 {
        store.key_for_reading(on(Some(&two)), &first, None, NOW_NS + later).unwrap();
        store.key_for_append(on(Some(&two)), &first, None, NOW_NS + later).unwrap();
    }
    let other = (Some(two), NOW_NS + 3, SeenAs::Another);
    assert_eq!(seen(), [own, other]);
    // The label that is not written leaves the volume where it was.
    let second = store.key_for_new_volume(&volser, None, None, GCM, NOW_NS + 5).unwrap().tag();
    assert_eq!(seen(), [own, other]);
    store.activate(on(Some(&two)), &second, NOW_NS + 6).unwrap();
    assert_eq!(seen(), [own, other, (Some(two), NOW_NS + 6, SeenAs::Own)]);
}

#[test]
fn past_its_cryptoperiod_a_key_is_given_out_only_when_somebody_says_so() {
    let (_directory, path, mut store) = store();
    let tag = begin(&mut store, "A00001", NOW_NS);
    let over = NOW_NS + 30 * DAY_NS;
    let read = |store: &SealedStore, now_ns| store.key_for_reading(&volser("A00001"), &tag, &drive(), now_ns);
    read(&store, over - 1).unwrap();
    let error = refused(read(&store, over));
    assert!(
        matches!(&error, KeyError::Refused(RuleRefusal::CryptoperiodOver { ended_ns, .. }) if *ended_ns == over),
        "{error}"
    );
    for word in ["A00001", "monthly", "30 d", "2026-10-21", "keys extend"] {
        assert!(error.to_string().contains(word), "{error}: {word}");
    }
    store.extend_reading(&volser("A00001"), over + DAY_NS).unwrap();
    let store = reopen(&path);
    assert_eq!(read(&store, over).unwrap().tag(), tag);
    refused(read(&store, over + DAY_NS));
    // Nothing of it was written into the key's record: the clock may have been wrong.
    assert_eq!(store.list().unwrap()[0].state, KeyState::ProtectAndProcess);
}

#[test]
fn an_extension_is_for_volumes_that_have_keys() {
    let (_directory, _path, mut store) = store();
    let error = refused(store.extend_reading(&volser("A00009"), NOW_NS));
    assert!(matches!(error, KeyError::Refused(RuleRefusal::UnknownUnit { .. })), "{error}");
}

#[test]
fn a_policy_that_was_used_cannot_be_changed() {
    let (_directory, path, mut store) = store();
    let longer = |days: u32| Policy {
        encryption_period: Period::Seconds(days * DAY),
        cryptoperiod: Period::Seconds(30 * DAY),
        export: Permission::Forbidden,
        import: Permission::Forbidden,
        ..Policy::unlimited(name("monthly"))
    };
    store.replace_policy(longer(9)).unwrap();
    begin(&mut store, "A00001", NOW_NS);
    store.put_policy(longer(9)).unwrap();
    let error = refused(store.replace_policy(longer(10)));
    assert!(error.to_string().contains("keys were issued under it"), "{error}");
    let store = reopen(&path);
    let realm = store.realm().unwrap();
    assert_eq!(realm.policy_of(&name("offsite")).unwrap().encryption_period, Period::Seconds(9 * DAY));
    assert_eq!(realm.policies().count(), 2);
}

/// A second `policies add` of the name, meant for another policy, took the place of the first without a word: what it
/// did not say was gone.
#[test]
fn a_policy_that_is_there_stays_unless_it_is_said_to_be_replaced() {
    let (_directory, path, mut store) = store();
    let strict = Policy { export: Permission::Forbidden, ..Policy::unlimited(name("strict")) };
    store.put_policy(strict.clone()).unwrap();
    store.put_policy(strict.clone()).unwrap();
    let brief = Policy { encryption_period: Period::Seconds(DAY), ..Policy::unlimited(name("strict")) };
    let error = refused(store.put_policy(brief.clone()));
    assert!(error.to_string().contains("exists already") && error.to_string().contains("--replace"), "{error}");
    let kept = |path| reopen(path).realm().unwrap().policies().find(|policy| policy.name == name("strict")).cloned();
    assert_eq!(kept(&path), Some(strict));
    store.replace_policy(brief.clone()).unwrap();
    assert_eq!(kept(&path), Some(brief));
}

#[test]
fn keys_that_must_stay_are_left_out_of_an_export_of_all_and_refused_by_name() {
    let (_directory, _path, mut store) = store();
    let stays = begin(&mut store, "A00001", NOW_NS);
    let (leaves, _) = fill(&mut store, "A00002");
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    let error = refused(store.export(&ExportSelection::Keys(vec![leaves, stays]), &text("export"), CHEAP));
    assert!(matches!(error, KeyError::Refused(RuleRefusal::ExportForbidden { .. })), "{error}");
    let (_other, _path, mut other) = self::store();
    let error = refused(other.import(&export, &text("export"), &name("offsite"), NOW_NS));
    assert!(matches!(error, KeyError::Refused(RuleRefusal::ImportForbidden { .. })), "{error}");
    let imported = other.import(&export, &text("export"), &Name::default(), NOW_NS).unwrap();
    assert_eq!(imported.iter().map(|key| key.tag).collect::<Vec<_>>(), [leaves]);
}

/// An import said of a key that its policy ended long ago that it was written with: the state that was exported.
#[test]
fn an_import_says_in_which_state_a_key_is_under_its_new_policy() {
    let (_directory, _path, mut store) = store();
    fill(&mut store, "A00001");
    let export = store.export(&ExportSelection::All, &text("export"), CHEAP).unwrap();
    let brief = Policy {
        encryption_period: Period::Seconds(DAY),
        cryptoperiod: Period::Seconds(2 * DAY),
        ..Policy::unlimited(name("brief"))
    };
    let periods =
        [(0, KeyState::ProtectAndProcess), (DAY_NS, KeyState::ProcessOnly), (2 * DAY_NS, KeyState::Deactivated)];
    for (later, state) in periods {
        let (_other, _path, mut other) = self::store();
        other.put_policy(brief.clone()).unwrap();
        other.put_group(KeyGroup { name: name("brief"), policy: name("brief") }).unwrap();
        let imported = other.import(&export, &text("export"), &name("brief"), NOW_NS + later).unwrap();
        assert_eq!(imported[0].outcome, ImportOutcome::Added(state));
    }
}

#[test]
fn a_drive_may_be_held_to_its_groups() {
    let (_directory, path, mut store) = store();
    let held = Agent { groups: [name("offsite")].into(), default_group: name("offsite"), ..drive() };
    store.put_agent(held.clone()).unwrap();
    let mut store = reopen(&path);
    assert_eq!(store.realm().unwrap().agent(&held.name), held);
    let error = refused(store.key_for_new_volume(&volser("A00001"), &held, &Name::default(), GCM, NOW_NS));
    assert!(matches!(error, KeyError::Refused(RuleRefusal::GroupNotAllowed { .. })), "{error}");
    assert!(store.list().unwrap().is_empty(), "no key was drawn for it");
    store.key_for_new_volume(&volser("A00001"), &held, &held.default_group, GCM, NOW_NS).unwrap();
}

#[test]
fn a_key_that_others_may_know_reads_and_is_followed_by_another() {
    let (_directory, path, mut store) = store();
    let tag = begin(&mut store, "A00001", NOW_NS);
    assert_eq!(store.compromise(&tag, NOW_NS + 5).unwrap().state, KeyState::Compromised);
    let mut store = reopen(&path);
    assert_eq!(store.list().unwrap()[0].retired_ns, Some(NOW_NS + 5));
    // Past its cryptoperiod too: what it encrypted is to be moved.
    store.key_for_reading(&volser("A00001"), &tag, &drive(), NOW_NS + 90 * DAY_NS).unwrap();
    let next = store.key_for_append(&volser("A00001"), &tag, &drive(), NOW_NS + 6).unwrap();
    assert_ne!(next.tag(), tag, "it encrypts no more");
    store.destroy(&tag, NOW_NS + 7).unwrap();
    assert!(matches!(refused(store.compromise(&tag, NOW_NS + 8)), KeyError::KeyDestroyed { .. }));
}

#[test]
fn an_erased_volume_holds_nothing_of_its_keys() {
    let (_directory, _path, mut store) = store();
    let tag = begin(&mut store, "A00001", NOW_NS);
    store.ended(&volser("A00001"), NOW_NS + 9).unwrap();
    let realm = store.realm().unwrap();
    assert_eq!(realm.unit(&volser("A00001")).unwrap().key(&tag).unwrap().dropped_ns, Some(NOW_NS + 9));
    assert_eq!(store.list().unwrap()[0].state, KeyState::ProcessOnly);
}

/// The label of a new life stood, and its report was lost. The key that had been drawn to append to the life before was
/// in force still, and encrypted what was appended; whoever destroyed it with the old life's other keys lost new data.
#[test]
fn a_new_life_is_never_written_under_a_key_of_the_one_before() {
    let (_directory, _path, mut store) = store();
    let first = begin(&mut store, "A00001", NOW_NS);
    let append = |store: &mut SealedStore, first, now_ns| {
        store.key_for_append(&volser("A00001"), first, &drive(), now_ns).unwrap().tag()
    };
    let week = 7 * DAY_NS;
    let appended = append(&mut store, &first, NOW_NS + week);
    let second =
        store.key_for_new_volume(&volser("A00001"), &drive(), &name("offsite"), GCM, NOW_NS + week).unwrap().tag();
    assert_eq!(append(&mut store, &second, NOW_NS + week + 1), second);
    let realm = store.realm().unwrap();
    let of_volume = &realm.unit(&volser("A00001")).unwrap().keys;
    let dropped: Vec<_> = of_volume.iter().map(|key| (key.tag, key.dropped_ns.is_some())).collect();
    assert_eq!(dropped, [(first, true), (appended, true), (second, false)]);
}

/// A drive puts a new key on record, and its first write fails: the volume is what it was. Each append drew a key of
/// its own then.
#[test]
fn a_volume_that_was_not_begun_after_all_goes_on_under_one_key() {
    let (_directory, _path, mut store) = store();
    let first = begin(&mut store, "A00001", NOW_NS);
    begin(&mut store, "A00001", NOW_NS + 1);
    let mut append = || store.key_for_append(&volser("A00001"), &first, &drive(), NOW_NS + 2).unwrap().tag();
    let tag = append();
    assert_ne!(tag, first);
    assert_eq!((append(), append()), (tag, tag));
    assert_eq!(store.list().unwrap().len(), 3);
    let realm = store.realm().unwrap();
    assert_eq!(realm.unit(&volser("A00001")).unwrap().key(&first).unwrap().dropped_ns, None, "it reads what is there");
}

#[test]
fn a_volume_has_as_many_keys_as_a_cartridge_can_name_and_any_number_of_lives() {
    let (_directory, _path, mut store) = store();
    let first = begin(&mut store, "A00001", NOW_NS);
    for week in 1..24 {
        let now_ns = NOW_NS + week * 7 * DAY_NS;
        store.key_for_append(&volser("A00001"), &first, &drive(), now_ns).unwrap();
    }
    assert_eq!(store.list().unwrap().len(), 24, "each period was over");
    let now_ns = NOW_NS + 24 * 7 * DAY_NS;
    let error = refused(store.key_for_append(&volser("A00001"), &first, &drive(), now_ns));
    assert!(matches!(error, KeyError::Refused(RuleRefusal::KeysUsedUp { .. })), "{error}");
    for life in 0..300 {
        begin(&mut store, "A00001", now_ns + life);
    }
    assert_eq!(store.realm().unwrap().unit(&volser("A00001")).unwrap().keys.len(), 324);
}

/// Small random numbers from a seed (SplitMix64).
struct Draw(u64);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

/// Drives begin and append to volumes in any order, while days go by, the clock is set back, reports are lost and keys
/// are destroyed. What the volumes carry is kept here, apart from the store, and the store is held to it.
#[test]
fn whatever_drives_do_no_key_is_on_two_volumes_and_none_encrypts_past_its_period() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| u64::from(std::process::id()) ^ NOW_NS.unsigned_abs());
    println!("CAPSTAN_SEED={seed}");
    let mut draw = Draw(seed);
    let (_directory, path, mut store) = store();
    let volumes = ["A00001", "A00002", "A00003"];
    // Of each volume the keys that its blocks are under, the newest last; of each key its volume and first issue.
    let mut carried: [Vec<KeyTag>; 3] = Default::default();
    let mut issued: std::collections::HashMap<KeyTag, (usize, i64)> = std::collections::HashMap::new();
    let mut destroyed = std::collections::HashSet::new();
    let mut now_ns = NOW_NS;
    for step in 0..150 {
        let at = draw.below(3) as usize;
        let volume = volser(volumes[at]);
        // A label may fail, and one that stands may never be reported.
        let (stands, reported) = (draw.below(4) > 0, draw.below(4) > 0);
        match draw.below(10) {
            0 | 1 => {
                let key = store.key_for_new_volume(&volume, &drive(), &name("offsite"), GCM, now_ns).unwrap();
                assert!(issued.insert(key.tag(), (at, now_ns)).is_none(), "step {step}: a key came twice");
                if stands {
                    carried[at] = vec![key.tag()];
                    if reported {
                        store.activate(&volume, &key.tag(), now_ns).unwrap();
                    }
                }
            }
            2..=4 => {
                let Some(first) = carried[at].first().copied() else { continue };
                match store.key_for_append(&volume, &first, &drive(), now_ns) {
                    Err(error) => {
                        assert!(matches!(error, KeyError::KeyDestroyed { .. }), "step {step}: {error}");
                        assert!(destroyed.contains(&first), "step {step}");
                    }
                    Ok(key) if issued.contains_key(&key.tag()) => {
                        assert!(carried[at].contains(&key.tag()), "step {step}: a key of another life");
                        assert!(!destroyed.contains(&key.tag()), "step {step}");
                        let issued_ns = issued[&key.tag()].1;
                        assert!(now_ns < issued_ns + 7 * DAY_NS, "step {step}: its encryption period is over");
                    }
                    Ok(key) => {
                        issued.insert(key.tag(), (at, now_ns));
                        carried[at].push(key.tag());
                    }
                }
            }
            5..=7 => {
                for tag in &carried[at] {
                    let read = store.key_for_reading(&volume, tag, &drive(), now_ns);
                    if destroyed.contains(tag) {
                        assert!(matches!(refused(read), KeyError::KeyDestroyed { .. }), "step {step}");
                    } else if now_ns < issued[tag].1 + 30 * DAY_NS {
                        assert_eq!(read.unwrap().tag(), *tag, "step {step}");
                    } else {
                        assert!(matches!(refused(read), KeyError::Refused(_)), "step {step}");
                    }
                }
            }
            8 => now_ns += draw.below(12) as i64 * DAY_NS - 2 * DAY_NS,
            _ if draw.below(6) == 0 => {
                let Some(newest) = carried[at].last() else { continue };
                store.destroy(newest, now_ns).unwrap();
                destroyed.insert(*newest);
            }
            _ => store = reopen(&path),
        }
    }
    // The history names every key with the volume it was for, and no other.
    let realm = store.realm().unwrap();
    let mut told = std::collections::HashMap::new();
    for unit in realm.units() {
        for key in &unit.keys {
            assert!(told.insert(key.tag, unit.volser.clone()).is_none(), "{} is on two volumes", key.tag);
        }
    }
    let expected = issued.iter().map(|(tag, (at, _))| (*tag, volser(volumes[*at]))).collect();
    assert_eq!(told, expected);
}
