//! What a server does beside runs: backups expire, and people hear of what runs out.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::Bench;
use super::client::{Machine, Printing, enrol, serve};
use super::json::events;

/// A server that serves nobody else.
fn serve_alone(bench: &Bench) -> Printing {
    let mut server = Printing::start(bench.command(&["server", "run", "--json"]));
    server.event("serving");
    server
}

fn change_setting(bench: &Bench, from: &str, to: &str) {
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(text.matches(from).count(), 1, "{from}");
    fs::write(&path, text.replace(from, to)).unwrap();
}

fn back_up(bench: &Bench) {
    back_up_into(bench, "short");
}

fn back_up_into(bench: &Bench, pool: &str) {
    bench.done(&["backup", &bench.source_text(), "--full", "--pool", pool, "-q"], 0);
}

#[test]
fn backups_expire_by_themselves_and_most_of_them_are_asked_for() {
    let bench = Bench::new(&[]);
    bench.done(&["pools", "add", "short", "--plain", "--retention", "1s"], 0);
    change_setting(&bench, "expire = \"12:00\"", "expire = \"*:*:*\"");
    for _ in 0..3 {
        back_up(&bench);
    }
    thread::sleep(Duration::from_millis(1_100));
    // Two of three may go: that, a person has to say.
    let serving = serve_alone(&bench);
    let status = bench.done(&["status"], 3);
    assert!(status.contains("the retention of 2 objects has ended, which is more than half of all 3"), "{status}");
    serving.stop();
    assert_eq!(bench.rows(&["objects"]).len(), 3);
    bench.done(&["expire", "--yes", "-q"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 1);

    // One of two goes by itself.
    back_up(&bench);
    thread::sleep(Duration::from_millis(1_100));
    let mut serving = serve_alone(&bench);
    let expired = serving.event("expired");
    assert_eq!((&expired["objects"], &expired["volumes"]), (&1.into(), &Value::Array(Vec::new())), "{expired}");
    serving.stop();
    assert_eq!(bench.rows(&["objects"]).len(), 1);
    let history = bench.rows(&["history"]);
    assert_eq!((&history[0]["kind"], &history[0]["message"]), (&"expire".into(), &"1 object forgotten".into()));
    // As what is typed is taken back.
    bench.done(&["expire", "--undo"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 2);
    let said = bench.said(&["status"], 0);
    assert!(!said.contains("retention"), "no server runs: {said}");
}

/// A wrong number in `keep` took nearly all backups of a policy, and nobody was asked.
#[test]
fn what_a_policy_no_longer_keeps_is_asked_for() {
    let bench = Bench::new(&[]);
    change_setting(&bench, "expire = \"12:00\"", "expire = \"*:*:*\"");
    let file = bench.dir.path().join("cell.toml");
    let apply = |last: u8, more: &[&str]| {
        let policy = format!("[policies.nightly]\nsources = [{:?}]\nkeep = {{ last = {last} }}\n", bench.source_text());
        fs::write(&file, policy).unwrap();
        bench.said(&[&["policies", "apply", file.to_str().unwrap()], more].concat(), 0)
    };
    apply(3, &[]);
    for _ in 0..3 {
        bench.done(&["backup", "nightly", "-q"], 0);
    }
    assert!(!apply(4, &["--dry-run"]).contains("keeps less"));
    let said = apply(2, &["--dry-run"]);
    assert!(said.contains("policy nightly: it keeps less than before: of 3 backups that it kept, 1 can go"), "{said}");
    assert!(said.contains("iB, the oldest of 20") && said.contains("The next expiry forgets them"), "{said}");
    for more in [&["--dry-run"][..], &[]] {
        let said = apply(1, more);
        assert!(said.contains("of 3 backups that it kept, 2 can go"), "{said}");
        assert!(said.contains("not forget them by itself, `capstan expire --policy nightly`"), "{said}");
    }
    let serving = serve_alone(&bench);
    let status = bench.done(&["status"], 3);
    assert!(status.contains("policy nightly keeps less than before: of 3 backups that it kept, 2 can go"), "{status}");
    assert!(status.contains("`capstan expire --policy nightly`"), "{status}");
    serving.stop();
    assert_eq!(bench.rows(&["objects"]).len(), 3);
    let said = bench.said(&["expire", "--policy", "nowhere"], 1);
    assert!(said.contains("there is no policy or job nowhere"), "{said}");
    let shown = bench.done(&["expire", "--policy", "nightly", "--dry-run"], 0);
    assert!(shown.starts_with("policy nightly keeps less than before") && shown.contains("\n2 objects"), "{shown}");
    let said = bench.said(&["expire"], 2);
    assert!(said.contains("Policy nightly keeps less than before") && said.contains("--yes"), "{said}");
    bench.done(&["expire", "--policy", "nightly", "--yes", "-q"], 0);
    assert_eq!(bench.rows(&["objects"]).len(), 1);
}

#[test]
fn a_time_of_expiry_that_is_none_is_named() {
    let bench = Bench::new(&[]);
    change_setting(&bench, "expire = \"12:00\"", "expire = \"noon\"");
    let said = bench.said(&["status"], 1);
    assert!(said.contains("server.expire: \"noon\" is not") && said.contains("leave it empty"), "{said}");
    change_setting(&bench, "expire = \"noon\"", "expire = \"\"");
    bench.done(&["status"], 0);
    // Then nobody asks for what a person has to do anyway.
    bench.done(&["pools", "add", "short", "--plain", "--retention", "1s"], 0);
    (0..3).for_each(|_| back_up(&bench));
    thread::sleep(Duration::from_millis(1_100));
    let serving = serve_alone(&bench);
    bench.done(&["status"], 0);
    serving.stop();
}

#[test]
fn a_cell_says_which_library_runs_out_of_volumes() {
    let bench = Bench::new(&["--volumes-max", "2"]);
    bench.done(&["pools", "add", "short", "--plain"], 0);
    back_up(&bench);
    bench.done(&["status"], 0);
    let serving = serve_alone(&bench);
    let status = bench.done(&["status"], 3);
    assert!(status.contains("1 volume is left in library main for pools that need one"), "{status}");
    assert!(status.contains("Raise its volumes_max in capstan.toml"), "{status}");
    serving.stop();
    change_setting(&bench, "scratch_volumes = 2", "scratch_volumes = 1");
    let serving = serve_alone(&bench);
    let status = bench.done(&["status"], 0);
    assert!(!status.contains("library main"), "{status}");
    serving.stop();
    assert_eq!(events(&bench, &["volumes"], 0).len(), 1);
}

/// The names of our metrics in a text, as rules and dashboards write them.
fn metrics_in(text: &str) -> BTreeSet<&str> {
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let words = text.split(|c: char| !is_of_name(c)).filter(|word| word.starts_with("capstan_"));
    words.collect()
}

/// What a scraper gets.
fn scrape(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_server_has_metrics_and_its_rules_and_dashboard_name_no_others() {
    let bench = Bench::new(&[]);
    change_setting(&bench, "metrics_listen = \"\"", "metrics_listen = \"127.0.0.1:0\"");
    bench.settings("[tell.oncall]\ncommand = [\"/bin/true\"]\n");
    back_up_into(&bench, "default");
    let (mut server, address) = serve(&bench);
    let metrics_at = server.event("watched")["metrics"].as_str().unwrap().to_owned();
    let heron = Machine::new();
    heron.run(&["mover", "join", &address, "--name", "heron"], &enrol(&bench, "mover", "heron", &address), 0);
    // Other tests may have the usual port.
    let settings = heron.0.path().join("state/mover.toml");
    let text = fs::read_to_string(&settings).unwrap();
    assert!(text.contains("listen = \"0.0.0.0:5703\""), "{text}");
    fs::write(&settings, text.replace("listen = \"0.0.0.0:5703\"", "listen = \"127.0.0.1:0\"")).unwrap();
    let mut mover = Printing::start(heron.command(&["mover", "run", "--json"], ""));
    mover.event("connected");
    let is_connected = "capstan_member_connected{kind=\"mover\",name=\"heron\"} 1\n";
    let version = format!(
        "capstan_member_version{{kind=\"mover\",name=\"heron\",version=\"{}\"}} 1\n",
        env!("CARGO_PKG_VERSION")
    );
    // The server asks the library for its drives, and writes what the mover said, a moment later.
    let comes = [is_connected, &version, "capstan_drives{library=\"main\"} 4\n"];
    let until = Instant::now() + Duration::from_secs(60);
    let text = loop {
        let text = scrape(&metrics_at, "/metrics");
        assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("application/openmetrics-text"), "{text}");
        if comes.iter().all(|line| text.contains(line)) {
            break text;
        }
        assert!(Instant::now() < until, "{text}");
        // What was told is told again for some seconds.
        thread::sleep(Duration::from_secs(1));
    };
    for line in [
        "capstan_server_running 1\n",
        "capstan_runs_of_a_day{outcome=\"failed\"} 0\n",
        "capstan_tell_failing{rule=\"oncall\",way=\"command\"} 0\n",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    assert!(scrape(&metrics_at, "/readyz").contains("ready"));
    let there = metrics_in(&text);
    for (file, named) in [
        ("alerts.yml", include_str!("../../../../server/alerts.yml")),
        ("dashboard.json", include_str!("../../../../server/dashboard.json")),
    ] {
        let named = metrics_in(named);
        let absent: Vec<_> = named.difference(&there).collect();
        assert!(named.len() > 10 && absent.is_empty(), "{file} names {absent:?}");
    }
    serde_json::from_str::<Value>(include_str!("../../../../server/dashboard.json")).unwrap();
    server.stop();
}

/// The panel of the server stayed green while the server was down: a metric that is gone keeps its last value there.
#[test]
fn a_dashboard_does_not_show_what_was_and_names_members_without_a_version() {
    let dashboard: Value = serde_json::from_str(include_str!("../../../../server/dashboard.json")).unwrap();
    let panels = dashboard["panels"].as_array().unwrap();
    let target = |title: &str| &panels.iter().find(|panel| panel["title"] == title).unwrap()["targets"][0];
    let stats: Vec<_> = panels.iter().filter(|panel| panel["type"] == "stat").collect();
    assert!(stats.len() >= 6 && stats.iter().all(|panel| panel["targets"][0]["instant"] == true), "{stats:?}");
    // A label keeps the two apart: `or` leaves out what has the labels of what is there.
    let server = target("Server")["expr"].as_str().unwrap();
    assert!(server.starts_with("min(label_replace(up{job=\"capstan\"}, \"of\","), "{server}");
    assert!(server.ends_with("or capstan_server_running)"), "{server}");
    let members = target("Clients and movers")["expr"].as_str().unwrap();
    let labels = "(instance, job, kind, name)";
    assert!(members.contains(&format!("* on {labels}")), "{members}");
    assert!(members.ends_with(&format!("or capstan_member_connected unless on {labels} capstan_member_version")));
}

/// A scrape that failed once in two days kept a client that was away from ever being named.
#[test]
fn no_alert_that_waits_for_days_begins_anew_with_a_failed_scrape() {
    let alerts = include_str!("../../../../server/alerts.yml");
    let waits: Vec<_> = alerts.lines().filter_map(|line| line.trim().strip_prefix("for: ")).collect();
    assert!(waits.len() > 10 && waits.iter().all(|wait| !wait.ends_with('d')), "{waits:?}");
    assert!(alerts.contains("time() - capstan_member_last_seen_timestamp_seconds{kind=\"client\"} > 2 * 86400\n"));
    assert!(alerts.contains("min_over_time(capstan_objects_lacking_a_copy[1d]) > 0\n"));
    let (_, stands) = alerts.split_once("alert: CapstanQueueStands").unwrap();
    assert!(stands.split("- alert:").next().unwrap().contains("\n        for: 15m\n"), "{stands}");
}
