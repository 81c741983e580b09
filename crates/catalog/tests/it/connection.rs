//! A connection to PostgreSQL that is cut at the worst moments: what a commit says is so, and what was recorded is
//! there once.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;

use capstan_catalog::{Catalog, CatalogError, Database, Grant, ObjectFilter, Resource, Wish};
use capstan_format::{ObjectId, ObjectState, Volser};

use crate::tape::{Random, Tape, file, object, object_id, part};

/// When the next connection that comes to it is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// Before a commit reaches the server.
    BeforeCommit,
    /// Once the server has answered a commit: the answer is lost.
    AfterCommit,
    /// Before whatever is asked next.
    BeforeNext,
}

/// Stands between a catalog and its server.
struct Proxy {
    port: u16,
    cut: Arc<Mutex<Option<Cut>>>,
    commits: Arc<AtomicUsize>,
}

impl Proxy {
    fn before(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (port, cut) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Option<Cut>>>::default());
        let (server, shared) = (server.to_owned(), Arc::clone(&cut));
        let commits = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&commits);
        thread::spawn(move || {
            for client in listener.incoming() {
                let (server, cut) = (TcpStream::connect(&server).unwrap(), Arc::clone(&shared));
                let counted = Arc::clone(&counted);
                thread::spawn(move || pass_on(client.unwrap(), &server, &cut, &counted));
            }
        });
        Self { port, cut, commits }
    }

    fn cut(&self, cut: Cut) {
        *self.cut.lock().unwrap() = Some(cut);
    }

    /// How many commits it could read.
    fn commits_seen(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Whether it was cut since it was told to.
    fn has_cut(&self) -> bool {
        self.cut.lock().unwrap().is_none()
    }
}

/// Passes on what both say. The client sends one message after the other and waits for each, so what it sends at once
/// is one message or a few.
fn pass_on(mut client: TcpStream, server: &TcpStream, cut: &Mutex<Option<Cut>>, commits: &AtomicUsize) {
    let (mut from_server, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let answers_lost = Arc::new(Mutex::new(false));
    let lost = Arc::clone(&answers_lost);
    thread::spawn(move || {
        let mut buffer = [0; 65_536];
        while let Ok(len @ 1..) = from_server.read(&mut buffer) {
            let is_lost = *lost.lock().unwrap();
            if is_lost || to_client.write_all(&buffer[..len]).is_err() {
                break;
            }
        }
        let _ = to_client.shutdown(Shutdown::Both);
        let _ = from_server.shutdown(Shutdown::Both);
    });
    let mut server = server;
    let mut buffer = [0; 65_536];
    while let Ok(len @ 1..) = client.read(&mut buffer) {
        let is_commit = buffer[..len].windows(7).any(|window| window == b"COMMIT\0");
        commits.fetch_add(usize::from(is_commit), Ordering::SeqCst);
        let now = {
            let mut cut = cut.lock().unwrap();
            match *cut {
                Some(Cut::BeforeNext) => cut.take(),
                Some(_) if is_commit => cut.take(),
                _ => None,
            }
        };
        match now {
            Some(Cut::BeforeNext | Cut::BeforeCommit) => break,
            Some(Cut::AfterCommit) => *answers_lost.lock().unwrap() = true,
            None => {}
        }
        if server.write_all(&buffer[..len]).is_err() {
            break;
        }
    }
    let _ = client.shutdown(Shutdown::Both);
    let _ = server.shutdown(Shutdown::Both);
}

/// A proxy before the server that a variable names, and its address.
fn proxied(variable: &str) -> (Proxy, String) {
    let url = std::env::var(variable).expect("CAPSTAN_POSTGRES and CAPSTAN_POSTGRES_TLS name a server");
    let (user, rest) = url.split_once('@').unwrap();
    let (server, database) = rest.split_once('/').unwrap();
    let (host, port) = server.split_once(':').unwrap();
    let proxy = Proxy::before(&format!("127.0.0.1:{port}"));
    let url = format!("{user}@{host}:{}/{database}", proxy.port);
    (proxy, url)
}

/// A catalog behind a proxy.
fn behind_a_proxy(dir: &std::path::Path) -> (Proxy, Catalog) {
    let (proxy, url) = proxied("CAPSTAN_POSTGRES");
    let catalog = Catalog::create(dir, &Database::Postgres { url }).unwrap();
    (proxy, catalog)
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn a_commit_whose_answer_was_lost_is_looked_for() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, mut catalog) = behind_a_proxy(dir.path());
    proxy.cut(Cut::AfterCommit);
    catalog.put_fact("a", "1").unwrap();
    assert!(proxy.has_cut());
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("1"));

    proxy.cut(Cut::BeforeCommit);
    let lost = catalog.put_fact("a", "2").unwrap_err();
    assert!(proxy.has_cut() && matches!(lost, CatalogError::Unreachable { .. }), "{lost}");
    assert!(lost.to_string().contains("run again"), "{lost}");
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("1"), "nothing of it was recorded");
    catalog.put_fact("a", "3").unwrap();
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("3"));
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn a_connection_that_is_lost_between_transactions_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, mut catalog) = behind_a_proxy(dir.path());
    catalog.put_fact("a", "1").unwrap();
    proxy.cut(Cut::BeforeNext);
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("1"), "who reads notices nothing");
    proxy.cut(Cut::BeforeNext);
    catalog.put_fact("a", "2").unwrap();
    assert!(proxy.has_cut());
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("2"));
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn what_was_reserved_when_the_answer_was_lost_is_reserved_once() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, mut catalog) = behind_a_proxy(dir.path());
    let wish = Wish::alone(Resource::Volume(Volser::new("A00001").unwrap()));
    for cut in [Cut::AfterCommit, Cut::BeforeNext, Cut::BeforeCommit] {
        proxy.cut(cut);
        let granted = catalog.reserve(&wish, "one", 10, &|_| false).unwrap();
        assert!(proxy.has_cut());
        let held: Vec<u64> = catalog.reservations().unwrap().iter().map(|held| held.generation).collect();
        assert_eq!(granted, Grant::Held(held[0]), "{cut:?}");
        assert_eq!(held.len(), 1, "{cut:?}");
        proxy.cut(cut);
        assert!(catalog.renew(&held, 20).unwrap().is_empty());
        proxy.cut(cut);
        catalog.release(&held).unwrap();
        assert_eq!(catalog.reservations().unwrap(), []);
    }
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn nobody_on_the_way_reads_what_goes_over_tls() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, mut catalog) = behind_a_proxy(&dir.path().join("plain"));
    catalog.put_fact("a", "1").unwrap();
    assert!(proxy.commits_seen() > 0, "the proxy sees what is in the clear");

    let (proxy, url) = proxied("CAPSTAN_POSTGRES_TLS");
    let database = Database::Postgres { url };
    let mut catalog = Catalog::create(&dir.path().join("tls"), &database).unwrap();
    catalog.put_fact("a", "1").unwrap();
    proxy.cut(Cut::BeforeNext);
    catalog.put_fact("a", "2").unwrap();
    assert!(proxy.has_cut(), "it is made anew, with TLS");
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("2"));
    assert_eq!(proxy.commits_seen(), 0);
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn a_server_that_cannot_prove_who_it_is_is_refused_with_what_to_do() {
    let dir = tempfile::tempdir().unwrap();
    let url = std::env::var("CAPSTAN_POSTGRES_TLS").expect("CAPSTAN_POSTGRES_TLS names a server");
    let refused = |url: &str| {
        let database = Database::Postgres { url: url.to_owned() };
        let refused = Catalog::create(dir.path(), &database).map(drop).unwrap_err();
        assert!(matches!(refused, CatalogError::DatabaseRefused { .. }), "{refused:?}");
        refused.to_string()
    };
    let other = refused(&url.replace("localhost", "127.0.0.1"));
    assert!(other.contains("subjectAltName"), "{other}");
    let (bare, _) = url.split_once("&sslrootcert=").unwrap();
    let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem();
    std::fs::write(dir.path().join("other.crt"), own).unwrap();
    let unknown = refused(&format!("{bare}&sslrootcert={}", dir.path().join("other.crt").display()));
    assert!(unknown.contains("name the file of the authority"), "{unknown}");
    assert!(!Catalog::exists(dir.path()), "nothing was made");
}

/// Checkpoints over a connection that is cut at random: each is recorded, and once.
#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn no_checkpoint_is_lost_or_doubled_by_cuts() {
    let dir = tempfile::tempdir().unwrap();
    let (proxy, mut catalog) = behind_a_proxy(dir.path());
    let mut random = Random::seeded("no_checkpoint_is_lost_or_doubled_by_cuts");
    let mut tape = Tape::new("A00001", 11);
    catalog.put_pool(&crate::tape::main_pool()).unwrap();
    catalog.put_volume(&tape.volume()).unwrap();
    let (mut reported, mut cuts) = (Vec::new(), 0);
    for number in 0..60 {
        let id: ObjectId = object_id(number);
        let state = if random.below(2) == 0 { ObjectState::Open } else { ObjectState::Complete };
        let step = tape.write(part(&object(id, None, state), &[file("a", 0, 0), file("b", 0, 1024)]));
        let cut = [Cut::BeforeCommit, Cut::AfterCommit, Cut::BeforeNext].get(random.below(5) as usize);
        if let Some(cut) = cut {
            proxy.cut(*cut);
            cuts += 1;
        }
        // One that did not come to be is recorded once more, so a server that is started anew ends no job.
        step.record(&mut catalog).unwrap();
        reported.push(id);
        assert!(proxy.has_cut());
        let mut known: Vec<_> = catalog.objects(&ObjectFilter::default()).unwrap();
        known.sort_by_key(|object| object.id);
        assert_eq!(known.iter().map(|object| object.id).collect::<Vec<_>>(), reported);
        assert_eq!(catalog.extents(id, None).unwrap().len(), 1);
    }
    assert!(cuts > 0);
}

#[test]
fn what_cannot_hold_a_catalog_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |url: &str| {
        let database = Database::Postgres { url: url.to_owned() };
        Catalog::create(dir.path(), &database).map(drop).unwrap_err()
    };
    let far = refused("postgres://me:s3cret@db.example.com/capstan");
    assert!(!far.to_string().contains("s3cret"), "{far}");
    let bare = refused("postgres://me@db.example.com/capstan?sslmode=disable");
    assert!(bare.to_string().contains("nothing goes there without TLS"), "{bare}");
    let nowhere = refused("postgres://me@127.0.0.1/capstan?sslmode=require&sslrootcert=/nowhere/authority.crt");
    assert!(nowhere.to_string().contains("sslrootcert=/nowhere/authority.crt"), "{nowhere}");
    let nonsense = refused("postgres://me@127.0.0.1:port/capstan");
    assert!(nonsense.to_string().contains("postgres://user@host:port/database"), "{nonsense}");
    // A port that is not listened on, as it was free a moment ago.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let nobody = refused(&format!("postgres://me@127.0.0.1:{free}/capstan"));
    assert!(matches!(nobody, CatalogError::Unreachable { .. }), "{nobody}");
    assert!(!Catalog::exists(dir.path()), "nothing was made");
}

#[test]
#[ignore = "needs the server that CAPSTAN_POSTGRES names"]
fn a_copy_of_a_catalog_takes_no_tables_away() {
    let dir = tempfile::tempdir().unwrap();
    let (_proxy, mut catalog) = behind_a_proxy(&dir.path().join("state/catalog"));
    catalog.put_fact("a", "1").unwrap();
    let dumped = catalog.copy_to(&dir.path().join("dumped")).unwrap_err().to_string();
    assert!(dumped.contains("pg_dump") && !dir.path().join("dumped").exists(), "{dumped}");
    let copy = dir.path().join("copy/catalog");
    std::fs::create_dir_all(&copy).unwrap();
    std::fs::copy(dir.path().join("state/catalog/database.json"), copy.join("database.json")).unwrap();
    let refused = Catalog::discard(&copy).unwrap_err();
    assert!(refused.to_string().contains("belong to the catalog in"), "{refused}");
    assert_eq!(catalog.fact("a").unwrap().as_deref(), Some("1"));
    drop(catalog);
    let place = dir.path().join("state/catalog");
    Catalog::discard(&place).unwrap();
    assert!(!place.exists());
}
