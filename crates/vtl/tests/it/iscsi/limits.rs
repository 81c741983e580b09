//! Those who say nothing, too much or nonsense, while others are served.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use capstan_vtl::iscsi::{TargetConfig, TargetLimits};

use super::device::{Bench, READ_BLOCK, TEST_UNIT_READY, WRITE_BLOCK, config, eventually};

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// 1,000 connections that begin a login and never end it: another initiator's session goes on, new ones get in, and the
/// door holds no more threads than logins may be half open.
#[test]
fn a_thousand_half_open_logins_hold_nobody_up() {
    const HALF_OPEN: usize = 16;
    let limits = TargetLimits { half_open: HALF_OPEN, ..TargetLimits::default() };
    let bench = Bench::with(TargetConfig { limits, ..config() });
    let mut initiator = bench.connect(1);
    let (data, mut read) = (vec![7; 262_144], vec![0; 262_144]);
    let (mut silent, before) = (Vec::new(), threads());
    let mut threads_max = 0;
    for number in 0..1000 {
        let mut stream = TcpStream::connect(bench.address()).unwrap();
        // Some say nothing, some begin a header, some a text that never comes.
        let mut header = [0; 48];
        (header[0], header[7]) = (0x43, 200);
        let _dropped_already = stream.write_all(&header[..[0, 17, 48][number % 3]]);
        silent.push(stream);
        if number % 20 == 0 {
            assert!(initiator.execute(0, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &data, &mut []).unwrap().is_good());
            assert!(initiator.execute(0, &[READ_BLOCK, 0, 0, 0, 0, 0], &[], &mut read).unwrap().is_good());
            bench.connect(2).logout().unwrap();
            threads_max = threads_max.max(threads());
        }
    }
    assert!(read == data);
    println!("{before} threads before, {threads_max} at most");
    // Those of other tests in this process come and go; a thread for each connection would be a thousand.
    assert!(threads_max < before + HALF_OPEN + 100, "{threads_max} threads, {before} before");
    // The oldest were dropped.
    for stream in &mut silent[..900] {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
    }
}

/// A byte now and then does not make a login longer.
#[test]
fn a_login_has_its_time() {
    let limits = TargetLimits { login: Duration::from_millis(300), ..TargetLimits::default() };
    let bench = Bench::with(TargetConfig { limits, ..config() });
    let mut stream = TcpStream::connect(bench.address()).unwrap();
    let begun = Instant::now();
    while stream.write_all(&[0x43]).is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(10), "the login goes on and on");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() >= Duration::from_millis(300));
}

/// Bytes of no sense, from a seed, at every phase of a connection.
#[test]
fn nonsense_ends_its_own_connection_only() {
    let seed = std::env::var("CAPSTAN_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(20_260_101_u64);
    println!("seed {seed}: CAPSTAN_SEED repeats it");
    let mut state = seed;
    let mut random = move || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    };
    let limits = TargetLimits { login: Duration::from_millis(500), ..TargetLimits::default() };
    let bench = Bench::with(TargetConfig { limits, ..config() });
    let mut initiator = bench.connect(1);
    for _ in 0..300 {
        let mut stream = TcpStream::connect(bench.address()).unwrap();
        stream.set_nodelay(true).unwrap();
        if random() % 4 > 0 {
            let text =
                format!("InitiatorName=iqn.2026-01.org.capstan:nonsense\0TargetName={}\0", super::device::TARGET);
            let mut login = vec![0; 48];
            (login[0], login[1], login[7], login[27]) = (0x43, 0x87, text.len() as u8, 1);
            login[8..14].copy_from_slice(&random().to_be_bytes()[..6]);
            login.extend_from_slice(text.as_bytes());
            login.resize(login.len().next_multiple_of(4), 0);
            stream.write_all(&login).unwrap();
        }
        for command_number in 1..1 + random() % 8 {
            let mut pdu: Vec<u8> = (0..6).flat_map(|_| random().to_be_bytes()).collect();
            // Lengths that are sometimes right, operations that are mostly known, numbers that count.
            pdu[0] = [0x00, 0x01, 0x02, 0x04, 0x05, 0x06, 0x10, 0x41, 0x42, pdu[0]][random() as usize % 10];
            // A reset of the target would rightly end the session of the one who makes sense.
            if pdu[0] & 0x3f == 0x02 && pdu[1] & 0x7f >= 5 {
                pdu[1] = 0x82;
            }
            if random() % 4 > 0 {
                pdu[4] = 0;
                pdu[5..8].copy_from_slice(&(random() as u32 % 100).to_be_bytes()[1..]);
                pdu[24..28].copy_from_slice(&(command_number as u32).to_be_bytes());
                let len = usize::from(pdu[7]).next_multiple_of(4);
                pdu.resize(48 + len, 0x3d);
            }
            if stream.write_all(&pdu).is_err() {
                break;
            }
        }
        drop(stream);
        assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    }
    eventually("only the one that makes sense is left", || bench.server.sessions().len() == 1);
}
