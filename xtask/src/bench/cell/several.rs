//! Measures one backup that is written to two drives, and restored from them, beside one that has one drive. The drives
//! are as fast as LTO-3, and nothing is compressed: the machine must not be what bounds them, for a drive that is not
//! fed stops, and goes back.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::rows;
use crate::bench::measure::Stage;

/// Ratios of each round.
pub(super) struct Several {
    /// The rate of a backup to two drives, of one to one.
    pub(super) backup: Vec<f64>,
    /// The rate of a restore from two drives, of one from one.
    pub(super) restore: Vec<f64>,
}

/// Measures, over a state directory of its own with two drives.
pub(super) fn several(stage: &Stage, rounds: usize) -> Result<Several> {
    stage.run(
        "rm -rf $FOLDER; mkdir -p $FOLDER
         $CAPSTAN init --volume-size 20G --drives 2 -q
         sed -i 's/^pace = .*/pace = \"LTO-3\"/' $CAPSTAN_STATE/capstan.toml",
    )?;
    let mut several = Several { backup: Vec::new(), restore: Vec::new() };
    for round in 0..rounds {
        let order = if round % 2 == 0 { [1, 2] } else { [2, 1] };
        let mut took = [(0.0, 0.0); 2];
        for drives in order {
            took[drives - 1] = of_drives(stage, drives)?;
        }
        let [one, two] = took;
        several.backup.push(one.0 / two.0);
        several.restore.push(one.1 / two.1);
        let (number, backup, restore) = (round + 1, several.backup[round], several.restore[round]);
        println!("round {number} of {rounds}: to two drives {backup:.3}, from two drives {restore:.3}");
    }
    stage.run("rm -rf $FOLDER")?;
    Ok(several)
}

/// How many seconds a backup to so many drives takes, and a restore of it.
fn of_drives(stage: &Stage, drives: usize) -> Result<(f64, f64)> {
    let seconds = |script: &str| -> Result<f64> {
        let ended = stage.measure(script)?;
        ensure!(ended.status.success(), "{script}: {}: {}", ended.status, stage.stderr_end());
        Ok(ended.usage.wall.as_secs_f64())
    };
    let backup = seconds(&format!("$CAPSTAN backup $TYPICAL --full --compression 0 --drives {drives} -j 4 -q"))?;
    let objects = rows(stage, "objects")?;
    let of = |row: &Value| Some((row["started_ns"].as_u64()?, row["object"].as_str()?.to_owned()));
    let (_, latest) = objects.iter().filter_map(of).max().context("there is no object")?;
    let restore = seconds(&format!("$CAPSTAN restore {latest} --to $FOLDER/out -q"))?;
    stage.run("rm -rf $FOLDER/out")?;
    Ok((backup, restore))
}
