//! Backups that are cut off in the middle of large files: what is on the volumes of one is not written again.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use capstan_catalog::{Object, ObjectStatus, Promise};
use capstan_director::{BackupReport, BackupRequest, Level, Loss, Shortfall, Site};
use capstan_format::ObjectId;
use capstan_mover::RestoreWatch;

use crate::place::{Bench, noise, small, tree};

const MIB: u64 = 1 << 20;
/// One connection marks a file each 16 MiB.
const LARGE_LEN: u64 = 44 * MIB;

/// A large file, one with holes, and small ones.
fn bench() -> Bench {
    let mut config = small();
    // The large file is on several volumes.
    config.library.volume_mib = 32;
    let bench = Bench::new(config);
    bench.fill("a", 20, 150_000);
    fs::write(bench.source().join("large"), noise(5, LARGE_LEN as usize)).unwrap();
    bench.fill("z", 20, 150_000);
    bench
}

/// One connection reads the large file: where both do, each has a file to be cut off in.
fn request(bench: &Bench) -> BackupRequest {
    BackupRequest { connections: 1, ..bench.request(Level::Full) }
}

fn only(bench: &Bench) -> Object {
    let [object] = &bench.objects()[..] else { panic!("one object") };
    object.clone()
}

fn bytes_read(report: &BackupReport) -> u64 {
    assert!(report.sources[0].resumed, "{report:?}");
    report.plain_bytes
}

/// What any program makes of the object's own stream.
fn assert_archive_is_whole(bench: &Bench, object: ObjectId) {
    let (archive, out) = (bench.path("archive.tar"), bench.path("untarred"));
    bench.site().cat_object(object, &mut File::create(&archive).unwrap()).unwrap();
    fs::create_dir(&out).unwrap();
    // Streams are laid end to end: more may follow for a directory that tar takes for done.
    let tar = Command::new("tar")
        .arg("--delay-directory-restore")
        .arg("-xf")
        .arg(&archive)
        .arg("-C")
        .arg(&out)
        .output()
        .unwrap();
    assert!(tar.status.success(), "{}", String::from_utf8_lossy(&tar.stderr));
    assert_eq!(tree(&out.join(bench.source().strip_prefix("/").unwrap())), tree(&bench.source()));
    fs::remove_dir_all(out).unwrap();
}

fn erase_first_copy(site: &Site, object: &Object) {
    let copies = site.catalog().copies(object.id).unwrap();
    for volser in &copies[0].volumes {
        site.erase(volser, Loss::Accept, Promise::Drop).unwrap();
    }
}

#[test]
fn a_file_goes_on_where_it_was_cut_off_and_reads_back_as_one() {
    let bench = bench();
    let request = request(&bench);
    // Twice in the large file: it lies in three streams.
    bench.interrupted(&request, 20, |_| ());
    bench.interrupted(&request, 20, |_| ());
    let read = bytes_read(&bench.backup(&request).unwrap());
    assert!((MIB..20 * MIB).contains(&read), "{} MiB were read again or for the first time", read / MIB);
    let object = only(&bench);
    assert_eq!(object.status, ObjectStatus::Complete);
    let chained = bench.site().catalog().fragments(object.id).unwrap();
    assert_eq!(chained.iter().filter(|(_, fragment)| fragment.continues.is_some()).count(), 2, "{chained:?}");
    bench.assert_restores(&object, "out");
    assert_archive_is_whole(&bench, object.id);
    let site = bench.site();
    let verified = site.verify_objects(std::slice::from_ref(&object), &RestoreWatch::default()).unwrap();
    assert!(verified.iter().all(|copy| copy.report.is_whole() && copy.report.behind == 0), "{verified:?}");
    let volumes = site.catalog().volumes().unwrap();
    for volume in volumes {
        let verified = site.verify_volume(&volume.volser, &RestoreWatch::default()).unwrap();
        assert!(verified.is_whole() && verified.behind == 0, "{verified:?}");
    }
    drop(site);

    // The next one stands on it, and has nothing to do.
    let next = bench.backup(&bench.request(Level::Incremental)).unwrap();
    assert_eq!(next.sources[0].report.as_ref().unwrap().files, 0);
    let dump = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), dump);
    bench.assert_restores(&object, "rebuilt");
    assert_archive_is_whole(&bench, object.id);
}

#[test]
fn a_copy_of_a_file_that_was_cut_off_is_as_good_as_the_first() {
    let bench = bench();
    bench.interrupted(&request(&bench), 20, |_| ());
    bytes_read(&bench.backup(&request(&bench)).unwrap());
    let object = only(&bench);
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    site.copy_objects(std::slice::from_ref(&object), "vault", &RestoreWatch::default()).unwrap();
    erase_first_copy(&site, &object);
    drop(site);
    bench.assert_restores(&object, "out");
    bench.rebuild();
    bench.assert_restores(&object, "rebuilt");
    assert_archive_is_whole(&bench, object.id);
}

#[test]
fn a_file_that_changed_since_is_read_from_its_beginning() {
    let bench = bench();
    bench.interrupted(&request(&bench), 20, |_| ());
    let large = File::options().write(true).open(bench.source().join("large")).unwrap();
    large.write_all_at(b"changed", 3).unwrap();
    let read = bytes_read(&bench.backup(&request(&bench)).unwrap());
    assert!(read > LARGE_LEN, "{} MiB", read / MIB);
    bench.assert_restores(&only(&bench), "out");
    assert_archive_is_whole(&bench, only(&bench).id);
}

#[test]
fn a_file_that_is_gone_or_left_out_since_is_no_longer_there() {
    for leaves_out in [false, true] {
        let bench = bench();
        bench.interrupted(&request(&bench), 20, |_| ());
        let mut next = request(&bench);
        match leaves_out {
            true => next.tree.excludes = vec!["large".to_owned()],
            false => fs::remove_file(bench.source().join("large")).unwrap(),
        }
        assert!(bytes_read(&bench.backup(&next).unwrap()) < 10 * MIB);
        let object = only(&bench);
        let kept = bench.path("kept");
        if leaves_out {
            fs::rename(bench.source().join("large"), &kept).unwrap();
        }
        bench.assert_restores(&object, "out");
    }
}

/// Whatever comes twice, the later one counts, in the archive, too; and a link stands behind what it is a name of.
#[test]
fn several_files_that_were_cut_off_go_on_in_any_streams() {
    let mut config = small();
    config.library.volume_mib = 32;
    config.library.drives = 2;
    let bench = Bench::new(config);
    for (number, len) in [24, 40, 30].into_iter().enumerate() {
        fs::write(bench.source().join(format!("large-{number}")), noise(number as u64 + 5, len * MIB as usize))
            .unwrap();
    }
    bench.fill("a", 30, 150_000);
    fs::hard_link(bench.source().join("a-0"), bench.source().join("name")).unwrap();
    let on = |connections| BackupRequest { connections, ..bench.request(Level::Full) };
    bench.interrupted(&on(3), 56, |_| ());
    // Some of these were there already.
    bench.fill("a", 10, 160_000);
    // Fewer streams than files that were cut off.
    bench.interrupted(&on(1), 16, |_| ());
    bench.fill("a", 10, 170_000);
    fs::hard_link(bench.source().join("large-2"), bench.source().join("second")).unwrap();
    bench.interrupted(&on(2), 8, |_| ());
    bytes_read(&bench.backup(&on(2)).unwrap());
    let object = only(&bench);
    bench.assert_restores(&object, "out");
    assert_archive_is_whole(&bench, object.id);
    let site = bench.site();
    let verified = site.verify_objects(std::slice::from_ref(&object), &RestoreWatch::default()).unwrap();
    assert!(verified.iter().all(|copy| copy.report.is_whole() && copy.report.behind == 0), "{verified:?}");
    drop(site);
    let dump = bench.dump();
    bench.rebuild();
    assert_eq!(bench.dump(), dump);
    bench.assert_restores(&object, "rebuilt");
    assert_archive_is_whole(&bench, object.id);
}

/// The second copy is made while the object is open, and mended when it is not.
#[test]
fn a_copy_of_what_was_cut_off_is_mended_when_the_file_is_whole() {
    let bench = bench();
    bench.interrupted(&request(&bench), 20, |_| ());
    let object = only(&bench);
    bench.site().add_pool("default-copy2", None, None).unwrap();
    bench.site().copy_objects(std::slice::from_ref(&object), "default-copy2", &RestoreWatch::default()).unwrap();
    bytes_read(&bench.backup(&request(&bench)).unwrap());
    let site = bench.site();
    site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    erase_first_copy(&site, &object);
    drop(site);
    bench.assert_restores(&object, "out");
    assert_archive_is_whole(&bench, object.id);
}

#[test]
fn a_file_with_holes_goes_on_behind_them() {
    let bench = Bench::new(small());
    let sparse = File::create(bench.source().join("sparse")).unwrap();
    sparse.set_len(100 * MIB).unwrap();
    for (number, at) in [1, 20, 60, 61, 99].into_iter().enumerate() {
        let len = if number == 1 { 32 * MIB } else { MIB };
        sparse.write_all_at(&noise(number as u64 + 3, len as usize), at * MIB).unwrap();
    }
    bench.interrupted(&request(&bench), 20, |_| ());
    let read = bytes_read(&bench.backup(&request(&bench)).unwrap());
    assert!(read < 22 * MIB, "{} MiB", read / MIB);
    let object = only(&bench);
    bench.assert_restores(&object, "out");
    assert_archive_is_whole(&bench, object.id);
}
