//! Stores and exports of every version stay readable. `testdata/` is only ever added to.

use capstan_keys::{KeyGroup, Period, Policy};

use super::*;

/// The fixtures' passphrase; their one live key is for volume GOLD01, tag and bytes in `key.txt`.
const SECRET: &str = "golden";

fn fixture(name: &str) -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1").join(name)).unwrap()
}

fn expected() -> (KeyTag, String) {
    let text = String::from_utf8(fixture("key.txt")).unwrap();
    let (tag, key) = text.trim_end().split_once(' ').unwrap();
    (tag.parse().unwrap(), key.to_owned())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_store_of_version_1_opens_with_passphrase_and_key_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, key_file) = (directory.path().join("keys.sealed"), directory.path().join("store.key"));
    std::fs::write(&path, fixture("keys.sealed")).unwrap();
    std::fs::write(&key_file, fixture("store.key")).unwrap();
    std::fs::set_permissions(&key_file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (tag, key) = expected();
    for unlock in [passphrase(SECRET), Unlock::key_file(&key_file).unwrap()] {
        let mut store = SealedStore::open(&path, &unlock).unwrap();
        assert_eq!(hex(store.read_key(&volser("GOLD01"), &tag).unwrap().expose()), key);
        assert_eq!(store.list().unwrap().len(), 2, "one of them destroyed");
        fill(&mut store, "NEW001");
        std::fs::write(&path, fixture("keys.sealed")).unwrap();
    }
}

/// A store that has policies: a group whose keys encrypt for a week, a drive held to it, and the same volume.
#[test]
fn a_store_with_policies_opens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys.sealed");
    std::fs::write(&path, fixture("keys-with-policies.sealed")).unwrap();
    let store = SealedStore::open(&path, &passphrase(SECRET)).unwrap();
    let (tag, key) = expected();
    assert_eq!(hex(store.read_key(&volser("GOLD01"), &tag).unwrap().expose()), key);
    let realm = store.realm().unwrap();
    let weekly: Name = "weekly".parse().unwrap();
    assert_eq!(realm.policy_of(&weekly).unwrap().encryption_period, Period::Seconds(7 * 86_400));
    assert_eq!(realm.agent(&drive().name).default_group, weekly);
    assert_eq!(realm.unit(&volser("GOLD01")).unwrap().key(&tag).unwrap().group, weekly);
}

#[test]
fn an_export_of_version_1_is_imported() {
    let (_directory, _path, mut store) = new_store();
    store.take_in(&fixture("keys.export"), &text(SECRET), NOW_NS).unwrap();
    let (tag, key) = expected();
    assert_eq!(hex(store.read_key(&volser("GOLD01"), &tag).unwrap().expose()), key);
}

/// `docs/KEYS.md` suffices to take the keys out without this program: a script written from it alone does.
#[test]
#[ignore = "needs python3 with its package cryptography, version 44 or later"]
fn the_documentation_suffices_to_recover_the_keys() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let (tag, key) = expected();
    for name in ["keys.export", "keys.sealed", "keys-with-policies.sealed"] {
        let output = std::process::Command::new("python3")
            .arg(root.join("tests/recover.py"))
            .arg(root.join("testdata/v1").join(name))
            .env("CAPSTAN_PASSPHRASE", SECRET)
            .output()
            .unwrap();
        let (text, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{name}: {complaint}");
        let line = format!("{tag} GOLD01 protect-and-process {key}");
        assert!(text.lines().any(|found| found == line), "{name}: {text}");
    }
}

/// How the store with policies was made, out of the export of version 1.
#[test]
#[ignore = "writes a fixture; run once"]
fn write_fixture_with_policies() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1/keys-with-policies.sealed");
    let mut store = SealedStore::create(&path, &passphrase(SECRET), CHEAP).unwrap();
    let weekly: Name = "weekly".parse().unwrap();
    let policy = Policy { encryption_period: Period::Seconds(7 * 86_400), ..Policy::unlimited(weekly.clone()) };
    store.put_policy(policy).unwrap();
    store.put_group(KeyGroup { name: weekly.clone(), policy: weekly.clone() }).unwrap();
    store.put_agent(Agent { groups: [weekly.clone()].into(), default_group: weekly.clone(), ..drive() }).unwrap();
    store.import(&fixture("keys.export"), &text(SECRET), &weekly, NOW_NS).unwrap();
    drop(store);
    std::fs::remove_file(path.with_extension("sealed-journal")).unwrap();
}

/// How the fixtures were made; for a new version, with its directory in place of this one.
#[test]
#[ignore = "writes fixtures; run once for each version of the format"]
fn write_fixtures() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata/v1");
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("keys.sealed");
    let mut store = SealedStore::create(&path, &passphrase(SECRET), CHEAP).unwrap();
    let key_file = capstan_keys::create_key_file(&directory.join("store.key")).unwrap();
    store.add_slot(&key_file, CHEAP).unwrap();
    let (gone, _) = fill(&mut store, "GOLD01");
    let (tag, key) = fill(&mut store, "GOLD01");
    store.destroy(&gone, NOW_NS + 2).unwrap();
    let export = store.export(&capstan_keys::ExportSelection::All, &text(SECRET), CHEAP).unwrap();
    std::fs::write(directory.join("keys.export"), export).unwrap();
    std::fs::write(directory.join("key.txt"), format!("{tag} {}\n", hex(&key))).unwrap();
    drop(store);
    std::fs::remove_file(directory.join("keys.sealed-journal")).unwrap();
}
