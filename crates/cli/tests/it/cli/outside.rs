//! Volumes that lie in the mail slot are outside: no job takes them.

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
