//! The side that measures.

use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use super::hello::{Answer, Blocks, Hello, Strange, VERSION, Verdict};
use super::line::{Cut, Halt, Line, block};
use super::{
    Direction, NetworkError, NetworkMeasurement, NetworkPlan, NetworkRate, NetworkWatch, RoundTrip, addresses,
};
use crate::measure::processor_s;

/// How long somebody may take to answer a call at all.
const CALL_MAX: Duration = Duration::from_secs(5);
/// Bytes of a message there and back.
pub(super) const MESSAGE_LEN: usize = 64;
/// What its first byte says.
const MESSAGE: u8 = 1;
pub(super) const END: u8 = 0;
/// What is sent where blocks are to come. Its value says nothing.
const GO: u8 = 1;
/// As many messages as give a p99, or as many as this time allows; fewer would be no median.
const MESSAGES_MAX: usize = 1000;
const MESSAGES_MIN: usize = 20;
const MESSAGES_TIME: Duration = Duration::from_secs(2);

/// Measures the network to a listener. `tell` hears of each rate as soon as it is known.
///
/// # Errors
/// [`NetworkError`]: the listener is not reached, is something else or of another version, the connection is lost, or
/// it was stopped.
pub fn measure_network(
    plan: &NetworkPlan,
    watch: &NetworkWatch,
    tell: &mut dyn FnMut(&NetworkRate),
) -> Result<NetworkMeasurement, NetworkError> {
    plan.check()?;
    let never = AtomicBool::new(false);
    let halt = Halt { stop: &watch.stop, over: &never };
    let (peer, mut control, number) = call_any(&plan.to, Hello::Measurement, halt)?;
    let lost = |cut: Cut| lost(peer, watch.bytes.load(Ordering::Relaxed), &cut);
    let round_trip = round_trips(&mut control).map_err(lost)?;
    let mut rates = Vec::with_capacity(plan.rates());
    for &connections in &plan.connections {
        for direction in Direction::BOTH {
            let rate = rate(plan, (peer, number), connections, direction, watch)?;
            watch.rates.fetch_add(1, Ordering::Relaxed);
            tell(&rate);
            rates.push(rate);
        }
    }
    message(&mut control, END).map_err(lost)?;
    let NetworkPlan { seconds, block_bytes, .. } = *plan;
    Ok(NetworkMeasurement { peer, seconds, block_bytes, round_trip, rates })
}

/// Calls the addresses behind a name, until somebody is there.
fn call_any<'a>(to: &str, hello: Hello, halt: Halt<'a>) -> Result<(SocketAddr, Line<'a>, u64), NetworkError> {
    let mut nobody = None;
    for peer in addresses(to)? {
        match call(peer, hello, halt) {
            Ok((line, number)) => return Ok((peer, line, number)),
            Err(error @ NetworkError::Nobody { .. }) => nobody = nobody.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    Err(nobody.unwrap_or_else(|| unreachable!("there is an address, and each ends otherwise")))
}

/// Connects, and says what for.
fn call(peer: SocketAddr, hello: Hello, halt: Halt<'_>) -> Result<(Line<'_>, u64), NetworkError> {
    let nobody = |source| NetworkError::Nobody { address: peer, source };
    let stream = TcpStream::connect_timeout(&peer, CALL_MAX).map_err(nobody)?;
    let strange = |strange| match strange {
        Strange::Stopped => NetworkError::Stopped,
        Strange::NotOurs(reason) => NetworkError::NotOurs { address: peer, reason },
        Strange::OtherVersion(theirs) => NetworkError::OtherVersion { address: peer, theirs, ours: VERSION },
        Strange::OutOfBounds => NetworkError::NotOurs { address: peer, reason: "it answers what cannot be".to_owned() },
    };
    let mut line = Line::new(stream, halt).map_err(|cut| strange(cut.into()))?;
    hello.write(&mut line).map_err(|cut| strange(cut.into()))?;
    let Answer { verdict, number } = Answer::read(&mut line).map_err(strange)?;
    match verdict {
        Verdict::Welcome => Ok((line.introduced(halt, None), number)),
        Verdict::Busy => Err(NetworkError::Busy { address: peer }),
        Verdict::OtherVersion => Err(strange(Strange::NotOurs("it calls our version another".to_owned()))),
        Verdict::Refused => Err(NetworkError::Lost { peer, mb: 0.0, reason: "it refuses a connection".to_owned() }),
    }
}

fn message(control: &mut Line<'_>, what: u8) -> Result<(), Cut> {
    let mut message = [0; MESSAGE_LEN];
    message[0] = what;
    control.write(&message)?;
    control.read(&mut message)
}

fn round_trips(control: &mut Line<'_>) -> Result<RoundTrip, Cut> {
    let began = Instant::now();
    let mut all = Vec::new();
    while all.len() < MESSAGES_MIN || (all.len() < MESSAGES_MAX && began.elapsed() < MESSAGES_TIME) {
        let sent = Instant::now();
        message(control, MESSAGE)?;
        all.push(sent.elapsed().as_secs_f64());
    }
    all.sort_by(f64::total_cmp);
    let (median_s, p99_s) = (all[all.len() / 2], all[all.len() * 99 / 100]);
    Ok(RoundTrip { median_s, p99_s, messages: all.len() as u32 })
}

/// What so many connections give in one direction.
fn rate(
    plan: &NetworkPlan,
    (peer, number): (SocketAddr, u64),
    connections: u32,
    direction: Direction,
    watch: &NetworkWatch,
) -> Result<NetworkRate, NetworkError> {
    let over = AtomicBool::new(false);
    let halt = Halt { stop: &watch.stop, over: &over };
    let time = Duration::from_secs_f64(plan.seconds);
    let NetworkPlan { block_bytes, .. } = *plan;
    let hello = Hello::Blocks(Blocks { direction, block_bytes, number, milliseconds: time.as_millis() as u32 });
    let mut lines = Vec::new();
    for _ in 0..connections {
        let (line, _) = call(peer, hello, halt).map_err(|error| match error {
            // It was ours a moment ago: it has too many connections, or ends.
            NetworkError::NotOurs { reason, .. } => {
                NetworkError::Lost { peer, mb: 0.0, reason: format!("it takes no further connection: {reason}") }
            }
            other => other,
        })?;
        lines.push((line, block(block_bytes)));
    }
    let pass = |(mut line, mut block): (Line<'_>, Vec<u8>)| {
        let passed = match direction {
            Direction::Send => line.send_blocks(&mut block, time, &watch.bytes),
            Direction::Receive => line.write(&[GO]).and_then(|()| line.take_blocks(&mut block, &watch.bytes)),
        };
        // Without one connection the rate of the others says nothing.
        passed.inspect_err(|_| over.store(true, Ordering::Relaxed))
    };
    let before = watch.bytes.load(Ordering::Relaxed);
    let (began, cpu_s) = (Instant::now(), processor_s());
    let passed: Vec<Result<u64, Cut>> = thread::scope(|scope| {
        let threads: Vec<_> = lines.into_iter().map(|line| scope.spawn(|| pass(line))).collect();
        let joined = threads.into_iter().map(thread::ScopedJoinHandle::join);
        joined.map(|passed| passed.unwrap_or_else(|panic| std::panic::resume_unwind(panic))).collect()
    });
    let (seconds, cpu_s) = (began.elapsed().as_secs_f64(), processor_s() - cpu_s);
    let gone = watch.bytes.load(Ordering::Relaxed) - before;
    if watch.stop.load(Ordering::Relaxed) {
        return Err(NetworkError::Stopped);
    }
    // The first that broke off took the others with it.
    let broken = passed.into_iter().filter_map(Result::err).find(|cut| !matches!(cut, Cut::Stopped));
    if let Some(cut) = broken {
        return Err(lost(peer, gone, &cut));
    }
    let mb = gone as f64 / 1e6;
    Ok(NetworkRate { connections, direction, mb_per_s: mb / seconds, cpu_s_per_mb: cpu_s / mb })
}

fn lost(peer: SocketAddr, bytes: u64, cut: &Cut) -> NetworkError {
    match cut {
        Cut::Stopped => NetworkError::Stopped,
        cut => NetworkError::Lost { peer, mb: bytes as f64 / 1e6, reason: cut.to_string() },
    }
}
