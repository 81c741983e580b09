//! Several threads and processes at one store, and processes that are killed.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime};

use super::*;

const STORE: &str = "CAPSTAN_TEST_KEY_STORE";
const COUNT: &str = "CAPSTAN_TEST_KEY_COUNT";

/// Runs [`issue_keys`] in a process of its own; it prints each tag once the key has been given out.
fn issuer(path: &Path, count: u32) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["store::processes::issue_keys", "--exact", "--ignored", "--nocapture"])
        .env(STORE, path)
        .env(COUNT, count.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Tags as an issuer prints them; a line that was cut off by its end is none.
fn issued(child: &mut Child) -> impl Iterator<Item = KeyTag> + use<> {
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("issued ")?.parse().ok())
}

#[test]
#[ignore = "the other process of the tests here"]
fn issue_keys() {
    let path = PathBuf::from(std::env::var_os(STORE).expect("run by the tests of this file"));
    let count: u32 = std::env::var(COUNT).unwrap().parse().unwrap();
    let mut store = reopen(&path);
    println!();
    for number in 0..count {
        let name = format!("P{:05}", number % 50);
        let key = store.new_key(&volser(&name), GCM, NOW_NS).unwrap();
        println!("issued {}", key.tag());
        store.activate(&volser(&name), &key.tag(), NOW_NS).unwrap();
    }
}

#[test]
fn two_processes_and_two_threads_issue_keys_at_once() {
    let (_directory, path, mut store) = new_store();
    let mut children = [issuer(&path, 12), issuer(&path, 12)];
    let other_thread = std::thread::spawn({
        let path = path.clone();
        move || (0..12).map(|number| fill(&mut reopen(&path), &format!("T{number:05}")).0).collect::<Vec<_>>()
    });
    let mut expected: Vec<_> = (0..12).map(|number| fill(&mut store, &format!("M{number:05}")).0).collect();
    expected.extend(other_thread.join().unwrap());
    for child in &mut children {
        let tags: Vec<_> = issued(child).collect();
        assert_eq!(tags.len(), 12);
        expected.extend(tags);
        assert!(child.wait().unwrap().success());
    }
    // Seen without reopening.
    let mut found: Vec<_> = store.list().unwrap().into_iter().map(|record| record.tag).collect();
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected);
}

#[test]
fn what_one_has_committed_the_other_sees() {
    let (_directory, path, mut one) = new_store();
    let other = reopen(&path);
    let (tag, bytes) = fill(&mut one, "A00001");
    assert_eq!(other.read_key(&volser("A00001"), &tag).unwrap().expose(), &bytes);
    one.destroy(&tag, NOW_NS + 2).unwrap();
    assert!(matches!(refused(other.read_key(&volser("A00001"), &tag)), KeyError::KeyDestroyed { .. }));
}

/// Killed at any moment: the store opens, and every key that had been given out is there.
#[test]
fn a_killed_process_loses_no_key_that_it_gave_out() {
    let (_directory, path, store) = new_store();
    drop(store);
    let given = std::env::var("CAPSTAN_SEED").ok().map(|seed| seed.parse().unwrap());
    let seed: u32 = given.unwrap_or_else(|| SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos());
    println!("CAPSTAN_SEED={seed}");
    let mut random = u64::from(seed) | 1;
    let mut all = Vec::new();
    for _ in 0..12 {
        // xorshift64: delays need no better.
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let mut child = issuer(&path, 100_000);
        let mut tags = issued(&mut child);
        all.extend(tags.next());
        std::thread::sleep(Duration::from_micros(random % 100_000));
        child.kill().unwrap();
        all.extend(tags);
        child.wait().unwrap();
        let store = reopen(&path);
        let found: Vec<_> = store.list().unwrap().into_iter().map(|record| record.tag).collect();
        for tag in &all {
            assert!(found.contains(tag), "key {tag} was given out and is lost (seed {seed})");
        }
    }
    assert!(all.len() >= 12, "only {} keys were given out by 12 processes", all.len());
    println!("{} keys given out in 12 killed processes", all.len());
}
