//! Policies that copy what others have backed up.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use capstan_catalog::{CopyState, Grant, Object, ObjectFilter, Resource, RunOutcome, Wish};
use capstan_director::{
    BackupRequest, CopyRunReport, DirectorError, JobConfig, Level, NothingOwed, OtherPolicies, Site,
};
use capstan_mover::RestoreWatch;
use capstan_mover::devices::LibraryConfig;

use crate::place::{Bench, small};

const CELL: &str = r#"
[policies.home]
sources = ["/home"]

[policies.web]
sources = ["/srv"]

[policies.offsite]
copies_of = ["home"]
pool = "vault"
"#;

/// A bench with a full backup and an incremental one of policy `home`, and one of `web` between them.
fn bench() -> Bench {
    let bench = Bench::new(small());
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    apply(&site);
    drop(site);
    bench.fill("a", 40, 50_000);
    back_up(&bench, "home", Level::Full);
    bench.fill("other/b", 20, 50_000);
    let request = BackupRequest { policy: "web".into(), ..bench.request(Level::Full) };
    bench.backup(&BackupRequest { sources: vec![bench.source().join("other")], ..request }).unwrap();
    back_up(&bench, "home", Level::Incremental);
    bench
}

fn apply(site: &Site) {
    site.change_policies(&site.plan_policies(CELL, Path::new("cell.toml"), OtherPolicies::Keep).unwrap()).unwrap();
}

fn back_up(bench: &Bench, policy: &str, level: Level) {
    let report = bench.backup(&BackupRequest { policy: policy.into(), ..bench.request(level) }).unwrap();
    assert!(report.sources[0].report.is_ok(), "{report:?}");
}

fn offsite(bench: &Bench) -> JobConfig {
    bench.site().policy("offsite").unwrap().unwrap().config
}

fn copy(site: &Site, job: &JobConfig) -> CopyRunReport {
    let mut report = CopyRunReport::default();
    site.copy_by_policy(job, &RestoreWatch::default(), &mut report).unwrap();
    report
}

fn owed(bench: &Bench, job: &JobConfig) -> (Vec<Object>, usize) {
    let owed = bench.site().copies_owed(job).unwrap();
    (owed.objects, owed.later)
}

#[test]
fn backups_of_the_policies_that_are_named_are_copied_once_the_oldest_first() {
    let bench = bench();
    let (site, job) = (bench.site(), offsite(&bench));
    let (owed_first, _) = owed(&bench, &job);
    let policies: Vec<_> = owed_first.iter().map(|object| (object.policy.as_str(), object.base.is_some())).collect();
    assert_eq!(policies, [("home", false), ("home", true)]);
    let (watch, mut report) = (RestoreWatch::default(), CopyRunReport::default());
    site.copy_by_policy(&job, &watch, &mut report).unwrap();
    assert_eq!((report.count(), report.left, report.later), (2, 0, 0), "{report:?}");
    let (taken, planned) = (watch.taken.load(Ordering::Relaxed), watch.planned.load(Ordering::Relaxed));
    assert!(report.bytes > 60 * 50_000 && (taken, planned) == (report.bytes, report.bytes), "{report:?} of {planned}");
    assert_eq!(owed(&bench, &job), (vec![], 0));
    let again = copy(&site, &job);
    assert!(again.made.copies.is_empty() && again.bytes == 0, "{again:?}");
    for object in &owed_first {
        let wanted = site.catalog().wanted_copies(object.id).unwrap();
        let of: Vec<_> = wanted.iter().map(|copy| (copy.copy, copy.pool.as_str(), copy.state)).collect();
        assert_eq!(of, [(1, "default", CopyState::Whole), (2, "vault", CopyState::Whole)]);
    }
    // What was copied comes back without the first copies.
    for volume in site.catalog().volumes().unwrap() {
        if volume.pool.as_deref() == Some("default") {
            fs::remove_file(bench.cartridge(volume.volser.as_str())).unwrap();
        }
    }
    bench.assert_restores(&owed_first[1], "from-the-vault");
}

#[test]
fn a_backup_is_copied_when_it_has_ended_for_long_enough_and_so_has_what_it_stands_on() {
    let bench = bench();
    let job = JobConfig { delay: Some("1d".into()), ..offsite(&bench) };
    assert_eq!((owed(&bench, &job).0.len(), owed(&bench, &job).1), (0, 2));
    let since = |days: i64, of: &str| {
        bench.sql(&format!(
            "UPDATE objects SET ended_ns = ended_ns - {} WHERE policy = 'home' AND base IS {of}",
            days * 86_400_000_000_000
        ));
    };
    since(2, "NOT NULL");
    assert_eq!(owed(&bench, &job).1, 2, "its base has ended just now");
    since(2, "NULL");
    assert_eq!((owed(&bench, &job).0.len(), owed(&bench, &job).1), (2, 0));
    since(-2, "NOT NULL");
    let report = copy(&bench.site(), &job);
    assert_eq!((report.count(), report.left, report.later), (1, 0, 1), "{report:?}");
}

#[test]
fn a_run_that_is_stopped_or_meets_another_job_leaves_the_rest_to_the_next() {
    let bench = bench();
    let (site, job) = (bench.site(), offsite(&bench));
    let full = owed(&bench, &job).0[0].id;
    let watch = RestoreWatch::default();
    watch.stop.store(true, Ordering::Relaxed);
    let stopped = site.copy_by_policy(&job, &watch, &mut CopyRunReport::default());
    assert!(matches!(stopped, Err(DirectorError::Interrupted)), "{stopped:?}");
    assert_eq!(owed(&bench, &job).0.len(), 2);
    // So it is with what was promised before it was stopped.
    site.catalog().promise_copies(&[(full, 2, "vault")]).unwrap();
    // Nobody has to repair what a policy copies, and no backup does: it has a time and a place of its own.
    let lacking = || site.protection().unwrap().lacking;
    assert_eq!(lacking(), []);
    back_up(&bench, "home", Level::Incremental);
    assert_eq!(site.catalog().wanted_copies(full).unwrap()[1].state, CopyState::Open);
    site.change_policies(&site.plan_removal(&["offsite".to_owned()]).unwrap()).unwrap();
    assert_eq!(lacking(), [full], "the policy is gone, and the promise is not");
    apply(&site);
    // Another job makes a copy of one.
    let wish = Wish::alone(Resource::CopyOf(full));
    let held = site.catalog().reserve(&wish, "elsewhere 1 1", i64::MAX, &|_| false).unwrap();
    let Grant::Held(generation) = held else { panic!("{held:?}") };
    let report = copy(&site, &job);
    assert_eq!((report.count(), report.left, report.failed().count()), (2, 1, 0), "{report:?}");
    assert_eq!(owed(&bench, &job).0[0].id, full);
    site.catalog().release(&[generation]).unwrap();
    assert_eq!(copy(&site, &job).count(), 1);
    assert_eq!(owed(&bench, &job), (vec![], 0));
}

/// A copy was begun, and its object written over: what a rebuild finds is what the next run goes on with.
#[test]
fn what_a_rebuild_finds_is_not_copied_again() {
    let bench = bench();
    let job = offsite(&bench);
    copy(&bench.site(), &job);
    bench.rebuild();
    let report = copy(&bench.site(), &job);
    assert!(report.made.copies.is_empty(), "{report:?}");
}

#[test]
fn a_pool_without_room_ends_the_run_and_says_so() {
    let mut config = small();
    config.library.volumes_max = 1;
    let bench = Bench::new(config);
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    bench.fill("a", 3, 5_000);
    back_up(&bench, "home", Level::Full);
    back_up(&bench, "home", Level::Full);
    let job = JobConfig { copies_of: vec!["home".into()], pool: Some("vault".into()), ..JobConfig::default() };
    let report = copy(&site, &job);
    assert_eq!((report.count(), report.failed().count()), (0, 2), "{report:?}");
    assert!(report.made.target_failed, "{report:?}");
    assert!(matches!(report.made.outcome(), Err(DirectorError::NoVolume { .. })));
}

/// The first batch was all that any run ever tried.
#[test]
fn what_cannot_be_read_keeps_nothing_newer_from_being_copied() {
    let bench = bench();
    let job = offsite(&bench);
    let full = owed(&bench, &job).0[0].id;
    let volumes = bench.site().catalog().copies(full).unwrap().remove(0).volumes;
    // A whole object of its own on another volume; and one that no drive has any more.
    bench.sql(&format!("UPDATE volumes SET state = 3 WHERE volser = '{}'", volumes[0]));
    back_up(&bench, "home", Level::Full);
    fs::rename(bench.cartridge(volumes[0].as_str()), bench.path("elsewhere")).unwrap();
    let report = copy(&bench.site(), &job);
    assert_eq!((report.count(), report.failed().count()), (1, 2), "{report:?}");
    assert!(!report.made.target_failed && matches!(report.made.outcome(), Ok(false)));
    fs::rename(bench.path("elsewhere"), bench.cartridge(volumes[0].as_str())).unwrap();
    assert_eq!(copy(&bench.site(), &job).count(), 2);
}

/// With two libraries, each of one drive: the copy of what is in one goes to the other.
#[test]
fn copies_go_to_the_library_of_their_unit_and_one_drive_cannot_do_both() {
    let mut config = small();
    config.library.drives = 1;
    let west = LibraryConfig { path: PathBuf::from("west"), ..config.library.clone() };
    config.libraries.insert("west".to_owned(), west);
    let bench = Bench::new(config);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.fill("a", 3, 50_000);
    back_up(&bench, "home", Level::Full);
    let job = JobConfig { copies_of: vec!["home".into()], pool: Some("vault".into()), ..JobConfig::default() };
    let report = copy(&bench.site(), &job);
    assert_eq!((report.count(), report.failed().count()), (0, 1), "{report:?}");
    assert!(matches!(report.made.outcome(), Err(DirectorError::OneDrive { .. })));
    let home = bench.objects()[0].id;
    assert_eq!(bench.site().catalog().wanted_copies(home).unwrap().len(), 1, "nothing is promised that cannot be");
    assert_eq!(copy(&bench.site().in_library("west").unwrap(), &job).count(), 1);
    let volumes = bench.site().catalog().volumes().unwrap();
    let of_vault: Vec<_> = volumes.iter().filter(|volume| volume.pool.as_deref() == Some("vault")).collect();
    assert!(of_vault.len() == 1 && of_vault[0].library == "west", "{of_vault:?}");
    // A third one, where there are two: what is written beside is not read, though it comes first.
    bench.site().add_pool("safe", None, None).unwrap();
    let third = JobConfig { pool: Some("safe".into()), ..job.clone() };
    assert_eq!(copy(&bench.site(), &third).count(), 1);
    let last = bench.objects().remove(0);
    assert_eq!(bench.site().whole_copies(&last).unwrap(), [1, 2, 3]);
    // Without a unit, a policy goes to where its pool is.
    assert_eq!(bench.site().unit_of(&job).unwrap().name, "west");
    assert_eq!(bench.site().unit_of(&JobConfig { unit: Some("main".into()), ..job }).unwrap().name, "main");
}

/// What was written to its end before the pool was full was said to have failed.
#[test]
fn what_was_copied_before_the_pool_was_full_is_copied() {
    let mut config = small();
    (config.library.volume_mib, config.library.volumes_max) = (8, 3);
    let bench = Bench::new(config);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.fill("a", 40, 50_000);
    for _ in 0..6 {
        back_up(&bench, "home", Level::Full);
    }
    let job = JobConfig { copies_of: vec!["home".into()], pool: Some("vault".into()), ..JobConfig::default() };
    let report = copy(&bench.site(), &job);
    let (made, failed) = (report.count(), report.failed().count());
    assert!(made > 0 && failed > 0 && made + failed == 6 && report.made.target_failed, "{report:?}");
    assert!(report.bytes >= made as u64 * 2_000_000, "{report:?}");
    assert_eq!(owed(&bench, &job).0.len(), failed);
    assert!(matches!(report.made.outcome(), Ok(false)));
}

/// Whoever waited for a volume that backups append to would keep two drives from everybody else.
#[test]
fn what_is_on_a_volume_in_use_is_left_to_the_next_run() {
    let bench = bench();
    let (site, job) = (bench.site(), offsite(&bench));
    let volume = site.catalog().volumes().unwrap().remove(0).volser;
    let held = site.catalog().reserve(&Wish::alone(Resource::Volume(volume)), "elsewhere 1 1", i64::MAX, &|_| false);
    let Grant::Held(generation) = held.unwrap() else { panic!("it is free") };
    let report = copy(&site, &job);
    assert_eq!((report.count(), report.left), (0, 2), "{report:?}");
    site.catalog().release(&[generation]).unwrap();
    assert_eq!(copy(&site, &job).count(), 2);
}

/// Without a time: by what there is to copy, and how full what it is copied from is.
#[test]
fn a_policy_runs_by_what_it_owes() {
    let mut config = small();
    (config.library.volume_mib, config.library.volumes_max) = (4, 9);
    let bench = Bench::new(config);
    let site = bench.site();
    site.add_pool("vault", None, None).unwrap();
    let applied = |rest: &str| {
        let text = format!("{CELL}{rest}\n");
        let changes = bench.site().plan_policies(&text, Path::new("cell.toml"), OtherPolicies::Keep).unwrap();
        bench.site().change_policies(&changes).unwrap();
    };
    let mut nothing = NothingOwed::default();
    let mut started = || {
        let came = bench.site().start_owed_copies(&mut nothing).unwrap();
        assert!(came.failed.is_empty(), "{:?}", came.failed);
        came.started
    };
    bench.fill("a", 20, 50_000);
    applied("");
    back_up(&bench, "home", Level::Full);
    assert_eq!(started(), [], "it has neither");
    applied("when_owed = true\ndelay = \"1h\"");
    assert_eq!(started(), [], "it is too early");
    applied("when_owed = true");
    let [one] = &started()[..] else { panic!() };
    assert_eq!((one.policy.as_str(), one.reason.as_str()), ("offsite", "1 object is to be copied"));
    assert_eq!(started(), [], "it waits already");

    // What the last run has left is not tried at once, nor what comes since.
    let run = one.run;
    let ended = |run: i64, outcome: RunOutcome, took_s: i64, ago_s: i64| {
        bench.site().catalog().cancel_run(run, bench.site().now_ns()).unwrap();
        let ended_ns = bench.site().now_ns() - ago_s * 1_000_000_000;
        let (started_ns, outcome) = (ended_ns - took_s * 1_000_000_000, outcome as u8);
        bench.sql(&format!(
            "UPDATE done_runs SET started_ns = {started_ns}, ended_ns = {ended_ns}, outcome = {outcome} WHERE run = {run}"
        ));
    };
    ended(run, RunOutcome::Failed, 1, 300);
    back_up(&bench, "home", Level::Incremental);
    assert_eq!(started(), [], "it was tried five minutes ago");
    ended(run, RunOutcome::Failed, 1, 601);
    assert_eq!(started()[0].reason, "2 objects are to be copied");
    // After one that went well, what came since waits four times as long as that took, and ten minutes at most.
    ended(run + 1, RunOutcome::Succeeded, 60, 200);
    back_up(&bench, "home", Level::Incremental);
    assert_eq!(started(), []);
    ended(run + 1, RunOutcome::Succeeded, 60, 241);
    assert_eq!(started()[0].reason, "3 objects are to be copied");
    ended(run + 2, RunOutcome::Succeeded, 7_200, 601);
    back_up(&bench, "home", Level::Incremental);
    assert_eq!(started()[0].reason, "4 objects are to be copied");
    ended(run + 3, RunOutcome::Succeeded, 0, 0);
    copy(&bench.site(), &offsite(&bench));
    assert_eq!(started(), [], "nothing is owed");

    // A clock that was ahead by a year: the copy was put off until then.
    back_up(&bench, "home", Level::Incremental);
    let year = 366 * 86_400_000_000_000_i64;
    let last = bench.site().catalog().objects(&ObjectFilter::default()).unwrap().remove(0).id;
    bench.sql(&format!("UPDATE objects SET ended_ns = ended_ns + {year} WHERE object = x'{last}'"));
    let (objects, later) = owed(&bench, &offsite(&bench));
    assert_eq!((objects.iter().map(|object| object.id).collect::<Vec<_>>(), later), (vec![last], 0));
    let delayed = JobConfig { delay: Some("1h".to_owned()), ..offsite(&bench) };
    let later = bench.site().copies_owed(&delayed).unwrap();
    let hour = bench.site().now_ns() + 3_600_000_000_000;
    assert!(later.later == 1 && later.next_ns.is_some_and(|next_ns| next_ns <= hour), "{later:?}");
    copy(&bench.site(), &offsite(&bench));

    // Of 38 MB, 2 are taken, and then 11.
    applied("when_above = 20");
    back_up(&bench, "home", Level::Full);
    assert_eq!(started(), []);
    bench.fill("b", 20, 400_000);
    back_up(&bench, "home", Level::Full);
    // What else is in the library fills it as well.
    let reason = started().remove(0).reason;
    assert!(
        reason.starts_with("library main is ") && reason.ends_with(" % full, and 2 objects are to be copied"),
        "{reason}"
    );
    for (rest, key) in [("when_above = 100", "when_above"), ("when_owed = true\nwhen_above = 9", "when_above")] {
        let refused = bench.site().plan_policies(&format!("{CELL}{rest}\n"), Path::new("x"), OtherPolicies::Keep);
        assert!(refused.unwrap_err().to_string().contains(key));
    }
}
