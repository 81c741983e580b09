//! Golden volumes: what was written once is read for ever.
//!
//! The cartridges in `testdata/format-v1` were written by the release that introduced the format. Each test puts one
//! into the library of a new state directory, with nothing but the exported keys, rebuilds the catalog, restores, and
//! compares with what was written down beside the cartridges. A fixture's name states its verdict: `good_*` comes back
//! whole; `fail_*` gives the error that is named here, and everything that the damage does not touch.
//!
//! Fixtures are added and never changed. `make.rs` made them, and makes what is missing.

mod make;
mod site;
mod tree;

use std::collections::BTreeSet;
use std::fs;

use site::{Keys, Rebuilt, fixtures};
use tree::{LARGE, describe};

const PLAIN: &str = "GOLD01";
const GCM: &str = "GOLD02";
const CCM: &str = "GOLD03";

fn expected(name: &str) -> String {
    fs::read_to_string(fixtures().join(name)).unwrap()
}

/// Both backups come back as they were, and the catalog lists what is there.
fn comes_back_whole(fixture: &str, volser: &str) {
    let rebuilt = Rebuilt::from(fixture, volser, Keys::Imported);
    assert_eq!(rebuilt.report.problems, []);
    assert_eq!((rebuilt.report.volumes, rebuilt.report.complete, rebuilt.report.open), (1, 2, 0));
    let objects = rebuilt.objects();
    assert_eq!(objects[1].base, Some(objects[0].id));
    for (object, expected) in objects.iter().zip([expected("expected_full.txt"), expected("expected_incremental.txt")])
    {
        let (report, source) = rebuilt.restore(object);
        assert!(report.is_whole(), "{report:?}");
        assert_eq!(describe(&source), expected);
        assert_eq!(rebuilt.listed(object), names(&expected));
        for verified in rebuilt.site.verify_objects(std::slice::from_ref(object), &Default::default()).unwrap() {
            assert!(verified.report.is_whole(), "{verified:?}");
        }
    }
    let verified = rebuilt.site.verify_volume(&volser.parse().unwrap(), &Default::default()).unwrap();
    assert!(verified.is_whole(), "{verified:?}");
}

/// Names in an expectation that are not the source itself.
fn names(expected: &str) -> BTreeSet<String> {
    expected.lines().map(|line| line.split('\t').next().unwrap().to_owned()).filter(|name| !name.is_empty()).collect()
}

impl Rebuilt {
    /// What the catalog lists below the source, as it was at an object's time.
    fn listed(&self, object: &capstan_catalog::Object) -> BTreeSet<String> {
        let below = [object.source.strip_prefix(b"/").unwrap(), b"/"].concat();
        let catalog = self.site.catalog();
        let state = catalog.state(object.id).unwrap();
        let paths = state.iter().map(|entry| entry.unwrap().entry.path);
        paths.filter_map(|path| path.strip_prefix(&below[..]).map(|name| name.escape_ascii().to_string())).collect()
    }
}

#[test]
fn good_plain() {
    comes_back_whole("good_plain.tape", PLAIN);
}

#[test]
fn good_gcm() {
    comes_back_whole("good_gcm.tape", GCM);
}

#[test]
fn good_ccm() {
    comes_back_whole("good_ccm.tape", CCM);
}

/// Without its key an encrypted volume says which key it needs, and gives nothing.
#[test]
fn good_gcm_without_its_key() {
    let rebuilt = Rebuilt::from("good_gcm.tape", GCM, Keys::Absent);
    assert_eq!(rebuilt.objects(), []);
    one_problem(&rebuilt, "key");
}

#[track_caller]
fn one_problem(rebuilt: &Rebuilt, words: &str) {
    let [(_, problem)] = &rebuilt.report.problems[..] else { panic!("{:?}", rebuilt.report.problems) };
    assert!(problem.contains(words), "{words:?} is not what was found: {problem}");
}

/// A volume that lost its end has what was complete before.
#[test]
fn fail_truncated_plain() {
    let rebuilt = Rebuilt::from("fail_truncated_plain.tape", PLAIN, Keys::Imported);
    assert_eq!(rebuilt.report.complete, 1, "the second backup never ended");
    let objects = rebuilt.objects();
    let (report, source) = rebuilt.restore(&objects[0]);
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(describe(&source), expected("expected_full.txt"));
}

/// One file has lost its content, is named with volume and block, and is not left behind half; all others are whole.
fn loses_the_large_file(fixture: &str, volser: &str, words: &str) {
    let rebuilt = Rebuilt::from(fixture, volser, Keys::Imported);
    assert_eq!(rebuilt.report.problems, [], "a rebuild reads no data");
    let objects = rebuilt.objects();
    let (report, source) = rebuilt.restore(&objects[0]);
    let failed: BTreeSet<_> = report.failed.iter().map(|file| String::from_utf8_lossy(&file.path)).collect();
    assert!(failed.iter().any(|path| path.ends_with(LARGE)), "{failed:?}");
    assert!(!report.lost.is_empty(), "{report:?}");
    for damage in &report.lost {
        assert_eq!(damage.volser.as_str(), volser);
        let text = damage.to_string();
        assert!(text.contains(words) && text.contains(volser), "{words:?} is not what was found: {text}");
    }
    // Its second name goes with it, and the directory's count of what is in it.
    let lost = |line: &&str| line.starts_with(LARGE) || line.starts_with("data/second name");
    let restored = describe(&source);
    let whole: Vec<_> = expected("expected_full.txt").lines().filter(|line| !lost(line)).map(str::to_owned).collect();
    assert_eq!(restored.lines().collect::<Vec<_>>(), whole);
}

#[test]
fn fail_flipped_data_plain() {
    loses_the_large_file("fail_flipped_data_plain.tape", PLAIN, "its checksum is wrong");
}

#[test]
fn fail_flipped_data_gcm() {
    loses_the_large_file("fail_flipped_data_gcm.tape", GCM, "its checksum is wrong");
}

/// Somebody who alters an encrypted block can make its checksum right, and not its tag.
#[test]
fn fail_forged_data_ccm() {
    loses_the_large_file("fail_forged_data_ccm.tape", CCM, "its authentication tag does not match");
}

#[test]
fn fail_swapped_blocks_plain() {
    loses_the_large_file("fail_swapped_blocks_plain.tape", PLAIN, "it belongs to object");
}

#[test]
fn fail_swapped_blocks_gcm() {
    loses_the_large_file("fail_swapped_blocks_gcm.tape", GCM, "its authentication tag does not match");
}

fn has_no_label(fixture: &str, volser: &str, words: &str) {
    let rebuilt = Rebuilt::from(fixture, volser, Keys::Imported);
    assert_eq!(rebuilt.objects(), []);
    one_problem(&rebuilt, words);
}

#[test]
fn fail_flipped_label_plain() {
    has_no_label("fail_flipped_label_plain.tape", PLAIN, "its checksum is wrong");
}

#[test]
fn fail_flipped_label_ccm() {
    has_no_label("fail_flipped_label_ccm.tape", CCM, "its checksum is wrong");
}

/// A fixture that no test reads proves nothing.
#[test]
fn every_fixture_is_read() {
    let text = include_str!("mod.rs");
    for entry in fs::read_dir(fixtures()).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if name.ends_with(".tape") {
            assert!(text.contains(&format!("\"{name}\"")), "{name}");
            assert!(name.starts_with("good_") || name.starts_with("fail_"), "{name} states no verdict");
        }
    }
}
