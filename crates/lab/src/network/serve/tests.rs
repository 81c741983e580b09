//! Both sides, over real sockets of this machine.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::io::{Read, Write};
use std::net::Shutdown;

use super::*;
use crate::network::{NetworkMeasurement, NetworkPlan, NetworkWatch, measure_network};

/// A listener with nobody else on it, and what it told.
struct Bench {
    listener: NetworkListener,
    told: Mutex<Vec<String>>,
    stop: AtomicBool,
}

impl Bench {
    fn new() -> Self {
        let listener = NetworkListener::bind("0").unwrap();
        Self { listener, told: Mutex::default(), stop: AtomicBool::new(false) }
    }

    fn plan(&self, connections: &[u32]) -> NetworkPlan {
        let to = self.listener.address().to_string();
        NetworkPlan { to, connections: connections.to_vec(), seconds: 0.1, block_bytes: 64 << 10 }
    }

    fn measure(&self, connections: &[u32]) -> Result<NetworkMeasurement, NetworkError> {
        measure_network(&self.plan(connections), &NetworkWatch::default(), &mut |_| {})
    }

    /// Serves while `work` runs, and gives how both ended.
    fn serving<T>(&self, take: NetworkTake, work: impl FnOnce() -> T) -> (Result<(), NetworkError>, T) {
        /// Stops the listener however the work ends: a failed assertion is to be seen, not waited for.
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Ordering::Relaxed);
            }
        }
        let tell = |event: NetworkEvent| held(&self.told).push(format!("{event:?}"));
        thread::scope(|scope| {
            let served = scope.spawn(|| self.listener.serve(take, &self.stop, &tell));
            let stop = Stop(&self.stop);
            let done = work();
            if take == NetworkTake::UntilStopped {
                drop(stop);
                return (served.join().unwrap(), done);
            }
            let served = served.join().unwrap();
            (served, done)
        })
    }

    /// Whether it told of something, within a while.
    fn tells(&self, what: &str) -> bool {
        (0..1000).any(|_| {
            thread::sleep(Duration::from_millis(10));
            held(&self.told).iter().any(|told| told.contains(what))
        })
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.listener.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream
    }
}

/// Somebody who says a few words to whoever calls, and hangs up.
fn answers(words: &'static [u8], work: impl FnOnce(String)) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().unwrap();
            stream.read_exact(&mut [0; 32]).unwrap();
            stream.write_all(words).unwrap();
            // Whoever has read enough may have hung up.
            let _ = stream.shutdown(Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        });
        work(address);
    });
}

fn measure(to: String) -> String {
    let plan = NetworkPlan { to, connections: vec![1], seconds: 0.1, block_bytes: 64 << 10 };
    measure_network(&plan, &NetworkWatch::default(), &mut |_| {}).unwrap_err().to_string()
}

#[test]
fn both_directions_are_measured_for_each_number_of_connections() {
    let bench = Bench::new();
    let watch = NetworkWatch::default();
    let mut told = 0;
    let (served, measured) =
        bench.serving(NetworkTake::One, || measure_network(&bench.plan(&[1, 3]), &watch, &mut |_| told += 1).unwrap());
    served.unwrap();
    let kinds: Vec<_> = measured.rates.iter().map(|rate| (rate.connections, rate.direction)).collect();
    let (send, receive) = (Direction::Send, Direction::Receive);
    assert_eq!(kinds, [(1, send), (1, receive), (3, send), (3, receive)]);
    assert_eq!((told, watch.rates.into_inner()), (4, 4));
    assert!(measured.rates.iter().all(|rate| rate.mb_per_s > 1.0 && rate.cpu_s_per_mb > 0.0), "{measured:?}");
    let trips = measured.round_trip;
    assert!(trips.messages >= 20 && 0.0 < trips.median_s && trips.median_s <= trips.p99_s, "{trips:?}");
    // The listener counted the same bytes.
    let told = held(&bench.told);
    let done = told.iter().find(|told| told.starts_with("Done")).unwrap();
    let figure = |name: &str| -> f64 {
        let behind = done.split(&format!("{name}: ")).nth(1).unwrap();
        behind.split([',', ' ']).next().unwrap().parse().unwrap()
    };
    let both = figure("received_mb") + figure("sent_mb");
    assert!((both * 1e6 - watch.bytes.into_inner() as f64).abs() < 1.0, "{done}");
}

#[test]
fn one_measurement_goes_on_at_a_time_and_the_next_when_it_is_done() {
    let bench = Bench::new();
    let (served, ()) = bench.serving(NetworkTake::UntilStopped, || {
        let mut first = bench.connect();
        first.write_all(&hello(1, 1)).unwrap();
        first.read_exact(&mut [0; 24]).unwrap();
        let busy = bench.measure(&[1]).unwrap_err();
        assert!(matches!(busy, NetworkError::Busy { .. }), "{busy}");
        // It goes without a word of farewell.
        drop(first);
        assert!(bench.tells("Lost"));
        bench.measure(&[1]).unwrap();
        bench.measure(&[1]).unwrap();
    });
    served.unwrap();
}

fn hello(version: u8, wants: u8) -> [u8; 32] {
    let mut hello = [0; 32];
    hello[..8].copy_from_slice(b"CAPSTNET");
    (hello[8], hello[10]) = (version, wants);
    hello
}

#[test]
fn strangers_are_turned_away_and_measurements_go_on() {
    let bench = Bench::new();
    let (served, ()) = bench.serving(NetworkTake::UntilStopped, || {
        // An answer, or none, and the end.
        let said = |words: &[u8]| {
            let mut stream = bench.connect();
            stream.write_all(words).unwrap();
            let _ = stream.shutdown(Shutdown::Write);
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer);
            answer
        };
        let verdict = |words: &[u8]| said(words).get(10).copied();
        assert_eq!(verdict(b""), None);
        assert_eq!(verdict(b"CAP"), None);
        assert_eq!(verdict(b"GET / HTTP/1.1\r\nHost: there\r\n\r\n"), None);
        assert_eq!(verdict(&[0xff; 4096]), None);
        assert_eq!(verdict(&hello(2, 1)), Some(2), "another version");
        assert_eq!(verdict(&hello(1, 9)), Some(3), "no such wish");
        let mut blocks = hello(1, 3);
        blocks[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(verdict(&blocks), Some(3), "blocks out of bounds");
        blocks[12..16].copy_from_slice(&4096_u32.to_le_bytes());
        assert_eq!(verdict(&blocks), Some(3), "of no measurement");
        // One that stays and says nothing is in nobody's way.
        let _silent = bench.connect();
        bench.measure(&[2]).unwrap();
        assert!(bench.tells("GET / HTTP") && bench.tells("speaks version 2") && bench.tells("out of bounds"));
    });
    served.unwrap();
}

#[test]
fn a_flood_of_strangers_is_bounded_and_passes() {
    let bench = Bench::new();
    let (served, ()) = bench.serving(NetworkTake::UntilStopped, || {
        let strangers: Vec<_> = (0..LINES_MAX * 2).map(|_| bench.connect()).collect();
        drop(strangers);
        let measured = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(50));
            bench.measure(&[1]).is_ok()
        });
        assert!(measured);
    });
    served.unwrap();
}

#[test]
fn a_listener_that_goes_in_the_middle_is_told_with_what_had_gone() {
    let bench = Bench::new();
    let plan = NetworkPlan { seconds: 30.0, ..bench.plan(&[2]) };
    let watch = NetworkWatch::default();
    let (_, lost) = bench.serving(NetworkTake::UntilStopped, || {
        thread::scope(|scope| {
            let measuring = scope.spawn(|| measure_network(&plan, &watch, &mut |_| {}).unwrap_err());
            while watch.bytes.load(Ordering::Relaxed) < 2_000_000 {
                thread::sleep(Duration::from_millis(5));
            }
            bench.stop.store(true, Ordering::Relaxed);
            measuring.join().unwrap()
        })
    });
    assert!(matches!(lost, NetworkError::Lost { mb, .. } if mb >= 2.0), "{lost:?}");
    assert!(lost.to_string().contains("See whether the other side still runs"), "{lost}");
}

#[test]
fn one_that_measures_and_goes_in_the_middle_ends_a_listener_for_one() {
    let bench = Bench::new();
    let plan = NetworkPlan { seconds: 30.0, ..bench.plan(&[2]) };
    let watch = NetworkWatch::default();
    let (served, stopped) = bench.serving(NetworkTake::One, || {
        thread::scope(|scope| {
            let measuring = scope.spawn(|| measure_network(&plan, &watch, &mut |_| {}).unwrap_err());
            while watch.bytes.load(Ordering::Relaxed) < 2_000_000 {
                thread::sleep(Duration::from_millis(5));
            }
            watch.stop.store(true, Ordering::Relaxed);
            measuring.join().unwrap()
        })
    });
    assert!(matches!(stopped, NetworkError::Stopped), "{stopped}");
    let lost = served.unwrap_err();
    assert!(matches!(lost, NetworkError::Lost { mb, .. } if mb > 0.0), "{lost:?}");
}

#[test]
fn nobody_another_program_and_another_version_are_told_apart() {
    let nobody = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let told = measure(nobody);
    assert!(told.starts_with("nobody listens at 127.0.0.1:") && told.contains("Start `capstan lab network"), "{told}");
    answers(b"220 mail.example ESMTP\r\n", |address| {
        let told = measure(address);
        assert!(told.contains("is not `capstan lab network`: its first words are \"220 mail.e\""), "{told}");
    });
    answers(b"", |address| {
        let told = measure(address);
        assert!(told.contains("is not `capstan lab network`: it closes the connection"), "{told}");
    });
    answers(b"CAPSTNET\x07\0 and what version 7 says", |address| {
        let told = measure(address);
        assert!(told.contains("speaks version 7 of the measurement, and this program version 1"), "{told}");
    });
}

#[test]
fn an_address_in_use_or_none_at_all_is_refused() {
    let bench = Bench::new();
    let again = NetworkListener::bind(&bench.listener.address().to_string()).unwrap_err();
    assert!(matches!(again, NetworkError::InUse { .. }), "{again}");
    assert!(bench.listener.address().ip().is_loopback());
    for address in ["70000", "here", "127.0.0.1", ""] {
        let refused = NetworkListener::bind(address).unwrap_err();
        assert!(matches!(refused, NetworkError::Address { .. }), "{address}: {refused}");
    }
    // An address of documentation, which is no machine's.
    let foreign = NetworkListener::bind("192.0.2.1:0").unwrap_err();
    assert!(foreign.to_string().contains("Name an address of this machine"), "{foreign}");
}

#[test]
fn what_cannot_be_measured_is_refused_before_anybody_is_called() {
    let plan = NetworkPlan { to: "1".to_owned(), connections: vec![1], seconds: 1.0, block_bytes: 4096 };
    let refused = |plan: NetworkPlan| measure_network(&plan, &NetworkWatch::default(), &mut |_| {}).unwrap_err();
    for (wrong, word) in [
        (NetworkPlan { connections: vec![], ..plan.clone() }, "at least one"),
        (NetworkPlan { connections: vec![1, 0], ..plan.clone() }, "0 connections"),
        (NetworkPlan { connections: vec![1; 17], ..plan.clone() }, "at most 16"),
        (NetworkPlan { connections: vec![65], ..plan.clone() }, "1 to 64"),
        (NetworkPlan { seconds: f64::NAN, ..plan.clone() }, "no time"),
        (NetworkPlan { block_bytes: 100, ..plan.clone() }, "blocks of 100 bytes"),
    ] {
        let told = refused(wrong).to_string();
        assert!(told.contains(word), "{told}");
    }
}

#[test]
fn noise_behind_good_words_harms_nobody() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(|| {
        let drawn = RandomState::new().build_hasher().finish();
        println!("CAPSTAN_SEED={drawn} replays it");
        drawn
    });
    let mut noise = crate::data_set::Noise::new(seed);
    let mut words = |len: usize| -> Vec<u8> { (0..len).map(|_| noise.next() as u8).collect() };
    let bench = Bench::new();
    let (served, ()) = bench.serving(NetworkTake::UntilStopped, || {
        for _ in 0..50 {
            let mut control = bench.connect();
            control.write_all(&hello(1, 1)).unwrap();
            let mut answer = [0; 24];
            control.read_exact(&mut answer).unwrap();
            if answer[10] != 0 {
                // The one before is still being cleared away.
                thread::sleep(Duration::from_millis(10));
                continue;
            }
            for wants in [2, 3] {
                let mut blocks = hello(1, wants);
                blocks[12..16].copy_from_slice(&1024_u32.to_le_bytes());
                blocks[16..24].copy_from_slice(&answer[16..24]);
                blocks[24..28].copy_from_slice(&10_u32.to_le_bytes());
                let mut line = bench.connect();
                line.write_all(&blocks).unwrap();
                // It may be cut off before all of it has gone.
                let _ = line.write_all(&words(5000));
                let _ = line.shutdown(Shutdown::Write);
                let _ = line.read_to_end(&mut Vec::new());
            }
            let _ = control.write_all(&words(300));
        }
        for _ in 0..50 {
            let mut stream = bench.connect();
            let mut first = hello(1, 1);
            first[8..].copy_from_slice(&words(24));
            let _ = stream.write_all(&first);
        }
        let measured = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(50));
            bench.measure(&[1]).is_ok()
        });
        assert!(measured, "seed {seed}");
    });
    served.unwrap();
}
