//! What an incremental stands on: the last object of its source that can be restored, and nothing else.
//!
//! Until now it stood on the last complete one, whether anybody could read that or not; so it could not be restored
//! either, and the next one could not, until somebody made a full backup by hand.

use std::sync::{Arc, Mutex};

use capstan_catalog::Promise;
use capstan_director::{BackupRequest, Event, Level, Loss, SourceOutcome};
use capstan_format::Algorithm;
use capstan_format::{ObjectId, Volser};

use crate::place::{Bench, small, tree};

const CIPHER: Option<Algorithm> = Some(Algorithm::Aes256Gcm);

/// A bench with another encrypted pool, `apart`.
fn bench() -> Bench {
    let mut config = small();
    config.library.volume_mib = 4;
    let bench = Bench::encrypted(config, CIPHER);
    bench.site().add_pool("apart", CIPHER, None).unwrap();
    bench
}

fn to(bench: &Bench, pool: &str, level: Level) -> BackupRequest {
    BackupRequest { pool: pool.to_owned(), ..bench.request(level) }
}

/// A backup of the one source, with `count` more files in it.
fn backup(bench: &Bench, new: &str, count: u32, request: &BackupRequest) -> SourceOutcome {
    bench.fill(new, count, 100_000);
    bench.backup(request).unwrap().sources.remove(0)
}

fn volumes_of(bench: &Bench, object: ObjectId, copy: u8) -> Vec<Volser> {
    let copies = bench.site().catalog().copies(object).unwrap();
    copies.into_iter().find(|found| found.copy == copy).unwrap().volumes
}

/// Destroys the keys of a volume: with the catalog of this site told, or not.
fn destroy(bench: &Bench, volser: &Volser, told: bool) {
    let keys = bench.keys().list().unwrap();
    for key in keys.into_iter().filter(|key| key.volser == *volser) {
        match told {
            true => drop(bench.site().destroy_key(&key.tag).unwrap()),
            false => drop(bench.keys().destroy(&key.tag, 5).unwrap()),
        }
    }
}

#[track_caller]
fn assert_newest_restores(bench: &Bench, made: &SourceOutcome, name: &str) {
    let object = bench.objects().into_iter().find(|object| object.id == made.object).unwrap();
    bench.assert_restores(&object, name);
}

#[test]
fn without_a_base_that_can_be_restored_it_is_a_full_one_and_says_why() {
    for told in [true, false] {
        let bench = bench();
        // Not in the pool of what comes then, whose volumes are asked for anyhow.
        let full = backup(&bench, "a", 5, &to(&bench, "apart", Level::Full));
        let volser = volumes_of(&bench, full.object, 1).remove(0);
        destroy(&bench, &volser, told);
        let events = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&events);
        bench.set_hook(Some(Box::new(move |event| {
            if let Event::BaseUnavailable { gone, base, .. } = event {
                seen.lock().unwrap().push((gone.clone(), *base));
            }
        })));
        let made = backup(&bench, "b", 5, &bench.request(Level::Incremental));
        let gone = made.base_gone.clone().unwrap();
        assert_eq!((made.base, gone.object), (None, full.object));
        assert!(gone.reason.contains(&format!("the key of volume {volser} was destroyed")), "{}", gone.reason);
        assert!(gone.message(None).contains("is a full one"));
        assert_eq!(*events.lock().unwrap(), [(gone, None)]);
        assert_newest_restores(&bench, &made, "back");
        // The next one stands on that.
        let next = backup(&bench, "c", 5, &bench.request(Level::Incremental));
        assert_eq!((next.base, next.base_gone.clone()), (Some(made.object), None));
        assert_newest_restores(&bench, &next, "next");
        bench.rebuild();
        assert_newest_restores(&bench, &next, "rebuilt");
    }
}

#[test]
fn the_first_of_a_source_is_a_full_one_and_says_so() {
    let bench = bench();
    let said = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&said);
    bench.set_hook(Some(Box::new(move |event| {
        if let Event::Notice { message } = event {
            seen.lock().unwrap().push(message.clone());
        }
    })));
    let made = backup(&bench, "a", 5, &bench.request(Level::Incremental));
    assert_eq!((made.base, made.base_gone.clone()), (None, None));
    let said = said.lock().unwrap().join("\n");
    assert!(said.contains("no complete object") && said.contains("is a full one"), "{said}");
    assert_newest_restores(&bench, &made, "first");
    let next = backup(&bench, "b", 5, &bench.request(Level::Incremental));
    assert_eq!(next.base, Some(made.object));
}

#[test]
fn it_stands_on_the_last_one_of_a_chain_that_can_be_restored() {
    for told in [true, false] {
        let bench = bench();
        let full = backup(&bench, "a", 5, &bench.request(Level::Full));
        let first = backup(&bench, "b", 5, &bench.request(Level::Incremental));
        let second = backup(&bench, "c", 5, &to(&bench, "apart", Level::Incremental));
        assert_eq!((first.base, second.base), (Some(full.object), Some(first.object)), "nothing is lost");
        destroy(&bench, &volumes_of(&bench, second.object, 1)[0], told);
        std::fs::remove_file(bench.source().join("c-1")).unwrap();
        let third = backup(&bench, "d", 5, &bench.request(Level::Incremental));
        assert_eq!((third.base, third.base_gone.as_ref().unwrap().object), (Some(first.object), second.object));
        // What changed since the first incremental: four files of the second time and five of the third.
        assert_eq!(third.report.as_ref().unwrap().files, 9);
        assert_newest_restores(&bench, &third, "third");
        // Each point in time is what it was.
        let objects = bench.objects();
        let object = |id: ObjectId| objects.iter().find(|object| object.id == id).unwrap();
        for (wanted, is_whole) in [(&full, true), (&first, true), (&second, false), (&third, true)] {
            let name = bench.source().display().to_string();
            let found = bench.site().find_object(&name, Some(object(wanted.object).started_ns)).unwrap();
            assert_eq!(found.id, wanted.object);
            assert_eq!(bench.restore(&found, &format!("at-{}", found.id)).is_whole(), is_whole);
        }
        // With what the chain begins with, all of it is gone; the first reason that is met is the one that is told.
        destroy(&bench, &volumes_of(&bench, full.object, 1)[0], told);
        let fourth = backup(&bench, "e", 5, &to(&bench, "apart", Level::Incremental));
        assert_eq!((fourth.base, fourth.base_gone.as_ref().unwrap().object), (None, third.object));
        assert_newest_restores(&bench, &fourth, "fourth");
    }
}

#[test]
fn a_twin_that_is_left_is_enough_to_stand_on() {
    let bench = bench();
    let twins = BackupRequest { copies: 2, ..bench.request(Level::Full) };
    let full = backup(&bench, "a", 5, &twins);
    let copies = [1, 2].map(|copy| volumes_of(&bench, full.object, copy).remove(0));
    destroy(&bench, &copies[0], false);
    let first = backup(&bench, "b", 5, &bench.request(Level::Incremental));
    assert_eq!((first.base, first.base_gone.clone()), (Some(full.object), None));
    assert_newest_restores(&bench, &first, "first");
    destroy(&bench, &copies[1], false);
    let second = backup(&bench, "c", 5, &bench.request(Level::Incremental));
    let gone = second.base_gone.clone().unwrap();
    assert_eq!((second.base, gone.object), (None, first.object));
    let wanted = format!("it is based on object {}, and keys of volumes {}, {}", full.object, copies[0], copies[1]);
    assert!(gone.reason.contains(&wanted), "{}", gone.reason);
    assert_newest_restores(&bench, &second, "second");
}

#[test]
fn what_two_copies_hold_together_is_stood_on_and_what_neither_holds_is_not() {
    let bench = bench();
    let full = backup(&bench, "a", 150, &BackupRequest { copies: 2, ..bench.request(Level::Full) });
    let [first, second] = [1, 2].map(|copy| volumes_of(&bench, full.object, copy));
    assert!(first.len() > 2 && second.len() > 2, "{first:?} {second:?}");
    // The beginning of one, the end of the other.
    destroy(&bench, &first[0], true);
    destroy(&bench, &second[second.len() - 1], true);
    let one = backup(&bench, "b", 5, &bench.request(Level::Incremental));
    assert_eq!((one.base, one.base_gone.clone()), (Some(full.object), None));
    assert_newest_restores(&bench, &one, "one");
    // Nothing is left of the beginning.
    bench.site().erase(&second[0], Loss::Accept, Promise::Keep).unwrap();
    let two = backup(&bench, "c", 5, &bench.request(Level::Incremental));
    assert_eq!((two.base, two.base_gone.as_ref().unwrap().object), (None, one.object));
    assert_newest_restores(&bench, &two, "two");
}

#[test]
fn a_base_whose_volume_was_erased_or_forgotten_is_none() {
    for is_erased in [true, false] {
        let bench = bench();
        let full = backup(&bench, "a", 5, &bench.request(Level::Full));
        let volser = volumes_of(&bench, full.object, 1).remove(0);
        if is_erased {
            bench.site().erase(&volser, Loss::Accept, Promise::Keep).unwrap();
        } else {
            std::fs::remove_file(bench.cartridge(volser.as_str())).unwrap();
            bench.site().forget(&volser, Loss::Accept, Promise::Keep).unwrap();
        }
        let made = backup(&bench, "b", 5, &bench.request(Level::Incremental));
        let gone = made.base_gone.clone().unwrap();
        assert_eq!((made.base, gone.object), (None, full.object));
        assert!(gone.reason.contains("erased or forgotten"), "{}", gone.reason);
        assert_newest_restores(&bench, &made, "back");
    }
}

/// It was asked for as an incremental and was an interrupted full one, so each further try began from the beginning.
#[test]
fn a_full_one_made_for_want_of_a_base_is_gone_on_with() {
    let bench = bench();
    let full = backup(&bench, "a", 120, &to(&bench, "apart", Level::Full));
    volumes_of(&bench, full.object, 1).iter().for_each(|volser| destroy(&bench, volser, false));
    bench.interrupted(&bench.request(Level::Incremental), 2, |_| ());
    let made = backup(&bench, "b", 5, &bench.request(Level::Incremental));
    assert_eq!((made.resumed, made.base, made.base_gone.as_ref().unwrap().object), (true, None, full.object));
    assert_newest_restores(&bench, &made, "back");
}

/// A key of what an interrupted run had written was destroyed; it was gone on with, and became a whole object that
/// nobody could read.
#[test]
fn what_was_interrupted_and_cannot_be_read_is_not_gone_on_with() {
    let bench = bench();
    bench.fill("a", 120, 100_000);
    bench.interrupted(&bench.request(Level::Full), 7, |_| ());
    let volumes = volumes_of(&bench, bench.objects()[0].id, 1);
    assert!(volumes.len() > 1, "{volumes:?}");
    destroy(&bench, &volumes[0], false);
    let made = backup(&bench, "b", 1, &bench.request(Level::Full));
    assert!(!made.resumed);
    let said = bench.notices.lock().unwrap().join("\n");
    assert!(said.contains("was interrupted and is not continued: the key of volume"), "{said}");
    assert_newest_restores(&bench, &made, "back");
}

/// Renaming a directory changes nothing of the files in it, so a further name stood as it did, and was restored as what
/// its old path had by then: another file, or nothing.
#[test]
fn further_names_are_of_their_file_whatever_became_of_its_first_one() {
    use std::fs;
    for connections in [1, 4] {
        let bench = Bench::new(small());
        let at = |path: &str| bench.source().join(path);
        let back_up = |level| {
            let request = BackupRequest { connections, ..bench.request(level) };
            let made = bench.backup(&request).unwrap().sources.remove(0);
            (made.report.clone().unwrap(), made)
        };
        for folder in ["daily.0", "daily.1", "kept", "moved", "other"] {
            fs::create_dir(at(folder)).unwrap();
        }
        fs::write(at("daily.0/f"), "the file of yesterday").unwrap();
        fs::hard_link(at("daily.0/f"), at("daily.1/f")).unwrap();
        fs::write(at("moved/a"), "a file with three names").unwrap();
        fs::hard_link(at("moved/a"), at("other/b")).unwrap();
        fs::hard_link(at("moved/a"), at("kept/c")).unwrap();
        std::os::unix::fs::symlink(at("other/b"), at("moved/sign")).unwrap();
        fs::hard_link(at("moved/sign"), at("other/sign")).unwrap();
        back_up(Level::Full);
        if connections == 1 {
            let (again, _) = back_up(Level::Incremental);
            assert_eq!((again.files, again.others, again.bytes), (0, 0, 0), "what is as it was is not written again");
        }
        // As programs rotate what they keep of each day.
        fs::rename(at("daily.1"), at("daily.2")).unwrap();
        fs::rename(at("daily.0"), at("daily.1")).unwrap();
        fs::create_dir(at("daily.0")).unwrap();
        fs::write(at("daily.0/f"), "the file of today").unwrap();
        fs::rename(at("moved"), at("renamed")).unwrap();
        for round in 0..2 {
            let (_, made) = back_up(Level::Incremental);
            let out = format!("out-{round}");
            assert_newest_restores(&bench, &made, &out);
            let back = bench.path(&out).join(bench.source().strip_prefix("/").unwrap());
            assert_eq!(fs::read_to_string(back.join("daily.1/f")).unwrap(), "the file of yesterday");
            assert_eq!(tree(&back).len(), tree(&bench.source()).len());
        }
    }
}
