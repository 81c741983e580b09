//! Measures clients that are backed up at the same time to one drive, beside Bacula; both keep their catalogs in
//! PostgreSQL.
//!
//! ```text
//! a tree of small files for each client; a server and clients, Bacula and file daemons, each a process of its own
//! round 1: capstan, Bacula -> round 2: Bacula, capstan -> ... -> medians
//! ```
//! Capstan does what it does by itself: TLS, compression, checksums. Bacula does the least work ([`super::bacula`]).
//! Time is from the first beginning to the last end, processor time that of all daemons and of PostgreSQL; what a
//! catalog grows by is counted in its database and, of Capstan, in the files of its indexes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use capstan_lab::{DataSet, DataSetWatch, FileLengths, Shape};

use super::bacula::{Bacula, CatalogIn};
use super::cell::{Peer, took};
use super::machine;
use super::measure::{Stage, account_of_family};
use crate::amount::{grouped, shown_bytes, shown_time};
use crate::postgres::{Durability, Server};

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Scratch folder; data sets in it are used again [default: bench-work]
    #[arg(long, value_name = "DIR")]
    work: Option<PathBuf>,
    /// Clients
    #[arg(long, default_value_t = 20)]
    clients: usize,
    /// Files of 4-16 KB of each client
    #[arg(long, default_value_t = 5_000)]
    files: u64,
    /// Backups of each
    #[arg(long, default_value_t = 3)]
    rounds: usize,
}

/// What one backup of all clients cost.
#[derive(Debug, Clone, Copy)]
struct Cost {
    wall: Duration,
    processor: Duration,
    catalog_bytes: u64,
}

/// Bytes of a database.
fn database_bytes(stage: &Stage, name: &str) -> Result<u64> {
    let query = format!("psql -h 127.0.0.1 -p $PORT -U capstan -d {name} -qAtc \"select pg_database_size('{name}')\"");
    Ok(stage.run(&query)?.trim().parse()?)
}

/// Processor time of these processes, and of their children.
fn processor_of(processes: &[u32]) -> Result<Duration> {
    processes.iter().map(|process| account_of_family(*process)).sum()
}

/// Capstan: a server, and clients that have joined it.
struct Ours {
    stage: Stage,
    policies: Vec<String>,
    peers: Vec<Peer>,
}

impl Ours {
    fn start(mut stage: Stage, program: &Path, sources: &[PathBuf], server: &Server) -> Result<Self> {
        let folder = stage.work.join("cell/clients");
        stage.set("CAPSTAN", program);
        stage.set("FOLDER", &folder);
        stage.set("CAPSTAN_STATE", folder.join("state"));
        stage.set("CAPSTAN_KEY_FILE", folder.join("key"));
        stage.run(&format!(
            "rm -rf $FOLDER; mkdir -p $FOLDER
            psql -h 127.0.0.1 -p $PORT -U capstan -d postgres -qc 'create database capstan'
            $CAPSTAN init --volume-size 100G --drives 1 --database {} -q
            sed -i 's/^runs_per_drive = .*/runs_per_drive = 64/' $CAPSTAN_STATE/capstan.toml",
            server.url_of("capstan")
        ))?;
        let names: Vec<String> = (0..sources.len()).map(|number| format!("c{number}")).collect();
        let policy = |(name, source): (&String, &PathBuf)| {
            format!("[policies.{name}]\nclients = [\"{name}\"]\nsources = [{source:?}]\nlevel = \"full\"\n")
        };
        let policies: String = names.iter().zip(sources).map(policy).collect();
        fs::write(folder.join("cell.toml"), policies)?;
        stage.run("$CAPSTAN policies apply $FOLDER/cell.toml -q")?;
        let server = Peer::server(&stage, program, "clients", true)?;
        let mut peers = Vec::new();
        for name in &names {
            peers.push(Peer::client_named(&stage, program, "clients", name)?);
        }
        // It ends last: nobody complains then.
        peers.push(server);
        Ok(Self { stage, policies: names, peers })
    }

    fn catalog_bytes(&self) -> Result<u64> {
        let indexes: u64 = self.stage.run("du -sb $CAPSTAN_STATE/catalog | cut -f 1")?.trim().parse()?;
        Ok(indexes + database_bytes(&self.stage, "capstan")?)
    }

    fn back_up(&self, postgres: u32) -> Result<Cost> {
        let processes: Vec<u32> = self.peers.iter().map(Peer::id).chain([postgres]).collect();
        let policies: Vec<&str> = self.policies.iter().map(String::as_str).collect();
        let (before, catalog) = (processor_of(&processes)?, self.catalog_bytes()?);
        let wall = took(&self.stage, &policies)?;
        let processor = processor_of(&processes)?.saturating_sub(before);
        Ok(Cost { wall, processor, catalog_bytes: self.catalog_bytes()?.saturating_sub(catalog) })
    }
}

fn back_up_by_bacula(stage: &Stage, bacula: &Bacula, postgres: u32) -> Result<Cost> {
    let (before, catalog) = (processor_of(&[postgres])?, database_bytes(stage, "bacula")?);
    let (usage, _) = bacula.back_up(stage)?;
    let processor = usage.processor + processor_of(&[postgres])?.saturating_sub(before);
    let catalog_bytes = database_bytes(stage, "bacula")?.saturating_sub(catalog);
    Ok(Cost { wall: usage.wall, processor, catalog_bytes })
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    ensure!(arguments.rounds > 0 && arguments.clients > 0, "there is at least one round, and one client");
    let work = arguments.work.clone().unwrap_or_else(|| root.join("bench-work"));
    fs::create_dir_all(&work).with_context(|| format!("make {}", work.display()))?;
    let work = work.canonicalize()?;
    let program = std::env::current_exe()?.with_file_name("capstan");
    let (sources, files, bytes) = make_sources(&work, arguments)?;
    let server = Server::start(&work, Durability::Full)?.context("PostgreSQL is not installed (package postgresql)")?;
    let new_stage = || {
        let mut stage = Stage::new(&work);
        stage.set("PORT", server.port().to_string());
        stage
    };
    let stage = new_stage();
    let ours = Ours::start(new_stage(), &program, &sources, &server)?;
    let bacula = Bacula::start(&stage, &sources, CatalogIn::Postgres(server.port()))?;
    let (mut of_ours, mut of_bacula) = (Vec::new(), Vec::new());
    for round in 0..arguments.rounds {
        for turn in 0..2 {
            if (round + turn) % 2 == 0 {
                of_ours.push(ours.back_up(server.id())?);
            } else {
                of_bacula.push(back_up_by_bacula(&stage, &bacula, server.id())?);
            }
        }
        let shown = |cost: &Cost| {
            let (wall, processor) = (shown_time(cost.wall), shown_time(cost.processor));
            format!("{wall} ({processor} of processors, {} of catalog)", shown_bytes(cost.catalog_bytes))
        };
        let (ours, bacula) = (shown(&of_ours[round]), shown(&of_bacula[round]));
        println!("round {} of {}: capstan {ours}, Bacula {bacula}", round + 1, arguments.rounds);
    }
    println!("\n{} clients at a time, {}", arguments.clients, jiff::Zoned::now().strftime("%Y-%m-%d %H:%M %Z"));
    for line in machine::describe_machine(&stage) {
        println!("- {line}");
    }
    println!("- {} files, {}; medians of {} rounds\n", grouped(files), shown_bytes(bytes), arguments.rounds);
    println!("| what | capstan | Bacula | ratio |\n|---|--:|--:|--:|");
    let row = |what: &str, of: &dyn Fn(&Cost) -> f64, shown: &dyn Fn(f64) -> String| {
        let middle = |costs: &[Cost]| {
            let mut all: Vec<f64> = costs.iter().map(of).collect();
            super::cell::median(&mut all)
        };
        let (ours, bacula) = (middle(&of_ours), middle(&of_bacula));
        println!("| {what} | {} | {} | {:.2} |", shown(ours), shown(bacula), ours / bacula);
    };
    let seconds = |value: f64| shown_time(Duration::from_secs_f64(value));
    row("first beginning to last end", &|cost| cost.wall.as_secs_f64(), &seconds);
    row("processor time, with PostgreSQL's", &|cost| cost.processor.as_secs_f64(), &seconds);
    row("bytes that the catalog grew by", &|cost| cost.catalog_bytes as f64, &|value| shown_bytes(value as u64));
    let each = |value: f64| format!("{value:.0}");
    row("bytes of catalog a file", &|cost| cost.catalog_bytes as f64 / files as f64, &each);
    drop((ours, bacula, server));
    stage.run("rm -rf cell bacula")?;
    Ok(ExitCode::SUCCESS)
}

/// A tree of small files for each client, unless they lie there from the last time; all their files and bytes.
fn make_sources(work: &Path, arguments: &Arguments) -> Result<(Vec<PathBuf>, u64, u64)> {
    let (mut sources, mut files, mut bytes) = (Vec::new(), 0, 0);
    for number in 0..arguments.clients {
        let folder = work.join("clients").join(number.to_string());
        let set = DataSet::plan(&Shape::of_files(FileLengths::Small, arguments.files, number as u64 + 1))?;
        files += set.file_count();
        bytes += set.bytes();
        let (made, what) = (folder.with_extension("made"), format!("{} files\n", set.file_count()));
        if !fs::read_to_string(&made).is_ok_and(|text| text == what) {
            if folder.exists() {
                fs::remove_dir_all(&folder)?;
            }
            fs::create_dir_all(work.join("clients"))?;
            set.make(&folder, &DataSetWatch::default())?;
            fs::write(made, what)?;
        }
        sources.push(folder);
    }
    Ok((sources, files, bytes))
}
