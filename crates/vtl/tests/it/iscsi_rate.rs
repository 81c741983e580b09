//! What the protocol costs: blocks of 256 KiB to and from a unit that does nothing, beside a bare socket in the same
//! run.
//!
//! ```text
//! cargo test --release -p capstan-vtl --test it -- --ignored --nocapture iscsi_rate
//! ```
//! The bare socket moves the same bytes in the same turns: a header of 48 bytes and a block one way, a header the other
//! way, and then the next. The stream beside it never waits for an answer; no protocol of one command at a time can
//! reach it.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use capstan_vtl::iscsi::{Digest, Initiator, InitiatorConfig, Server, TargetConfig};
use capstan_vtl::{Completion, DataIn, DeviceServer, Nexus, Request, TaskFunction};

const BLOCK_LEN: usize = 256 << 10;
const HEADER_LEN: usize = 48;
const TARGET: &str = "iqn.2026-01.org.capstan:rate";
const ROUNDS: usize = 7;
const ROUND: Duration = Duration::from_millis(400);
/// What of the bare socket's rate must be left.
const FLOOR: f64 = 0.7;

/// Takes what comes, and returns whatever lies in the buffer.
struct Nothing;

impl DeviceServer for Nothing {
    fn execute(&self, request: &Request<'_>, data_in: &mut DataIn) -> Completion {
        if request.cdb[0] == 0x08 {
            data_in.room(BLOCK_LEN);
            data_in.filled(BLOCK_LEN);
        }
        Completion::GOOD
    }

    fn data_out_max(&self) -> usize {
        BLOCK_LEN
    }

    fn luns(&self) -> Vec<u64> {
        vec![0]
    }

    fn manage(&self, _: &Nexus, _: u64, _: TaskFunction) {}

    fn nexus_lost(&self, _: &Nexus) {}
}

/// Blocks per second.
fn rate(mut block: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut blocks = 0.0;
    while begun.elapsed() < ROUND {
        block();
        blocks += 1.0;
    }
    blocks / begun.elapsed().as_secs_f64()
}

/// A connection to a thread that serves it until it ends.
fn socket(serve: fn(&mut TcpStream) -> std::io::Result<()>) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(true).unwrap();
        while serve(&mut stream).is_ok() {}
    });
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn take(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; HEADER_LEN + BLOCK_LEN];
    loop {
        stream.read_exact(&mut bytes)?;
        stream.write_all(&[0; HEADER_LEN])?;
    }
}

fn give(stream: &mut TcpStream) -> std::io::Result<()> {
    let (bytes, mut header) = (vec![0; HEADER_LEN + BLOCK_LEN], [0; HEADER_LEN]);
    loop {
        stream.read_exact(&mut header)?;
        stream.write_all(&bytes)?;
    }
}

fn drain(stream: &mut TcpStream) -> std::io::Result<()> {
    let mut bytes = vec![0; HEADER_LEN + BLOCK_LEN];
    loop {
        stream.read_exact(&mut bytes)?;
    }
}

fn initiator(server: &Server, digest: Digest) -> Initiator {
    let config = InitiatorConfig::new(server.local_address(), TARGET);
    let isid = [0x80, 0, 0, 0, 0, 1 + u8::from(digest == Digest::Crc32c)];
    Initiator::connect(&InitiatorConfig { isid, header_digest: digest, data_digest: digest, ..config }).unwrap()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn megabytes(rates: &[f64]) -> f64 {
    median(rates.to_vec()) * BLOCK_LEN as f64 / 1e6
}

#[test]
#[ignore = "a measurement, for a release build on a quiet machine"]
fn protocol_leaves_most_of_a_bare_socket() {
    let config = TargetConfig { portal: "127.0.0.1:0".parse().unwrap(), ..TargetConfig::new(TARGET) };
    let server = Server::bind(config, Arc::new(Nothing)).unwrap();
    let (mut plain, mut checked) = (initiator(&server, Digest::None), initiator(&server, Digest::Crc32c));
    let (mut taker, mut giver, mut drainer) = (socket(take), socket(give), socket(drain));
    let (out, mut back, mut header) = (vec![0x5a; BLOCK_LEN], vec![0; BLOCK_LEN], [0; HEADER_LEN]);
    let framed = vec![0x5a; HEADER_LEN + BLOCK_LEN];
    let mut returned = vec![0; HEADER_LEN + BLOCK_LEN];
    let (write, read) = ([0x0a, 0, 4, 0, 0, 0], [0x08, 0, 4, 0, 0, 0]);
    let mut rates: [Vec<f64>; 7] = Default::default();
    for _ in 0..ROUNDS {
        rates[0].push(rate(|| drainer.write_all(&framed).unwrap()));
        rates[1].push(rate(|| {
            taker.write_all(&framed).unwrap();
            taker.read_exact(&mut header).unwrap();
        }));
        rates[2].push(rate(|| assert!(plain.execute(0, &write, &out, &mut []).unwrap().is_good())));
        rates[3].push(rate(|| assert!(checked.execute(0, &write, &out, &mut []).unwrap().is_good())));
        rates[4].push(rate(|| {
            giver.write_all(&header).unwrap();
            giver.read_exact(&mut returned).unwrap();
        }));
        rates[5].push(rate(|| assert!(plain.execute(0, &read, &[], &mut back).unwrap().is_good())));
        rates[6].push(rate(|| assert!(checked.execute(0, &read, &[], &mut back).unwrap().is_good())));
    }
    let [stream, bare_out, write, write_checked, bare_in, read, read_checked] = &rates;
    // Each round by itself: what else the machine does in one round is not held against the next.
    let share = |of: &[f64], bare: &[f64]| median(of.iter().zip(bare).map(|(of, bare)| of / bare).collect());
    println!("medians of {ROUNDS} rounds, MB/s and shares of the bare socket");
    println!("bare stream    {:6.0}", megabytes(stream));
    println!("bare, in turns {:6.0} out         {:6.0} in", megabytes(bare_out), megabytes(bare_in));
    for (name, out, back) in [("iSCSI", write, read), ("iSCSI, CRC32C", write_checked, read_checked)] {
        let shares = (share(out, bare_out), share(back, bare_in));
        println!("{name:14} {:6.0} out {:.2}    {:6.0} in {:.2}", megabytes(out), shares.0, megabytes(back), shares.1);
    }
    let least = share(write, bare_out).min(share(read, bare_in));
    assert!(least >= FLOOR, "the protocol leaves {least:.2} of a bare socket");
}
