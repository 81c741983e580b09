//! Volumes that hold more than the catalog knows: what is blamed on them, and what is not.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod place;

use capstan_director::{DirectorError, Level, Volser, VolumeState};
use place::{Bench, copy_tree, small};

fn volser(name: &str) -> Volser {
    Volser::new(name).unwrap()
}

/// A backup is interrupted twice; the catalog is put back to what it was between.
fn volume_ahead_of_the_catalog() -> Bench {
    let bench = Bench::new(small());
    bench.fill("a", 200, 150_000);
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    copy_tree(&bench.path("state/catalog"), &bench.path("saved"));
    bench.interrupted(&bench.request(Level::Full), 2, |_| ());
    bench.put_back("saved", "state/catalog");
    bench
}

fn state_of(bench: &Bench, name: &str) -> VolumeState {
    bench.site().catalog().volume(&volser(name)).unwrap().unwrap().state
}

#[test]
fn a_catalog_that_cannot_be_written_makes_no_volume_suspect() {
    // Whatever went wrong while the catalog caught up with a volume set the volume aside: a full disk cost a good volume.
    let bench = volume_ahead_of_the_catalog();
    bench.sql("CREATE TRIGGER no_room BEFORE INSERT ON checkpoints BEGIN SELECT RAISE(FAIL, 'no room'); END");
    let ended = bench.backup(&bench.request(Level::Full));
    assert!(matches!(ended, Err(DirectorError::Catalog(_))), "{ended:?}");
    // A run that has nothing to take up meets the same where it appends.
    bench.fill("../other/b", 2, 1000);
    let mut other = bench.request(Level::Full);
    other.sources = vec![bench.path("other")];
    let ended = bench.backup(&other);
    assert!(matches!(ended, Err(DirectorError::Catalog(_))), "{ended:?}");
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Filling);
    bench.sql("DROP TRIGGER no_room");
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(report.sources[0].resumed);
    bench.assert_restores(&bench.objects()[0], "out");
}

#[test]
fn a_volume_whose_checkpoints_pass_over_the_one_that_is_known_is_another() {
    // What was written behind the last checkpoint was recorded without looking whether it leads back to it.
    let bench = volume_ahead_of_the_catalog();
    bench.sql("UPDATE volumes SET checkpoint_lbn = checkpoint_lbn + 1");
    let report = bench.backup(&bench.request(Level::Full)).unwrap();
    assert!(!report.sources[0].resumed);
    assert_eq!(state_of(&bench, "A00001"), VolumeState::Suspect);
    assert!(bench.notices.lock().unwrap().iter().any(|notice| notice.contains("do not lead back")));
}
