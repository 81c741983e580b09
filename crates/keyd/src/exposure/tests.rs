//! A few cartridges, and what each suspect exposes of them.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use capstan_format::Algorithm;
use capstan_keys::{IssuedKey, KeyUse, SeenAs, SeenCartridge, SeenCartridges};

use super::*;

fn tag(byte: u8) -> KeyTag {
    KeyTag([byte; 16])
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn unit(barcode: &str, keys: &[(u8, Option<i64>)], last_seen_ns: i64) -> DataUnit {
    let key = |&(byte, dropped_ns): &(u8, Option<i64>)| IssuedKey {
        tag: tag(byte),
        group: Name::default(),
        issued_for: KeyUse::Begin,
        issued_ns: i64::from(byte),
        dropped_ns,
    };
    let (volser, keys) = (Volser::new(barcode).unwrap(), keys.iter().map(key).collect());
    DataUnit {
        volser,
        first_seen_ns: 0,
        last_seen_ns,
        read_until_ns: None,
        cartridges: SeenCartridges::default(),
        keys,
    }
}

/// Key 3 began the volume at 20, key 4 did at 30.
fn begun_anew_on(unit: DataUnit, first: &str, second: &str) -> DataUnit {
    let own = |since_ns, serial: &str| SeenCartridge { serial: serial.parse().ok(), since_ns, seen_as: SeenAs::Own };
    DataUnit { cartridges: SeenCartridges::from_history(vec![own(20, first), own(30, second)]), ..unit }
}

fn key(byte: u8, volser: &str, state: KeyState) -> (KeyTag, KeyRecord) {
    let record = KeyRecord {
        tag: tag(byte),
        volser: Volser::new(volser).unwrap(),
        algorithm: Algorithm::Aes256Gcm,
        state,
        created_ns: i64::from(byte),
        activated_ns: None,
        retired_ns: None,
        destroyed_ns: (state == KeyState::Destroyed).then_some(90),
        imported_ns: None,
    };
    (tag(byte), record)
}

fn activated(at_ns: i64, (tag, record): (KeyTag, KeyRecord)) -> (KeyTag, KeyRecord) {
    (tag, KeyRecord { activated_ns: Some(at_ns), ..record })
}

fn handed(byte: u8, agent: &str, kma: &str, at_ns: i64) -> Handed {
    Handed { tag: tag(byte), agent: name(agent), kma: name(kma), at_ns }
}

fn export(id: &str, keys: &[u8], destroyed_ns: Option<i64>) -> Exported {
    let keys = keys.iter().copied().map(tag).collect();
    Exported { id: id.to_owned(), by: name("kim"), made_ns: 85, destroyed_ns, keys }
}

/// Four cartridges: A1 with two keys, A2 begun anew, A3 with a destroyed key, A4 which nothing suspect has touched.
fn view() -> ExposureFacts {
    ExposureFacts {
        units: vec![
            unit("A00001", &[(1, None), (2, None)], 50),
            begun_anew_on(unit("A00002", &[(3, Some(30)), (4, None)], 70), "one", "one"),
            unit("A00003", &[(5, None)], 60),
            unit("A00004", &[(6, None)], 80),
        ],
        keys: [
            key(1, "A00001", KeyState::ProcessOnly),
            key(2, "A00001", KeyState::ProtectAndProcess),
            activated(20, key(3, "A00002", KeyState::ProcessOnly)),
            key(4, "A00002", KeyState::ProcessOnly),
            key(5, "A00003", KeyState::Destroyed),
            key(6, "A00004", KeyState::ProtectAndProcess),
        ]
        .into(),
        handed: vec![
            handed(1, "d1", "k1", 40),
            handed(1, "d1", "k1", 10),
            handed(2, "d1", "k2", 45),
            handed(3, "d1", "k1", 20),
            handed(4, "d2", "k1", 30),
            handed(5, "d1", "k1", 25),
            handed(6, "d2", "k2", 80),
        ],
        removed_kmas: [(name("k3"), 4)].into(),
        exports: vec![export("e1", &[2, 3], None), export("e2", &[2, 6], Some(95))],
    }
}

fn units(view: &ExposureFacts, suspect: &Suspect) -> Vec<(String, Vec<u8>)> {
    let tags = |unit: ExposedUnit| unit.keys.iter().map(|key| key.tag.0[0]).collect();
    exposure(view, suspect).into_iter().map(|unit| (unit.volser.to_string(), tags(unit))).collect()
}

fn expected(expected: &[(&str, &[u8])]) -> Vec<(String, Vec<u8>)> {
    expected.iter().map(|(barcode, tags)| ((*barcode).to_owned(), tags.to_vec())).collect()
}

#[test]
fn an_agent_exposes_what_it_was_handed_and_what_is_still_on_tape() {
    // Not A2, which was begun anew since; A3, though the key is destroyed here.
    let d1 = Suspect::Agent { name: name("d1"), since_ns: None };
    assert_eq!(units(&view(), &d1), expected(&[("A00001", &[1, 2]), ("A00003", &[5])]));
    let late = Suspect::Agent { name: name("d1"), since_ns: Some(30) };
    assert_eq!(units(&view(), &late), expected(&[("A00001", &[1, 2])]));
    let unknown = Suspect::Agent { name: name("d9"), since_ns: None };
    assert_eq!(units(&view(), &unknown), []);
    // Of several times the first is told.
    let why = &exposure(&view(), &d1)[0].keys[0].why;
    assert_eq!(*why, Why::HandedOut { kma: name("k1"), agent: name("d1"), at_ns: 10 });
}

#[test]
fn a_key_exposes_its_data_unit() {
    assert_eq!(units(&view(), &Suspect::Key(tag(4))), expected(&[("A00002", &[4])]));
    assert_eq!(units(&view(), &Suspect::Key(tag(3))), []);
}

/// A key counted as gone as soon as its barcode was begun anew, also on another cartridge: the tape under it lay in a
/// drawer, and was in no plan.
#[test]
fn a_key_is_exposed_until_its_own_cartridge_is_known_to_be_overwritten() {
    let begun_anew = |first: &str, second: &str| {
        let mut view = view();
        view.units[1] = begun_anew_on(view.units[1].clone(), first, second);
        let suspect = Suspect::Key(tag(3));
        let plan = RekeyPlan::new(suspect.clone(), Vec::new(), exposure(&view, &suspect));
        (units(&view, &suspect), plan.to_string())
    };
    let (none, _) = begun_anew("one", "one");
    assert_eq!(none, []);
    let (exposed, plan) = begun_anew("one", "two");
    assert_eq!(exposed, expected(&[("A00002", &[3])]));
    assert!(plan.contains("begun anew without it on 1970") && plan.contains("look for the other one"), "{plan}");
    // What told no serial number is no proof; nor is that it told none twice.
    for (first, second) in [("one", ""), ("", "one"), ("", "")] {
        assert_eq!(begun_anew(first, second).0, expected(&[("A00002", &[3])]), "{first:?}, {second:?}");
    }
    // A key that was never in use has written nothing.
    let mut view = view();
    view.units[1].keys[0].dropped_ns = Some(30);
    view.keys.get_mut(&tag(3)).unwrap().activated_ns = None;
    assert_eq!(units(&view, &Suspect::Key(tag(3))), []);
}

/// Exports counted for nothing: a file with every key of the cluster in it exposed no data unit.
#[test]
fn an_export_exposes_what_left_in_it() {
    let suspect = Suspect::Export("e2".to_owned());
    // Also where somebody has said that it is destroyed.
    assert_eq!(units(&view(), &suspect), expected(&[("A00001", &[2]), ("A00004", &[6])]));
    let why = &exposure(&view(), &suspect)[0].keys[0].why;
    assert_eq!(*why, Why::Exported { by: name("kim"), at_ns: 85 });
    let plan = RekeyPlan::new(suspect.clone(), exports_of(&view(), &suspect), exposure(&view(), &suspect));
    assert_eq!(plan.keys_to_compromise(), [2, 6].map(tag));
    let said = plan.to_string();
    assert!(said.contains("export e2 the suspect") && said.contains("said to be destroyed on"), "{said}");
    assert_eq!(plan.to_json()["suspect"], serde_json::json!({ "kind": "export", "name": "e2" }));
    assert_eq!(units(&view(), &Suspect::Export("e9".to_owned())), []);
}

#[test]
fn a_key_names_the_exports_that_have_it() {
    let of =
        |byte| exports_of(&view(), &Suspect::Key(tag(byte))).into_iter().map(|export| export.id).collect::<Vec<_>>();
    assert_eq!((of(2), of(3), of(4)), (vec!["e1".to_owned(), "e2".to_owned()], vec!["e1".to_owned()], Vec::new()));
    let suspect = Suspect::Key(tag(6));
    let plan = RekeyPlan::new(suspect.clone(), exports_of(&view(), &suspect), exposure(&view(), &suspect));
    assert!(plan.to_string().starts_with("export e2 has the key: carried out by kim on 1970"), "{plan}");
    assert_eq!(plan.to_json()["exports"][0]["id"], "e2");
}

#[test]
fn a_node_exposes_everything_up_to_its_removal() {
    let all = expected(&[("A00001", &[1, 2]), ("A00002", &[4]), ("A00003", &[5]), ("A00004", &[6])]);
    assert_eq!(units(&view(), &Suspect::Kma(name("k1"))), all);
    assert_eq!(units(&view(), &Suspect::Kma(name("k3"))), expected(&[("A00001", &[1, 2]), ("A00002", &[4])]));
    let exposed = exposure(&view(), &Suspect::Kma(name("k2")));
    assert_eq!(exposed[0].keys[0].why, Why::InReplica);
    assert!(matches!(exposed[0].keys[1].why, Why::HandedOut { at_ns: 45, .. }));
}

#[test]
fn what_is_still_written_comes_first_and_what_nobody_can_copy_is_destroyed() {
    let k1 = Suspect::Kma(name("k1"));
    let plan = RekeyPlan::new(k1.clone(), Vec::new(), exposure(&view(), &k1));
    let order: Vec<_> = plan.steps().iter().map(|step| (step.unit.volser.to_string(), step.remedy)).collect();
    // A1 and A4 are written; A1's key lay open. A2 was written later than A3.
    let copied = ["A00001", "A00004", "A00002"].map(|barcode| (barcode.to_owned(), Remedy::CopyAndLabel));
    assert_eq!(order[..3], copied);
    assert_eq!(order[3], ("A00003".to_owned(), Remedy::DestroyCartridge));
    assert_eq!(plan.keys_to_compromise(), [1, 2, 4, 6].map(tag));
}

#[test]
fn a_plan_is_told_in_words_and_in_json() {
    let suspect = Suspect::Agent { name: name("d1"), since_ns: Some(40) };
    let plan = RekeyPlan::new(suspect.clone(), exports_of(&view(), &suspect), exposure(&view(), &suspect));
    let (one, two) = (tag(1), tag(2));
    assert_eq!(
        plan.to_string(),
        format!(
            "agent d1 exposes 1 data unit\n1. revoke agent d1\n\
             2. report 2 keys as compromised, so that nothing more is written under them\n3. in this order:\n   \
             A00001: copy what matters to volumes with other keys, then label it anew and destroy its old keys\n      \
             key {one} (process-only): k1 handed it to d1 on 1970-01-01T00:00:00.000000040Z\n      \
             key {two} (protect-and-process): k2 handed it to d1 on 1970-01-01T00:00:00.000000045Z\n"
        )
    );
    let json = plan.to_json();
    assert_eq!(json["suspect"], serde_json::json!({ "kind": "agent", "name": "d1" }));
    assert_eq!(json["steps"][0]["barcode"], "A00001");
    assert_eq!(json["steps"][0]["remedy"], "copy-and-label");
    assert_eq!(json["steps"][0]["keys"][1]["tag"], two.to_string());
    assert_eq!(json["keys_to_compromise"].as_array().unwrap().len(), 2);
    let nothing = RekeyPlan::new(suspect, Vec::new(), Vec::new());
    assert_eq!(nothing.to_string(), "agent d1 exposes no data unit");
}
