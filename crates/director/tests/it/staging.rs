//! Whether a run of a policy goes to disk first: by what its last runs stored in a second, and what the drives need.

use std::path::Path;

use capstan_director::{BackupRequest, DirectorError, JobConfig, Level, OtherPolicies, StageChoice, StageWhen};
use capstan_mover::devices::LibraryConfig;

use crate::place::{Bench, small};

fn policy() -> JobConfig {
    JobConfig {
        sources: vec!["/srv/home".into()],
        stage: Some("disk".to_owned()),
        stage_pool: Some("home-stage".to_owned()),
        retention: Some("30d".to_owned()),
        ..JobConfig::default()
    }
}

#[test]
fn a_client_is_as_fast_as_its_last_runs_were() {
    let mut config = small();
    config.library.pace = "LTO-6".to_owned();
    let bench = Bench::new(config);
    let site = bench.site();
    let staging = |client: &str| site.stage_choice("home", &policy(), client).unwrap().unwrap();
    let StageChoice::Unmeasured { needs } = staging("tern") else { panic!("{:?}", staging("tern")) };
    assert!((30_000_000..80_000_000).contains(&needs), "{needs}");
    // Six runs: the oldest does not count any more, and one that failed never did.
    let run = |run: i64, client: &str, outcome: u8, mb: i64, seconds: i64| {
        let (begun, ended) = (run * 1_000_000_000_000, run * 1_000_000_000_000 + seconds * 1_000_000_000);
        bench.sql(&format!(
            "INSERT INTO jobs (job, kind, subject, started_ns, ended_ns, outcome, files, bytes, stored, message)
                 VALUES ({run}, 'backup', 'home:', {begun}, {ended}, 1, 1, {mb}000000, {mb}000000, '');
             INSERT INTO done_runs (run, policy, client, priority, entered_ns, attempt, returns, started_ns, ended_ns,
                                    outcome, message, job)
                 VALUES ({run}, 'home', '{client}', 50, 1, 1, 0, {begun}, {ended}, {outcome}, '', {run})"
        ));
    };
    run(1, "tern", 0, 90_000, 1);
    for number in 2..7 {
        run(number, "tern", 0, 1_000, 100);
    }
    run(7, "tern", 2, 90_000, 1);
    run(8, "heron", 0, 90_000, 100);
    assert_eq!(staging("tern"), StageChoice::Measured { rate: 10_000_000, needs });
    assert!(staging("tern").is_staged());
    assert_eq!(staging("heron"), StageChoice::Measured { rate: 900_000_000, needs });
    assert!(!staging("heron").is_staged());
    let never = JobConfig { stage_when: Some(StageWhen::Never), ..policy() };
    assert!(!site.stage_choice("home", &never, "tern").unwrap().unwrap().is_staged());
    assert_eq!(site.stage_choice("home", &JobConfig { stage: None, ..policy() }, "tern").unwrap(), None);
}

#[test]
fn a_pool_that_a_policy_needs_is_not_removed() {
    let policies = r#"
[policies.home]
sources = ["/srv/home"]
stage = "disk"
stage_pool = "home-stage"
keep = { last = 2 }
[policies.care]
care_of = ["old"]
scrub_one_in = 100
"#;
    let mut config = small();
    let disk = LibraryConfig { path: "disk".into(), ..config.library.clone() };
    config.libraries.insert("disk".to_owned(), disk);
    let bench = Bench::new(config);
    let site = bench.site();
    for pool in ["home-stage", "old"] {
        site.add_pool(pool, None, None).unwrap();
    }
    let changes = site.plan_policies(policies, Path::new("cell.toml"), OtherPolicies::Keep).unwrap();
    site.change_policies(&changes).unwrap();
    // As a command sees them that begins now.
    let site = bench.site();
    for (pool, why) in [("home-stage", "policy home writes to it"), ("old", "policy care looks after it")] {
        let refused = site.remove_pool(pool).unwrap_err();
        assert!(matches!(refused, DirectorError::PoolNeeded { .. }) && refused.to_string().contains(why), "{refused}");
    }
    site.add_pool("spare", None, None).unwrap();
    site.remove_pool("spare").unwrap();
    // A full object that is made behind a staged run stays on the disk until it is copied, as the run's own does.
    bench.fill("a", 1, 10);
    bench.backup(&BackupRequest { policy: "home".to_owned(), ..bench.request(Level::Full) }).unwrap();
    let object = bench.objects().remove(0);
    assert_eq!(site.pool_to_consolidate(&object).unwrap(), "default");
    assert_eq!(site.in_library("disk").unwrap().pool_to_consolidate(&object).unwrap(), "home-stage");
}
