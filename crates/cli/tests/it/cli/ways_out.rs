//! What was lost, and the way out that the messages name, walked to its end.

use super::*;

fn restored(bench: &Bench) -> bool {
    let back = bench.dir.path().join("back");
    let _ = fs::remove_dir_all(&back);
    bench.done(&["restore", &bench.source_text(), "--to", "back", "--quiet"], 0);
    let noise = back.join(bench.source().strip_prefix("/").unwrap()).join("noise");
    fs::read(noise).unwrap() == fs::read(bench.source().join("noise")).unwrap()
}

fn with_export(bench: &Bench) -> Command {
    let mut command = bench.command(&["keys", "import", "export"]);
    command.env("CAPSTAN_EXPORT_PASSPHRASE", "four plain words here");
    command
}

/// The advice ran in a circle: `init` refused, and `keys import` said to run `init`.
fn walk_out_of(bench: &Bench, damage: impl Fn(&Path)) {
    let source = bench.source_text();
    bench.done(&["backup", &source, "--quiet"], 0);
    let mut export = bench.command(&["keys", "export", "export"]);
    export.env("CAPSTAN_EXPORT_PASSPHRASE", "four plain words here");
    assert!(export.output().unwrap().status.success());
    let refused = bench.said(&["keys", "create"], 1);
    assert!(refused.contains("is whole and opens"), "{refused}");
    damage(&bench.dir.path().join("state/keys.db"));
    let said = bench.said(&["restore", &source, "--to", "back"], 4);
    assert!(said.contains("capstan keys create") && said.contains("capstan keys import"), "{said}");
    let made = bench.done(&["keys", "create"], 0);
    assert!(made.contains("1 volume cannot be read") && made.contains("A00001"), "{made}");
    // Until the keys are back, what stands on them is not called protected, and nothing stands on it or is added to it.
    let text = bench.done(&["status"], 3);
    assert!(
        text.contains("protected   0 objects") && text.contains("the keys of 1 volume are not in the key store"),
        "{text}"
    );
    let said = bench.said(&["backup", &source, "--incremental"], 0);
    assert!(said.contains("the key of volume A00001 is not in the key store"), "{said}");
    let rows = bench.rows(&["objects"]);
    assert_eq!((rows.len(), &rows[0]["level"]), (2, &"full".into()));
    assert_eq!(rows[0]["copies"][0]["volumes"][0], "A00002");
    assert!(with_export(bench).output().unwrap().status.success());
    assert!(bench.done(&["status"], 0).contains("protected   2 objects"));
    bench.done(&["verify", "A00001"], 0);
    assert!(restored(bench));
}

#[test]
fn a_key_store_that_is_lost_is_made_anew_from_an_export() {
    let bench = Bench::new(&[]);
    walk_out_of(&bench, |store| {
        fs::remove_file(store).unwrap();
        // `status` says so before anybody needs a key.
        let text = bench.done(&["status"], 3);
        assert!(text.contains("is not there, and without keys no encrypted volume can be read"), "{text}");
    });
}

#[test]
fn a_key_store_that_is_garbage_is_kept_aside_and_made_anew() {
    let bench = Bench::new(&[]);
    walk_out_of(&bench, |store| fs::write(store, noise(8 << 10)).unwrap());
    let kept = fs::read_dir(bench.dir.path().join("state")).unwrap();
    assert!(kept.flatten().any(|entry| entry.file_name().to_string_lossy().starts_with("keys.db.damaged-")));
}

/// A copy without its key counted as a whole one.
#[test]
fn a_copy_whose_key_is_missing_is_not_counted() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--copies", "2", "--quiet"], 0);
    assert!(bench.done(&["status"], 0).contains("2 of 2"));
    let copies = bench.rows(&["objects"])[0]["copies"].clone();
    let [kept, lost] = [0, 1].map(|copy: usize| copies[copy]["volumes"][0].as_str().unwrap().to_owned());
    let mut export = bench.command(&["keys", "export", "export", "--volume", &kept]);
    export.env("CAPSTAN_EXPORT_PASSPHRASE", "four plain words here");
    assert!(export.output().unwrap().status.success());
    fs::remove_file(bench.dir.path().join("state/keys.db")).unwrap();
    bench.done(&["keys", "create"], 0);
    assert!(with_export(&bench).output().unwrap().status.success());

    let text = bench.done(&["status"], 3);
    assert!(text.contains("protected   1 object") && text.contains("1 of 2"), "{text}");
    assert!(text.contains("a copy has no key"), "{text}");
    let status: serde_json::Value = serde_json::from_str(&bench.done(&["status", "--json"], 3)).unwrap();
    let source = &status["sources"][0];
    assert_eq!((&source["copies_whole"], &source["copies_without_key"]), (&1.into(), &1.into()), "{source}");
    let objects = bench.done(&["objects"], 0);
    assert!(objects.contains(&format!("{lost}(no key)")) && !objects.contains(&format!("{kept}(no key)")), "{objects}");
    let copies = bench.rows(&["objects"])[0]["copies"].clone();
    let missing: Vec<_> =
        copies.as_array().unwrap().iter().map(|copy| copy["key_missing"].as_bool().unwrap()).collect();
    assert_eq!(missing, [false, true]);
    assert!(bench.done(&["show", "home"], 0).contains("whole, no key"));

    // The same where it was destroyed: nobody brings that back, and a new copy is made on the same volume.
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home", "--copies", "2", "--quiet"], 0);
    bench.done(&["keys", "destroy", "A00002", "--yes"], 0);
    let text = bench.done(&["status"], 0);
    assert!(text.contains("1 of 2") && text.contains("erase its volume, then `capstan repair`"), "{text}");
    assert!(bench.done(&["objects"], 0).contains("A00002(no key)"));
    bench.done(&["erase", "A00002", "--yes"], 0);
    bench.done(&["repair", "--quiet"], 0);
    let text = bench.done(&["status"], 0);
    assert!(text.contains("2 of 2") && !text.contains("erase its volume"), "{text}");
}

/// All tapes went through the drive for one file of the catalog, and meanwhile nothing could be found and no
/// incremental made.
#[test]
fn one_index_file_that_is_gone_is_read_from_its_own_volumes() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    let other = bench.dir.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("ada.txt"), "other\n").unwrap();
    bench.done(&["backup", &source, "--copies", "2", "--quiet"], 0);
    bench.done(&["backup", other.to_str().unwrap(), "--quiet"], 0);
    let all = bench.rows(&["objects"]);
    let object = all.iter().find(|row| row["source"] == source.as_str()).unwrap()["object"].as_str().unwrap();
    // Each time that it is made anew it has another number: whoever reads the folder takes the highest.
    let index = |number: u32| bench.dir.path().join(format!("state/catalog/index/{object}.{number}.parquet"));
    let before = fs::read(index(1)).unwrap();
    let listed = bench.done(&["ls", "-R", object], 0);
    fs::remove_file(index(1)).unwrap();

    let command = format!("capstan rebuild {}", &object[object.len() - 8..]);
    assert!(bench.done(&["status"], 3).contains(&command));
    let said = bench.said(&["ls", object], 1);
    assert!(said.contains(&format!("`capstan rebuild {object}`")), "{said}");
    // The other objects go on, and what was left out is said.
    let output = bench.command(&["find", "ada.txt"]).output().unwrap();
    ended(&output, &["find"], 3);
    assert_eq!(String::from_utf8(output.stdout).unwrap().lines().filter(|line| line.ends_with("ada.txt")).count(), 1);
    assert!(String::from_utf8(output.stderr).unwrap().contains(&format!("`capstan rebuild {object}`")));
    // Excludes that are new are compared with what the base left out, and its list is not there.
    let said = bench.said(&["backup", &source, "--incremental", "--exclude", "*.old"], 0);
    assert!(said.contains("this backup is a full one"), "{said}");

    bench.done(&["rebuild", object], 0);
    assert!(fs::read(index(2)).unwrap() == before, "an index is its entries alone");
    assert_eq!(bench.done(&["ls", "-R", object], 0), listed);
    bench.done(&["status"], 0);

    // One that is damaged is the same; a volume that is away is named, and another copy stands in.
    let mut flipped = before.clone();
    flipped[before.len() / 2] ^= 1;
    fs::write(index(2), flipped).unwrap();
    bench.done(&["ls", "-R", object], 1);
    let copies = &all.iter().find(|row| row["object"] == object).unwrap()["copies"];
    let [first, second] = [0, 1].map(|copy: usize| copies[copy]["volumes"][0].as_str().unwrap());
    bench.done(&["library", "export", first], 0);
    let said = bench.said(&["rebuild", object], 0);
    assert!(said.contains(&format!("{first}: it is not in the library")), "{said}");
    assert_eq!(bench.done(&["ls", "-R", object], 0), listed);
    assert!(!index(2).exists());
    fs::remove_file(index(3)).unwrap();
    bench.done(&["library", "export", second], 0);
    let said = bench.said(&["rebuild", object], 1);
    assert!(said.contains("cannot be read from any volume that holds it"), "{said}");
}

/// One of two volumes was away, and a list that nothing was wrong with shrank to what the other one had.
#[test]
fn a_list_that_can_be_read_is_not_exchanged_for_a_part_of_it() {
    let bench = Bench::new(&["--encrypt", "none"]);
    let source = bench.dir.path().join("large");
    fs::create_dir(&source).unwrap();
    for file in 0..9_u64 {
        let mut state = file + 1;
        let noise = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 56) as u8
        });
        fs::write(source.join(file.to_string()), noise.take(10_000_000).collect::<Vec<u8>>()).unwrap();
    }
    bench.done(&["backup", source.to_str().unwrap(), "--quiet"], 0);
    let all = bench.rows(&["objects"]);
    let object = all[0]["object"].as_str().unwrap();
    let volumes = all[0]["copies"][0]["volumes"].as_array().unwrap();
    assert_eq!(volumes.len(), 2, "{all:?}");
    let listed = bench.done(&["ls", "-R", object], 0);
    for volume in volumes {
        let volume = volume.as_str().unwrap();
        bench.done(&["library", "export", volume], 0);
        let output = bench.command(&["rebuild", object]).output().unwrap();
        ended(&output, &["rebuild"], 0);
        let said = String::from_utf8(output.stdout).unwrap();
        assert!(said.contains("can be read, and was kept"), "{said}");
        assert_eq!(bench.done(&["ls", "-R", object], 0), listed);
        bench.done(&["library", "import"], 0);
    }
}

/// Takes the right to write from everybody, root without its capabilities included; or gives it back.
fn writable(dir: &Path, mode: &str) {
    assert!(Command::new("chmod").args(["-R", mode]).arg(dir).status().unwrap().success());
}

/// A machine whose disk went read-only could not restore until the state was copied elsewhere.
#[test]
fn a_state_that_cannot_be_written_can_be_read() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--copies", "2", "--quiet"], 0);
    let state = bench.dir.path().join("state");
    writable(&state, "a-w");
    let done = |args: &[&str], code: i32| {
        let output = bench.held_to_modes(args).output().unwrap();
        ended(&output, args, code);
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let text = done(&["status"], 3);
    assert!(
        text.contains("protected   1 object") && text.contains("cannot be written: nothing can be backed up"),
        "{text}"
    );
    assert_eq!(done(&["objects", "--json"], 0).lines().count(), 1);
    assert!(done(&["ls", "-R", &source], 0).contains("ada.txt") && done(&["find", "ada.txt"], 0).contains("ada.txt"));
    assert!(done(&["volumes"], 0).contains("A00001") && done(&["keys", "list"], 0).contains("A00001"));
    assert!(done(&["verify", "A00001"], 0).contains("good"));
    assert_eq!(done(&["cat", &format!("{source}:{source}/letters/ada.txt")], 0), "dear Ada\n");
    done(&["restore", &source, "--to", "back", "--quiet"], 0);
    let back = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    assert!(fs::read(back.join("noise")).unwrap() == fs::read(bench.source().join("noise")).unwrap());
    for refused in [&["backup", &source][..], &["repair"], &["rebuild"], &["label", "B00001"], &["keys", "passphrase"]]
    {
        let text = done(refused, 1);
        assert!(text.contains("cannot be written: its file system is read-only"), "{refused:?}: {text}");
    }
    writable(&state, "u+w");
    bench.done(&["status"], 0);
}

/// The host's name was a hidden key: after a rename the first incremental was a full one without a word.
#[test]
fn a_renamed_host_goes_on_with_its_backups_and_is_told_how() {
    let bench = Bench::new(&[]);
    let source = bench.source_text();
    bench.done(&["backup", &source, "--client", "tern", "--quiet"], 0);
    let said = bench.said(&["backup", &source, "--incremental", "--client", "heron"], 0);
    assert!(
        said.contains("there are backups of it from tern, and none from this machine (heron)")
            && said.contains("--client tern"),
        "{said}"
    );
    bench.done(&["backup", &source, "--incremental", "--client", "tern", "--quiet"], 0);
    let rows = bench.rows(&["objects"]);
    let seen: Vec<_> =
        rows.iter().map(|row| (row["client"].as_str().unwrap(), row["level"].as_str().unwrap())).collect();
    assert_eq!(seen, [("tern", "incr"), ("heron", "full"), ("tern", "full")]);
    assert!(bench.done(&["status"], 0).contains("tern"));
    // By the settings it is the same, and a source's name means this machine's where it has one.
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap().replace("client = \"\"\n", "");
    fs::write(&path, format!("client = \"heron\"\n{text}")).unwrap();
    bench.done(&["backup", &source, "--incremental", "--quiet"], 0);
    assert_eq!(
        (&bench.rows(&["objects"])[0]["client"], &bench.rows(&["objects"])[0]["level"]),
        (&"heron".into(), &"incr".into())
    );
    bench.done(&["backup", &source, "--incremental", "--client", "tern", "--quiet"], 0);
    assert_eq!(bench.json(&["show", &source])["client"], "heron");
}
