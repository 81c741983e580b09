//! A copy of what no volume has.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::Bench;
use super::client::{enrol, serve};
use super::json::events;

/// People copied the folder of a server that never rests, file by file, and had a catalog that nobody could open.
#[test]
fn a_catalog_is_copied_while_backups_run_and_stands_in_for_the_one_that_is_lost() {
    let bench = Bench::new(&[]);
    let (server, address) = serve(&bench);
    enrol(&bench, "client", "tern", &address);
    bench.done(&["backup", "home", "--quiet"], 0);
    let (state, copy) = (bench.dir.path().join("state"), bench.dir.path().join("copy"));
    let to = copy.to_str().unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let backups = scope.spawn(|| {
            for number in 0..8 {
                fs::write(bench.source().join("letters/new"), format!("letter {number}")).unwrap();
                bench.done(&["backup", "home", "--quiet"], 0);
                bench.done(&["expire", "--keep-last", "1", "--yes", "--quiet"], 0);
                if is_over.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        for _ in 0..4 {
            let copied = events(&bench, &["catalog", "copy", to], 0);
            assert!(copied[0]["event"] == "catalog-copied" && copied[0]["files"].as_u64().unwrap() > 0, "{copied:?}");
            // Whatever expired or was made meanwhile: what the tables name is there.
            let other = bench.dir.path().join("other");
            fs::create_dir_all(&other).unwrap();
            fs::copy(state.join("capstan.toml"), other.join("capstan.toml")).unwrap();
            fs::rename(copy.join("catalog"), other.join("catalog")).unwrap();
            let mut list = bench.command(&["ls", "-R", bench.source().to_str().unwrap()]);
            let listed = list.env("CAPSTAN_STATE", &other).output().unwrap();
            assert!(listed.status.success(), "{}", String::from_utf8_lossy(&listed.stderr));
            fs::rename(other.join("catalog"), copy.join("catalog")).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        backups.join().unwrap();
    });
    let identity = fs::metadata(copy.join("cell/authority.pem")).unwrap().permissions().mode();
    assert_eq!(identity & 0o777, fs::metadata(state.join("cell/authority.pem")).unwrap().permissions().mode() & 0o777);
    server.stop();
    bench.done(&["catalog", "copy", to], 0);
    let before = (bench.rows(&["objects"]), bench.rows(&["client", "list"]));
    for folder in ["catalog", "cell"] {
        fs::remove_dir_all(state.join(folder)).unwrap();
        fs::rename(copy.join(folder), state.join(folder)).unwrap();
    }
    assert_eq!((bench.rows(&["objects"]), bench.rows(&["client", "list"])), before);
    bench.done(&["restore", "home", "--to", "back", "--quiet"], 0);
    let restored = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    assert!(fs::read_to_string(restored.join("letters/new")).unwrap().starts_with("letter "));
}

#[test]
fn a_copy_of_the_catalog_in_its_own_state_directory_is_refused() {
    let bench = Bench::new(&[]);
    let said = bench.said(&["catalog", "copy", bench.dir.path().join("state/copy").to_str().unwrap()], 2);
    assert!(said.contains("give a directory on another disk"), "{said}");
}
