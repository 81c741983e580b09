//! Policies: what a file would change, what is changed, and what a machine allows them.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use capstan_catalog::{Pool, ScratchFeed};
use capstan_director::{BackupPolicy, BackupRequest, DirectorError, Level, OtherPolicies, PolicyChanges, parse_age};

use crate::place::{Bench, small};

const CELL: &str = r#"
[policies.home]
sources = ["/home"]
schedule = "mon..fri 22:00"
keep = { last = 3, daily = 7 }
before = ["quiesce"]

[policies.shop]
stdin = "shop.sql"
stdin_command = ["dump-shop"]
retention = "90d"
"#;

/// What messages call the file.
const FILE: &str = "cell.toml";

fn apply(bench: &Bench, text: &str, others: OtherPolicies) -> PolicyChanges {
    let site = bench.site();
    let plan = site.plan_policies(text, Path::new(FILE), others).unwrap();
    site.change_policies(&plan).unwrap();
    plan
}

fn allow(bench: &Bench, scripts: &str) {
    let path = bench.path("state/capstan.toml");
    fs::write(&path, fs::read_to_string(&path).unwrap() + scripts).unwrap();
}

fn refused(bench: &Bench, text: &str) -> String {
    bench.site().plan_policies(text, Path::new(FILE), OtherPolicies::Keep).unwrap_err().to_string()
}

/// What would be done with each policy, and the settings that differ.
fn changes(plan: &PolicyChanges) -> Vec<(String, bool, bool, Vec<String>)> {
    let settings = |change: &capstan_director::PolicyChange| {
        change.settings.iter().map(|setting| format!("{}={:?}", setting.key, setting.after)).collect()
    };
    plan.changes
        .iter()
        .map(|change| (change.name.clone(), change.is_known, change.is_removed(), settings(change)))
        .collect()
}

#[test]
fn a_file_is_applied_shown_and_given_back() {
    let bench = Bench::new(small());
    let before = bench.site().plan_policies(CELL, Path::new(FILE), OtherPolicies::Keep).unwrap();
    assert!(bench.site().policies().unwrap().is_empty(), "to look changes nothing");
    assert_eq!((before.changes.len(), before.unchanged), (2, 0));
    apply(&bench, CELL, OtherPolicies::Keep);
    let again = bench.site().plan_policies(CELL, Path::new(FILE), OtherPolicies::Keep).unwrap();
    assert_eq!((changes(&again), again.unchanged), (vec![], 2));
    let exported = bench.site().export_policies(&[]).unwrap();
    let same = bench.site().plan_policies(&exported, Path::new(FILE), OtherPolicies::Remove).unwrap();
    assert_eq!((changes(&same), same.unchanged), (vec![], 2), "{exported}");
    let plan = apply(&bench, "[policies.home]\nsources = [\"/home\"]\npriority = 90\n", OtherPolicies::Remove);
    let settings = ["before=None", "keep=None", "priority=Some(\"90\")", "schedule=None"].map(str::to_owned).to_vec();
    assert_eq!(changes(&plan)[0], ("home".to_owned(), true, false, settings));
    assert_eq!((changes(&plan)[1].0.as_str(), changes(&plan)[1].2), ("shop", true));
    let left: Vec<_> = bench.site().policies().unwrap().iter().map(|policy| policy.name.clone()).collect();
    assert_eq!(left, ["home"]);
}

/// Whoever was added to an old policy was backed up at once, in the middle of the day, and had missed a hundred runs.
#[test]
fn a_client_that_is_added_is_not_caught_up_for_the_past_of_its_policy() {
    let bench = Bench::new(small());
    let of = |clients: &str, more: &str| {
        let text = format!("[policies.web]\nsources = [\"/srv\"]\nschedule = \"22:00\"\nclients = [{clients}]\n{more}");
        apply(&bench, &text, OtherPolicies::Keep);
        let positions = bench.site().catalog().schedule_positions().unwrap();
        positions.into_iter().map(|position| position.client).collect::<Vec<_>>()
    };
    assert_eq!(of("\"tern\"", ""), ["tern"], "it counts from the policy on");
    bench.sql("UPDATE policies SET scheduled_ns = 1");
    assert_eq!(of("\"tern\", \"plover\"", ""), ["plover", "tern"]);
    let now_ns = bench.site().catalog().policies().unwrap()[0].changed_ns;
    let decided = || bench.site().catalog().schedule_positions().unwrap().into_iter().map(|one| one.decided_ns);
    assert_eq!(decided().next(), Some(now_ns));
    let before: Vec<_> = decided().collect();
    assert_eq!(of("\"tern\", \"plover\"", "priority = 60\n"), ["plover", "tern"]);
    // The same times in other words are the same times.
    let text = bench.site().export_policies(&[]).unwrap().replace("22:00", "*-*-* 22:00:00");
    assert_eq!(changes(&apply(&bench, &text, OtherPolicies::Keep)).len(), 1, "{text}");
    assert_eq!(decided().collect::<Vec<_>>(), before);
    // One that comes back later is not caught up for the time between.
    assert_eq!(of("\"tern\"", ""), ["tern"]);
}

#[test]
fn a_change_that_another_one_came_before_is_refused_whole() {
    let bench = Bench::new(small());
    let plan = bench.site().plan_policies(CELL, Path::new(FILE), OtherPolicies::Keep).unwrap();
    apply(&bench, "[policies.web]\nsources = [\"/srv\"]\n", OtherPolicies::Keep);
    let error = bench.site().change_policies(&plan).unwrap_err().to_string();
    assert!(error.contains("somebody changed the policies"), "{error}");
    assert_eq!(bench.site().policies().unwrap().len(), 1);
    for unknown in [
        bench.site().plan_removal(&["home".to_owned()]).map(drop),
        bench.site().export_policies(&["home".to_owned()]).map(drop),
    ] {
        assert!(matches!(unknown, Err(DirectorError::UnknownPolicy { .. })), "{unknown:?}");
    }
    let site = bench.site();
    site.change_policies(&site.plan_removal(&["web".to_owned()]).unwrap()).unwrap();
    assert!(site.policies().unwrap().is_empty());
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_nothing_is_changed() {
    let bench = Bench::new(small());
    allow(&bench, "\n[jobs.nightly]\nsources = [\"/etc\"]\n");
    let home = |rest: &str| format!("\n[policies.home]\nsources = [\"/home\"]\n{rest}\n");
    for (text, said) in [
        (home("schedule = \"noonish\""), &["line 4: policies.home.schedule", "noonish"][..]),
        (home("exlude = [\"*.tmp\"]"), &["line 4", "unknown field `exlude`"]),
        (home("before = [\"/bin/sh\", \"-c\", \"id\"]"), &["line 4: policies.home.before", "no command line"]),
        (home("before = [\"/bin/sh\"]"), &["line 4: policies.home.before", "no command line"]),
        (home("catch_up = \"once\""), &["line 4: policies.home.catch_up", "set schedule"]),
        (
            "[policies.nightly]\nsources = [\"/etc\"]\n".to_owned(),
            &["line 1: policies.nightly", "has a job of that name"],
        ),
        ("[policies.\"a b\"]\nsources = [\"/etc\"]\n".to_owned(), &["line 1: policies.a b", "letters, digits"]),
        ("[policies.a]\n".to_owned(), &["line 1: policies.a", "it backs up nothing"]),
        ("[policy.a]\nsources = [\"/etc\"]\n".to_owned(), &["unknown field `policy`"]),
        ("sources = [\n".to_owned(), &["line 1"]),
    ] {
        let error = refused(&bench, &text);
        for said in said {
            assert!(error.contains(said), "{said:?} is not in {error:?} of {text}");
        }
    }
    let copies = |rest: &str| format!("[policies.home]\nsources = [\"/home\"]\n\n[policies.off]\n{rest}\n");
    for (rest, said) in [
        ("copies_of = []", &["line 5", "name the policies"][..]),
        ("copies_of = [\"home\"]", &["line 5: policies.off.copies_of", "set pool"]),
        (
            "pool = \"vault\"\ncopies_of = [\"hme\"]",
            &["line 6: policies.off.copies_of", "no policy or job hme, and no backup"],
        ),
        ("pool = \"vault\"\ncopies_of = [\"off\"]", &["line 6: policies.off.copies_of", "names itself"]),
        ("pool = \"vault\"\ncopies_of = [\"home\", \"home\"]", &["line 6", "home is named twice"]),
        ("pool = \"default\"\ncopies_of = [\"home\"]", &["line 5: policies.off.pool", "name another pool"]),
        ("pool = \"vault\"\ncopies_of = [\"home\"]\ncopies = 2", &["line 7: policies.off.copies", "for backups"]),
        ("pool = \"vault\"\ncopies_of = [\"home\"]\ndelay = \"soon\"", &["line 7", "not a duration"]),
        ("sources = [\"/srv\"]\ndelay = \"1d\"", &["line 6: policies.off.delay", "set copies_of"]),
        (
            "pool = \"vault\"\ncopies_of = [\"more\"]\n[policies.more]\npool = \"v\"\ncopies_of = [\"home\"]",
            &["line 6: policies.off.copies_of", "more copies itself what others back up"],
        ),
    ] {
        let error = refused(&bench, &copies(rest));
        for said in said {
            assert!(error.contains(said), "{said:?} is not in {error:?} of {rest}");
        }
    }
    assert!(refused(&bench, "").contains("policies"), "an empty file is no file of policies");
    assert!(bench.site().policies().unwrap().is_empty());
}

/// An export could not be applied once a policy was gone whose backups another one copies.
#[test]
fn a_policy_of_copies_outlives_what_it_copies_and_never_shares_its_pool() {
    let bench = Bench::new(small());
    bench.site().add_pool("vault", None, None).unwrap();
    let copies = "\n[policies.off]\ncopies_of = [\"home\"]\npool = \"vault\"\n";
    let home = "[policies.home]\nsources = [\"/home\"]\n";
    apply(&bench, &format!("{home}{copies}"), OtherPolicies::Keep);
    let site = bench.site();
    let gone = site.plan_policies(copies, Path::new(FILE), OtherPolicies::Remove).unwrap_err().to_string();
    assert!(gone.contains("line 3: policies.off.copies_of") && gone.contains("--only removes it"), "{gone}");
    bench.fill("a", 1, 100);
    bench.backup(&BackupRequest { policy: "home".into(), ..bench.request(Level::Full) }).unwrap();
    site.change_policies(&site.plan_removal(&["home".to_owned()]).unwrap()).unwrap();
    let exported = site.export_policies(&[]).unwrap();
    assert_eq!(changes(&apply(&bench, &exported, OtherPolicies::Remove)), []);
    // Whoever of the two is changed, and wherever.
    let itself = "home writes its backups to pool vault itself";
    let error = refused(&bench, &format!("{home}pool = \"vault\"\n"));
    assert!(error.contains("policy off, which stays: ") && error.contains(itself), "{error}");
    let error =
        refused(&bench, "[policies.home]\ncopies_of = [\"web\"]\npool = \"p\"\n[policies.web]\nsources = [\"/srv\"]\n");
    assert!(error.contains("policy off, which stays: home copies itself what others back up"), "{error}");
    let fault = || bench.site().policy("off").unwrap().unwrap().fault;
    assert_eq!(fault(), None);
    allow(&bench, "\n[jobs.home]\nsources = [\"/home\"]\npool = \"vault\"\n");
    assert!(fault().unwrap().contains(&format!("pool: {itself}")), "{:?}", fault());
    let twice = format!("{home}copies = 2\n{}", copies.replace("vault", "default-copy2")).replace("home", "shop");
    assert!(refused(&bench, &twice).contains("shop writes its backups to pool default-copy2 itself"));
}

#[test]
fn a_policy_runs_no_program_that_the_settings_of_the_machine_do_not_allow() {
    let bench = Bench::new(small());
    apply(&bench, CELL, OtherPolicies::Keep);
    let named = |name: &str| -> BackupPolicy { bench.site().policy(name).unwrap().unwrap() };
    let fault = named("home").fault.unwrap();
    assert!(fault.contains("before: capstan.toml of this machine has no script quiesce"), "{fault}");
    assert!(bench.site().policy_fault("shop").unwrap().contains("dump-shop"));
    allow(&bench, "\n[scripts]\nquiesce = [\"/bin/true\"]\ndump-shop = [\"pg_dump\", \"shop\"]\n");
    assert_eq!((named("home").fault, named("home").config.before), (None, vec!["/bin/true".to_owned()]));
    assert_eq!(named("shop").config.stdin_command, ["pg_dump", "shop"]);
    let site = bench.site();
    assert!(site.is_policy("home") && site.config().jobs.contains_key("home"), "it can be run by name");
    // A job of that name that comes later is what a timer means.
    allow(&bench, "\n[jobs.home]\nsources = [\"/elsewhere\"]\n");
    let site = bench.site();
    assert!(!site.is_policy("home"));
    assert_eq!(site.config().jobs["home"].sources, [Path::new("/elsewhere")]);
    assert!(named("home").fault.unwrap().contains("has a job of that name"));
}

/// A site that stays open reads them anew where anything changed, and only there.
#[test]
fn a_site_that_stays_open_sees_what_changes() {
    let bench = Bench::new(small());
    let text = "[policies.vault]\nsources = [\"/etc\"]\nlock = true\nbefore = [\"quiesce\"]\n";
    apply(&bench, text, OtherPolicies::Keep);
    let site = bench.site();
    let beside = || site.beside(Arc::new(|_| {})).unwrap();
    let fault = || site.policy("vault").unwrap().unwrap().fault.unwrap_or_default();
    assert!(fault().contains("no script quiesce"), "{}", fault());
    assert_eq!(beside().policy_fault("vault"), Some(fault().as_str()));
    assert!(Arc::ptr_eq(&site.policies().unwrap(), &beside().policies().unwrap()), "nothing changed");
    allow(&bench, "\n[scripts]\nquiesce = [\"/bin/true\"]\n");
    assert!(fault().contains("a locked retention must end"), "{}", fault());
    let name = "default".to_owned();
    let pool = Pool { name, encryption: None, retention_ns: Some(1), feed: ScratchFeed::Allowed };
    bench.site().catalog().put_pool(&pool).unwrap();
    assert_eq!((fault().as_str(), beside().policy_fault("vault")), ("", None));
    assert_eq!(beside().config().jobs["vault"].before, ["/bin/true"]);
    // What is beside what was beside, too.
    assert!(beside().beside(Arc::new(|_| {})).unwrap().is_policy("vault"));
    apply(&bench, "[policies.vault]\nsources = [\"/srv\"]\n", OtherPolicies::Keep);
    assert_eq!(beside().config().jobs["vault"].sources, [Path::new("/srv")]);
    allow(&bench, "\n[jobs.vault]\nsources = [\"/elsewhere\"]\n");
    assert!(!beside().is_policy("vault") && fault().contains("has a job of that name"));
    apply(&bench, "[policies.other]\nsources = [\"/srv\"]\n", OtherPolicies::Remove);
    assert!(site.policy("vault").unwrap().is_none() && !site.policies().unwrap().is_empty());
    assert_eq!(beside().config().jobs["vault"].sources, [Path::new("/elsewhere")], "the job stays");
}

#[test]
fn a_policy_that_this_version_cannot_read_stops_no_other() {
    let bench = Bench::new(small());
    apply(&bench, CELL, OtherPolicies::Keep);
    crate::place::database::sql(
        &bench.path("state/catalog"),
        "UPDATE policies SET text = 'colour = \"red\"' WHERE name = 'home'",
    );
    let site = bench.site();
    let policies = site.policies().unwrap();
    let fault = policies[0].fault.as_deref().unwrap();
    assert!(fault.contains("cannot read it") && fault.contains("colour"), "{fault}");
    assert_eq!(policies[1].config.retention_ns(), parse_age("90d").ok());
}
