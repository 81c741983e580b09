//! Machines that join a cell, as people and programs see it.

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use super::json::{assert_described, events, schemas};
use super::{Bench, capstan, ended};

/// A program that prints an event a line; it ends with the test.
pub(super) struct Printing {
    pub(super) child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Printing {
    pub(super) fn start(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        Self { child, lines }
    }

    /// The next event of this kind.
    pub(super) fn event(&mut self, kind: &str) -> Value {
        for line in &mut self.lines {
            let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
            if event["event"] == kind {
                return event;
            }
        }
        panic!("it ended without {kind}");
    }

    pub(super) fn stop(mut self) {
        let _ =
            rustix::process::kill_process(rustix::process::Pid::from_child(&self.child), rustix::process::Signal::TERM);
        assert_eq!(self.event("stopped")["event"], "stopped");
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Printing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A machine without a state directory.
pub(super) struct Machine(pub(super) TempDir);

impl Machine {
    pub(super) fn new() -> Self {
        Self(TempDir::new().unwrap())
    }

    pub(super) fn command(&self, args: &[&str], passphrase: &str) -> Command {
        let mut command = capstan(args);
        command.env("CAPSTAN_STATE", self.0.path().join("state")).env("CAPSTAN_ENROLMENT_PASSPHRASE", passphrase);
        command
    }

    pub(super) fn run(&self, args: &[&str], passphrase: &str, code: i32) -> Output {
        let output = self.command(args, passphrase).output().unwrap();
        ended(&output, args, code);
        output
    }

    pub(super) fn said(&self, args: &[&str], passphrase: &str, code: i32) -> String {
        String::from_utf8(self.run(args, passphrase, code).stderr).unwrap()
    }
}

/// A server that listens, and where machines join it.
pub(super) fn serve(bench: &Bench) -> (Printing, String) {
    let mut server = Printing::start(bench.command(&["server", "run", "--listen", "127.0.0.1:0", "--json"]));
    let listening = server.event("listening");
    assert_described(&schemas_of("ServerEvent", "listening"), "ServerEvent", std::slice::from_ref(&listening));
    (server, listening["enrolment"].as_str().unwrap().to_owned())
}

/// The schemas with one kind of event in the place of all.
fn schemas_of(events: &str, kind: &str) -> Value {
    let mut schemas = serde_json::to_value(schemas()).unwrap();
    let kinds = schemas[events]["oneOf"].as_array().unwrap();
    let one = kinds.iter().find(|one| one["properties"]["event"]["const"] == kind).unwrap().clone();
    schemas[events] = one;
    schemas
}

pub(super) fn enrol(bench: &Bench, kind: &str, name: &str, address: &str) -> String {
    let opened = events(bench, &[kind, "enrol", name], 0);
    assert_described(&schemas(), "MemberEnrolmentRow", &opened);
    assert_eq!(opened[0]["address"], address, "that of the server that runs");
    opened[0]["passphrase"].as_str().unwrap().to_owned()
}

/// Waits until it is written that the only client was seen.
fn wait_until_seen(bench: &Bench) {
    let began = Instant::now();
    while events(bench, &["client", "list"], 0)[0]["seen_ns"] == Value::Null {
        assert!(began.elapsed() < Duration::from_secs(60), "it is not written that it was seen");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A manager of services, and what it is told.
struct Manager {
    socket: UnixDatagram,
    folder: TempDir,
}

impl Manager {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let socket = UnixDatagram::bind(folder.path().join("notify")).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        Self { socket, folder }
    }

    fn start(&self, mut command: Command) -> Printing {
        command.env("NOTIFY_SOCKET", self.folder.path().join("notify"));
        Printing::start(command)
    }

    fn hears_that_it_is_ready(&self) {
        let mut said = [0; 64];
        let len = self.socket.recv(&mut said).unwrap();
        assert_eq!(str::from_utf8(&said[..len]).unwrap().trim_end(), "READY=1");
    }
}

/// `systemctl start capstan-server` returned before the server took commands.
#[test]
fn a_manager_of_services_hears_when_a_server_and_a_client_are_ready() {
    let (bench, manager) = (Bench::new(&[]), Manager::new());
    let mut server = manager.start(bench.command(&["server", "run", "--listen", "127.0.0.1:0", "--json"]));
    manager.hears_that_it_is_ready();
    let opened = events(&bench, &["client", "enrol", "tern"], 0);
    let (address, passphrase) = (opened[0]["address"].as_str().unwrap(), opened[0]["passphrase"].as_str().unwrap());
    assert_eq!(server.event("listening")["enrolment"], address, "it is in reach of commands, and listens");
    let machine = Machine::new();
    machine.run(&["client", "join", address, "--name", "tern"], passphrase, 0);
    let client = manager.start(machine.command(&["client", "run", "--json"], ""));
    manager.hears_that_it_is_ready();
    client.stop();
    server.stop();
}

#[test]
fn a_machine_joins_waits_for_orders_and_is_revoked() {
    let bench = Bench::new(&[]);
    let (server, address) = serve(&bench);
    let passphrase = enrol(&bench, "client", "tern", &address);
    let waiting = events(&bench, &["client", "list"], 0);
    assert_described(&schemas(), "MemberRow", &waiting);
    assert_eq!((&waiting[0]["state"], &waiting[0]["seen_ns"]), (&"waiting".into(), &Value::Null));
    let machine = Machine::new();
    let joined = machine.run(&["client", "join", &address, "--name", "tern", "--json"], &passphrase, 0);
    let joined: Value = serde_json::from_slice(&joined.stdout).unwrap();
    assert_described(&schemas(), "ClientJoinedRow", std::slice::from_ref(&joined));
    let init = machine.said(&["init"], "", 1);
    assert!(init.contains("is the state directory of a client"), "{init}");
    let identity = machine.0.path().join("state/cell/identity.pem");
    assert_eq!(fs::metadata(identity).unwrap().permissions().mode() & 0o777, 0o600);
    let mut client = Printing::start(machine.command(&["client", "run", "--json"], ""));
    assert_eq!(client.event("started")["client"], "tern");
    assert_eq!(client.event("connected")["address"], joined["servers"][0]);
    wait_until_seen(&bench);
    let list = bench.done(&["client", "list"], 0);
    assert!(list.contains("tern") && list.contains("enrolled") && list.contains("127.0.0.1"), "{list}");
    assert_described(&schemas(), "MemberChangeRow", &events(&bench, &["client", "revoke", "tern"], 0));
    let error = client.event("error");
    assert!(error["message"].as_str().unwrap().contains("was revoked"), "{error}");
    assert_eq!(client.child.wait().unwrap().code(), Some(1));
    assert_eq!(events(&bench, &["client", "list"], 0)[0]["state"], "revoked");
    let again = machine.said(&["client", "run"], "", 1);
    assert!(again.contains("was revoked") && again.contains("capstan client join --replace"), "{again}");
    server.stop();
}

/// A client that somebody typed beside the one of the service asked for the same orders, and renewed the same
/// certificate.
#[test]
fn a_client_runs_once_and_a_killed_one_keeps_nobody_out() {
    let bench = Bench::new(&[]);
    let (server, address) = serve(&bench);
    let machine = Machine::new();
    let passphrase = enrol(&bench, "client", "tern", &address);
    machine.run(&["client", "join", &address, "--name", "tern"], &passphrase, 0);
    let start = || {
        let mut client = Printing::start(machine.command(&["client", "run", "--json"], ""));
        client.event("connected");
        client
    };
    let mut first = start();
    let said = machine.said(&["client", "run"], "", 1);
    let holder = format!("process {} runs as this client already: stop it first", first.child.id());
    assert!(said.contains(&holder), "{said}");
    // What only asks works beside it.
    machine.run(&["client", "objects"], "", 0);
    first.child.kill().unwrap();
    first.child.wait().unwrap();
    start().stop();
    server.stop();
}

#[test]
fn mistakes_on_the_way_into_a_cell_are_answered_with_what_to_do() {
    let bench = Bench::new(&[]);
    let said = bench.said(&["client", "list"], 0);
    assert!(said.contains("`capstan client enrol NAME`"), "{said}");
    let opened = bench.command(&["client", "enrol", "tern"]).output().unwrap();
    let (out, err) = (String::from_utf8(opened.stdout).unwrap(), String::from_utf8(opened.stderr).unwrap());
    assert!(out.contains("capstan client join SERVER:5702 --name tern"), "{out}");
    assert!(err.contains("capstan server run --listen"), "{err}");
    for (args, code, answer) in [
        (&["client", "revoke", "plover"][..], 1, "`capstan client list` lists them"),
        (&["client", "enrol", "-"], 2, "is no name"),
        (&["client", "enrol", "tern", "--valid", "soon"], 2, "is not a duration"),
        (&["client", "join", "127.0.0.1:1", "--name", "tern"], 1, "is the state directory of a server"),
        (&["server", "run", "--listen", "5701"], 2, "write it as in 0.0.0.0:5701"),
        (&["server", "run", "--data", "0.0.0.0:5703"], 2, "data is set and listen is not"),
        (&["client"], 2, "Usage"),
    ] {
        let said = bench.said(args, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let (server, address) = serve(&bench);
    let passphrase = enrol(&bench, "client", "tern", &address);
    let machine = Machine::new();
    let join = ["client", "join", &address, "--name", "tern"];
    for (args, passphrase, code, answer) in [
        (&["client", "run"][..], "", 1, "no client has joined a cell from here"),
        (&["client", "join", "server", "--name", "tern"], "", 2, "is no host and port"),
        (&join, "three plain words", 4, "that is no enrolment passphrase"),
        (&join, "0000-0000-0000-0000-0000", 4, "the passphrase is not the one of tern"),
        (&["client", "join", &address, "--name", "plover"], &passphrase, 1, "No enrolment of client plover is open"),
        (&["client", "join", "127.0.0.1:9", "--name", "tern"], &passphrase, 1, "see that the server runs"),
        (&["client", "join", "no.such.invalid:9", "--name", "tern"], &passphrase, 1, "the host is not known here"),
    ] {
        let said = machine.said(args, passphrase, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let out = String::from_utf8(machine.run(&join, &passphrase, 0).stdout).unwrap();
    assert!(out.contains("this machine is client tern") && out.contains("may back up every path here"), "{out}");
    for (args, code, answer) in [
        (&join[..], 1, "Use --replace to join anew"),
        (&[&join[..], &["--replace"]].concat(), 1, "has expired or was used"),
        (&["find", "letter"], 2, "is the state directory of a client of a cell"),
        (&["volumes"], 2, "client restore and client versions"),
        (&["client", "find", "letter"], 0, "nothing matches"),
        (&["client", "find", "["], 1, "is not a pattern"),
        (&["client", "ls", "/home"], 1, "Nothing of client tern was backed up as /home"),
        (&["client", "versions", "/home/letter"], 0, "no object has /home/letter"),
    ] {
        let said = machine.said(args, &passphrase, code);
        assert!(said.contains(answer), "{args:?}: {said}");
    }
    let said = bench.said(&["client", "enrol", "tern"], 1);
    assert!(said.contains("choose another name, or run `capstan client revoke tern` first"), "{said}");
    // A second server of another state directory finds the port taken.
    let other = Bench::new(&[]);
    let said = other.said(&["server", "run", "--listen", &address], 1);
    assert!(said.contains(&format!("cannot listen at {address}")), "{said}");
    server.stop();
}

#[test]
fn settings_say_where_the_server_listens() {
    let bench = Bench::new(&[]);
    let path = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains("listen = \"\""), "{text}");
    fs::write(&path, text.replace("listen = \"\"", "listen = \"192.0.2.1:7001\"")).unwrap();
    let out = bench.done(&["client", "enrol", "tern"], 0);
    assert!(out.contains("capstan client join 192.0.2.1:7002 --name tern"), "{out}");
    fs::write(&path, text.replace("listen = \"\"", "listen = \"here\"")).unwrap();
    let said = bench.said(&["client", "list"], 1);
    assert!(said.contains("server.listen"), "{said}");
}

/// Runs a policy, and waits until none of its runs is in the queue.
fn run_to_its_end(bench: &Bench, policy: &str) {
    bench.done(&["queue", "add", policy], 0);
    let began = Instant::now();
    while !events(bench, &["queue"], 0).is_empty() {
        assert!(began.elapsed() < Duration::from_secs(60), "the runs do not end");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A disk that was not mounted at a client stayed unnoticed, and so did a client that failed before another one of its
/// policy did well.
#[test]
fn what_was_not_backed_up_at_a_client_is_named() {
    let bench = Bench::new(&["--drives", "2"]);
    let (server, address) = serve(&bench);
    let machines = ["plover", "tern"].map(|name| (name, Machine::new()));
    let mut clients = Vec::new();
    for (name, machine) in &machines {
        for source in ["a", "b"] {
            fs::create_dir(machine.0.path().join(source)).unwrap();
        }
        let passphrase = enrol(&bench, "client", name, &address);
        machine.run(&["client", "join", &address, "--name", name], &passphrase, 0);
        let mut client = Printing::start(machine.command(&["client", "run", "--json"], ""));
        client.event("connected");
        clients.push(client);
    }
    let of = |name: &str, source: &str| {
        let (_, machine) = machines.iter().find(|(other, _)| *other == name).unwrap();
        machine.0.path().join(source)
    };
    let policy = |name: &str, clients: &str, sources: &[&std::path::Path]| {
        format!("[policies.{name}]\nclients = [{clients}]\nretries = 0\nsources = {sources:?}\n")
    };
    let (a, b, own) = (of("tern", "a"), of("tern", "b"), of("plover", "a"));
    let text = policy("tern", "\"tern\"", &[&a, &b]) + &policy("both", "\"plover\", \"tern\"", &[&own]);
    let file = bench.dir.path().join("cell.toml");
    fs::write(&file, text).unwrap();
    bench.done(&["policies", "apply", file.to_str().unwrap()], 0);
    let status = || String::from_utf8(bench.command(&["status"]).output().unwrap().stdout).unwrap();
    let line = format!("{} of tern was not backed up by its last run", b.display());
    run_to_its_end(&bench, "tern");
    assert!(!status().contains(&line));
    fs::remove_dir(&b).unwrap();
    run_to_its_end(&bench, "tern");
    let text = bench.done(&["status"], 3);
    assert!(text.contains(&line) && !text.contains("the last backup by policy tern"), "it is said once: {text}");
    fs::create_dir(&b).unwrap();
    run_to_its_end(&bench, "tern");
    assert!(!status().contains(&line));
    // Both machines are this one, so that tern has to fail by what it may read.
    fs::write(machines[1].1.0.path().join("state/client.toml"), format!("paths = [{:?}]\n", a)).unwrap();
    clients.pop();
    let mut again = Printing::start(machines[1].1.command(&["client", "run", "--json"], ""));
    again.event("connected");
    run_to_its_end(&bench, "both");
    let status = bench.done(&["status"], 3);
    assert!(status.contains("the last run of policy both for tern"), "{status}");
    // What its settings do not allow may be there all the same: nobody is to say that it is gone.
    run_to_its_end(&bench, "tern");
    let status = bench.done(&["status", "--max-age", "0s"], 3);
    let of_b: Vec<_> = status.lines().filter(|line| line.contains(&format!("{} of tern was ", b.display()))).collect();
    let allow = "name it under `paths` in client.toml of tern";
    assert!(of_b.len() == 2 && of_b.iter().all(|line| line.contains(allow)), "{status}");
    assert!(!status.contains(&format!("--gone {}`", b.display())), "{status}");
    server.stop();
}

#[test]
fn runs_of_a_network_are_bounded_and_keep_to_what_it_takes() {
    let bench = Bench::new(&["--drives", "2"]);
    let settings = bench.dir.path().join("state/capstan.toml");
    let mut text = fs::read_to_string(&settings).unwrap();
    text.push_str("\n[networks.loop]\naddresses = [\"127.0.0.0/8\"]\nruns_at_once = 1\nbandwidth = [\"1M\"]\n");
    fs::write(&settings, text).unwrap();
    let (server, address) = serve(&bench);
    let machine = Machine::new();
    let passphrase = enrol(&bench, "client", "tern", &address);
    machine.run(&["client", "join", &address, "--name", "tern"], &passphrase, 0);
    let mut client = Printing::start(machine.command(&["client", "run", "--json"], ""));
    client.event("connected");
    wait_until_seen(&bench);
    let mut policies = String::new();
    for name in ["a", "b"] {
        let source = machine.0.path().join(name);
        fs::create_dir(&source).unwrap();
        let noise: Vec<u8> = (0..2_000_000u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        fs::write(source.join("noise"), noise).unwrap();
        policies.push_str(&format!(
            "[policies.{name}]\nclients = [\"tern\"]\ncompression = 0\nsources = [\"{}\"]\n",
            source.display()
        ));
    }
    let file = machine.0.path().join("cell.toml");
    fs::write(&file, policies).unwrap();
    bench.done(&["policies", "apply", file.to_str().unwrap()], 0);
    bench.done(&["queue", "add", "a", "b"], 0);
    let (began, mut waited) = (Instant::now(), String::new());
    let done = loop {
        assert!(began.elapsed() < Duration::from_secs(60), "the runs do not end");
        let queue = events(&bench, &["queue"], 0);
        for row in queue.iter().filter(|row| row["waits_for"] == "limit") {
            waited = row["message"].as_str().unwrap().to_owned();
        }
        let done = events(&bench, &["queue", "done"], 0);
        if done.len() == 2 {
            break done;
        }
        std::thread::sleep(Duration::from_millis(100));
    };
    assert!(waited.contains("the network of client tern"), "{waited:?}");
    for run in done {
        assert_eq!(run["state"], "done", "{run}");
        let took_ns = run["ended_ns"].as_u64().unwrap() - run["started_ns"].as_u64().unwrap();
        // Each connection may have a block that is not paid yet.
        assert!(took_ns > 1_000_000_000, "{run}");
    }
    // So does what the client gets back.
    let (source, to) = (machine.0.path().join("a"), machine.0.path().join("restored"));
    let words = ["client", "restore", source.to_str().unwrap(), "--to", to.to_str().unwrap()];
    machine.run(&words, "", 0);
    let done = events(&bench, &["queue", "done"], 0);
    let restore = done.iter().max_by_key(|row| row["run"].as_i64()).unwrap();
    let took_ns = restore["ended_ns"].as_u64().unwrap() - restore["started_ns"].as_u64().unwrap();
    assert!(took_ns > 1_000_000_000, "{restore}");
    let came = fs::metadata(to.join(source.strip_prefix("/").unwrap()).join("noise")).unwrap();
    assert_eq!(came.len(), 2_000_000);
    server.stop();
}
