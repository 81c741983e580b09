//! A client's data over the data listener, and whose it is: each gets back its own and learns of no other.

use std::fs::Permissions;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use capstan_catalog::RunOutcome;
use capstan_client::restores::{AskRestore, RestoreEnded};
use capstan_client::{
    CellOrder, ClientError, ClientWork, JobId, MemberNotice, OrderEnd, OrderToken, ServerQuestions, run,
};
use capstan_director::{BackupRequest, BackupWatch, Site};
use capstan_mover::devices::{KeySource, LibraryConfig};
use capstan_mover::extract::{ExtractOptions, ExtractReport};
use capstan_mover::{MountedDrives, OwnersKeys, RestoreInto, ServedMover};
use capstan_server::cell::{MoverListener, ServedCell, revoke_member};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

use crate::cell::{CellBench, Machine, client_id, now_ns, until};

/// Backs a folder of a client up, as a run of the server does.
pub(crate) fn back_up(bench: &CellBench, cell: &ServedCell, machine: &Machine, client: &str, source: &Path) {
    let work = ClientWork::new(&machine.state).unwrap();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (work, stop, state) = (&work, &stop, &machine.state);
        let handler = move |order| assert_eq!(work.carry_out(order).unwrap(), OrderEnd::Served { lan_free: false });
        scope.spawn(move || run(&state.lock().unwrap(), now_ns, &handler, &|_: MemberNotice| {}, stop).unwrap());
        until("the client waits for orders", || cell.hub().is_connected(client));
        let job = cell.open_job(client, 1).unwrap();
        let site: Site = bench.keyed_site().for_client(client).with_sources(Arc::new(job));
        let report = site.backup(&BackupRequest::of(vec![source.to_owned()]), &BackupWatch::default()).unwrap();
        assert!(report.sources[0].report.is_ok(), "{report:?}");
        drop(site);
        stop.store(true, std::sync::atomic::Ordering::SeqCst);
    });
}

pub(crate) fn ask(places: &[&str]) -> AskRestore {
    AskRestore { places: places.iter().map(|place| (*place).to_owned()).collect(), ..AskRestore::default() }
}

fn restore(machine: &Machine, places: &[&str], to: &Path) -> Result<RestoreEnded, ClientError> {
    let server = ServerQuestions::new(&machine.state)?;
    let run = server.begin_restore(&ask(places))?.run.unwrap();
    until_ended(machine, run, to)
}

/// Does as a client does that asked for a restore.
pub(crate) fn until_ended(machine: &Machine, run: i64, to: &Path) -> Result<RestoreEnded, ClientError> {
    let server = ServerQuestions::new(&machine.state)?;
    let told = |_: &ExtractReport| {};
    let mut had = None;
    loop {
        let seen = server.restore_seen(run, had)?;
        if let Some(ended) = seen.ended {
            return Ok(ended);
        }
        if let Some(order) = seen.order {
            had = Some(order.job());
            let into = RestoreInto { directory: to, options: ExtractOptions::default(), told: &told };
            ClientWork::new(&machine.state)?.restore(order, into)?;
        }
    }
}

#[test]
fn a_client_gets_back_its_own_and_nothing_of_another() {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let (tern, plover) = (bench.joined(&cell, "tern"), bench.joined(&cell, "plover"));
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("secret"), "tern's own").unwrap();
    back_up(&bench, &cell, &tern, "tern", &source);

    let own = ServerQuestions::new(&tern.state).unwrap().objects().unwrap().objects;
    assert_eq!((own.len(), own[0].is_complete, own[0].files), (1, true, Some(1)));
    let source = source.to_str().unwrap();
    let inner = format!("{source}/secret");
    let named = format!("{source}:secret");
    for (number, place) in [source, &inner, &named, &own[0].object].into_iter().enumerate() {
        let to = folder.path().join(format!("back-{number}"));
        let ended = bench.serve_queue(&cell, || restore(&tern, &[place], &to)).unwrap();
        assert_eq!((&ended.failure, ended.failed_count), (&None, 0), "{ended:?}");
        let back = to.join(inner.strip_prefix('/').unwrap());
        assert_eq!(std::fs::read_to_string(back).unwrap(), "tern's own", "{place}");
    }

    // Neither a list nor a name nor an id leads another there, and the answers are those to what never was.
    let others = ServerQuestions::new(&plover.state).unwrap();
    assert!(others.objects().unwrap().objects.is_empty());
    let short = &own[0].object[own[0].object.len() - 8..];
    for place in [source, &inner, &named, &own[0].object, short] {
        let refused = others.begin_restore(&ask(&[place])).unwrap_err().to_string();
        assert!(refused.contains(&format!("Nothing of client plover was backed up as {place}")), "{refused}");
    }
    let before = others.begin_restore(&ask(&["/never/there"])).unwrap_err().to_string();
    assert!(before.contains("Nothing of client plover was backed up"), "{before}");
    // A restore of one is no restore of the other.
    let begun = ServerQuestions::new(&tern.state).unwrap().begin_restore(&ask(&[source])).unwrap();
    let run = begun.run.unwrap();
    for refused in [others.restore_seen(run, None).unwrap_err(), others.stop_restore(run).unwrap_err()] {
        assert!(refused.to_string().contains("no such restore of yours"), "{refused}");
    }
    assert!(matches!(others.begin_restore(&ask(&[])), Err(ClientError::Refused { .. })));

    revoke_member(&bench.site(), &client_id("tern")).unwrap();
    cell.look().unwrap();
    let revoked = ServerQuestions::new(&tern.state).unwrap().objects().unwrap_err();
    assert!(matches!(revoked, ClientError::Revoked { .. }), "{revoked}");
}

/// It counted as restored in full, and nobody was told which file is not there.
#[test]
fn what_does_not_come_back_as_it_was_is_named() {
    let bench = CellBench::new();
    let cell = bench.serve_keyed();
    let tern = bench.joined(&cell, "tern");
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    std::fs::create_dir(&source).unwrap();
    for name in ["open", "closed"] {
        std::fs::write(source.join(name), name).unwrap();
    }
    std::fs::set_permissions(source.join("closed"), Permissions::from_mode(0o000)).unwrap();
    std::thread::scope(|scope| {
        // Root reads everything unless it lays that down; a thread does so for those that it starts, too.
        let nobody_special = || {
            let mut sets = capabilities(None).unwrap();
            sets.effective -= CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH;
            set_capabilities(None, sets).unwrap();
            back_up(&bench, &cell, &tern, "tern", &source);
        };
        scope.spawn(nobody_special).join().unwrap();
    });
    let source = source.to_str().unwrap();
    let to = folder.path().join("back");
    let ended = bench.serve_queue(&cell, || restore(&tern, &[source], &to)).unwrap();
    assert_eq!((&ended.failure, ended.failed_count), (&None, 1), "{ended:?}");
    assert!(ended.failed[0].contains("closed: could not be read when it was backed up"), "{ended:?}");
    assert!(to.join(source.trim_start_matches('/')).join("open").exists());
    let done = bench.site().catalog().done_runs(1).unwrap();
    assert_eq!(done[0].outcome, RunOutcome::Warned);
}

#[test]
fn the_data_listener_takes_nobody_without_a_certificate_of_the_cell() {
    use std::io::{Read, Write};
    let (bench, other) = (CellBench::new(), CellBench::new());
    let (cell, elsewhere) = (bench.serve(), other.serve());
    let stranger = other.joined(&elsewhere, "tern");
    // Plain bytes: the connection ends, and the listener goes on.
    let mut plain = TcpStream::connect(cell.data_address()).unwrap();
    plain.write_all(&[7; 4096]).unwrap();
    let mut rest = Vec::new();
    let _ = plain.read_to_end(&mut rest);
    // A certificate of another cell.
    let order = CellOrder::Serve {
        job: JobId([1; 16]),
        token: OrderToken::new([1; 32]),
        data: cell.data_address().to_string(),
        links: 1,
        restore: None,
    };
    let refused = ClientWork::new(&stranger.state).unwrap().carry_out(order.clone()).unwrap_err();
    assert!(matches!(refused, ClientError::Data { .. }), "{refused}");
    // One of this cell, and a token that is none.
    let tern = bench.joined(&cell, "tern");
    let refused = ClientWork::new(&tern.state).unwrap().carry_out(order).unwrap_err().to_string();
    assert!(refused.contains("no such job"), "{refused}");
}

/// A mover asks its server about nobody, and knows clients by name and token: whoever has stolen a token and the
/// identity of another mover, which has the client's name, is no client.
#[test]
fn a_mover_takes_no_job_of_the_client_of_its_name() {
    let bench = CellBench::new();
    let cell = bench.serve();
    let heron = bench.joined_as(&cell, &"mover/heron".parse().unwrap());
    let (tern, thief) = (bench.joined(&cell, "tern"), bench.joined_as(&cell, &"mover/tern".parse().unwrap()));
    let (drives, keys) = (Arc::<MountedDrives>::default(), Arc::<OwnersKeys>::default());
    let settings = LibraryConfig::default();
    let library = settings.open(heron.state.dir(), Arc::new(|_| {})).unwrap();
    let devices = settings.devices(&library, Arc::clone(&keys) as Arc<dyn KeySource>, &drives);
    let served = ServedMover::new(Arc::new(devices), drives, keys);
    let (identity, address) = (heron.state.identity().unwrap(), "127.0.0.1:0".parse().unwrap());
    let listener = MoverListener::start(&identity, address, now_ns, &served, Arc::new(|_| {})).unwrap();
    std::thread::scope(|scope| {
        // It ends with this, whatever comes out.
        let job = served.jobs().open("tern", Duration::from_secs(60)).unwrap();
        let order = CellOrder::Serve {
            job: JobId([1; 16]),
            token: OrderToken::new(job.token().0),
            data: listener.address().to_string(),
            links: 1,
            restore: None,
        };
        let comes = |machine| {
            let order = order.clone();
            scope.spawn(move || ClientWork::new(machine).unwrap().carry_out(order))
        };
        let stolen = comes(&thief.state);
        until("the thief is turned away", || stolen.is_finished());
        let refused = stolen.join().unwrap().unwrap_err();
        assert!(matches!(refused, ClientError::Data { .. }), "{refused}");
        let own = comes(&tern.state);
        assert_eq!(job.text_of(Path::new("/proc/sys/kernel/ostype")).unwrap(), "Linux\n");
        drop(job);
        assert_eq!(own.join().unwrap().unwrap(), OrderEnd::Served { lan_free: false });
    });
}
