//! Looking after volumes, by commands and by a policy.

use std::fs;

use serde_json::Value;

use super::Bench;
use super::cell::{serve_until_done, write_policies};
use super::json::{assert_described, events, schemas, told};

fn volume(bench: &Bench, name: &str) -> Value {
    bench.rows(&["volumes"]).into_iter().find(|row| row["volume"] == name).unwrap()
}

/// Two volumes of which the first is full and holds little that is needed.
fn sparse() -> Bench {
    let bench = Bench::new(&[]);
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    assert_eq!(text.matches("volume_mib = 64").count(), 1, "{text}");
    fs::write(&settings, text.replace("volume_mib = 64", "volume_mib = 8")).unwrap();
    fs::create_dir(bench.dir.path().join("other")).unwrap();
    fs::write(bench.dir.path().join("other/file"), super::noise(300_000)).unwrap();
    bench.done(&["backup", bench.dir.path().join("other").to_str().unwrap(), "-q"], 0);
    for _ in 0..3 {
        bench.done(&["backup", &bench.source_text(), "--full", "-q"], 0);
    }
    let rows = bench.rows(&["objects", "--source", &bench.source_text()]);
    let old: Vec<_> = rows[1..].iter().map(|row| row["object"].as_str().unwrap()).collect();
    bench.done(&[&["expire", "--yes", "-q"], &old[..]].concat(), 0);
    assert_eq!(volume(&bench, "A00001")["state"], "full");
    bench
}

#[test]
fn a_sparse_volume_is_emptied() {
    let bench = sparse();
    let planned = bench.rows(&["reclaim", "--dry-run"]);
    told(&schemas(), &["Event"], &planned);
    let [row] = &planned[..] else { panic!("{planned:?}") };
    assert_eq!((&row["event"], &row["volume"], &row["objects"]), (&"to-reclaim".into(), &"A00001".into(), &1.into()));
    assert!(row["needed_bytes"].as_u64().unwrap() < row["written_bytes"].as_u64().unwrap() / 5, "{row}");
    assert!(bench.done(&["reclaim", "--dry-run"], 0).contains("1 volume would be reclaimed"));
    assert!(bench.done(&["reclaim", "--dry-run", "--below", "1%"], 0).contains("no volume would be reclaimed"));
    let said = bench.said(&["reclaim", "--below", "130%"], 2);
    assert!(said.contains("is not a share above 0 and up to 100"), "{said}");
    assert!(bench.said(&["reclaim", "A00099"], 1).contains("there is no volume A00099"));

    let lines = bench.rows(&["reclaim"]);
    told(&schemas(), &["Event"], &lines);
    let done = lines.iter().find(|line| line["event"] == "reclaimed").unwrap();
    assert_eq!((&done["fate"], &done["copies"], &done["left"]), (&"scratch".into(), &1.into(), &Value::Array(vec![])));
    assert_eq!(volume(&bench, "A00001")["state"], "scratch");
    let last = bench.rows(&["history", "--kind", "reclaim"]).remove(0);
    assert_eq!((&last["subject"], &last["message"]), (&"A00001".into(), &"1 volume emptied".into()), "{last}");
    bench.done(&["verify", bench.dir.path().join("other").to_str().unwrap()], 0);
    let said = bench.said(&["reclaim"], 0);
    assert!(said.contains("no volume is to be reclaimed"), "{said}");
    // One that is named and holds nothing is no mistake that is passed over.
    let said = bench.said(&["reclaim", "A00001"], 3);
    assert!(said.contains("volume A00001 is not reclaimed: nothing on it is needed"), "{said}");
}

#[test]
fn a_sample_is_read_and_says_what_it_says() {
    let bench = sparse();
    told(&schemas(), &["Event"], &bench.rows(&["scrub", "--dry-run"]));
    let said = bench.done(&["scrub", "--dry-run"], 0);
    assert!(said.contains("blocks would be read, on 2 volumes; nothing was done"), "{said}");
    let said = bench.done(&["scrub"], 0);
    assert!(said.contains("read, all good; that is all of them"), "{said}");
    let lines = bench.rows(&["scrub", "--places", "3", "--seed", "5"]);
    told(&schemas(), &["Event"], &lines);
    let done = lines.iter().find(|line| line["event"] == "scrubbed").unwrap();
    assert_eq!((&done["read"], &done["bad"], &done["seed"]), (&3.into(), &0.into(), &5.into()), "{done}");
    assert!(done["bad_at_most"].as_f64().unwrap() > 0.3, "{done}");
    assert!(bench.done(&["scrub", "--places", "2"], 0).contains("too few to say anything of the rest"));

    // A block in the middle is spoilt: all is read, and that is found.
    let path = bench.dir.path().join("state/library/slots/A00002.tape");
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0xff;
    fs::write(&path, bytes).unwrap();
    let said = bench.said(&["scrub", "--share", "100%"], 3);
    assert!(said.contains("volume A00002: 1 of ") && said.contains("`capstan repair`"), "{said}");
    let shown = bench.done(&["show", "A00002"], 0);
    assert!(shown.contains("scrub"), "{shown}");
    let last = bench.rows(&["history", "--kind", "scrub"]).remove(0);
    assert_eq!((&last["outcome"], &last["subject"]), (&"problems".into(), &"all volumes".into()), "{last}");
    assert!(last["message"].as_str().unwrap().contains(" read, 1 bad; "), "{last}");
    assert!(bench.said(&["scrub", "--certainty", "100%"], 2).contains("no sample says anything for certain"));
    assert!(bench.said(&["scrub", "--pool", "vault"], 1).contains("there is no pool \"vault\""));
}

#[test]
fn a_policy_looks_after_volumes() {
    let bench = sparse();
    let policy = "[policies.care]\ncare_of = [\"default\"]\nscrub_one_in = 50\nreclaim_below = 40\n\
                  schedule = \"2020-01-01 12:00\"\n";
    bench.done(&["policies", "apply", &write_policies(&bench, policy)], 0);
    let listed = events(&bench, &["policies"], 0);
    assert_described(&schemas(), "BackupPolicyRow", &listed);
    assert_eq!(listed[0]["care_of"], serde_json::json!(["default"]));
    assert!(bench.done(&["policies"], 0).contains("nothing: care of pool default"));
    assert!(bench.said(&["backup", "care"], 2).contains("looks after the volumes of pool default"));
    assert!(bench.said(&["queue", "add", "care", "--full"], 1).contains("leave --full out"));
    bench.done(&["queue", "add", "care"], 0);
    let served = serve_until_done(&bench, 1);
    let ended = served.iter().find(|event| event["event"] == "run-ended").unwrap();
    let message = ended["message"].as_str().unwrap();
    assert_eq!(ended["outcome"], "done", "{message}");
    assert!(message.starts_with("2 volumes: ") && message.ends_with("; 1 volume emptied"), "{message}");
    assert_eq!(volume(&bench, "A00001")["state"], "scratch");
    let run = &events(&bench, &["history", "--kind", "care"], 0)[0];
    assert_eq!(run["outcome"], "done", "{run}");
    // A pool that is gone is a fault of the policy.
    let policy = "[policies.care]\ncare_of = [\"vault\"]\nreclaim_below = 40\n";
    let said = bench.said(&["policies", "apply", &write_policies(&bench, policy)], 3);
    assert!(said.contains("care_of: there is no pool \"vault\""), "{said}");
}
