//! Measures a node of the key-management cluster as agents see it, and writes docs/PERFORMANCE.md.
//!
//! What starts the nodes and loads them are tests of the node's own crate (`crates/keyd/tests/faults/bench.rs` and
//! `crates/keyd/tests/it/kmip/bench.rs`), which say `measured NAME: VALUE`; here they are run some times, and medians
//! go on the page.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};

use super::measure::Stage;
use super::{machine, report};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Rounds, each with a cluster of its own
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Keys that the large replica holds
    #[arg(long, default_value_t = 1_000_000)]
    keys: usize,
}

/// The programs and tests that measure: a cluster as agents see it, and a node as KMIP clients do, beside PyKMIP's
/// server.
const MEASURED: [(&str, &str); 2] = [("faults", "bench::measure"), ("it", "kmip::bench::measure")];

/// One value, with the place at which it was said: the page keeps that order.
type Values = BTreeMap<String, (usize, Vec<String>)>;

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "--rounds 0 measures nothing");
    let machine = machine::describe_machine(&Stage::new(root));
    let mut values = Values::new();
    for round in 0..arguments.rounds {
        println!("round {} of {}", round + 1, arguments.rounds);
        let said = MEASURED.map(|(program, test)| measure(root, program, test, arguments.keys));
        take(&mut values, &said.into_iter().collect::<Result<String>>()?);
    }
    ensure!(!values.is_empty(), "nothing was measured");
    let mut text = String::new();
    let date = jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z").to_string();
    writeln!(text, "Measured on {date} by `./x bench keys`, medians of {} rounds:", arguments.rounds)?;
    for line in &machine {
        writeln!(text, "- {line}")?;
    }
    writeln!(text, "\n| What | Median |\n|---|---:|")?;
    let mut rows: Vec<_> = values.into_iter().collect();
    rows.sort_by_key(|(_, (place, _))| *place);
    for (name, (_, values)) in rows {
        writeln!(text, "| {name} | {} |", median(values))?;
    }
    println!("\n{text}");
    report::write(&root.join("docs/PERFORMANCE.md"), report::KEYS, &text)?;
    println!("docs/PERFORMANCE.md is written");
    Ok(ExitCode::SUCCESS)
}

fn measure(root: &Path, program: &str, test: &str, keys: usize) -> Result<String> {
    let cargo = || {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.current_dir(root);
        cargo
    };
    // What the tests found clusters with; `cargo test --test` builds no example.
    let mut build = cargo();
    build.args(["build", "--quiet", "--release", "--locked", "--package", "capstan-keyd", "--example", "cheap_keyd"]);
    let status = build.status().with_context(|| format!("run {build:?}"))?;
    ensure!(status.success(), "{build:?}: {status}");
    let mut command = cargo();
    command.env("CAPSTAN_KEYS", keys.to_string());
    command.args(["test", "--quiet", "--release", "--locked", "--package", "capstan-keyd", "--test", program, "--"]);
    command.args(["--ignored", "--exact", "--nocapture", test]);
    let output = command.stderr(Stdio::inherit()).output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", output.status);
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Takes the lines of one round.
fn take(values: &mut Values, said: &str) {
    let lines = said.lines().filter_map(|line| line.strip_prefix("measured ")?.split_once(": "));
    for (place, (name, value)) in lines.enumerate() {
        values.entry(name.to_owned()).or_insert((place, Vec::new())).1.push(value.to_owned());
    }
}

/// The middle one, by the number that each begins with.
fn median(mut values: Vec<String>) -> String {
    let number = |text: &String| text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(f64::NAN);
    values.sort_by(|one, other| number(one).total_cmp(&number(other)));
    values.get(values.len() / 2).cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_value_stands_in_the_order_it_was_said() {
        let mut values = Values::new();
        for (gets, start) in [("900", "10.0 s"), ("1100", "4.5 s"), ("1000", "9.0 s")] {
            take(&mut values, &format!("running 1 test\nmeasured gets a second: {gets}\nmeasured a start: {start}\n"));
        }
        let (place, gets) = values.remove("gets a second").unwrap_or_default();
        assert_eq!((place, median(gets)), (0, "1000".to_owned()));
        let (place, starts) = values.remove("a start").unwrap_or_default();
        assert_eq!((place, median(starts)), (1, "9.0 s".to_owned()));
    }
}
