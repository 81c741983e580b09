//! Users of a cell over TLS: what each role may do, what is noted of it, and what members of other kinds may not.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::Duration;

use capstan_client::orders::Replaces;
use capstan_client::restores::{AskRestore, RestoreEnded, RestorePlanned, RestoreSeen};
use capstan_client::{ClientError, ClientWork, MemberNotice, ServerQuestions, run};
use capstan_keys::api::{Base64, IssuedCertificate, PeerId, PeerKind, RenewCertificate};
use capstan_keys::cluster::{CertificateKey, ClusterError, NodeClient};
use capstan_server::cell::users::words::{
    ApplyPolicies, AskRestoreTo, AuditAnswer, AuditChecked, CellObjectsAnswer, ChangeRuns, ChangeUser, EnrolMember,
    EnrolUser, EnterRuns, LabelMember, MachineKind, MemberEnrolmentRow, PoliciesChanged, QueueAnswer, RevokeUser,
    RunChange, RunsChanged, StatusAnswer, WhoAnswer,
};
use capstan_server::cell::users::{CellAct, CellActs, CellRole};
use capstan_server::cell::{CellError, ServedCell, openapi, revoke_member};
use capstan_server::{PeerAway, RunDecision, WaitsFor, decide, look, note_nobody_listens};
use capstan_service::audit::AuditError;
use capstan_service::roles::{TableAct, TableRole};
use serde_json::{Value, json};

use crate::cell::{CellBench, Machine, StopsAtTheEnd, client_id, name, now_ns, until};
use crate::own_objects::back_up;

const POLICY: &str = "[policies.home]\nsources = [\"/srv/home\"]\nschedule = \"22:00\"\n";

fn shell(bench: &CellBench) -> CellActs {
    CellActs::at_shell(&bench.site(), 1000).unwrap()
}

/// A user who has joined.
pub(crate) fn user(bench: &CellBench, cell: &ServedCell, user: &str, roles: &[&str], clients: &[&str]) -> Machine {
    let asked = EnrolUser {
        name: name(user),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        clients: clients.iter().map(|client| name(client)).collect(),
        valid_seconds: 3600,
    };
    let passphrase = shell(bench).enrol_user(&asked).unwrap().passphrase.parse().unwrap();
    let machine = Machine::of(PeerKind::User);
    machine.join(cell, user, &passphrase).unwrap();
    machine
}

pub(crate) fn questions(machine: &Machine) -> ServerQuestions {
    ServerQuestions::of_user(&machine.state, now_ns()).unwrap()
}

fn refusal<T: std::fmt::Debug>(asked: Result<T, ClientError>) -> String {
    match asked {
        Err(ClientError::Refused { reason }) => reason,
        other => panic!("{other:?}"),
    }
}

/// Every operation of the API: its method, its path, and the act of the table of roles, or the group it is for.
fn operations() -> Vec<(String, String, Option<CellAct>, String)> {
    let document = openapi();
    let mut found = Vec::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let act = operation.get("x-act").map(|act| CellAct::named(act.as_str().unwrap()).unwrap());
            let tag = operation["tags"][0].as_str().unwrap().to_owned();
            found.push((method.clone(), path.clone(), act, tag));
        }
    }
    found
}

/// Asks an operation for nothing in particular, and gives the status of the answer.
fn status(client: &NodeClient, method: &str, path: &str) -> u16 {
    let answered = match method {
        "get" => client.get::<Value>(path),
        _ => client.post::<Value>(path, &json!({})),
    };
    match answered {
        Ok(_) => 200,
        Err(ClusterError::Refused(problem)) => problem.status,
        // A question that is none.
        Err(ClusterError::Unreadable { .. }) => 400,
        Err(other) => panic!("{method} {path}: {other}"),
    }
}

fn client_of(machine: &Machine, cell: &ServedCell) -> NodeClient {
    let (identity, address) = (machine.state.identity().unwrap(), cell.members_address().to_string());
    NodeClient::new(&identity, &address, Duration::from_secs(60)).unwrap()
}

#[test]
fn each_role_may_do_what_the_table_says_and_nothing_else() {
    let bench = CellBench::new();
    let cell = bench.serve();
    for role in CellRole::COLUMNS {
        let clients: &[&str] = if *role == CellRole::Restorer { &["tern"] } else { &[] };
        let machine = user(&bench, &cell, role.name(), &[role.name()], clients);
        let client = client_of(&machine, &cell);
        let mut acts = 0;
        for (method, path, act, tag) in operations() {
            let expected = match (act, tag.as_str()) {
                (Some(act), _) => act.cell(*role).is_some(),
                // What any user may ask, and what is for all members.
                (None, tag) => tag == "users" || tag == "members",
            };
            if tag == "strangers" {
                continue;
            }
            acts += usize::from(act.is_some());
            let status = status(&client, &method, &path);
            assert_eq!(status != 403, expected, "{role:?} {method} {path}: {status}");
        }
        assert!(acts >= CellAct::ALL.len(), "each act has a route");
    }
}

/// All that movers need. A route that is not here is refused to them, a new one too.
const OF_MOVERS: [(&str, &str); 4] =
    [("post", "/v1/hello"), ("get", "/v1/orders"), ("post", "/v1/certificates/renew"), ("get", "/v1/openapi.json")];

/// Nobody tried the routes for clients with the identity of a mover. Whoever steals one gets no further than a mover
/// needs, and to no data of the client of its name.
#[test]
fn a_machine_may_ask_for_what_its_kind_needs_and_for_nothing_else() {
    let bench = CellBench::new();
    let cell = bench.serve();
    for kind in [PeerKind::Client, PeerKind::Mover] {
        let machine = bench.joined_as(&cell, &PeerId { kind, name: name("tern") });
        let client = client_of(&machine, &cell);
        let (mut of_movers, mut own) = (0, 0);
        for (method, path, _, tag) in operations() {
            let is_of_movers = OF_MOVERS.contains(&(method.as_str(), path.as_str()));
            let is_own = path.starts_with("/v1/own/");
            (of_movers, own) = (of_movers + usize::from(is_of_movers), own + usize::from(is_own));
            // What is no question is not waited for, and is refused all the same.
            let asked = if path == "/v1/orders" { "/v1/orders?after=none" } else { &path };
            let status = status(&client, &method, asked);
            match tag.as_str() {
                "strangers" => assert_eq!(status, 404, "{method} {path} is at another port"),
                _ if is_of_movers || is_own && kind == PeerKind::Client => {
                    assert_ne!(status, 403, "{kind} {method} {path}");
                }
                _ => assert_eq!(status, 403, "{kind} {method} {path}"),
            }
        }
        assert!(of_movers == OF_MOVERS.len() && own > 0, "{of_movers} {own}");
    }
    let records = shell(&bench).audit(None).unwrap().records;
    assert!(records.iter().all(|record| record["who"] != "user/tern"), "a machine is no user of its name");
}

#[test]
fn what_users_do_is_noted_and_refusals_too() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let ada = questions(&user(&bench, &cell, "ada", &["administrator"], &[]));
    let who: WhoAnswer = ada.get("/v1/user").unwrap();
    assert_eq!((who.user.as_str(), who.roles, who.acts.len()), ("ada", vec!["administrator".to_owned()], 16));
    assert_eq!(ada.get::<StatusAnswer>("/v1/status?max_age_ns=5").unwrap().text, "fine\n");
    let apply = |basis: Option<String>| -> PoliciesChanged {
        let (file, text) = ("cell.toml".to_owned(), POLICY.to_owned());
        ada.post("/v1/policies/apply", &ApplyPolicies { file, text, only: false, basis }).unwrap()
    };
    let planned = apply(None);
    assert!(planned.changes[0].dry_run && bench.site().policies().unwrap().is_empty(), "it was looked at");
    let made = apply(Some(planned.basis.clone()));
    assert!(!made.changes[0].dry_run && bench.site().policies().unwrap().len() == 1);
    let again = ApplyPolicies {
        file: "cell.toml".to_owned(),
        text: POLICY.replace("22:00", "23:00"),
        only: false,
        basis: Some(planned.basis),
    };
    let refused = refusal(ada.post::<PoliciesChanged>("/v1/policies/apply", &again));
    assert!(refused.contains("somebody changed the policies meanwhile"), "{refused}");
    let enter = EnterRuns { policies: vec!["home".to_owned()], client: None, full: false, now: false };
    let entered: RunsChanged = ada.post("/v1/queue/enter", &enter).unwrap();
    let run = entered.changes[0].run;
    let change = |change, runs| -> RunsChanged { ada.post("/v1/queue/change", &ChangeRuns { change, runs }).unwrap() };
    assert_eq!(change(RunChange::Hold, vec![run]).changes[0].change, "held");
    assert_eq!(change(RunChange::Release, vec![run]).changes[0].change, "released");
    // It said so of a run that nobody held, too, and that went on waiting.
    let again = change(RunChange::Release, vec![run]);
    assert!(again.changes.is_empty() && again.failed[0].reason.contains("is not held"), "{again:?}");
    let cancelled = change(RunChange::Cancel, vec![run, 77]);
    assert_eq!((cancelled.changes[0].change.as_ref(), cancelled.failed[0].run), ("cancelled", Some(77)));
    let unknown = EnterRuns { policies: vec!["hmoe".to_owned()], client: None, full: false, now: false };
    let refused = refusal(ada.post::<RunsChanged>("/v1/queue/enter", &unknown));
    assert!(refused.contains("hmoe") && refused.contains("capstan policies"), "{refused}");

    let eve = questions(&user(&bench, &cell, "eve", &["auditor"], &[]));
    let refused = refusal(eve.post::<RunsChanged>("/v1/queue/enter", &enter));
    assert!(refused.contains("user eve (auditor) may not put runs of policies into the queue"), "{refused}");
    let records = eve.get::<AuditAnswer>("/v1/audit?last=1000").unwrap().records;
    let lines: Vec<_> = records
        .iter()
        .map(|record| {
            let text = |field: &str| record[field].as_str().unwrap_or("-").to_owned();
            format!("{} {} {} {}", text("who"), text("act"), text("object"), text("result"))
        })
        .collect();
    for expected in [
        "shell/uid-1000 change-users user/ada begun",
        "shell/uid-1000 change-users user/ada done",
        "user/ada join - done",
        "user/ada change-policies - begun",
        "user/ada change-policies - done",
        "user/ada enter-runs policy/home done",
        "user/ada change-runs run/1 done",
        "user/ada change-runs run/77 begun",
        "user/ada change-runs run/77 failed",
        "user/eve enter-runs - refused",
        "user/eve read-audit - done",
    ] {
        assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:#?}");
    }
    let policies = records.iter().find(|record| record["act"] == "change-policies").unwrap();
    assert_eq!(policies["facts"]["set"], "home");
    assert!(!serde_json::to_string(&records).unwrap().contains("hmoe"), "what was typed is not in the log");
    let checked: AuditChecked = eve.get("/v1/audit/check").unwrap();
    assert_eq!((checked.finding, checked.last), (None, checked.anchored_to));
}

#[test]
fn a_log_that_was_changed_or_cut_off_shows() {
    let bench = CellBench::new();
    let acts = shell(&bench);
    let enrol = |user: &str| {
        let (name, roles) = (name(user), vec!["operator".to_owned()]);
        acts.enrol_user(&EnrolUser { name, roles, clients: Vec::new(), valid_seconds: 60 }).unwrap();
    };
    ["ada", "bert", "carl"].into_iter().for_each(enrol);
    assert_eq!(acts.check_audit().unwrap().finding, None);
    let file = bench.site().dir().join("cell/audit/000000000001.jsonl");
    let whole = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, whole.replace("user/bert", "user/eve")).unwrap();
    let finding = acts.check_audit().unwrap().finding.unwrap();
    assert!(finding.contains("was altered"), "{finding}");
    // The last record, with a chain that is whole: the catalog knows better, and nothing hides it again.
    let forged = whole.replace("user/carl", "user/mallory");
    assert_ne!(forged, whole);
    std::fs::write(&file, &forged).unwrap();
    let enrols = |user: &str| {
        let (name, roles) = (name(user), vec!["operator".to_owned()]);
        acts.enrol_user(&EnrolUser { name, roles, clients: Vec::new(), valid_seconds: 60 }).map(drop)
    };
    assert!(matches!(enrols("dora"), Err(CellError::Audit(AuditError::Altered { .. }))));
    assert!(bench.site().catalog().user("dora").unwrap().is_none(), "what cannot be noted is not done");
    let lines: Vec<_> = whole.lines().collect();
    std::fs::write(&file, lines[..2].join("\n") + "\n").unwrap();
    let finding = acts.check_audit().unwrap().finding.unwrap();
    assert!(finding.contains("what stood behind was cut off"), "{finding}");
    std::fs::remove_dir_all(file.parent().unwrap()).unwrap();
    let finding = acts.check_audit().unwrap().finding.unwrap();
    assert!(finding.contains("ends with record 0"), "{finding}");
    // Where all is gone, work goes on, and the gap stays to be seen.
    enrols("dora").unwrap();
    let checked = acts.check_audit().unwrap();
    assert_eq!((checked.finding, checked.first), (None, whole.lines().count() as u64 + 1));
}

#[test]
fn roles_change_at_once_and_a_revoked_user_is_refused() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let bert = questions(&user(&bench, &cell, "bert", &["operator"], &[]));
    bert.get::<QueueAnswer>("/v1/queue").unwrap();
    let roles = |roles: &[&str], clients: &[&str]| ChangeUser {
        name: name("bert"),
        roles: roles.iter().map(|&role| role.to_owned()).collect(),
        clients: clients.iter().map(|client| name(client)).collect(),
    };
    let own = bench.site().client().to_owned();
    let changed = shell(&bench).change_user(&roles(&["restorer"], &["tern", &own])).unwrap();
    assert_eq!(changed.not_joined, ["tern"], "it has not joined");
    let refused = refusal(bert.get::<QueueAnswer>("/v1/queue"));
    assert!(refused.contains("user bert (restorer) may not list the queue"), "{refused}");
    assert!(bert.get::<CellObjectsAnswer>("/v1/objects").unwrap().objects.is_empty());
    for (asked, reason) in [
        (roles(&["auditor", "operator"], &[]), "an auditor has no other role"),
        (roles(&["restorer"], &[]), "a restorer needs clients"),
        (roles(&["king"], &[]), "is no role"),
    ] {
        let error = shell(&bench).change_user(&asked).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
    }
    let unknown = ChangeUser { name: name("zoe"), ..roles(&["operator"], &[]) };
    assert!(matches!(shell(&bench).change_user(&unknown), Err(CellError::UnknownUser { .. })));
    shell(&bench).revoke_user(&RevokeUser { name: name("bert") }).unwrap();
    until("the user is refused", || matches!(bert.get::<WhoAnswer>("/v1/user"), Err(ClientError::Revoked { .. })));
}

#[test]
fn nobody_waits_for_users() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let _ada = user(&bench, &cell, "ada", &["operator"], &[]);
    cell.look().unwrap();
    until("it is noted who is away", || bench.site().catalog().fact("peers away").unwrap().is_some());
    assert_eq!(bench.site().catalog().fact("peers away").unwrap().unwrap(), "");
}

static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

#[test]
fn a_user_who_works_has_the_certificate_renewed_when_it_is_due() {
    let bench = CellBench::with_clock(|| now_ns() + AHEAD_NS.load(Ordering::SeqCst));
    let cell = bench.serve();
    let machine = user(&bench, &cell, "ada", &["operator"], &[]);
    let first = machine.state.identity().unwrap().certificate().clone();
    // Due by the user's clock, and too early by the server's: what was there is used on.
    let early = ServerQuestions::of_user(&machine.state, first.renewal_due_ns()).unwrap();
    early.get::<WhoAnswer>("/v1/user").unwrap();
    assert_eq!(machine.state.identity().unwrap().certificate().serial, first.serial);
    // More than half is over by the server's clock, too.
    AHEAD_NS.store(50 * 24 * 3600 * 1_000_000_000, Ordering::SeqCst);
    let renewed = ServerQuestions::of_user(&machine.state, first.renewal_due_ns()).unwrap();
    let certificate = machine.state.identity().unwrap().certificate().clone();
    assert!(certificate.serial != first.serial && certificate.not_after_ns > first.not_after_ns);
    renewed.get::<WhoAnswer>("/v1/user").unwrap();
}

/// A member that asked for its next certificate in a loop got one each time, and each was a row of the catalog for
/// months.
#[test]
fn a_certificate_is_renewed_a_few_times_an_hour_and_no_more() {
    static AHEAD_NS: AtomicI64 = AtomicI64::new(0);
    const HOUR_NS: i64 = 3600 * 1_000_000_000;
    let bench = CellBench::with_clock(|| now_ns() + AHEAD_NS.load(Ordering::SeqCst));
    let cell = bench.serve();
    let asks = questions(&user(&bench, &cell, "ada", &["operator"], &[]));
    let renew = || {
        let request = Base64(CertificateKey::generate().unwrap().request().to_vec());
        asks.post::<IssuedCertificate>("/v1/certificates/renew", &RenewCertificate { request })
    };
    let count = || bench.site().catalog().peers_named("user", "ada").unwrap().len();
    AHEAD_NS.store(50 * 24 * HOUR_NS, Ordering::SeqCst);
    // An answer may be lost, so one is not all.
    (0..3).for_each(|_| drop(renew().unwrap()));
    let refused = refusal(renew());
    assert!(refused.contains("the newest one holds"), "{refused}");
    assert_eq!(count(), 4);
    // It may again in an hour, and at once if the clock was ahead and is put right.
    AHEAD_NS.store(50 * 24 * HOUR_NS + HOUR_NS + HOUR_NS / 60, Ordering::SeqCst);
    renew().unwrap();
    AHEAD_NS.store(49 * 24 * HOUR_NS, Ordering::SeqCst);
    renew().unwrap();
    assert_eq!(count(), 6);
}

/// An administrator was told to look at the server's log, and there is none: what had failed stood nowhere.
#[test]
fn what_fails_at_the_server_is_told_to_whoever_asked() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let asks = questions(&user(&bench, &cell, "ada", &["administrator"], &[]));
    std::fs::write(bench.site().dir().join("cell/authority.key"), "scratched").unwrap();
    let asked = EnrolMember { kind: MachineKind::Client, name: name("tern"), valid_seconds: 60 };
    let said = asks.post::<MemberEnrolmentRow>("/v1/members/enrol", &asked).map(drop).unwrap_err().to_string();
    assert!(said.contains("it is no private key: restore both files"), "{said}");
    assert!(!said.contains("Look at its log"), "{said}");
}

#[test]
fn a_policy_names_clients_by_their_labels() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let acts = shell(&bench);
    let (_tern, _plover) = (bench.joined(&cell, "tern"), bench.joined(&cell, "plover"));
    let label = |client: &str, labels: &[&str]| {
        let labels = labels.iter().map(|label| name(label)).collect();
        acts.label_member(&LabelMember { kind: MachineKind::Client, name: name(client), labels })
    };
    assert!(matches!(label("heron", &["web"]), Err(CellError::UnknownMember(_))));
    label("tern", &["production", "web"]).unwrap();
    let members = acts.members(MachineKind::Client).unwrap().members;
    let labels: Vec<_> = members.iter().map(|member| (member.member.name(), member.labels.join(" "))).collect();
    assert_eq!(labels, [("plover", String::new()), ("tern", "production web".to_owned())]);

    let text = "[policies.w]\nsources = [\"/srv\"]\nclients = [\"plover\"]\nclient_labels = [\"web\", \"db\"]\nschedule = \"22:00\"\n";
    let apply = |text: &str| {
        let (file, text) = ("cell.toml".to_owned(), text.to_owned());
        let asked = ApplyPolicies { file, text, only: true, basis: None };
        let basis = Some(acts.apply_policies(&asked).unwrap().basis);
        acts.apply_policies(&ApplyPolicies { basis, ..asked }).unwrap();
    };
    apply(text);
    let enter = EnterRuns { policies: vec!["w".to_owned()], client: None, full: false, now: false };
    let entered = acts.enter_runs(&enter).unwrap().changes;
    let entered: Vec<_> = entered.iter().map(|row| row.client.as_deref().unwrap()).collect();
    assert_eq!(entered, ["plover", "tern"]);
    // What was due before a client had its label is not caught up with.
    label("tern", &["production"]).unwrap();
    // Its run waited for somebody to cancel it, and so did fifty others.
    let queued = || acts.queue().unwrap().runs.into_iter().map(|run| run.client).collect::<Vec<_>>();
    assert_eq!(queued(), ["plover"]);
    assert_eq!(acts.done_runs(None).unwrap().runs[0].state, "cancelled");
    label("tern", &["db"]).unwrap();
    let scheduled = look(&bench.site()).unwrap().scheduled;
    let decided = |client: &str| scheduled.iter().find(|one| one.client == client).unwrap().decided;
    assert!(decided("tern").furthest > decided("plover").furthest, "{scheduled:?}");
    // Whoever loses the label, or is revoked, is backed up no more, and what waits says so.
    label("tern", &["production"]).unwrap();
    assert!(!bench.site().policies().unwrap()[0].config.clients_of("server").contains(&"tern"));
    label("tern", &["db"]).unwrap();
    acts.enter_runs(&enter).unwrap();
    revoke_member(&bench.site(), &client_id("tern")).unwrap();
    let decided = decide(&look(&bench.site()).unwrap().situation);
    let revoked = RunDecision::Waits(WaitsFor::Client(PeerAway::Revoked));
    assert!(decided.iter().any(|(_, decision)| *decision == revoked), "{decided:?}");
    apply(&text.replace("clients = [\"plover\"]\n", ""));
    let error = acts.enter_runs(&enter).unwrap_err().to_string();
    assert!(error.contains("clients with label web, clients with label db"), "{error}");
}

/// What runs as a client while something else is done.
pub(crate) fn while_running(machine: &Machine, cell: &ServedCell, client: &str, meanwhile: impl FnOnce()) {
    let work = ClientWork::new(&machine.state).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (work, stop, state) = (&work, &stop, &machine.state);
        let handler = move |order| drop(work.carry_out(order));
        scope.spawn(move || run(&state.lock().unwrap(), now_ns, &handler, &|_: MemberNotice| {}, stop).unwrap());
        let stops = StopsAtTheEnd(stop);
        until("the client waits for orders", || cell.hub().is_connected(client));
        meanwhile();
        drop(stops);
    });
}

fn restored(user: &ServerQuestions, asked: &AskRestoreTo) -> RestoreEnded {
    let planned: RestorePlanned = user.post("/v1/restores", asked).unwrap();
    let run = planned.run.unwrap();
    loop {
        if let Some(ended) = user.get::<RestoreSeen>(&format!("/v1/restores?run={run}")).unwrap().ended {
            return ended;
        }
    }
}

#[test]
fn a_user_has_something_restored_to_another_client_that_allows_it() {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let (tern, plover) = (bench.joined(&cell, "tern"), bench.joined(&cell, "plover"));
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("source"), folder.path().canonicalize().unwrap().join("back"));
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("letter"), "dear Ada\n").unwrap();
    back_up(&bench, &cell, &tern, "tern", &source);
    std::fs::write(plover.state.dir().join("client.toml"), format!("restore_to = [{back:?}]")).unwrap();
    let bert = questions(&user(&bench, &cell, "bert", &["restorer"], &["tern", "plover", "heron"]));
    let carl = questions(&user(&bench, &cell, "carl", &["restorer"], &["plover"]));
    let asked = |to: Option<&str>, directory: Option<&Path>| AskRestoreTo {
        of: "tern".to_owned(),
        to: to.map(str::to_owned),
        directory: directory.map(|directory| directory.display().to_string()),
        replaces: Replaces::Never,
        ask: AskRestore { places: vec![source.display().to_string()], ..AskRestore::default() },
    };
    let refused =
        |user: &ServerQuestions, asked: &AskRestoreTo| refusal(user.post::<RestorePlanned>("/v1/restores", asked));
    let work = || {
        let ended = restored(&bert, &asked(Some("plover"), Some(&back)));
        assert_eq!((&ended.failure, ended.failed_count, ended.kept), (&None, 0, 0), "{ended:?}");
        let letter = back.join(source.strip_prefix("/").unwrap()).join("letter");
        assert_eq!(std::fs::read_to_string(letter).unwrap(), "dear Ada\n");
        let again = restored(&bert, &asked(Some("plover"), Some(&back)));
        assert!(again.kept > 0, "what is there stays: {again:?}");

        let text = refused(&carl, &asked(Some("plover"), Some(&back)));
        assert!(text.contains("user carl is a restorer, and not of client tern"), "{text}");
        let text = refused(&bert, &asked(Some("heron"), Some(&back)));
        assert!(text.contains("client heron is not connected"), "{text}");
        let text = refused(&bert, &asked(Some("plover"), Some(folder.path())));
        assert!(
            text.contains("it allows only what is below") && text.contains("restore_to in its client.toml"),
            "{text}"
        );
        let planned: RestorePlanned = bert.post("/v1/restores", &asked(Some("plover"), None)).unwrap();
        assert!(planned.run.is_none() && planned.outlook.members > 0, "it was only looked at");
        let planned: RestorePlanned = bert.post("/v1/restores", &asked(Some("plover"), Some(&back))).unwrap();
        let of_bert = format!("/v1/restores?run={}", planned.run.unwrap());
        let text = refusal(carl.get::<RestoreSeen>(&of_bert));
        assert!(text.contains("no such restore of yours"), "{text}");
        until("the restore ends", || bert.get::<RestoreSeen>(&of_bert).unwrap().ended.is_some());
    };
    while_running(&plover, &cell, "plover", || bench.serve_queue(&cell, work));
    let seen: CellObjectsAnswer = carl.get("/v1/objects").unwrap();
    assert!(seen.objects.is_empty(), "{seen:?}");
    let seen: CellObjectsAnswer = carl.get("/v1/objects?client=tern").unwrap();
    assert!(seen.objects.is_empty(), "{seen:?}");
    let seen: CellObjectsAnswer = bert.get("/v1/objects").unwrap();
    assert_eq!(seen.objects[0].client, "tern");
    let of_policy = |policy: &str| bert.get::<CellObjectsAnswer>(&format!("/v1/objects?policy={policy}")).unwrap();
    // It was backed up without a policy.
    assert_eq!((of_policy("").objects.len(), of_policy("other").objects.len()), (seen.objects.len(), 0));
    let records = shell(&bench).audit(Some(100)).unwrap().records;
    let restores: Vec<_> = records.iter().filter(|record| record["act"] == "restore").collect();
    let results: Vec<_> = restores.iter().map(|record| record["result"].as_str().unwrap()).collect();
    assert_eq!(results[..4], ["begun", "done", "begun", "done"], "{restores:?}");
    assert!(results.contains(&"refused"), "{restores:?}");
    let facts = &restores[0]["facts"];
    assert_eq!(
        (&restores[0]["object"], &facts["to"], &facts["objects"]),
        (&"client/tern".into(), &"plover".into(), &seen.objects[0].own.object.as_str().into())
    );
}

/// A server was started without --listen. Its queue had people look for the client, which was there.
#[test]
fn a_server_that_listens_for_nobody_blames_no_client() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let _tern = bench.joined(&cell, "tern");
    drop(cell);
    let acts = shell(&bench);
    let text = "[policies.w]\nsources = [\"/srv\"]\nclients = [\"tern\"]\n".to_owned();
    let asked = ApplyPolicies { file: "cell.toml".to_owned(), text, only: true, basis: None };
    let basis = Some(acts.apply_policies(&asked).unwrap().basis);
    acts.apply_policies(&ApplyPolicies { basis, ..asked }).unwrap();
    acts.enter_runs(&EnterRuns { policies: vec!["w".to_owned()], client: None, full: false, now: false }).unwrap();
    let site = bench.site();
    note_nobody_listens(&site).unwrap();
    let message = || acts.queue().unwrap().runs.remove(0).message;
    assert!(message().contains("`capstan server run` starts one"), "{}", message());
    let _term = site.begin_term().unwrap();
    assert!(message().contains("listens for no clients: start it again with --listen"), "{}", message());
}
