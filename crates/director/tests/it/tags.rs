//! Tags: words by which an object is found, wherever it goes.

use capstan_director::{BackupRequest, DirectorError, Level, Target};
use capstan_format::TAGS_MAX;

use crate::place::{Bench, small};

fn words(tags: &[&str]) -> Vec<String> {
    tags.iter().map(|&tag| tag.to_owned()).collect()
}

#[test]
fn an_object_keeps_its_tags_on_each_of_its_volumes() {
    let bench = Bench::new(small());
    bench.site().add_pool("default-copy2", None, None).unwrap();
    bench.fill("a", 20, 50_000);
    let tags = words(&["before upgrade", "release=1.2"]);
    let request = BackupRequest { tags: tags.clone(), copies: 2, ..bench.request(Level::Full) };
    bench.backup(&request).unwrap();
    bench.backup(&BackupRequest { copies: 2, ..bench.request(Level::Incremental) }).unwrap();
    let kept = || bench.objects().into_iter().map(|object| object.tags).collect::<Vec<_>>();
    assert_eq!(kept(), [Vec::new(), tags.clone()]);
    bench.rebuild();
    assert_eq!(kept(), [Vec::new(), tags.clone()]);
    // And by the other copy alone.
    for volume in bench.site().catalog().volumes().unwrap() {
        if volume.pool.as_deref() == Some("default") {
            std::fs::remove_file(bench.cartridge(volume.volser.as_str())).unwrap();
        }
    }
    bench.rebuild();
    assert_eq!(kept(), [Vec::new(), tags]);
}

/// A backup that goes on with what was interrupted is asked for with other words.
#[test]
fn what_goes_on_has_the_tags_of_both() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 300_000);
    let tagged = |tags: &[&str]| BackupRequest { tags: words(tags), ..bench.request(Level::Full) };
    bench.interrupted(&tagged(&["first", "both"]), 1, |_| {});
    assert_eq!(bench.objects()[0].tags, words(&["first", "both"]));
    let report = bench.backup(&tagged(&["both", "second"])).unwrap();
    assert!(report.sources[0].resumed);
    let all = words(&["first", "both", "second"]);
    assert_eq!(bench.objects()[0].tags, all);
    bench.rebuild();
    assert_eq!(bench.objects()[0].tags, all);
}

#[test]
fn what_can_be_no_tag_is_refused_before_anything_is_read() {
    let bench = Bench::new(small());
    bench.fill("a", 1, 10);
    let many: Vec<_> = (0..=TAGS_MAX).map(|number| number.to_string()).collect();
    let long = "x".repeat(129);
    for tags in [words(&[""]), words(&["a\nb"]), words(&[&long]), words(&["a", "b", "a"]), many] {
        let request = BackupRequest { tags: tags.clone(), ..bench.request(Level::Full) };
        let refused = bench.backup(&request);
        assert!(matches!(refused, Err(DirectorError::Tag { .. })), "{tags:?}: {refused:?}");
    }
    assert!(bench.objects().is_empty());
    let nowhere = BackupRequest { target: Target::Null, tags: words(&["x"]), ..bench.request(Level::Full) };
    bench.backup(&nowhere).unwrap();
}
