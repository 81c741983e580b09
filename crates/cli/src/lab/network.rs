//! `capstan lab network`.

use std::io::{Write, stdout};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use capstan_lab::{
    Measured, NetworkError, NetworkEvent, NetworkListener, NetworkMeasurement, NetworkPlan, NetworkRate, NetworkTake,
    NetworkWatch, measure_network,
};
use clap::Args;

use super::measure::keep;
use crate::failure::Failure;
use crate::globals::Globals;
use crate::json::{self, NetworkLine};
use crate::progress::{Display, rate, stop_on_interrupt};
use crate::secrets::now_ns;
use crate::table::Table;
use crate::units;

#[derive(Debug, Args)]
pub(crate) struct Network {
    /// Listen here until Ctrl-C: an address of this machine and a port, or a port that only this machine reaches
    #[arg(long, value_name = "ADDRESS:PORT", required_unless_present = "to", conflicts_with = "to")]
    listen: Option<String>,
    /// End after one measurement, as it ended
    #[arg(long, conflicts_with = "to")]
    once: bool,
    /// Measure the network to whoever listens there
    #[arg(long, value_name = "HOST:PORT")]
    to: Option<String>,
    /// How many connections at once; each number is measured by itself
    #[arg(long, value_name = "N,N", value_delimiter = ',', default_value = "1,2,4,8")]
    connections: Vec<u32>,
    /// Seconds for each number of connections in each direction
    #[arg(long, value_name = "SECONDS", default_value_t = 3.0)]
    seconds: f64,
    /// Bytes handed to the network at a time
    #[arg(long, value_name = "BYTES", value_parser = units::parse_bytes, default_value = "256K")]
    block: u64,
}

pub(super) fn network(cli: &Globals, args: &Network) -> Result<ExitCode, Failure> {
    match (&args.listen, &args.to) {
        (Some(address), _) => listen(cli, address, args.once),
        (None, Some(to)) => {
            let block_bytes = u32::try_from(args.block).unwrap_or(u32::MAX);
            let (connections, seconds) = (args.connections.clone(), args.seconds);
            measure(cli, &NetworkPlan { to: to.clone(), connections, seconds, block_bytes })
        }
        (None, None) => Err(Failure::Usage("say --listen on one host, and --to on the other".to_owned())),
    }
}

fn told(error: NetworkError) -> Failure {
    match error {
        NetworkError::Plan { .. } | NetworkError::Address { .. } => Failure::Usage(error.to_string()),
        NetworkError::Stopped => Failure::Stopped(error.to_string()),
        other => Failure::Other(other.to_string()),
    }
}

fn listen(cli: &Globals, address: &str, once: bool) -> Result<ExitCode, Failure> {
    let listener = NetworkListener::bind(address).map_err(told)?;
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_interrupt(&stop);
    let display = Display::new(cli);
    let address = listener.address();
    if cli.json {
        json::print(&NetworkLine::Listening { address: address.to_string() })?;
    }
    let until = if once { "for one measurement" } else { "until Ctrl-C" };
    display.say(&format!("listening on {address} {until}"));
    let tell = |event: NetworkEvent| {
        if cli.json {
            // Whoever read the lines and went away does not end the measurement.
            let _gone = json::print(&NetworkLine::from(&event));
        }
        match event {
            NetworkEvent::Began { peer } => display.say(&format!("{peer}: measuring")),
            NetworkEvent::Done { peer, received_mb, sent_mb } => {
                display.say(&format!("{peer}: done, {received_mb:.0} MB came and {sent_mb:.0} MB went"));
            }
            NetworkEvent::Lost { error } => display.warn(&error.to_string()),
            NetworkEvent::TurnedAway { peer, reason } => display.warn(&format!("{peer} was turned away: {reason}")),
        }
    };
    let take = if once { NetworkTake::One } else { NetworkTake::UntilStopped };
    listener.serve(take, &stop, &tell).map_err(told)?;
    if once && stop.load(Ordering::Relaxed) {
        return Err(Failure::Stopped("stopped before a measurement was done".to_owned()));
    }
    Ok(ExitCode::SUCCESS)
}

fn measure(cli: &Globals, plan: &NetworkPlan) -> Result<ExitCode, Failure> {
    let watch = NetworkWatch::default();
    stop_on_interrupt(&watch.stop);
    let display = Display::new(cli);
    let all_seconds = plan.rates() as f64 * plan.seconds;
    let line = |elapsed: Duration| {
        let bytes = watch.bytes.load(Ordering::Relaxed);
        let left = units::duration((all_seconds - elapsed.as_secs_f64()).max(0.0));
        let (rates, all) = (watch.rates.load(Ordering::Relaxed), plan.rates());
        let text = format!("{rates} of {all} rates, {}, {left} left", rate(bytes, elapsed));
        (text, Some((elapsed.as_secs_f64() / all_seconds).min(1.0)))
    };
    let mut tell = |rate: &NetworkRate| {
        let NetworkRate { connections, direction, mb_per_s, .. } = rate;
        if display.draws() {
            display.say(&format!("{connections} connections, {}: {mb_per_s:.0} MB/s", direction.name()));
        }
    };
    let measured = display.during(&line, || measure_network(plan, &watch, &mut tell)).map_err(told)?;
    show(cli, &measured).map_err(Failure::output)?;
    keep(cli, |all| all.add_network(Measured { at_ns: now_ns(), found: measured }))?;
    Ok(ExitCode::SUCCESS)
}

fn show(cli: &Globals, measured: &NetworkMeasurement) -> std::io::Result<()> {
    let mut out = stdout().lock();
    let NetworkMeasurement { peer, seconds, block_bytes, round_trip, rates } = measured;
    if cli.json {
        return json::line(measured);
    }
    let mut table = Table::new(&[">connections", "direction", ">MB/s", ">processor s/GB"]);
    for rate in rates {
        table.row(vec![
            rate.connections.to_string(),
            rate.direction.name().to_owned(),
            format!("{:.1}", rate.mb_per_s),
            format!("{:.2}", rate.cpu_s_per_mb * 1e3),
        ]);
    }
    table.print(&mut out)?;
    let (median_ms, p99_ms) = (round_trip.median_s * 1e3, round_trip.p99_s * 1e3);
    writeln!(
        out,
        "{peer}: round trip {median_ms:.3} ms in the median, {p99_ms:.3} ms at p99 of {} messages; {seconds} s a rate, blocks of {}",
        round_trip.messages,
        units::bytes(u64::from(*block_bytes))
    )
}
