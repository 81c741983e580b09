//! Full objects that are made of incrementals and of what those stand on.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use capstan_catalog::{Object, ObjectFilter, ObjectStatus};
use capstan_director::{Consolidated, DirectorError, Event, ExpiryRequest, KeepRule, Level, Place, Shortfall, Site};
use capstan_format::{FileEntry, Volser};
use capstan_mover::RestoreWatch;

use crate::place::{Bench, noise, small};

fn consolidate(site: &Site, object: &Object) -> Result<Consolidated, DirectorError> {
    let pool = site.pool_to_consolidate(object)?;
    site.consolidate(object, &pool, Shortfall::Fail, &RestoreWatch::default())
}

/// One that is stopped once something happens; it waits for volumes.
fn stopped_when(
    bench: &Bench,
    object: &Object,
    pool: &str,
    happens: fn(&Event) -> bool,
) -> Result<Consolidated, DirectorError> {
    let watch = RestoreWatch::default();
    let stop = Arc::clone(&watch.stop);
    bench.set_hook(Some(Box::new(move |event| {
        if happens(event) {
            stop.store(true, Ordering::Relaxed);
        }
    })));
    let stopped = bench.site().consolidate(object, pool, Shortfall::Wait, &watch);
    bench.set_hook(None);
    stopped
}

fn back_up(bench: &Bench, level: Level) -> Object {
    let report = bench.backup(&bench.request(level)).unwrap();
    let made = report.sources[0].object;
    bench.site().catalog().object(made).unwrap().unwrap()
}

/// A source that changes: files that come, go, change and get further names, and directories that become files.
struct Changing<'b> {
    bench: &'b Bench,
    seed: u64,
}

impl Changing<'_> {
    fn next(&mut self, below: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn change(&mut self) {
        for _ in 0..40 {
            let directory = self.bench.source().join(format!("d{}", self.next(5)));
            if directory.is_file() {
                fs::remove_file(&directory).unwrap();
            }
            fs::create_dir_all(&directory).unwrap();
            let path = directory.join(format!("f{}", self.next(12)));
            match self.next(10) {
                0 | 1 => drop(fs::remove_file(&path)),
                2 => {
                    let other = directory.join(format!("f{}", self.next(12)));
                    if path.is_file() && !other.exists() {
                        fs::hard_link(&path, &other).unwrap();
                    }
                }
                3 => {
                    fs::remove_dir_all(&directory).unwrap();
                    fs::write(&directory, "a file now").unwrap();
                }
                4 if path.is_file() => {
                    let mode = 0o600 + self.next(0o60) as u32;
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
                }
                _ => {
                    drop(fs::remove_file(&path));
                    let (seed, len) = (self.next(1 << 30), self.next(60_000) as usize);
                    fs::write(&path, noise(seed, len)).unwrap();
                }
            }
        }
    }
}

/// What a state says of each path, but for where the member stands.
fn state(site: &Site, object: &Object) -> BTreeMap<Vec<u8>, FileEntry> {
    let state = site.catalog().state(object.id).unwrap();
    let entry = |found: Result<capstan_catalog::StateEntry, _>| {
        let entry: FileEntry = found.unwrap().entry;
        (entry.path.clone(), FileEntry { connection: 0, offset: 0, ..entry })
    };
    state.iter().map(entry).collect()
}

fn ids(objects: &[Object]) -> Vec<String> {
    objects.iter().map(|object| object.id.to_string()).collect()
}

#[test]
fn what_is_made_of_a_chain_is_what_a_full_backup_would_have_been() {
    let seed = crate::place::now_ns().cast_unsigned();
    println!("seed {seed}");
    let bench = Bench::new(small());
    let mut source = Changing { bench: &bench, seed };
    let mut chain = Vec::new();
    for number in 0..6 {
        source.change();
        chain.push(back_up(&bench, if number == 0 { Level::Full } else { Level::Incremental }));
    }
    let last = chain[5].clone();
    let done = consolidate(&bench.site(), &last).unwrap();
    assert_eq!((done.of, done.chain, done.written_before), (last.id, 6, 0));
    let full = bench.site().catalog().object(done.object).unwrap().unwrap();
    assert_eq!((full.status, full.base, full.consolidates), (ObjectStatus::Complete, None, Some(last.id)));
    assert_eq!((full.started_ns, full.ended_ns, full.expires_ns), (last.started_ns, last.ended_ns, last.expires_ns));
    assert_eq!(state(&bench.site(), &full), state(&bench.site(), &last));
    bench.assert_restores(&full, "full");
    assert_eq!(bench.site().catalog().chain(full.id).unwrap(), [full.id]);

    // It is the base of what comes next, and what was there before can go.
    source.change();
    let next = back_up(&bench, Level::Incremental);
    assert_eq!(next.base, Some(full.id));
    let request = ExpiryRequest { named: chain.iter().map(|object| object.id).collect(), ..ExpiryRequest::default() };
    let site = bench.site();
    site.expire(&site.plan_expiry(&request).unwrap(), &request).unwrap();
    assert_eq!(ids(&bench.objects()), ids(&[next.clone(), full]));
    bench.assert_restores(&next, "next");
    let known = bench.dump();
    bench.rebuild();
    let rebuilt = bench.dump();
    let lost: Vec<_> = known.iter().filter(|line| !rebuilt.contains(line) && !line.contains("\"volume\"")).collect();
    assert!(lost.is_empty(), "{lost:?}");
    bench.assert_restores(&next, "rebuilt");
}

/// A backup may have been made on the last incremental before a full one is made of that.
#[test]
fn what_was_based_on_an_object_stands_on_the_one_that_was_made_of_it() {
    let bench = Bench::new(small());
    bench.fill("a", 10, 30_000);
    let first = back_up(&bench, Level::Full);
    bench.fill("b", 10, 30_000);
    let second = back_up(&bench, Level::Incremental);
    bench.fill("a", 2, 20_000);
    let third = back_up(&bench, Level::Incremental);
    let done = consolidate(&bench.site(), &second).unwrap();
    let site = bench.site();
    let objects = bench.objects();
    let wanted = [third.id, done.object, second.id, first.id];
    assert_eq!(objects.iter().map(|object| object.id).collect::<Vec<_>>(), wanted, "it takes its place");
    assert_eq!(objects[0].base, Some(done.object));
    assert_eq!(site.catalog().chain(third.id).unwrap(), [third.id, done.object]);
    assert_eq!(site.catalog().dependents(done.object).unwrap(), [third.id]);
    assert_eq!((site.catalog().dependents(second.id).unwrap(), second.base), (vec![], Some(first.id)));
    let timeline = site.timeline().unwrap();
    assert_eq!(timeline.begun(done.object), timeline.begun(second.id));
    bench.assert_restores(&third, "third");
    assert!(matches!(site.catalog().expire(done.object, 1), Err(capstan_catalog::CatalogError::BaseOfLiving { .. })));

    // Where its volume was erased, all is as it was before; and it can be made once more.
    let volume = site.catalog().copies(done.object).unwrap()[0].volumes[0].clone();
    drop(site);
    fs::remove_file(bench.cartridge(volume.as_str())).unwrap();
    bench.rebuild();
    assert_eq!(bench.objects()[0].base, Some(second.id), "made on it");
    let again = consolidate(&bench.site(), &second).unwrap();
    assert_eq!(bench.objects()[0].base, Some(again.object));
    bench.assert_restores(&third, "again");
}

#[test]
fn what_was_stopped_goes_on_and_no_backup_takes_it_for_its_own() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 60_000);
    back_up(&bench, Level::Full);
    bench.fill("b", 20, 30_000);
    let last = back_up(&bench, Level::Incremental);
    let stopped = stopped_when(&bench, &last, "default", |event| matches!(event, Event::Checkpoint { .. }));
    assert!(matches!(stopped, Err(DirectorError::ConsolidationStopped { object }) if object == last.id), "{stopped:?}");
    let open = ObjectFilter { status: Some(ObjectStatus::Open), ..ObjectFilter::default() };
    let begun = bench.site().catalog().objects(&open).unwrap().remove(0);
    assert_eq!(begun.consolidates, Some(last.id));
    // A full backup would have continued it, as one that is open and full.
    let full = back_up(&bench, Level::Full);
    assert_ne!(full.id, begun.id);
    let done = consolidate(&bench.site(), &last).unwrap();
    assert_eq!(done.object, begun.id);
    assert!(done.written_before > 10 && done.members > 10, "{done:?}");
    let object = bench.site().catalog().object(done.object).unwrap().unwrap();
    assert_eq!(state(&bench.site(), &object), state(&bench.site(), &last));
    bench.assert_restores(&object, "full");
    assert_eq!(bench.site().protection().unwrap().lacking, []);
}

/// One that was begun and is of no use any more would have been listed as interrupted for ever.
#[test]
fn what_was_begun_of_an_earlier_incremental_is_given_up() {
    let bench = Bench::new(small());
    bench.fill("a", 100, 60_000);
    back_up(&bench, Level::Full);
    bench.fill("b", 20, 30_000);
    let second = back_up(&bench, Level::Incremental);
    stopped_when(&bench, &second, "default", |event| matches!(event, Event::Checkpoint { .. })).unwrap_err();
    bench.fill("c", 20, 30_000);
    let third = back_up(&bench, Level::Incremental);
    let open = || bench.objects().into_iter().filter(|object| object.status == ObjectStatus::Open).count();
    assert_eq!(open(), 1);
    let done = consolidate(&bench.site(), &third).unwrap();
    assert_eq!(open(), 0);
    assert_eq!(bench.objects()[0].id, done.object);
    bench.assert_restores(&bench.objects()[0], "third");
}

#[test]
fn what_cannot_be_read_or_made_full_is_named() {
    let bench = Bench::new(small());
    bench.fill("a", 30, 60_000);
    let first = back_up(&bench, Level::Full);
    let reason = |object: &Object| match consolidate(&bench.site(), object) {
        Err(DirectorError::NotConsolidated { object: named, reason }) if named == object.id => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(reason(&first), "it is full already");
    bench.fill("b", 3, 100);
    let last = back_up(&bench, Level::Incremental);
    let volume = bench.site().catalog().copies(first.id).unwrap()[0].volumes[0].clone();
    let (place, away) = (bench.cartridge(volume.as_str()), bench.path("away"));
    fs::rename(&place, &away).unwrap();
    assert_eq!(reason(&last), format!("parts of it are on {volume}: bring in what is not here"));
    fs::rename(&away, &place).unwrap();
    let (whole, mut content) = (fs::read(&place).unwrap(), fs::read(&place).unwrap());
    let middle = content.len() / 2;
    content[middle..middle + 100].fill(0x55);
    fs::write(&place, content).unwrap();
    let said = reason(&last);
    assert!(said.contains(&format!("of volume {volume} cannot be read")) && said.contains("--full"), "{said}");
    assert!(bench.site().protection().unwrap().protected.iter().all(|object| object.consolidates.is_none()));
    // Once it can be read again, it goes on with what was written.
    fs::write(&place, whole).unwrap();
    bench.sql("DELETE FROM damage");
    let done = consolidate(&bench.site(), &last).unwrap();
    assert!(done.written_before + done.members > 30, "{done:?}");
    assert_eq!(reason(&last), format!("object {} was made of it before, and stands for it", done.object));
    bench.assert_restores(&bench.objects()[0], "full");
}

/// Blocks that one copy lacks come from another.
#[test]
fn what_is_damaged_in_one_copy_is_read_from_another() {
    let mut config = small();
    config.library.drives = 4;
    let bench = Bench::new(config);
    let two = |level| capstan_director::BackupRequest { copies: 2, ..bench.request(level) };
    bench.fill("a", 40, 60_000);
    bench.backup(&two(Level::Full)).unwrap();
    bench.fill("b", 3, 100);
    bench.backup(&two(Level::Incremental)).unwrap();
    let last = bench.objects().remove(0);
    let volume = bench.site().catalog().copies(last.id).unwrap()[0].volumes[0].clone();
    let place = bench.cartridge(volume.as_str());
    let mut content = fs::read(&place).unwrap();
    let middle = content.len() / 2;
    content[middle..middle + 100].fill(0x55);
    fs::write(&place, content).unwrap();
    let done = consolidate(&bench.site(), &last).unwrap();
    assert!(!bench.site().catalog().damage().unwrap().is_empty(), "it is on record");
    let full = bench.site().catalog().object(done.object).unwrap().unwrap();
    bench.assert_restores(&full, "full");
}

/// It stood for the incremental whatever became of its blocks, and hid what was whole; and what it was made of expired.
#[test]
fn a_full_one_that_is_damaged_hides_nothing() {
    let bench = Bench::new(small());
    bench.fill("a", 30, 60_000);
    let first = back_up(&bench, Level::Full);
    bench.fill("b", 10, 30_000);
    let second = back_up(&bench, Level::Incremental);
    let done = consolidate(&bench.site(), &second).unwrap();
    bench.fill("c", 10, 30_000);
    let third = back_up(&bench, Level::Incremental);
    assert_eq!((third.base, third.made_on), (Some(done.object), Some(second.id)), "volumes name what may stay longer");
    let volume = bench.site().catalog().copies(done.object).unwrap()[0].volumes[0].clone();
    let place = bench.cartridge(volume.as_str());
    let mut content = fs::read(&place).unwrap();
    let middle = content.len() / 2;
    content[middle..middle + 100].fill(0x55);
    fs::write(&place, content).unwrap();
    let verified = bench.site().verify_volume(&volume, &RestoreWatch::default()).unwrap();
    assert!(!verified.is_whole());
    let now = bench.site().catalog().object(third.id).unwrap().unwrap();
    assert_eq!(now.base, Some(second.id));
    bench.assert_restores(&now, "from-the-chain");
    let request = ExpiryRequest { named: vec![second.id, first.id], ..ExpiryRequest::default() };
    let plan = bench.site().plan_expiry(&request).unwrap();
    assert_eq!(plan.forget.len(), 0, "both are bases: {:?}", plan.kept);
}

/// A copy named the full one as the base of what it holds, which the volumes beside it had not.
#[test]
fn copies_name_the_base_that_the_backup_was_made_on() {
    let bench = Bench::new(small());
    bench.fill("a", 20, 30_000);
    let first = back_up(&bench, Level::Full);
    bench.fill("b", 10, 30_000);
    let second = back_up(&bench, Level::Incremental);
    bench.fill("c", 10, 30_000);
    let third = back_up(&bench, Level::Incremental);
    bench.site().add_pool("vault", None, None).unwrap();
    bench.site().copy_objects(&[first, second.clone()], "vault", &RestoreWatch::default()).unwrap();
    let done = consolidate(&bench.site(), &second).unwrap();
    let third = bench.site().catalog().object(third.id).unwrap().unwrap();
    assert_eq!(third.base, Some(done.object));
    bench.site().copy_objects(std::slice::from_ref(&third), "vault", &RestoreWatch::default()).unwrap();
    let vault: Vec<_> = bench.site().catalog().volumes().unwrap();
    for volume in vault.iter().filter(|volume| volume.pool.as_deref() != Some("vault")) {
        fs::remove_file(bench.cartridge(volume.volser.as_str())).unwrap();
    }
    bench.rebuild();
    let last = bench.objects().remove(0);
    assert_eq!((last.id, last.base), (third.id, Some(second.id)));
    bench.assert_restores(&last, "from-the-vault");
}

/// What was begun in one pool was gone on with in another, as one copy.
#[test]
fn a_full_one_is_in_one_pool() {
    let bench = Bench::new(small());
    bench.site().add_pool("other", None, None).unwrap();
    bench.fill("a", 100, 60_000);
    back_up(&bench, Level::Full);
    bench.fill("b", 20, 30_000);
    let last = back_up(&bench, Level::Incremental);
    stopped_when(&bench, &last, "default", |event| matches!(event, Event::Checkpoint { .. })).unwrap_err();
    // A policy goes on with it before it makes another one.
    bench.fill("c", 10, 1000);
    back_up(&bench, Level::Incremental);
    let begun: Vec<_> = bench.site().to_consolidate(None, 1).unwrap().iter().map(|object| object.id).collect();
    assert_eq!(begun, [last.id]);
    let done = bench.site().consolidate(&last, "other", Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert_eq!(done.written_before, 0);
    let site = bench.site();
    let volumes = site.catalog().copies(done.object).unwrap().remove(0).volumes;
    let pool = |volser: &Volser| site.catalog().volume(volser).unwrap().unwrap().pool.unwrap();
    assert!(volumes.iter().all(|volser| pool(volser) == "other"), "{volumes:?}");
    bench.assert_restores(&bench.objects()[0], "latest");
}

/// A volume that could not be written behind the last byte that was read, and a Ctrl-C: it counted as done.
#[test]
fn what_is_stopped_while_it_waits_for_a_volume_is_not_done() {
    let mut config = small();
    config.library.volumes_max = 0;
    let bench = Bench::new(config);
    let label = |name: &str, pool: &str| {
        let volser = Volser::new(name).unwrap();
        let (loss, promise) = (capstan_director::Loss::Refuse, capstan_catalog::Promise::Keep);
        bench.site().label(&volser, Some(pool), Some(64 << 20), loss, promise).unwrap();
    };
    bench.site().add_pool("made", None, None).unwrap();
    label("A00001", "default");
    bench.fill("a", 20, 60_000);
    back_up(&bench, Level::Full);
    bench.fill("b", 2, 30_000);
    let last = back_up(&bench, Level::Incremental);
    let stopped = stopped_when(&bench, &last, "made", |event| matches!(event, Event::Waiting { .. }));
    assert!(matches!(stopped, Err(DirectorError::ConsolidationStopped { .. })), "{stopped:?}");
    assert!(bench.objects().iter().all(|object| object.consolidates.is_none() || object.status == ObjectStatus::Open));
    label("A00002", "made");
    bench.site().consolidate(&last, "made", Shortfall::Fail, &RestoreWatch::default()).unwrap();
}

/// A keep rule would have counted both, and kept the whole chain for the sake of the one that was replaced.
#[test]
fn a_keep_rule_counts_the_two_as_one() {
    let bench = Bench::new(small());
    let policies = "[policies.home]\nsources = [\"/home\"]\nkeep = { last = 2 }\n";
    let site = bench.site();
    let others = capstan_director::OtherPolicies::Keep;
    let plan = site.plan_policies(policies, Path::new("cell.toml"), others).unwrap();
    site.change_policies(&plan).unwrap();
    drop(site);
    let request = |level| capstan_director::BackupRequest {
        policy: "home".into(),
        retention: capstan_director::Retention::ByRule,
        ..bench.request(level)
    };
    for number in 0..4 {
        bench.fill(&format!("a{number}"), 3, 20_000);
        let level = if number == 0 { Level::Full } else { Level::Incremental };
        bench.backup(&request(level)).unwrap();
    }
    let before = bench.objects();
    let expire = || {
        let (site, request) = (bench.site(), ExpiryRequest::default());
        site.expire(&site.plan_expiry(&request).unwrap(), &request).unwrap().forget.len()
    };
    assert_eq!((KeepRule { last: 2, ..KeepRule::default() }.is_empty(), expire()), (false, 0), "all are bases");
    let third = consolidate(&bench.site(), &before[1]).unwrap().object;
    assert_eq!(expire(), 3);
    assert_eq!(bench.objects().iter().map(|object| object.id).collect::<Vec<_>>(), [before[0].id, third]);
    bench.assert_restores(&bench.objects()[0], "last");
}

#[test]
fn a_full_one_has_as_many_copies_as_the_backup() {
    let mut config = small();
    config.library.drives = 3;
    let bench = Bench::new(config);
    bench.site().add_pool("default-copy2", None, None).unwrap();
    let two = |level| capstan_director::BackupRequest { copies: 2, ..bench.request(level) };
    bench.fill("a", 20, 30_000);
    bench.backup(&two(Level::Full)).unwrap();
    bench.fill("b", 20, 30_000);
    bench.backup(&two(Level::Incremental)).unwrap();
    let last = bench.objects().remove(0);
    let done = consolidate(&bench.site(), &last).unwrap();
    let site = bench.site();
    let full = site.catalog().object(done.object).unwrap().unwrap();
    assert_eq!(
        site.whole_copies(&full).unwrap(),
        [1, 2],
        "{:?} {:?}",
        bench.notices,
        site.catalog().wanted_copies(full.id)
    );
    let copies = site.catalog().copies(full.id).unwrap();
    let pool = |volser: &Volser| site.catalog().volume(volser).unwrap().unwrap().pool;
    let pools: Vec<_> = copies.iter().map(|copy| pool(&copy.volumes[0]).unwrap()).collect();
    assert_eq!(pools, ["default", "default-copy2"]);
    // Of the second alone, too.
    fs::remove_file(bench.cartridge(copies[0].volumes[0].as_str())).unwrap();
    bench.assert_restores(&full, "from-second");
}

#[test]
fn an_older_version_of_what_could_not_be_read_goes_along_and_says_so() {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let bench = Bench::new(small());
    bench.fill("a", 3, 1000);
    let secret = bench.source().join("secret");
    fs::write(&secret, "first").unwrap();
    back_up(&bench, Level::Full);
    fs::write(&secret, "second").unwrap();
    fs::write(bench.source().join("never"), "never read").unwrap();
    for name in ["secret", "never"] {
        fs::set_permissions(bench.source().join(name), fs::Permissions::from_mode(0o000)).unwrap();
    }
    std::thread::scope(|scope| {
        let run = scope.spawn(|| {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            bench.backup(&bench.request(Level::Incremental)).unwrap();
        });
        run.join().unwrap();
    });
    let last = bench.objects().remove(0);
    let done = consolidate(&bench.site(), &last).unwrap();
    let plan_of = |object| bench.site().plan_restore(&[Place { object, paths: Vec::new() }]).unwrap();
    let (plan, before) = (plan_of(done.object), plan_of(last.id));
    let paths =
        |plan: &capstan_director::RestorePlan| plan.older.iter().map(|older| older.path.clone()).collect::<Vec<_>>();
    assert_eq!((paths(&plan), plan.lost, plan.incomplete), (paths(&before), before.lost, vec![]));
    let full = bench.site().catalog().object(done.object).unwrap().unwrap();
    assert!(bench.restore(&full, "full").is_whole());
    let restored = bench.path("full").join(secret.strip_prefix("/").unwrap());
    assert_eq!(fs::read(restored).unwrap(), b"first");
    // What can be read again is read again.
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let next = back_up(&bench, Level::Incremental);
    assert_eq!((next.base, paths(&plan_of(next.id))), (Some(full.id), vec![]));
    bench.assert_restores(&next, "next");
}

/// What came back with it was not there yet when it was judged: it was said to be lost, or what it had been made on
/// came back instead.
#[test]
fn an_expiry_of_both_is_taken_back_as_it_was() {
    let bench = Bench::new(small());
    bench.fill("a", 10, 30_000);
    let first = back_up(&bench, Level::Full);
    bench.fill("b", 10, 30_000);
    let second = back_up(&bench, Level::Incremental);
    let done = consolidate(&bench.site(), &second).unwrap();
    bench.fill("c", 5, 30_000);
    let third = back_up(&bench, Level::Incremental);
    let expire = |named: Vec<capstan_format::ObjectId>| {
        let (site, request) = (bench.site(), ExpiryRequest { named, ..ExpiryRequest::default() });
        let plan = site.plan_expiry(&request).unwrap();
        assert_eq!(site.expire(&plan, &request).unwrap().forget.len(), 2);
    };
    expire(vec![second.id, first.id]);
    back_up(&bench, Level::Full);
    expire(vec![third.id, done.object]);
    let back = bench.site().unexpire(&[]).unwrap();
    assert_eq!((back.objects.len(), back.lost.len()), (2, 0), "{back:?}");
    let now = bench.site().catalog().object(third.id).unwrap().unwrap();
    assert_eq!(now.base, Some(done.object));
    let restored = bench.restore(&now, "back");
    assert!(restored.is_whole());
}
