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
    assert!(text.contains("protected   0 objects") && text.contains("the keys of 1 volume are not in the key store"), "{text}");
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
