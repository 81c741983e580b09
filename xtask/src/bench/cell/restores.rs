//! Measures restores of four clients that want the same volume: at the same time, beside one after the other. Their
//! backups shared the drive, so their blocks lie between each other. The drive is as fast as LTO-3.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Peer, took};
use crate::bench::measure::Stage;

const CLIENTS: usize = 4;

/// How long all restores take one after the other, as a multiple of how long they take at the same time; of each round.
pub(super) fn restores(stage: &Stage, program: &Path, rounds: usize) -> Result<Vec<f64>> {
    stage.run(&format!(
        "rm -rf $FOLDER; mkdir -p $FOLDER; cd $FOLDER
         $CAPSTAN init --volume-size 20G --drives 1 -q
         sed -i 's/^pace = .*/pace = \"LTO-3\"/' $CAPSTAN_STATE/capstan.toml
         find $TYPICAL -type f | awk '{{print > \"list-\" (NR % {CLIENTS})}}'
         for n in $(seq 0 {last}); do
             mkdir -p parts/$n; xargs -d '\\n' cp -l --backup=numbered -t parts/$n <list-$n
             printf '[policies.p%s]\\nclients = [\"c%s\"]\\ncompression = 0\\nsources = [\"%s\"]\\n' $n $n $FOLDER/parts/$n
         done >cell.toml
         $CAPSTAN policies apply cell.toml -q",
        last = CLIENTS - 1
    ))?;
    let server = Peer::server(stage, program, "restores", true)?;
    let names: Vec<_> = (0..CLIENTS).map(|number| format!("c{number}")).collect();
    let clients: Vec<_> =
        names.iter().map(|name| Peer::client_named(stage, program, "restores", name)).collect::<Result<_>>()?;
    let policies: Vec<_> = (0..CLIENTS).map(|number| format!("p{number}")).collect();
    took(stage, &policies.iter().map(String::as_str).collect::<Vec<_>>())?;
    // Those who restore are the machines themselves.
    drop(clients);
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let (apart, together) = if round % 2 == 0 {
            let apart = restored(stage, program, false)?;
            (apart, restored(stage, program, true)?)
        } else {
            let together = restored(stage, program, true)?;
            (restored(stage, program, false)?, together)
        };
        ratios.push(apart.as_secs_f64() / together.as_secs_f64());
        println!(
            "round {} of {rounds}: {CLIENTS} restores in {:.1} s, one after the other {:.1} s",
            round + 1,
            together.as_secs_f64(),
            apart.as_secs_f64()
        );
    }
    drop(server);
    stage.run("rm -rf $FOLDER")?;
    Ok(ratios)
}

/// Restores what each client had.
fn restored(stage: &Stage, program: &Path, at_once: bool) -> Result<Duration> {
    let folder = stage.work.join("cell").join("restores");
    let begin = |number: usize| {
        let machine = folder.join(format!("c{number}"));
        let mut command = Command::new(program);
        command.args(["client", "restore", "-q", "--state"]).arg(&machine).arg(folder.join(format!("parts/{number}")));
        command.arg("--to").arg(folder.join(format!("out/{number}"))).stdin(Stdio::null());
        command.spawn().context("restore to a client")
    };
    let began = Instant::now();
    let mut running = Vec::new();
    for number in 0..CLIENTS {
        running.push(begin(number)?);
        if !at_once {
            ended(running.remove(0))?;
        }
    }
    running.into_iter().try_for_each(ended)?;
    let took = began.elapsed();
    stage.run("for n in $FOLDER/parts/*; do diff -rq $n $FOLDER/out/${n##*/}$n; done; rm -rf $FOLDER/out")?;
    Ok(took)
}

fn ended(mut restore: std::process::Child) -> Result<()> {
    let status = restore.wait().context("wait for a restore")?;
    ensure!(status.success(), "a restore ended with {status}");
    Ok(())
}
