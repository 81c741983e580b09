//! Volumes that lie in the mail slot are outside: no job takes them.

use super::cell::{serve_until_done, write_policies};
use super::json::{assert_described, schemas};
use super::*;

/// The plan named no volume to bring where none of them was in the library, or ended with 0 all the same.
#[test]
fn a_plan_for_volumes_that_are_outside_ends_with_3() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--quiet"], 0);
    bench.done(&["restore", "home", "--dry-run"], 0);
    bench.done(&["library", "export", "A00001"], 0);
    let said = bench.said(&["restore", "home", "--dry-run", "--quiet"], 3);
    assert!(said.contains("volume A00001 is not in the library") && said.contains("capstan library import"), "{said}");
}

/// What was exported for the vault was appended to, and went back to the mail slot.
#[test]
fn a_volume_in_the_mail_slot_is_left_alone() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--quiet"], 0);
    bench.done(&["library", "export", "A00001"], 0);
    bench.done(&["backup", &source, "--quiet"], 0);
    let rows = bench.rows(&["volumes"]);
    let of = |name: &str| rows.iter().find(|row| row["volume"] == name).unwrap();
    assert_eq!((&of("A00001")["in_library"], &of("A00001")["place"]), (&false.into(), &"mail slot 0".into()));
    assert_eq!(of("A00001")["mounts"], 1);
    assert_eq!(of("A00002")["mounts"], 1, "the second backup took another volume");
    let refused = bench.said(&["verify", "A00001"], 1);
    assert!(refused.contains("lies in mail slot 0") && refused.contains("capstan library import"), "{refused}");
    let refused = bench.said(&["label", "A00001", "--force"], 1);
    assert!(refused.contains("lies in mail slot 0"), "{refused}");
    // A rebuild reads what is inside, and says what it did not read.
    let refused = bench.said(&["rebuild"], 1);
    assert!(refused.contains("A00001") && refused.contains("--forget-absent"), "{refused}");
    assert_eq!(bench.rows(&["objects"]).len(), 2);
    let said = bench.said(&["rebuild", "--forget-absent"], 3);
    assert!(said.contains("volume A00001 lies in a mail slot and is not read"), "{said}");
    assert_eq!(bench.rows(&["objects"]).len(), 1);
    bench.done(&["library", "import"], 0);
    bench.done(&["rebuild"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 2);
}

/// Where a volume was that had been carried away, nobody could tell but who had carried it.
#[test]
fn what_was_sent_to_a_vault_is_known_until_it_is_seen_again() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--quiet"], 0);
    let vault = |args: &[&str]| {
        let rows = bench.rows(&[&["vault"], args].concat());
        if !rows.is_empty() {
            assert_described(&schemas(), "VaultRow", &rows);
        }
        rows
    };
    assert_eq!(bench.done(&["vault", "send"], 0), "no volume is to go to a vault\n");
    assert!(bench.said(&["vault", "send", "A00001"], 1).contains("name the vault with --to"));
    assert!(bench.said(&["vault", "send", "A00001", "--to", " hill"], 1).contains("without spaces around them"));
    assert!(bench.said(&["vault", "send", "A00009", "--to", "hill"], 1).contains("there is no volume A00009"));
    let said = bench.done(&["vault", "send", "A00001", "--to", "Iron hill"], 0);
    assert_eq!(said, "A00001 is in the mail slot: take it out, it goes to vault Iron hill\n");
    let row = &vault(&[])[0];
    assert_eq!((&row["act"], &row["place"]), (&"keep".into(), &"mail slot 0".into()), "{row}");
    let (mail, hill) = (bench.dir.path().join("state/library/mail"), bench.dir.path().join("hill"));
    let carry = |from: &Path, to: &Path| {
        fs::create_dir_all(to).unwrap();
        for file in fs::read_dir(from).unwrap().map(|file| file.unwrap()) {
            fs::rename(file.path(), to.join(file.file_name())).unwrap();
        }
    };
    carry(&mail, &hill);
    assert!(bench.done(&["volumes"], 0).contains("vault Iron hill"));
    assert_eq!(bench.rows(&["volumes"])[0]["vault"], "Iron hill");
    assert!(!bench.done(&["status"], 0).contains("mount that disk"), "it is not the disk of the library that is away");
    let said = bench.said(&["restore", &source, "--dry-run", "--quiet"], 3);
    assert!(said.contains("volume A00001 is at vault Iron hill, and no volume in the library"), "{said}");
    // It is carried on to another one.
    let said = bench.done(&["vault", "send", "A00001", "--to", "Bank"], 0);
    assert_eq!(said, "A00001 is noted to be at vault Bank\n");
    assert_eq!(vault(&[])[0]["vault"], "Bank");
    carry(&hill, &mail);
    bench.done(&["library", "import"], 0);
    assert!(vault(&[]).is_empty(), "the library has it");
    assert_eq!(bench.rows(&["volumes"])[0]["vault"], serde_json::Value::Null);
    bench.done(&["vault", "send", "A00001", "--to", "Bank"], 0);
    assert_eq!(bench.done(&["vault", "back", "A00001"], 0), "A00001 is at a vault no more\n");
    assert!(bench.done(&["vault", "back", "A00001"], 0).starts_with("none of them was noted"));
}

/// A policy says where volumes go. What is outside is fetched for whoever needs it, or once nothing on it is needed.
#[test]
fn volumes_go_to_a_vault_by_a_policy_and_come_back_for_a_reason() {
    let mut bench = Bench::new(&[]);
    set(&bench, "volume_mib = 64", "volume_mib = 8");
    bench.done(&["pools", "add", "tape", "--quiet"], 0);
    let care = "[policies.away]\ncare_of = [\"default\"]\nvault = \"Iron hill\"\nvault_after = \"1d\"\n";
    let home = format!("[policies.home]\nsources = [\"{}\"]\n{care}", bench.source_text());
    bench.done(&["policies", "apply", &write_policies(&bench, &home)], 0);
    bench.done(&["backup", "home", "--quiet"], 0);
    assert_eq!(bench.rows(&["vault"]).len(), 0, "it is neither full nor a day old");
    bench.hours_ahead = 25;
    let row = &bench.rows(&["vault", "--to-send"])[0];
    assert_eq!((&row["act"], &row["reasons"]), (&"send".into(), &serde_json::json!(["the first on it is 1 day old"])));
    bench.hours_ahead = 0;
    // A full one goes at once.
    for _ in 0..2 {
        bench.done(&["backup", "home", "--full", "--quiet"], 0);
    }
    bench.done(&["queue", "add", "away"], 0);
    let served = serve_until_done(&bench, 1);
    let ended = served.iter().find(|event| event["event"] == "run-ended").unwrap();
    assert_eq!(ended["message"], "A00001 is in the mail slot: take it out, it goes to vault Iron hill", "{ended}");
    let mail = bench.dir.path().join("state/library/mail");
    fs::rename(&mail, bench.dir.path().join("hill")).unwrap();
    fs::create_dir(&mail).unwrap();
    let row = &bench.rows(&["vault"])[0];
    assert_eq!((&row["act"], &row["vault"]), (&"keep".into(), &"Iron hill".into()), "{row}");
    // A policy of copies has nothing else to copy from.
    let copies = "[policies.copies]\ncopies_of = [\"home\"]\npool = \"tape\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, &format!("{home}{copies}"))], 0);
    let rows = bench.rows(&["vault", "--to-fetch"]);
    assert_eq!(rows[0]["reasons"], serde_json::json!(["policy copies copies from it"]), "{rows:?}");
    bench.done(&["policies", "remove", "copies", "--yes"], 0);
    assert_eq!(bench.rows(&["vault", "--to-fetch"]).len(), 0);
    bench.done(&["backup", "home", "--full", "--quiet"], 0);
    let objects = bench.rows(&["objects"]);
    let old: Vec<_> = objects[1..].iter().map(|row| row["object"].as_str().unwrap()).collect();
    bench.done(&[&["expire", "--yes", "--quiet"], &old[..]].concat(), 0);
    let row = &bench.rows(&["vault"])[0];
    assert_eq!(row["reasons"], serde_json::json!(["nothing on it is needed: it can be written again"]), "{row}");
    assert_eq!((&row["act"], &row["is_needed"]), (&"fetch".into(), &false.into()), "{row}");
}
