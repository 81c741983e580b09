//! People are told once, whatever becomes of servers in between.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::Ordering;

use capstan_catalog::Entered;
use capstan_director::TellEvent;
use capstan_server::Notice;
use capstan_server::tell::TellFinding;
use serde_json::Value;

use crate::place::{Bench, Hand};

const NIGHTLY: &str = "[policies.one]\nsources = [\"DIR/one\"]\nschedule = \"22:00\"\nzone = \"UTC\"\nretries = 0\n";

/// Has a rule run a program that keeps what it is told, and another rule one that is not there.
fn add_rules(bench: &Bench) {
    let page = bench.path("page");
    std::fs::write(&page, format!("#!/bin/sh\ncat >> {}\n", bench.path("told").display())).unwrap();
    std::fs::set_permissions(&page, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut settings = std::fs::OpenOptions::new().append(true).open(bench.path("state/capstan.toml")).unwrap();
    let rules = format!(
        "\n[tell.oncall]\ncommand = [\"{}\"]\n\n[tell.broken]\nevents = [\"failed\"]\ncommand = \
         [\"/nonexistent/page\"]\n",
        page.display()
    );
    settings.write_all(rules.as_bytes()).unwrap();
}

/// The subjects of what was told, in order; with `over: ` where it is over.
fn told(bench: &Bench) -> Vec<String> {
    let text = std::fs::read_to_string(bench.path("told")).unwrap_or_default();
    // The last line may be half written.
    let whole = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let events = whole.flat_map(|message| message["events"].as_array().unwrap().clone());
    let subject = |event: Value| {
        let over = if event["is_over"] == true { "over: " } else { "" };
        format!("{over}{}", event["subject"].as_str().unwrap())
    };
    events.map(subject).collect()
}

#[test]
fn what_failed_and_what_lasts_is_told_once_by_several_servers() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    add_rules(&bench);
    let hand = Hand::default();
    hand.fails.store(1, Ordering::SeqCst);
    let entered = bench.site().enter_runs("one", None, capstan_director::RunAsked::OF_POLICY).unwrap();
    assert!(matches!(entered[..], [(_, Entered::Waits(_))]));
    let failed = "policy one failed (1 attempt)".to_owned();
    let said = bench.serve(&hand, || {
        bench.wait("the failure is told", || told(&bench) == [failed.clone()]);
        bench.until("what came of both rules is known", |site| site.catalog().tellings().unwrap().len() == 2);
    });
    let trouble = |notice: &&Notice| matches!(notice, Notice::Trouble { reason } if reason.contains("rule broken"));
    assert_eq!(said.iter().filter(trouble).count(), 1, "{said:?}");
    let tellings = bench.site().catalog().tellings().unwrap();
    assert!(tellings[0].rule == "broken" && tellings[0].arrived_ns.is_none(), "{tellings:?}");
    assert!(tellings[0].problem.contains("/nonexistent/page"), "{tellings:?}");
    assert!(tellings[1].arrived_ns.is_some() && tellings[1].problem.is_empty(), "{tellings:?}");

    // The next server tells what is new, and nothing else; the one after that, what is over. The catalog was made anew
    // in between.
    let overdue = "/srv of tern is overdue".to_owned();
    let text = "back it up".to_owned();
    let found = TellFinding::lasting(TellEvent::Overdue, "overdue /srv".to_owned(), overdue.clone(), text);
    let since_ns = bench.site().now_ns();
    hand.findings.lock().unwrap().push(TellFinding { since_ns: Some(since_ns), ..found });
    bench.set_clock("2026-11-20T13:00:00Z");
    let remembers = |rows: usize| {
        bench.until("it is remembered", |site| {
            site.catalog().told().unwrap().iter().filter(|row| row.rule == "oncall").count() == rows
        });
    };
    bench.serve(&hand, || {
        bench.wait("it is told", || told(&bench) == [failed.clone(), overdue.clone()]);
        remembers(2);
    });
    bench.rebuild().unwrap();
    bench.set_clock("2026-11-20T14:00:00Z");
    hand.findings.lock().unwrap().clear();
    bench.serve(&hand, || {
        bench.wait("its end is told", || told(&bench).len() == 3);
        remembers(1);
    });
    assert_eq!(told(&bench), [failed, overdue.clone(), format!("over: {overdue}")]);
}

/// What kept the listeners of the cell from their work stood in the server's messages only.
#[test]
fn what_troubles_others_than_the_loop_is_told() {
    let bench = Bench::new("2026-11-20T12:00:00Z", NIGHTLY);
    add_rules(&bench);
    let hand = Hand::default();
    hand.troubles.lock().unwrap().push("the certificates are on fire".to_owned());
    let wanted = "the server has trouble: the certificates are on fire".to_owned();
    bench.serve(&hand, || bench.wait("it is told", || told(&bench) == [wanted.clone()]));
    assert_eq!(told(&bench), [wanted]);
}
