//! What a client gets back over a network: whole, in part, going on, or cut off.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::spawn;
use std::time::Duration;

use capstan_director::{Level, Place, RestorePlan};
use capstan_mover::RestoreWatch;
use capstan_mover::extract::Overwrite;

use crate::over_network::{ask, backup, restore, restore_as_planned, restore_watched, unbroken};
use crate::place::{Bench, small};

#[test]
fn a_client_gets_back_what_it_had() {
    let mut config = small();
    config.data.compression_level = 1;
    let bench = Bench::new(config);
    bench.fill("a", 40, 150_000);
    bench.fill("deep/er/b", 200, 700);
    std::fs::write(bench.source().join("zeros"), vec![0; 3_000_000]).unwrap();
    std::fs::hard_link(bench.source().join("a-1"), bench.source().join("deep/link")).unwrap();
    std::os::unix::fs::symlink("../a-2", bench.source().join("deep/soft")).unwrap();
    let network = unbroken();
    backup(&bench, &network, Level::Full).unwrap();
    std::fs::remove_file(bench.source().join("a-3")).unwrap();
    bench.fill("c", 5, 70_000);
    backup(&bench, &network, Level::Incremental).unwrap();
    let latest = bench.objects().into_iter().max_by_key(|object| object.id).unwrap();
    let to = bench.path("at-the-client");
    let (report, written) = restore(&bench, &network, latest.id, &to);
    let report = report.unwrap();
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(written, report.extract.as_ref().map(|extract| extract.files));
    let source = bench.source();
    let restored = to.join(source.strip_prefix("/").unwrap());
    assert_eq!(crate::place::tree(&restored), crate::place::tree(&source));
    // Nothing that is there is touched a second time.
    let (again, _) = restore(&bench, &network, latest.id, &to);
    let again = again.unwrap().extract.unwrap();
    assert_eq!((again.files, again.bytes), (0, 0), "{again:?}");
}

#[test]
fn a_restore_that_goes_on_reads_what_is_missing() {
    let bench = Bench::new(small());
    bench.fill("a", 60, 150_000);
    bench.fill("deep/er/b", 5_000, 300);
    std::fs::hard_link(bench.source().join("a-1"), bench.source().join("deep/link")).unwrap();
    backup(&bench, &unbroken(), Level::Full).unwrap();
    let (object, to, source) = (bench.objects()[0].id, bench.path("at-the-client"), bench.source());
    let goes_on = || {
        let (network, watch) = (unbroken(), RestoreWatch::default());
        restore_watched(&bench, &network, object, (&to, Overwrite::Changed), &watch).0.unwrap()
    };
    let first = goes_on();
    let written = first.extract.as_ref().unwrap();
    assert_eq!((written.files, written.unchanged), (5_060, 0), "{first:?}");
    let restored = to.join(source.strip_prefix("/").unwrap());
    std::fs::remove_file(restored.join("a-7")).unwrap();
    std::fs::write(restored.join("deep/er/b-3"), "another").unwrap();
    // As it is left by a restore that was killed.
    std::fs::set_permissions(restored.join("a-9"), Permissions::from_mode(0o200)).unwrap();
    let second = goes_on();
    assert!(second.is_whole(), "{second:?}");
    assert!(second.blocks < first.blocks / 2, "{} blocks of {}", second.blocks, first.blocks);
    let written = second.extract.as_ref().unwrap();
    // The hard link is there, too.
    assert_eq!((written.files, written.unchanged), (3, 5_058), "{second:?}");
    assert_eq!(crate::place::tree(&restored), crate::place::tree(&source));
}

#[test]
fn a_client_keeps_what_can_be_read_of_a_damaged_file() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 15_000);
    let content: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).map(|byte| byte | 1).collect();
    std::fs::write(bench.source().join("large"), &content).unwrap();
    backup(&bench, &unbroken(), Level::Full).unwrap();
    let (object, to, source) = (bench.objects()[0].id, bench.path("at-the-client"), bench.source());
    let cartridge = bench.cartridge("A00001");
    let bytes = std::fs::read(&cartridge).unwrap();
    let at = bytes.windows(9).position(|window| window == &content[2_000_000..2_000_009]).unwrap();
    let file = std::fs::File::options().write(true).open(&cartridge).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"ZZZZZZZZ", at as u64).unwrap();
    let watch = RestoreWatch::default();
    let keeps = |plan: &mut RestorePlan| plan.keep_damaged = true;
    let into = (&*to, Overwrite::Never);
    let (report, written) = restore_as_planned(&bench, &unbroken(), object, into, (&watch, &keeps));
    let report = report.unwrap();
    assert_eq!((written, report.failed.len()), (Some(3), 1), "{report:?}");
    assert!(report.failed[0].reason.contains("with .damaged added"), "{report:?}");
    let restored = to.join(source.strip_prefix("/").unwrap());
    assert!(!restored.join("large").exists() && restored.join("a-1").exists());
    let kept = std::fs::read(restored.join("large.damaged")).unwrap();
    assert_eq!(kept.len(), content.len());
    assert!(kept.contains(&0) && kept.iter().zip(&content).all(|(is, was)| is == was || *is == 0));
}

#[test]
fn a_restore_that_cannot_be_written_or_is_cut_off_says_so() {
    let bench = Bench::new(small());
    bench.fill("a", 60, 150_000);
    backup(&bench, &unbroken(), Level::Full).unwrap();
    let object = bench.objects()[0].id;
    // A file where the directory should be.
    let file = bench.path("file");
    std::fs::write(&file, "in the way").unwrap();
    let (report, written) = restore(&bench, &unbroken(), object, &file.join("below"));
    let text = capstan_tape::with_causes(&report.unwrap_err());
    assert!(written.is_none() && text.contains("web1"), "{text}");
    // A client that only waits for orders writes nothing.
    let refused = ask(|job| {
        let site = bench.site();
        let plan = site.plan_restore(&[Place { object, paths: Vec::new() }]).unwrap();
        capstan_tape::with_causes(&site.restore_to_client(&plan, job, &RestoreWatch::default()).unwrap_err())
    });
    assert!(refused.contains("that was not typed there"), "{refused}");
    // The client dies: what the mover sends finds nobody.
    let network = unbroken();
    let down = Arc::clone(&network.is_down);
    let dies = spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        down.store(true, Ordering::Relaxed);
    });
    let (report, _) = restore(&bench, &network, object, &bench.path("cut"));
    dies.join().unwrap();
    if let Err(error) = report {
        let text = capstan_tape::with_causes(&error);
        assert!(text.contains("web1"), "{text}");
    }
    bench.assert_restores(&bench.objects()[0], "afterwards");
}
