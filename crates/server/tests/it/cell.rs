//! A server with listeners and real clients that join it over TLS.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use capstan_catalog::{ActiveRun, QueuedRun};
use capstan_client::orders::{OrdersAnswer, PeerHello};
use capstan_client::{
    CellOrder, ClientError, JobId, MemberNotice, MemberState, MoverSettings, OrderToken, ServerQuestions, join, run,
    run_mover,
};
use capstan_director::{Config, InitOptions, RebuildOptions, ServerConfig, Site, rebuild};
use capstan_keys::api::{PeerId, PeerKind, RequestId};
use capstan_keys::cluster::{ClusterError, EnrolmentPassphrase, Identity, NodeClient};
use capstan_keys::{Name, Unlock, create_key_file};
use capstan_mover::RestoreWatch;
use capstan_server::cell::users::CellActs;
use capstan_server::cell::users::words::{StatusAnswer, StatusQuery};
use capstan_server::cell::{
    CellAddresses, CellError, CellHost, CellNotice, CellPeer, CellPeerState, MoverConnections, NotConnected,
    ServedCell, cell_members, client_of_servers_name, enrol_member, revoke_member,
};
use capstan_server::{Notice, TakesEntry, Worked, Worker, peers_there_twice, serve};
use capstan_service::enrolment::{ENROLMENT_TRIES, Enrolment};
use tempfile::TempDir;

/// How long anything may take that is waited for.
const WAITED_MAX: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);
const DAY_NS: i64 = 24 * 3600 * 1_000_000_000;

pub(crate) fn now_ns() -> i64 {
    i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
}

/// A state directory of a server, and what its cell said.
pub(crate) struct CellBench {
    dir: TempDir,
    unlock: Unlock,
    clock: fn() -> i64,
    said: Arc<Mutex<Vec<CellNotice>>>,
}

/// What a cell said.
struct Heard(Arc<Mutex<Vec<CellNotice>>>);

impl CellHost for Heard {
    fn say(&self, notice: CellNotice) {
        self.0.lock().unwrap().push(notice);
    }

    fn status(&self, _: &StatusQuery) -> Result<StatusAnswer, String> {
        Ok(StatusAnswer { attention: false, text: "fine\n".to_owned(), status: serde_json::json!({}) })
    }
}

impl CellBench {
    pub(crate) fn new() -> Self {
        Self::with_clock(now_ns)
    }

    pub(crate) fn with_clock(clock: fn() -> i64) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let unlock = create_key_file(&dir.path().join("key")).unwrap();
        let options =
            InitOptions { config: Config::default(), encryption: None, database: capstan_catalog::Database::Sqlite };
        Site::init(&dir.path().join("state"), &options, Some(&unlock)).unwrap();
        Self { dir, unlock, clock, said: Arc::default() }
    }

    pub(crate) fn site(&self) -> Site {
        Site::open(&self.dir.path().join("state"), None, self.clock, Arc::new(|_| {})).unwrap()
    }

    fn serve_at(&self, listen: &str, enrolment: &str) -> Result<ServedCell, CellError> {
        // The port behind one that was given out may be another program's.
        let data = if enrolment.is_empty() { "" } else { "127.0.0.1:0" };
        let (listen, enrolment, data) = (listen.to_owned(), enrolment.to_owned(), data.to_owned());
        let settings = ServerConfig { listen, enrolment, data, ..ServerConfig::default() };
        let addresses = CellAddresses::of(&settings)?.unwrap();
        let said = self.said.clone();
        ServedCell::start(&self.site(), &addresses, MoverConnections::default(), Arc::new(Heard(said)))
    }

    pub(crate) fn serve(&self) -> ServedCell {
        self.serve_at("127.0.0.1:0", "").unwrap()
    }

    /// The site with its keys.
    pub(crate) fn keyed_site(&self) -> Site {
        Site::open(&self.dir.path().join("state"), Some(&self.unlock), self.clock, Arc::new(|_| {})).unwrap()
    }

    /// A cell that can read volumes.
    pub(crate) fn serve_keyed(&self) -> ServedCell {
        let listen = "127.0.0.1:0".to_owned();
        let settings = ServerConfig { listen, ..ServerConfig::default() };
        let addresses = CellAddresses::of(&settings).unwrap().unwrap();
        ServedCell::start(&self.keyed_site(), &addresses, MoverConnections::default(), Arc::new(Heard(Arc::default())))
            .unwrap()
    }

    /// Serves the queue, which has restores alone, while something else is done.
    pub(crate) fn serve_queue<T>(&self, cell: &ServedCell, meanwhile: impl FnOnce() -> T) -> T {
        self.serve_queue_where(cell, |client| cell.hub().is_connected(client), meanwhile)
    }

    /// The same where these clients wait for orders.
    pub(crate) fn serve_queue_where<T>(
        &self,
        cell: &ServedCell,
        is_connected: impl Fn(&str) -> bool + Sync,
        meanwhile: impl FnOnce() -> T,
    ) -> T {
        let site = self.keyed_site();
        let (term, stop) = (site.begin_term().unwrap(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            let (site, term, stop, is_connected) = (&site, &term, &stop, &is_connected);
            scope.spawn(move || serve(site, term, &RestoresOf { cell, is_connected }, stop).unwrap());
            let stops = StopsAtTheEnd(stop);
            let done = meanwhile();
            drop(stops);
            done
        })
    }

    fn enrol(&self, client: &str) -> EnrolmentPassphrase {
        enrol_member(&self.site(), &client_id(client), HOUR).unwrap().passphrase
    }

    /// A client that has joined.
    pub(crate) fn joined(&self, cell: &ServedCell, client: &str) -> Machine {
        self.joined_as(cell, &client_id(client))
    }

    pub(crate) fn joined_as(&self, cell: &ServedCell, peer: &PeerId) -> Machine {
        let machine = Machine::of(peer.kind);
        let passphrase = enrol_member(&self.site(), peer, HOUR).unwrap().passphrase;
        machine.join(cell, peer.name.as_str(), &passphrase).unwrap();
        machine
    }
}

/// Carries out restores, as a cell does that is served.
struct RestoresOf<'a> {
    cell: &'a ServedCell,
    is_connected: &'a (dyn Fn(&str) -> bool + Sync),
}

impl Worker for RestoresOf<'_> {
    fn work(&self, run: &ActiveRun, stop: &Arc<AtomicBool>, entered: &TakesEntry<'_>) -> Worked {
        self.cell.restore(run, stop, entered, &RestoreWatch::default())
    }

    fn is_connected(&self, client: &str) -> Option<bool> {
        Some((self.is_connected)(client))
    }

    fn may_begin(&self, run: &QueuedRun) -> bool {
        self.cell.may_begin(run)
    }

    fn say(&self, _: Notice) {}
}

/// A machine that may join a cell.
pub(crate) struct Machine {
    _dir: TempDir,
    pub(crate) state: MemberState,
}

impl Machine {
    fn new() -> Self {
        Self::of(PeerKind::Client)
    }

    pub(crate) fn of(kind: PeerKind) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let state = MemberState::new(&dir.path().join("state"), kind);
        state.prepare(false).unwrap();
        Self { _dir: dir, state }
    }

    pub(crate) fn join(
        &self,
        cell: &ServedCell,
        client: &str,
        passphrase: &EnrolmentPassphrase,
    ) -> Result<Identity, ClientError> {
        join(&self.state, &cell.enrolment_address().to_string(), &name(client), passphrase, now_ns())
    }

    /// The server has another address now.
    pub(crate) fn looks_for(&self, cell: &ServedCell) {
        let server = self.state.dir().join("cell/server");
        std::fs::write(&server, format!("{}\n", cell.members_address())).unwrap();
    }

    /// Runs as a client or a mover while `meanwhile` does.
    fn run(&self, clock: fn() -> i64, meanwhile: impl FnOnce(&Running)) -> Result<(), ClientError> {
        let ((gets, orders), (says, notices)) = (channel(), channel());
        let (stop, has_ended) = (AtomicBool::new(false), AtomicBool::new(false));
        let running = Running { orders, notices, has_ended };
        std::thread::scope(|scope| {
            let (stop, has_ended, state) = (&stop, &running.has_ended, &self.state);
            let handler = move |order| gets.send(order).unwrap();
            let say = move |notice| says.send(notice).unwrap();
            let client = scope.spawn(move || {
                let locked = state.lock().unwrap();
                let ended = match state.kind() {
                    PeerKind::Mover => {
                        let data = MoverSettings::read(state.dir()).unwrap().data(5703);
                        run_mover(&locked, data, clock, &say, stop)
                    }
                    _ => run(&locked, clock, &handler, &say, stop),
                };
                has_ended.store(true, Ordering::SeqCst);
                ended
            });
            let stops = StopsAtTheEnd(stop);
            meanwhile(&running);
            drop(stops);
            client.join().unwrap()
        })
    }
}

/// Whatever a test finds, its client ends.
pub(crate) struct StopsAtTheEnd<'a>(pub(crate) &'a AtomicBool);

impl Drop for StopsAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

struct Running {
    orders: Receiver<CellOrder>,
    notices: Receiver<MemberNotice>,
    has_ended: AtomicBool,
}

impl Running {
    fn order(&self) -> CellOrder {
        self.orders.recv_timeout(WAITED_MAX).unwrap()
    }

    fn notice(&self) -> MemberNotice {
        self.notices.recv_timeout(WAITED_MAX).unwrap()
    }
}

pub(crate) fn name(text: &str) -> Name {
    text.parse().unwrap()
}

pub(crate) fn client_id(text: &str) -> PeerId {
    PeerId { kind: PeerKind::Client, name: name(text) }
}

fn clients(bench: &CellBench) -> Vec<CellPeer> {
    cell_members(&bench.site(), PeerKind::Client).unwrap()
}

pub(crate) fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < WAITED_MAX, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn serve_order(job: u8, data: &str) -> CellOrder {
    CellOrder::Serve {
        job: JobId([job; 16]),
        token: OrderToken::new([9; 32]),
        data: data.to_owned(),
        links: 2,
        restore: None,
    }
}

fn stop_order(job: u8) -> CellOrder {
    CellOrder::Stop { job: JobId([job; 16]) }
}

#[test]
fn a_client_joins_and_gets_its_orders_and_no_others() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let (tern, plover) = (bench.joined(&cell, "tern"), bench.joined(&cell, "plover"));
    let peer: PeerId = "client/tern".parse().unwrap();
    assert!(
        bench
            .said
            .lock()
            .unwrap()
            .iter()
            .any(|said| matches!(said, CellNotice::Enrolled { peer: who, .. } if *who == peer))
    );
    let not_there = cell.hub().send("plover", stop_order(1));
    assert_eq!(not_there, Err(NotConnected { client: "plover".to_owned() }));
    tern.run(now_ns, |of_tern| {
        plover
            .run(now_ns, |of_plover| {
                until("both clients", || cell.hub().is_connected("tern") && cell.hub().is_connected("plover"));
                assert_eq!(cell.hub().connected().len(), 2);
                cell.hub().send("tern", serve_order(1, ":5703")).unwrap();
                assert_eq!(of_tern.order(), serve_order(1, "127.0.0.1:5703"), "at the host that orders come from");
                cell.hub().send("tern", stop_order(1)).unwrap();
                assert_eq!(of_tern.order(), stop_order(1));
                cell.hub().send("plover", serve_order(2, "mover:1")).unwrap();
                assert_eq!(of_plover.order(), serve_order(2, "mover:1"));
                assert!(of_plover.orders.try_recv().is_err() && of_tern.orders.try_recv().is_err());
                until("it is written who was seen", || clients(&bench).iter().all(|client| client.seen_ns.is_some()));
            })
            .unwrap();
    })
    .unwrap();
    let clients = clients(&bench);
    let states: Vec<_> = clients.iter().map(|client| (client.name.as_str(), client.state)).collect();
    assert_eq!(states, [("plover", CellPeerState::Enrolled), ("tern", CellPeerState::Enrolled)]);
}

#[test]
fn a_wrong_passphrase_is_refused_and_counted_and_a_used_one_leads_nowhere() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let (machine, passphrase) = (Machine::new(), bench.enrol("tern"));
    let wrong = machine.join(&cell, "tern", &EnrolmentPassphrase::random().unwrap());
    assert!(matches!(wrong, Err(ClientError::WrongPassphrase { .. })));
    let row = bench.site().catalog().enrolment("client/tern").unwrap().unwrap();
    assert_eq!(Enrolment::decode(&row.record).unwrap().tries_left, ENROLMENT_TRIES - 1);
    assert!(bench.said.lock().unwrap().iter().any(|said| matches!(said, CellNotice::NotProved { .. })));
    let unknown = machine.join(&cell, "plover", &passphrase).map(drop).unwrap_err().to_string();
    assert!(unknown.contains("No enrolment of client plover is open"), "{unknown}");
    let identity = machine.join(&cell, "tern", &passphrase).unwrap();
    assert_eq!(identity.certificate().peer.to_string(), "client/tern");
    let used = Machine::new().join(&cell, "tern", &passphrase).map(drop).unwrap_err().to_string();
    assert!(used.contains("has expired or was used"), "{used}");
    let taken = enrol_member(&bench.site(), &client_id("tern"), HOUR).map(drop).unwrap_err();
    assert!(matches!(taken, CellError::NameTaken(_)), "{taken}");
    assert!(matches!(machine.state.prepare(false), Err(ClientError::HasIdentity { .. })));
    machine.state.prepare(true).unwrap();
    let server = MemberState::new(&bench.dir.path().join("state"), PeerKind::Client);
    assert!(matches!(server.prepare(true), Err(ClientError::OtherRole { other: PeerKind::Server, .. })));
}

#[test]
fn an_enrolment_whose_time_is_over_leads_nowhere() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let passphrase = enrol_member(&bench.site(), &client_id("tern"), Duration::from_millis(1)).unwrap().passphrase;
    std::thread::sleep(Duration::from_millis(5));
    let late = Machine::new().join(&cell, "tern", &passphrase).map(drop).unwrap_err().to_string();
    assert!(late.contains("has expired or was used"), "{late}");
    assert_eq!(clients(&bench)[0].state, CellPeerState::Expired);
}

#[test]
fn a_revoked_client_is_refused_on_its_open_connection() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let ended = tern.run(now_ns, |running| {
        until("the client", || cell.hub().is_connected("tern"));
        // As another process does it.
        revoke_member(&bench.site(), &client_id("tern")).unwrap();
        until("it is refused", || running.has_ended.load(Ordering::SeqCst));
    });
    assert!(matches!(ended, Err(ClientError::Revoked { .. })), "{ended:?}");
    assert!(!cell.hub().is_connected("tern"));
    assert_eq!(clients(&bench)[0].state, CellPeerState::Revoked);
    assert!(matches!(revoke_member(&bench.site(), &client_id("tern")), Err(CellError::NothingToRevoke(_))));
    // The name can be used again, and the old certificate still lets nobody in.
    let again = bench.joined(&cell, "tern");
    let old = tern.run(now_ns, |running| until("it ends", || running.has_ended.load(Ordering::SeqCst)));
    assert!(matches!(old, Err(ClientError::Revoked { .. })), "{old:?}");
    // Who looks after the cell can see that somebody came with it: once, though it came twice.
    let met = || {
        let records = CellActs::at_shell(&bench.site(), 1000).unwrap().audit(None).unwrap().records;
        let came = records.into_iter().filter(|record| record["act"] == "connect");
        came.map(|record| record.to_string()).collect::<Vec<_>>()
    };
    until("it is noted", || !met().is_empty());
    let met = met();
    assert!(met.len() == 1 && met[0].contains("tern") && met[0].contains("127.0.0.1"), "{met:?}");
    again.run(now_ns, |_| until("the new one", || cell.hub().is_connected("tern"))).unwrap();
}

/// A virtual machine was copied with its client. The server took both for one, and said nothing.
#[test]
fn a_client_that_runs_in_two_places_is_named() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let copy = Machine::new();
    for file in ["cell/identity.pem", "cell/server"] {
        std::fs::copy(tern.state.dir().join(file), copy.state.dir().join(file)).unwrap();
    }
    let site = bench.site();
    let is_connected = |running: &Running| assert!(matches!(running.notice(), MemberNotice::Connected { .. }));
    tern.run(now_ns, |first| {
        is_connected(first);
        copy.run(now_ns, |second| {
            is_connected(second);
            until("it is noted", || {
                // Whoever gets an order asks anew at once.
                let _ = cell.hub().send("tern", stop_order(1));
                !peers_there_twice(&site).unwrap().is_empty()
            });
        })
        .unwrap();
    })
    .unwrap();
    let [line] = &peers_there_twice(&site).unwrap()[..] else { panic!("one line") };
    assert!(line.contains("client tern") && line.contains("both at 127.0.0.1"), "{line}");
    let said = bench.said.lock().unwrap();
    let attention = |said: &&CellNotice| matches!(said, CellNotice::Attention { reason } if reason == line);
    assert_eq!(said.iter().filter(attention).count(), 1, "{said:?}");
    drop(said);
    // What a server noted is over with it.
    drop((site, cell));
    let _cell = bench.serve();
    assert!(peers_there_twice(&bench.site()).unwrap().is_empty());
}

/// The server's machine got the name of a client. Then it read its own disk where the client was to be backed up.
#[test]
fn a_client_that_has_the_name_of_the_servers_machine_is_named() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let passphrase = bench.enrol("plover");
    assert!(ServerQuestions::new(&tern.state).unwrap().objects().is_ok());
    let members = cell.members_address().to_string();
    drop(cell);
    let settings = bench.dir.path().join("state/capstan.toml");
    let before = std::fs::read_to_string(&settings).unwrap();
    let named = |to: &str| before.replacen("client = \"\"", &format!("client = \"{to}\""), 1);
    let rename = |to: &str| std::fs::write(&settings, named(to)).unwrap();
    rename("plover");
    let cell = bench.serve_at(&members, "127.0.0.1:0").unwrap();
    let plover = Machine::new();
    let refused = plover.join(&cell, "plover", &passphrase).map(drop).unwrap_err().to_string();
    assert!(
        refused.contains("plover is the name of the server's own machine") && refused.contains("--name"),
        "{refused}"
    );
    drop(cell);
    assert_eq!(client_of_servers_name(&bench.site()).unwrap(), None, "it has not joined");
    rename("tern");
    let cell = bench.serve_at(&members, "127.0.0.1:0").unwrap();
    let line = client_of_servers_name(&bench.site()).unwrap().unwrap();
    assert!(line.starts_with("client tern has the name of the server's own machine: "), "{line}");
    let said = bench.said.lock().unwrap();
    let attention = |said: &&CellNotice| matches!(said, CellNotice::Attention { reason } if *reason == line);
    assert_eq!(said.iter().filter(attention).count(), 1, "{said:?}");
    drop(said);
    // What bears its name is the server's own from now on.
    let refused = ServerQuestions::new(&tern.state).unwrap().objects().map(drop).unwrap_err().to_string();
    assert!(refused.contains("clients that do not bear the name of the server's own machine"), "{refused}");
    revoke_member(&bench.site(), &client_id("tern")).unwrap();
    assert_eq!(client_of_servers_name(&bench.site()).unwrap(), None);
    // The enrolment was not used up.
    rename("heron");
    drop(cell);
    plover.join(&bench.serve(), "plover", &passphrase).unwrap();
}

#[test]
fn a_mover_says_where_clients_reach_it_until_it_is_revoked() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let peer: PeerId = "mover/heron".parse().unwrap();
    let machine = bench.joined_as(&cell, &peer);
    let taken = enrol_member(&bench.site(), &peer, HOUR).map(drop).unwrap_err().to_string();
    assert!(
        taken.contains("there is a mover heron already") && taken.contains("`capstan mover revoke heron`"),
        "{taken}"
    );
    // A client of the same name is another machine, and a mover may have the name of the server's machine.
    let _client = bench.joined(&cell, "heron");
    let site = bench.site();
    let of_server = PeerId { kind: PeerKind::Mover, name: name(site.client()) };
    enrol_member(&site, &of_server, HOUR).unwrap();
    let refused = enrol_member(&site, &client_id(site.client()), HOUR).map(drop);
    assert!(matches!(refused, Err(CellError::ServersName { .. })));
    let data = cell.data_address().to_string();
    let connects = |running: &Running, reached: &str| {
        let MemberNotice::Connected { data: of_server, .. } = running.notice() else { panic!("it connects") };
        assert_eq!(of_server.as_ref(), Some(&data));
        until("it is connected", || cell.hub().mover_data("heron").is_some());
        assert_eq!(cell.hub().mover_data("heron").as_deref(), Some(reached));
    };
    machine.run(now_ns, |running| connects(running, "127.0.0.1:5703")).unwrap();
    std::fs::write(machine.state.dir().join("mover.toml"), "announce = \"tape1.example.org:7003\"").unwrap();
    let ended = machine.run(now_ns, |running| {
        connects(running, "tape1.example.org:7003");
        assert!(!cell.hub().is_connected("heron"), "the client of that name is not");
        revoke_member(&bench.site(), &peer).unwrap();
        until("it is refused", || running.has_ended.load(Ordering::SeqCst));
    });
    assert!(matches!(&ended, Err(ClientError::Revoked { peer: who }) if *who == peer), "{ended:?}");
    assert_eq!(cell.hub().mover_data("heron"), None);
    let states = |kind| -> Vec<_> {
        let members = cell_members(&bench.site(), kind).unwrap();
        members.into_iter().map(|member| (member.name, member.state)).collect()
    };
    assert_eq!(states(PeerKind::Client), [("heron".to_owned(), CellPeerState::Enrolled)]);
    assert!(states(PeerKind::Mover).contains(&("heron".to_owned(), CellPeerState::Revoked)));
}

/// A server that starts anew between two questions knew nothing of a peer whose connection never seemed to break.
#[test]
fn a_server_that_starts_again_hears_where_a_mover_is_reached() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let machine = bench.joined_as(&cell, &"mover/heron".parse().unwrap());
    let (members, enrolment) = (cell.members_address().to_string(), cell.enrolment_address().to_string());
    machine
        .run(now_ns, |_| {
            until("the mover", || cell.hub().mover_data("heron").is_some());
            drop(cell);
            let again = bench.serve_at(&members, &enrolment).unwrap();
            until("the mover again", || again.hub().mover_data("heron").is_some());
        })
        .unwrap();
}

#[test]
fn neither_a_client_of_another_cell_nor_a_stranger_is_let_in() {
    let (bench, other) = (CellBench::new(), CellBench::new());
    let (cell, elsewhere) = (bench.serve(), other.serve());
    let tern = bench.joined(&cell, "tern");
    tern.looks_for(&elsewhere);
    tern.run(now_ns, |running| {
        let MemberNotice::Lost { reason } = running.notice() else { panic!("it is of another cell") };
        assert!(reason.contains("another cell answers there"), "{reason}");
    })
    .unwrap();
    assert!(!elsewhere.hub().is_connected("tern"));
    // A stranger shows no certificate.
    let passphrase = bench.enrol("plover");
    let address = cell.members_address().to_string();
    let stranger = join(&Machine::new().state, &address, &name("plover"), &passphrase, now_ns()).map(drop);
    assert!(matches!(stranger, Err(ClientError::Away { .. })), "{stranger:?}");
}

/// The members' listener takes what a peer says of itself, and says what it understood.
#[test]
fn what_is_asked_for_amiss_is_refused_with_a_problem() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let link = NodeClient::new(&tern.state.identity().unwrap(), &cell.members_address().to_string(), HOUR).unwrap();
    let document: serde_json::Value = link.get("/v1/openapi.json").unwrap();
    assert_eq!(document["info"]["title"], "Capstan cell");
    let hello = PeerHello { paths: vec!["/home".to_owned()], ..PeerHello::default() };
    let answer: serde_json::Value = link.post("/v1/hello", &hello).unwrap();
    assert_eq!((answer["peer"].as_str(), answer["epoch"].as_str()), (Some("client/tern"), Some(&*cell.hub().epoch())));
    for (path, status) in [("/v1/nothing", 404), ("/v1/kmas", 404)] {
        let refused = link.get::<OrdersAnswer>(path).unwrap_err();
        assert!(matches!(&refused, ClusterError::Refused(problem) if problem.status == status), "{path}: {refused}");
    }
    let amiss = link.post::<serde_json::Value>("/v1/hello", &RequestId([0; 16])).unwrap_err();
    assert!(matches!(&amiss, ClusterError::Refused(problem) if problem.is("malformed")), "{amiss}");
}

#[test]
fn a_server_that_starts_again_is_found_and_its_orders_begin_anew() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let (members, enrolment) = (cell.members_address().to_string(), cell.enrolment_address().to_string());
    tern.run(now_ns, |running| {
        assert!(matches!(running.notice(), MemberNotice::Connected { .. }));
        until("the client", || cell.hub().is_connected("tern"));
        for job in 1..=3 {
            cell.hub().send("tern", stop_order(job)).unwrap();
        }
        let mut jobs: Vec<_> = (1..=3).map(|_| running.order().job().0[0]).collect();
        jobs.sort_unstable();
        assert_eq!(jobs, [1, 2, 3]);
        let epoch = cell.hub().epoch();
        drop(cell);
        let MemberNotice::Lost { reason } = running.notice() else { panic!("the server has ended") };
        assert!(reason.contains(&members), "{reason}");
        let again = bench.serve_at(&members, &enrolment).unwrap();
        assert_ne!(again.hub().epoch(), epoch);
        assert!(matches!(running.notice(), MemberNotice::Connected { .. }), "it is told once that it was lost");
        until("the client again", || again.hub().is_connected("tern"));
        assert_eq!(again.hub().send("tern", stop_order(4)), Ok(1));
        assert_eq!(running.order(), stop_order(4));
    })
    .unwrap();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let (bench, other) = (CellBench::new(), CellBench::new());
    let cell = bench.serve();
    let taken = other.serve_at(&cell.members_address().to_string(), "127.0.0.1:0").map(drop).unwrap_err();
    let said = taken.to_string();
    assert!(said.contains(&cell.members_address().to_string()) && said.contains("setting listen"), "{said}");
}

/// How far the clock of the server of the test below is ahead.
static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

#[test]
fn clients_and_movers_renew_their_certificates_from_two_thirds_of_their_time_on() {
    let bench = CellBench::with_clock(|| now_ns() + AHEAD_NS.load(Ordering::SeqCst));
    let cell = bench.serve();
    let (tern, heron) = (bench.joined(&cell, "tern"), bench.joined_as(&cell, &"mover/heron".parse().unwrap()));
    let first = tern.state.identity().unwrap().certificate().clone();
    // By its own clock two thirds are over; by the server's, more than half.
    AHEAD_NS.store(50 * DAY_NS, Ordering::SeqCst);
    tern.run(
        || now_ns() + 61 * DAY_NS,
        |running| {
            assert!(matches!(running.notice(), MemberNotice::Connected { .. }));
            let MemberNotice::Renewed { until_ns } = running.notice() else { panic!("it is due") };
            assert!(until_ns > first.not_after_ns + 40 * DAY_NS);
            until("the client under its new certificate", || cell.hub().is_connected("tern"));
            cell.hub().send("tern", stop_order(1)).unwrap();
            assert_eq!(running.order(), stop_order(1));
        },
    )
    .unwrap();
    assert_ne!(tern.state.identity().unwrap().certificate().serial, first.serial);
    heron
        .run(
            || now_ns() + 61 * DAY_NS,
            |running| {
                assert!(matches!(running.notice(), MemberNotice::Connected { .. }));
                assert!(matches!(running.notice(), MemberNotice::Renewed { .. }));
                until("the mover under its new certificate", || cell.hub().mover_data("heron").is_some());
            },
        )
        .unwrap();
    assert_eq!(heron.state.identity().unwrap().certificate().peer.to_string(), "mover/heron");
    assert_eq!(bench.site().catalog().peers().unwrap().len(), 4);
    // A client that was away until its certificate ended says so.
    let ended =
        tern.run(|| now_ns() + 500 * DAY_NS, |running| until("it ends", || running.has_ended.load(Ordering::SeqCst)));
    assert!(matches!(ended, Err(ClientError::CertificateEnded { .. })), "{ended:?}");
    // So do commands, which said that the connection broke.
    let asked = ServerQuestions::of_client(&tern.state, now_ns() + 500 * DAY_NS).map(drop).unwrap_err().to_string();
    let end = tern.state.identity().unwrap().certificate().end_text();
    assert!(asked.contains(&format!("ended on {end}")) && asked.contains("`capstan client join --replace`"), "{asked}");
    assert!(ServerQuestions::of_user(&tern.state, now_ns() + 500 * DAY_NS).is_err());
    assert!(Path::new(&tern.state.identity_file()).exists());
}

#[test]
fn a_rebuild_keeps_the_clients_and_their_enrolments() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let tern = bench.joined(&cell, "tern");
    let passphrase = bench.enrol("plover");
    drop(cell);
    let options = RebuildOptions { discard_old: true, ..RebuildOptions::default() };
    let state = bench.dir.path().join("state");
    rebuild(&state, Some(&bench.unlock), now_ns, Arc::new(|_| {}), &options).unwrap();
    let cell = bench.serve();
    tern.looks_for(&cell);
    tern.run(now_ns, |_| until("the client", || cell.hub().is_connected("tern"))).unwrap();
    Machine::new().join(&cell, "plover", &passphrase).unwrap();
}
