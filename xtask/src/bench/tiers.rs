//! Measures tiers: small files and log files that are staged on disk and then copied to tape, copies, copies of
//! interleaved objects, full backups that are made of incrementals, and restores of long chains; and two full backups
//! with ten incrementals beside restic.
//!
//! ```text
//! round 1: each thing and what it is held against, one after the other -> round 2: backwards -> medians of ratios
//! ```
//! Each ratio is of one round. Libraries are virtual and lie in the scratch folder; that of tape has the pace of LTO-4.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::cell::{median, ratio_row};
use super::machine;
use super::measure::{Stage, Usage};
use crate::amount::{grouped, parse_bytes, shown_bytes};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder; data sets in it are used again, and one in memory is quieter [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Files of 4-16 KB
    #[arg(long, default_value_t = 50_000)]
    small_files: u64,
    /// Bytes in files of 64 KB-64 MB
    #[arg(long, default_value = "1G", value_parser = parse_bytes)]
    typical_bytes: u64,
    /// Runs of each thing
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only what has one of these words: staged, logs, copies, interleaved, consolidated, chain, restic
    #[arg(long, value_name = "WORD")]
    only: Vec<String>,
}

/// How much of the time a tape drive is written to while what was staged is copied.
const BUSY_MIN: f64 = 0.95;
/// The rate of a copy from disk to tape, of a bare copy of the same bytes; and processor seconds for each GB.
const COPY_MIN: f64 = 0.9;
const COPY_PROCESSOR_MAX: f64 = 0.3;
/// The rate at which eight interleaved objects are copied, of that of one.
const INTERLEAVED_MIN: f64 = 0.9;
/// The rate at which a full backup is made of incrementals, of that of a full backup of the source, which packs and
/// writes the same; of a restore of it, of one of a full backup.
const CONSOLIDATION_MIN: f64 = 0.8;
const RESTORE_MIN: f64 = 0.95;
/// The rate of a restore of fifty incrementals, of one of a full backup.
const CHAIN_MIN: f64 = 0.7;
/// Objects whose blocks lie between each other.
const INTERLEAVED: usize = 8;
const INCREMENTALS: usize = 10;
const INCREMENTALS_MANY: usize = 50;
const LOGS_OF_A_DAY: u32 = 1440;
const LOGS_OF_AN_HOUR: u32 = 60;

/// What is measured: what it is called, what came of it, the floor, and whether that was met.
type Row = (String, String, String, bool);

/// A source that changes: each time one file in 40 grows, one in 400 goes, and as many come.
const CHANGE: &str = "change() {
    find $FOLDER/tree -type f ! -name 'new*' | LC_ALL=C sort >$FOLDER/list
    awk -v n=$1 'NR % 40 == n % 40' $FOLDER/list | while IFS= read -r file; do printf x >>\"$file\"; done
    awk -v n=$1 'NR % 400 == n' $FOLDER/list | while IFS= read -r file; do mv \"$file\" \"$FOLDER/tree/new-$1-$RANDOM$RANDOM\"; done
}
";

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0, "there is at least one round");
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let program = std::env::current_exe()?.with_file_name("capstan");
    let folder = work.join("tiers");
    let mut stage = Stage::new(&work);
    stage.set("CAPSTAN", &program);
    stage.set("FOLDER", &folder);
    stage.set("CAPSTAN_STATE", folder.join("state"));
    stage.set("CAPSTAN_KEY_FILE", folder.join("key"));
    stage.set("RESTIC_PASSWORD", "bench");
    let sizes = super::make_data_sets(&mut stage, arguments.small_files, arguments.typical_bytes)?;
    type Part = fn(&Stage, usize) -> Result<Vec<Row>>;
    let parts: [(&str, Part); 7] = [
        ("staged", staged),
        ("logs", logs),
        ("copies", copies),
        ("interleaved", interleaved),
        ("consolidated", consolidated),
        ("chain", chain),
        ("restic", restic),
    ];
    let mut rows = Vec::new();
    for (name, part) in parts {
        if arguments.only.is_empty() || arguments.only.iter().any(|word| name.contains(word.as_str())) {
            stage.run("rm -rf $FOLDER; mkdir -p $FOLDER")?;
            rows.extend(part(&stage, arguments.rounds).with_context(|| format!("measure {name}"))?);
        }
    }
    stage.run("rm -rf $FOLDER")?;
    println!("\ntiers, {}", jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"));
    for line in machine::describe_machine(&stage) {
        println!("- {line}");
    }
    let (files, bytes) =
        (sizes.small_files + sizes.typical_files, sizes.small_bytes.saturating_add(sizes.typical_bytes));
    println!("- {} files, {}; medians of {} rounds\n", grouped(files), shown_bytes(bytes), arguments.rounds);
    println!("| what | measured | floor | |\n|---|--:|--:|---|");
    let mut missed = 0;
    for (what, measured, floor, is_met) in rows {
        missed += usize::from(!is_met);
        let verdict = match (is_met, floor.is_empty()) {
            (_, true) => "",
            (true, _) => "pass",
            (false, _) => "**missed**",
        };
        println!("| {what} | {measured} | {floor} | {verdict} |");
    }
    Ok(if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What is told, and held against nothing.
fn reported(what: &str, measured: String) -> Row {
    (what.to_owned(), measured, String::new(), true)
}

fn measured(stage: &Stage, script: &str) -> Result<Usage> {
    let ended = stage.measure(script)?;
    ensure!(ended.status.success(), "{script}: {}: {}", ended.status, stage.stderr_end());
    Ok(ended.usage)
}

fn seconds(stage: &Stage, script: &str) -> Result<f64> {
    Ok(measured(stage, script)?.wall.as_secs_f64())
}

/// Seconds of each of some scripts, in this order or backwards.
fn in_turn<const N: usize>(stage: &Stage, round: usize, scripts: [&str; N]) -> Result<[f64; N]> {
    let mut took = [0.0; N];
    for at in 0..N {
        let at = if round.is_multiple_of(2) { at } else { N - 1 - at };
        took[at] = seconds(stage, scripts[at])?;
    }
    Ok(took)
}

/// The id of the latest object.
fn latest(stage: &Stage) -> Result<String> {
    let line = stage.run("$CAPSTAN objects --last 1 --json")?;
    let row: Value = serde_json::from_str(line.lines().next().context("there is no object")?)?;
    Ok(row["object"].as_str().context("an object has an id")?.to_owned())
}

/// Makes the volumes of a pool blank, and labels as many anew.
fn erase(stage: &Stage, pool: &str) -> Result<()> {
    stage.run(&format!(
        "volumes=$($CAPSTAN volumes --pool {pool} --json | jq -r .volume)
         $CAPSTAN erase $volumes --drop-copies --force --yes -q; $CAPSTAN label $volumes --pool {pool} -q"
    ))?;
    Ok(())
}

/// Small files to a stage on disk and from there to a drive at the pace of LTO-4; and straight to that drive.
fn staged(stage: &Stage, rounds: usize) -> Result<Vec<Row>> {
    stage.run(
        "$CAPSTAN init --volume-size 20G --drives 2 -q
         sed -i 's/^pace = .*/pace = \"LTO-4\"/; s/^compression_level = .*/compression_level = 0/' $CAPSTAN_STATE/capstan.toml
         printf '[libraries.stage]\\npath = \"%s\"\\ndrives = 2\\nvolume_mib = 20480\\n' $FOLDER/disk >>$CAPSTAN_STATE/capstan.toml
         for pool in disk tape nothing; do $CAPSTAN pools add $pool -q; done
         mkdir $FOLDER/empty; $CAPSTAN backup $FOLDER/empty --unit stage --pool disk -q
         $CAPSTAN label TAPE01 --pool tape -q; $CAPSTAN label TAPE02 --pool nothing -q",
    )?;
    let (empty, rate) = (latest(stage)?, native_rate(stage)?);
    let (mut busy, mut times) = (Vec::new(), Vec::new());
    let (mut to_disk, mut to_tape, mut direct) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let straight = |stage: &Stage| seconds(stage, "$CAPSTAN backup $SMALL --full --compression 0 --unit main -q");
        let staging = |stage: &Stage| -> Result<(f64, f64, f64)> {
            let disk = seconds(stage, "$CAPSTAN backup $SMALL --full --compression 0 --unit stage --pool disk -q")?;
            let object = latest(stage)?;
            // What mounting and the program itself take is no matter of the data.
            let nothing = seconds(stage, &format!("$CAPSTAN copy {empty} --to-pool nothing --unit main -q"))?;
            let tape = seconds(stage, &format!("$CAPSTAN copy {object} --to-pool tape --unit main -q"))?;
            let bytes: f64 = stage
                .run(&format!("$CAPSTAN show {object} --json | jq '[.extents[]|select(.copy==2)|.stored_len]|add'"))?
                .trim()
                .parse()?;
            for pool in ["tape", "nothing"] {
                erase(stage, pool)?;
            }
            Ok((disk, tape, bytes / rate / (tape - nothing)))
        };
        let (straight, (disk, tape, share)) = if round % 2 == 0 {
            let first = straight(stage)?;
            (first, staging(stage)?)
        } else {
            let first = staging(stage)?;
            (straight(stage)?, first)
        };
        println!(
            "round {}: straight {straight:.2} s, to disk {disk:.2} s, to tape {tape:.2} s, busy {share:.3}",
            round + 1
        );
        busy.push(share);
        times.push(straight / disk);
        to_disk.push(disk);
        to_tape.push(tape);
        direct.push(straight);
    }
    let mut row = ratio_row(
        "small files, staged, then copied to a drive at the pace of LTO-4: the drive is busy",
        busy,
        BUSY_MIN,
    );
    row.0 += ", of the time of the copy's data";
    Ok(vec![
        row,
        reported("the same files straight to that drive", format!("{:.2} s", median(&mut direct))),
        reported(
            "staged: until the clients are done; until all is on tape",
            format!("{:.2} s; {:.2} s", median(&mut to_disk), median(&mut to_tape)),
        ),
        reported(
            "time of clients straight to the drive, of the time to the stage",
            format!("{:.2}", median(&mut times)),
        ),
    ])
}

/// Log files by the minute for a day, one after the other without the minutes between them: stored by name on a stage
/// and brought to a drive at the pace of LTO-4 by a run of a policy; and an hour of them straight to that drive.
fn logs(stage: &Stage, _: usize) -> Result<Vec<Row>> {
    stage.run(
        "$CAPSTAN init --volume-size 20G --drives 1 -q
         sed -i 's/^pace = .*/pace = \"LTO-4\"/' $CAPSTAN_STATE/capstan.toml
         printf '[libraries.stage]\\npath = \"%s\"\\ndrives = 2\\nvolume_mib = 256\\n' $FOLDER/disk >>$CAPSTAN_STATE/capstan.toml
         $CAPSTAN pools add stage -q
         printf '[policies.logs]\\nput_names = [\"*.log\"]\\nunit = \"stage\"\\npool = \"stage\"\\n' >$FOLDER/cell.toml
         printf '[policies.down]\\ncopies_of = [\"logs\"]\\npool = \"default\"\\nmigrate_after = \"0s\"\\n' >>$FOLDER/cell.toml
         $CAPSTAN policies apply $FOLDER/cell.toml -q
         head -c 20000 /dev/urandom | base64 >$FOLDER/one",
    )?;
    let put = |times: u32, name: &str| {
        seconds(stage, &format!("for n in $(seq {times}); do $CAPSTAN put {name} $FOLDER/one -q; done"))
    };
    let staged = put(LOGS_OF_A_DAY, "app.log")?;
    let brought = seconds(
        stage,
        "$CAPSTAN queue add down -q; $CAPSTAN server run >/dev/null & server=$!
         while [ -n \"$($CAPSTAN queue --json)\" ]; do sleep 0.1; done; kill $server; wait $server",
    )?;
    let mounts = |library: &str| -> Result<String> {
        let count = format!("$CAPSTAN volumes --json | jq -s '[.[]|select(.library == \"{library}\").mounts]|add'");
        Ok(stage.run(&count)?.trim().to_owned())
    };
    let of_tape = mounts("main")?;
    let left = stage.run("$CAPSTAN objects --json | jq -s '[.[].copies[]|select(.pool != \"default\")]|length'")?;
    ensure!(left.trim() == "0", "{left} copies are on the stage still");
    // No policy takes the name.
    let straight = put(LOGS_OF_AN_HOUR, "app.txt")?;
    let each = |took: f64, times: u32| format!("{:.0} ms", took / f64::from(times) * 1e3);
    Ok(vec![
        reported(&format!("{LOGS_OF_A_DAY} log files of 27 KB, put on a stage: each"), each(staged, LOGS_OF_A_DAY)),
        reported("all of them brought to a drive at the pace of LTO-4; mounts", format!("{brought:.1} s; {of_tape}")),
        reported(
            &format!("{LOGS_OF_AN_HOUR} of them straight to that drive: each, and a mount for each"),
            each(straight, LOGS_OF_AN_HOUR),
        ),
    ])
}

/// Bytes a second that the model of the paced drive writes of what does not compress.
fn native_rate(stage: &Stage) -> Result<f64> {
    let models = stage.run("$CAPSTAN models --json")?;
    let model = models.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let model = model.into_iter().find(|row| row["name"] == "LTO-4").context("there is no model of LTO-4")?;
    let rate = model["native_mb_per_s"].as_f64().context("the model has a rate")?;
    Ok(rate * 1e6)
}

/// An object copied to another library, beside its cartridge copied as a file.
fn copies(stage: &Stage, rounds: usize) -> Result<Vec<Row>> {
    stage.run(
        "$CAPSTAN init --volume-size 20G --drives 2 --encrypt none -q
         printf '[libraries.tape]\\npath = \"%s\"\\ndrives = 1\\nvolume_mib = 20480\\n' $FOLDER/tape >>$CAPSTAN_STATE/capstan.toml
         $CAPSTAN pools add tape --plain -q
         $CAPSTAN backup $TYPICAL --full -q",
    )?;
    let object = latest(stage)?;
    let (mut ratios, mut processor, mut bare_processor) = (Vec::new(), Vec::new(), Vec::new());
    let bytes: f64 = stage.run("stat -c %s $CAPSTAN_STATE/library/slots/*.tape | head -1")?.trim().parse()?;
    for round in 0..rounds {
        let ours = |stage: &Stage| measured(stage, &format!("$CAPSTAN copy {object} --to-pool tape --unit tape -q"));
        let bare = |stage: &Stage| {
            measured(
                stage,
                "dd if=$(ls $CAPSTAN_STATE/library/slots/*.tape | head -1) of=$FOLDER/bare bs=512k status=none",
            )
        };
        let (ours, bare) = if round % 2 == 0 {
            let first = ours(stage)?;
            (first, bare(stage)?)
        } else {
            let first = bare(stage)?;
            (ours(stage)?, first)
        };
        ratios.push(bare.wall.as_secs_f64() / ours.wall.as_secs_f64());
        processor.push(ours.processor.as_secs_f64() / (bytes / 1e9));
        bare_processor.push(bare.processor.as_secs_f64() / (bytes / 1e9));
        let (ours, bare) = (ours.wall.as_secs_f64(), bare.wall.as_secs_f64());
        println!("round {}: a copy {ours:.2} s, dd {bare:.2} s", round + 1);
        stage.run("rm $FOLDER/bare")?;
        erase(stage, "tape")?;
    }
    let processor = median(&mut processor);
    Ok(vec![
        ratio_row(
            "an object copied from disk to another library: rate, of its cartridge copied with dd",
            ratios,
            COPY_MIN,
        ),
        (
            format!(
                "processor seconds of that for each GB on the cartridge (of dd: {:.2})",
                median(&mut bare_processor)
            ),
            format!("{processor:.2}"),
            format!("at most {COPY_PROCESSOR_MAX}"),
            processor <= COPY_PROCESSOR_MAX,
        ),
    ])
}

/// Eight objects whose blocks lie between each other, copied, beside one with all their files.
fn interleaved(stage: &Stage, rounds: usize) -> Result<Vec<Row>> {
    stage.run(&format!(
        "$CAPSTAN init --volume-size 20G --drives 2 -q
         printf '[libraries.tape]\\npath = \"%s\"\\ndrives = 1\\nvolume_mib = 20480\\n' $FOLDER/tape >>$CAPSTAN_STATE/capstan.toml
         $CAPSTAN pools add tape -q; $CAPSTAN pools add one -q
         find $TYPICAL -type f | awk '{{print > \"'$FOLDER'/list-\" (NR % {INTERLEAVED})}}'
         for n in $(seq 0 {last}); do mkdir -p $FOLDER/parts/$n; xargs -d '\\n' cp -l --backup=numbered -t $FOLDER/parts/$n <$FOLDER/list-$n; done
         $CAPSTAN backup $FOLDER/parts/* --full -j {INTERLEAVED} -q
         $CAPSTAN objects --json | jq -r .object >$FOLDER/eight
         $CAPSTAN backup $FOLDER/parts --full -j 1 --pool one -q",
        last = INTERLEAVED - 1
    ))?;
    let one = latest(stage)?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let eight = "$CAPSTAN copy $(cat $FOLDER/eight) --to-pool tape --unit tape -q";
        let one = format!("$CAPSTAN copy {one} --to-pool tape --unit tape -q");
        let [eight, one] = in_turn(stage, round, [eight, &one])?;
        println!("round {}: eight {eight:.2} s, one {one:.2} s", round + 1);
        ratios.push(one / eight);
        erase(stage, "tape")?;
    }
    Ok(vec![ratio_row(
        "eight interleaved objects copied: rate, of one object with all their files",
        ratios,
        INTERLEAVED_MIN,
    )])
}

/// Backs up a tree, and then what changes in it so many times. The state has all of it in its default pool.
fn chain_of(stage: &Stage, incrementals: usize) -> Result<()> {
    stage.run(&format!(
        "{CHANGE}
         $CAPSTAN init --volume-size 20G --drives 2 -q
         mkdir $FOLDER/tree; cp -a $SMALL $TYPICAL $FOLDER/tree
         $CAPSTAN backup $FOLDER/tree --full -q
         for n in $(seq {incrementals}); do change $n; $CAPSTAN backup $FOLDER/tree --incremental -q; done"
    ))?;
    Ok(())
}

/// Compares a restored tree with the source, and removes it.
const COMPARED: &str = "diff -r $FOLDER/tree $FOLDER/out$FOLDER/tree; rm -rf $FOLDER/out";

/// A full backup made of ten incrementals, beside a copy of what comes of it and beside a full backup; and restores.
fn consolidated(stage: &Stage, rounds: usize) -> Result<Vec<Row>> {
    chain_of(stage, INCREMENTALS)?;
    let last = latest(stage)?;
    stage.run(
        "for pool in made copied again; do $CAPSTAN pools add $pool -q; done
         printf '[libraries.other]\\npath = \"%s\"\\ndrives = 1\\nvolume_mib = 20480\\n' $FOLDER/other >>$CAPSTAN_STATE/capstan.toml
         $CAPSTAN backup $FOLDER/tree --full -q",
    )?;
    let full = latest(stage)?;
    let (mut of_copy, mut of_backup, mut of_restore, mut of_chain) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let make = format!("$CAPSTAN consolidate {last} --pool made --unit other -q");
        let copy = format!("$CAPSTAN copy {full} --to-pool copied --unit other -q");
        let backup = "$CAPSTAN backup $FOLDER/tree --full --pool again --unit other -q";
        let [make, copy, backup] = in_turn(stage, round, [&make, &copy, backup])?;
        let made =
            stage.run(&format!("$CAPSTAN objects --json | jq -r 'select(.consolidates == \"{last}\").object'"))?;
        let made = made.lines().next().context("there is no full object")?.to_owned();
        // The first one gets new memory for its files, the others what that has given back.
        stage.run(&format!("$CAPSTAN restore {full} --to $FOLDER/out -q; rm -rf $FOLDER/out"))?;
        let mut restores = [0.0; 3];
        for at in 0..3 {
            let at = if round % 2 == 0 { at } else { 2 - at };
            let object = [&made, &full, &last][at];
            restores[at] = seconds(stage, &format!("$CAPSTAN restore {object} --to $FOLDER/out -q"))?;
            stage.run(COMPARED)?;
        }
        let [after, from_full, chain] = restores;
        println!(
            "round {}: made full {make:.2} s, copied {copy:.2} s, backed up {backup:.2} s; restored {after:.2} s, from a full \
             {from_full:.2} s, from the chain {chain:.2} s",
            round + 1
        );
        of_copy.push(copy / make);
        of_backup.push(backup / make);
        of_restore.push(from_full / after);
        of_chain.push(from_full / chain);
        for pool in ["made", "copied", "again"] {
            erase(stage, pool)?;
        }
    }
    let what = format!(
        "a full backup made of a full one and {INCREMENTALS} incrementals: rate, of a full backup of the source"
    );
    let mut copy = of_copy;
    Ok(vec![
        ratio_row(&what, of_backup, CONSOLIDATION_MIN),
        reported("the same: rate, of a copy of a full one, which packs nothing", format!("{:.3}", median(&mut copy))),
        ratio_row("a restore of that: rate, of one of a full backup", of_restore, RESTORE_MIN),
        reported(
            &format!("a restore of the {INCREMENTALS} incrementals: rate, of one of a full backup"),
            format!("{:.3}", median(&mut of_chain)),
        ),
    ])
}

/// A restore of fifty incrementals.
fn chain(stage: &Stage, rounds: usize) -> Result<Vec<Row>> {
    chain_of(stage, INCREMENTALS_MANY)?;
    let last = latest(stage)?;
    stage.run("$CAPSTAN backup $FOLDER/tree --full -q")?;
    let full = latest(stage)?;
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let restore = |object: &str| format!("$CAPSTAN restore {object} --to $FOLDER/out -q; rm -rf $FOLDER/out");
        // As above.
        stage.run(&restore(&full))?;
        let [chain, full] = in_turn(stage, round, [&restore(&last), &restore(&full)])?;
        println!("round {}: from the chain {chain:.2} s, from a full backup {full:.2} s", round + 1);
        ratios.push(full / chain);
    }
    stage.run(&format!("$CAPSTAN restore {last} --to $FOLDER/out -q; {COMPARED}"))?;
    let what = format!("a restore of {INCREMENTALS_MANY} incrementals: rate, of one of a full backup");
    Ok(vec![ratio_row(&what, ratios, CHAIN_MIN)])
}

/// Two full backups and ten incrementals beside restic: bytes that are stored, and time.
fn restic(stage: &Stage, _: usize) -> Result<Vec<Row>> {
    if stage.run("command -v restic").is_err() {
        return Ok(vec![reported(
            "two full backups and ten incrementals beside restic",
            "restic is not installed".to_owned(),
        )]);
    }
    let begin = format!("{CHANGE} mkdir $FOLDER/tree; cp -a $SMALL $TYPICAL $FOLDER/tree");
    let turns = |full: &str, incremental: &str| {
        format!("for n in $(seq {INCREMENTALS}); do change $n; {incremental}; done; {full}")
    };
    let ours = "$CAPSTAN backup $FOLDER/tree";
    stage.run(&format!("{begin}; $CAPSTAN init --volume-size 20G --drives 1 -q"))?;
    let own = seconds(
        stage,
        &format!(
            "{CHANGE} {ours} --full -q; {}",
            turns(&format!("{ours} --full -q"), &format!("{ours} --incremental -q"))
        ),
    )?;
    let own_bytes: u64 = stage.run("du -sB1 $CAPSTAN_STATE | cut -f1")?.trim().parse()?;
    stage.run(&format!("rm -rf $FOLDER; mkdir $FOLDER; {begin}; restic init -q -r $FOLDER/restic"))?;
    let theirs = "restic -r $FOLDER/restic -q backup $FOLDER/tree";
    let other = seconds(stage, &format!("{CHANGE} {theirs}; {}", turns(&format!("{theirs} --force"), theirs)))?;
    let other_bytes: u64 = stage.run("du -sB1 $FOLDER/restic | cut -f1")?.trim().parse()?;
    Ok(vec![
        reported("two full backups and ten incrementals; restic: time", format!("{own:.1} s; {other:.1} s")),
        reported("the same: bytes stored", format!("{}; {}", shown_bytes(own_bytes), shown_bytes(other_bytes))),
    ])
}
