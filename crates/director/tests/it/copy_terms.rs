//! How long copies are kept that policies of copies make, and what becomes of the backup's own ones.

use std::fs;
use std::path::Path;

use capstan_catalog::{Grant, Object, Resource, VolumeState, Wish};
use capstan_director::{BackupRequest, CopyRunReport, ExpiryRequest, KeptUntil, Level, OtherPolicies, Retention, Site};
use capstan_format::Volser;
use capstan_mover::RestoreWatch;

use crate::place::{Bench, small};

const DAY_NS: i64 = 86_400_000_000_000;

/// A bench whose policy `home` keeps for 14 days what it backs up to disk; `vault` copies it to tape, with these
/// settings.
fn bench(settings: &str) -> Bench {
    let bench = Bench::new(small());
    bench.site().add_pool("tape", None, None).unwrap();
    let policies = format!(
        "[policies.home]\nsources = [\"/home\"]\nretention = \"14d\"\n\
         [policies.vault]\ncopies_of = [\"home\"]\npool = \"tape\"\n{settings}\n"
    );
    let site = bench.site();
    let plan = site.plan_policies(&policies, Path::new("cell.toml"), OtherPolicies::Keep).unwrap();
    site.change_policies(&plan).unwrap();
    bench.fill("a", 40, 50_000);
    bench
}

fn back_up(bench: &Bench, level: Level) -> Object {
    let retention = Retention::For(14 * DAY_NS);
    let report = bench.backup(&BackupRequest { policy: "home".into(), retention, ..bench.request(level) }).unwrap();
    assert!(report.sources[0].report.is_ok(), "{report:?}");
    bench.objects().remove(0)
}

fn copy(bench: &Bench) -> usize {
    let site = bench.site();
    let (job, mut report) = (site.policy("vault").unwrap().unwrap().config, CopyRunReport::default());
    site.copy_by_policy(&job, &RestoreWatch::default(), &mut report).unwrap();
    assert_eq!(report.failed().count(), 0, "{report:?}");
    report.count()
}

/// The pools of an object's copies, and how many days from its beginning each is kept.
fn ends(site: &Site, object: &Object) -> Vec<(String, i64)> {
    let days = |expires_ns: i64| (expires_ns - object.started_ns) / DAY_NS;
    let ends = site.catalog().copy_ends(Some(object.id)).unwrap();
    ends.into_iter().map(|end| (end.pool, days(end.expires_ns))).collect()
}

/// The time of what is in a pool ends.
fn let_end(bench: &Bench, pool: &str) {
    bench.sql(&format!(
        "UPDATE copies SET expires_ns = 1 WHERE volume IN (SELECT volume FROM volumes WHERE pool = '{pool}')"
    ));
}

fn expire(site: &Site) -> (usize, usize, Vec<String>) {
    let request = ExpiryRequest::default();
    let done = site.expire(&site.plan_expiry(&request).unwrap(), &request).unwrap();
    (done.forget.len(), done.copies.len(), done.frees.iter().map(ToString::to_string).collect())
}

#[test]
fn a_copy_has_a_retention_of_its_own_that_its_volumes_know() {
    let bench = bench("retention = \"10y\"");
    back_up(&bench, Level::Full);
    bench.fill("b", 20, 50_000);
    let object = back_up(&bench, Level::Incremental);
    assert_eq!(copy(&bench), 2);
    let kept = [("default".to_owned(), 14), ("tape".to_owned(), 3652)];
    assert_eq!(ends(&bench.site(), &object), kept);
    assert_eq!(
        (bench.objects()[0].expires_ns - object.started_ns) / DAY_NS,
        3652,
        "the object goes with its last copy"
    );
    bench.rebuild();
    let site = bench.site();
    assert_eq!(ends(&site, &object), kept);
    let copies = site.copies_kept(&bench.objects()[0]).unwrap();
    assert!(copies.iter().all(|copy| matches!(copy.until, KeptUntil::At(_)) && copy.migrates.is_none()), "{copies:?}");
    assert_eq!(expire(&site), (0, 0, vec![]));
    let_end(&bench, "default");
    let on_disk = site.catalog().copies(object.id).unwrap()[0].volumes.clone();
    assert_eq!(expire(&site), (0, 2, vec![on_disk[0].to_string()]));
    assert_eq!(ends(&site, &object), kept[1..]);
    assert_eq!(site.catalog().volume(&on_disk[0]).unwrap().unwrap().state, VolumeState::Scratch);
    assert_eq!(site.protection().unwrap().lacking, []);
    assert_eq!((site.catalog().extents(object.id, Some(1)).unwrap(), copy(&bench)), (vec![], 0));
    fs::remove_file(bench.cartridge(on_disk[0].as_str())).unwrap();
    bench.assert_restores(&bench.objects()[0], "from-tape");
    // The last one goes with its object, and the last object stays.
    let_end(&bench, "tape");
    assert_eq!(expire(&site), (0, 0, vec![]));
}

/// A copy whose time was over, of a backup that is kept, would have been made and forgotten each day anew.
#[test]
fn what_would_be_forgotten_at_once_is_not_copied() {
    let bench = bench("retention = \"2d\"");
    let old = back_up(&bench, Level::Full);
    back_up(&bench, Level::Incremental);
    let three_days_ago = |object: &Object| {
        let started_ns = object.started_ns - 3 * DAY_NS;
        let id = object.id.0.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        bench.sql(&format!("UPDATE objects SET started_ns = {started_ns} WHERE object = x'{id}'"));
    };
    three_days_ago(&old);
    assert_eq!(copy(&bench), 2, "what an owed one stands on is owed");
    let second = back_up(&bench, Level::Full);
    bench.objects().iter().filter(|object| object.id != old.id).for_each(three_days_ago);
    assert_eq!((copy(&bench), bench.site().copies_owed_of(&bench.objects()[0]).unwrap()), (0, vec![]));
    assert_eq!((back_up(&bench, Level::Full).id != second.id, copy(&bench)), (true, 1));
}

#[test]
fn a_rule_says_what_is_copied_and_how_long_that_is_kept() {
    let bench = bench("keep = { last = 1 }");
    for _ in 0..3 {
        back_up(&bench, Level::Full);
    }
    assert_eq!(copy(&bench), 1);
    let (last, site) = (bench.objects().remove(0), bench.site());
    let copies = site.copies_kept(&last).unwrap();
    let of_vault = |until: &KeptUntil| matches!(until, KeptUntil::Rule { policy, .. } if policy == "vault");
    assert!(copies.len() == 2 && of_vault(&copies[1].until), "{copies:?}");
    // Nobody is asked for what a new policy does in a pool that was empty.
    assert_eq!(site.plan_unasked_expiry().unwrap().held.len(), 0);
    // The next backup takes its place.
    back_up(&bench, Level::Full);
    assert_eq!((copy(&bench), expire(&site)), (1, (0, 1, vec![])));
    assert_eq!(site.catalog().copies(last.id).unwrap().len(), 1);
    let_end(&bench, "default");
    assert_eq!(expire(&site), (3, 1, vec!["A00001".to_owned()]));
    bench.assert_restores(&bench.objects()[0], "from-tape");
    // A copy of what no rule decides on any more is for whoever asks for it.
    site.change_policies(&site.plan_removal(&["vault".to_owned()]).unwrap()).unwrap();
    let copies = bench.site().copies_kept(&bench.objects()[0]).unwrap();
    assert_eq!(copies[0].until, KeptUntil::ForEver);
    assert_eq!(expire(&bench.site()), (0, 0, vec![]));
}

#[test]
fn what_is_migrated_leaves_its_pool_once_it_is_copied() {
    let bench = bench("migrate_after = \"0s\"");
    let full = back_up(&bench, Level::Full);
    let site = bench.site();
    assert!(site.plan_migration("vault").unwrap().copies.is_empty(), "nothing is on tape yet");
    assert_eq!(copy(&bench), 1);
    let incremental = back_up(&bench, Level::Incremental);
    assert_eq!(site.plan_migration("vault").unwrap().copies.len(), 1, "what stands on it is on disk alone");
    assert_eq!(copy(&bench), 1);
    let plan = site.plan_migration("vault").unwrap();
    let planned: Vec<_> = plan.copies.iter().map(|copy| (copy.object.id, copy.copy, &*copy.stays_in)).collect();
    assert_eq!(planned, [(incremental.id, 1, "tape"), (full.id, 1, "tape")]);
    // A job has one of them.
    let read = Wish { shared: vec![Resource::Object(full.id)], ..Wish::default() };
    let held = site.catalog().reserve(&read, "elsewhere 1 1", i64::MAX, &|_| false).unwrap();
    let Grant::Held(generation) = held else { panic!("{held:?}") };
    let done = site.migrate(&plan, "vault").unwrap();
    assert_eq!((done.copies.len(), done.frees.len()), (1, 0));
    site.catalog().release(&[generation]).unwrap();
    let plan = site.plan_migration("vault").unwrap();
    let done = site.migrate(&plan, "vault").unwrap();
    assert_eq!((done.copies.len(), done.frees.len(), done.forget.len()), (1, 1, 0));
    assert_eq!(ends(&site, &full), [("tape".to_owned(), 14)], "kept as long as the policy of the backup says");
    bench.assert_restores(&bench.objects()[0], "from-tape");
    // A copy that somebody makes in its first pool again bears the number of the one that is still on the volume.
    bench.sql("UPDATE volumes SET state = 2, pool = 'default' WHERE volser = 'A00001'");
    let again = site.copy_objects(std::slice::from_ref(&full), "default", &RestoreWatch::default()).unwrap();
    assert_eq!((again[0].copy, site.catalog().copies(full.id).unwrap()[0].volumes[0].as_str()), (1, "A00001"));
    bench.rebuild();
    let site = bench.site();
    assert_eq!(site.catalog().volume(&Volser::new("A00001").unwrap()).unwrap().unwrap().state, VolumeState::Filling);
    bench.assert_restores(&bench.objects()[0], "with-both");
    // An incremental stands on what is on tape alone.
    back_up(&bench, Level::Incremental);
    assert_eq!(copy(&bench), 1);
    bench.rebuild();
    bench.assert_restores(&bench.objects()[0], "after-a-rebuild");
}

/// A key store without the keys of the tapes was put in place, and the disk let go what nobody could read any more.
#[test]
fn a_copy_whose_key_is_gone_stands_for_no_other() {
    let bench = bench("migrate_after = \"0s\"");
    back_up(&bench, Level::Full);
    assert_eq!(copy(&bench), 1);
    let site = bench.site();
    site.catalog().put_fact("volumes_without_key", "A00002").unwrap();
    assert!(site.plan_migration("vault").unwrap().copies.is_empty());
    site.catalog().put_fact("volumes_without_key", "").unwrap();
    assert_eq!(site.plan_migration("vault").unwrap().copies.len(), 1);
}

#[test]
fn settings_that_do_not_go_together_are_named() {
    let bench = bench("");
    let site = bench.site();
    for (settings, part) in [
        ("[policies.x]\nsources = [\"/x\"]\nmigrate_after = \"1d\"", "it is for copies of backups"),
        ("[policies.x]\ncopies_of = [\"home\"]\npool = \"y\"\nmigrate_after = \"soon\"", "is not a duration"),
        ("[policies.x]\ncopies_of = [\"home\"]\npool = \"y\"\nretention = \"5m\"", "m is for minutes"),
        (
            "[policies.x]\ncopies_of = [\"home\"]\npool = \"y\"\nretention = \"5d\"\nkeep = { last = 1 }",
            "keep takes the place of retention",
        ),
        ("[policies.x]\ncopies_of = [\"home\"]\npool = \"y\"\nlock = true", "it is for backups"),
        (
            "[policies.x]\ncopies_of = [\"home\"]\npool = \"tape\"\nkeep = { last = 1 }",
            "policy vault copies the backups of home to pool tape already",
        ),
    ] {
        let refused = site.plan_policies(settings, Path::new("x.toml"), OtherPolicies::Keep).unwrap_err().to_string();
        assert!(refused.contains(part), "{refused}");
    }
}
