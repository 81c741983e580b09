//! The main job, shown on real trees: init, full backup with a twin, incremental, browse, find, one file, everything,
//! compare, rebuild. Each step is the command a person would type, printed before it runs.

pub(crate) mod cell;

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use crate::amount::shown_time;

/// What is backed up unless paths are given.
const DEFAULT_SOURCES: [&str; 2] = ["/usr/share", "/usr/lib"];

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Trees to back up [default: /usr/share /usr/lib]
    paths: Vec<PathBuf>,
    /// Where the demonstration keeps its state and restores to [default: a new directory in /var/tmp]
    #[arg(long)]
    work: Option<PathBuf>,
    /// Leave the work directory
    #[arg(long)]
    keep: bool,
}

struct Demo {
    program: PathBuf,
    work: PathBuf,
    rows: Vec<(String, String, Duration)>,
}

pub(crate) fn run(root: &Path, arguments: &Arguments) -> Result<ExitCode> {
    let program = env::current_exe()?.with_file_name("capstan");
    ensure!(program.exists(), "{} is not built: start this as ./x demo", program.display());
    let work = match &arguments.work {
        Some(work) => work.clone(),
        None => PathBuf::from(format!("/var/tmp/capstan-demo-{}", std::process::id())),
    };
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    let mut demo = Demo { program, work: work.clone(), rows: Vec::new() };
    let sources = match arguments.paths.is_empty() {
        true => DEFAULT_SOURCES.iter().map(PathBuf::from).filter(|path| path.exists()).collect(),
        false => absolute(&arguments.paths)?,
    };
    let outcome = demo.show(&sources);
    if !arguments.keep {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    outcome?;
    demo.print_table();
    let _ = root;
    Ok(ExitCode::SUCCESS)
}

fn absolute(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    paths.iter().map(|path| fs::canonicalize(path).with_context(|| format!("{}", path.display()))).collect()
}

impl Demo {
    fn show(&mut self, sources: &[PathBuf]) -> Result<()> {
        ensure!(!sources.is_empty(), "none of the sources exists");
        let paths: Vec<_> = sources.iter().map(|path| path.display().to_string()).collect();
        let changing = self.work.join("changing");
        fs::create_dir_all(changing.join("letters"))?;
        fs::write(changing.join("letters/first.txt"), "The first version.\n")?;
        fs::write(changing.join("letters/gone.txt"), "This file will be deleted.\n")?;
        let changing = changing.display().to_string();
        let (restored, one) = (self.path("restored"), self.path("one-file"));

        self.step("init", &["init"])?;
        let mut full: Vec<&str> = vec!["backup"];
        full.extend(paths.iter().map(String::as_str));
        full.extend([changing.as_str(), "--connections", "4", "--copies", "2"]);
        let (took, said) = self.step_heard("full backup, 4 connections, 2 copies", &full)?;
        let bottleneck = said.rsplit_once("bottleneck: ").map_or("unknown", |(_, name)| name.trim());
        self.measure("full backup", bottleneck, took)?;

        fs::write(Path::new(&changing).join("letters/first.txt"), "The second version, longer.\n")?;
        fs::remove_file(Path::new(&changing).join("letters/gone.txt"))?;
        full.push("--incremental");
        let took = self.step("incremental backup", &full)?;
        self.rows.push(("incremental backup".to_owned(), "what changed".to_owned(), took));

        self.step("objects", &["objects"])?;
        let place = format!("{changing}:{changing}/letters");
        self.step("browse", &["ls", &place])?;
        let took = self.step("find", &["find", "first.txt"])?;
        self.rows.push(("find over all objects".to_owned(), String::new(), took));
        let letter = format!("{changing}/letters/first.txt");
        self.step("versions", &["versions", &letter])?;

        let file = format!("{changing}:{letter}");
        let took = self.step("one file", &["restore", &file, "--to", &one])?;
        self.rows.push(("restore of one file".to_owned(), "1 file".to_owned(), took));

        let mut all: Vec<&str> = vec!["restore"];
        all.extend(paths.iter().map(String::as_str));
        all.extend([changing.as_str(), "--to", &restored]);
        let took = self.step("everything", &all)?;
        self.rows.push(("restore of everything".to_owned(), "all objects, one pass".to_owned(), took));

        let began = Instant::now();
        for source in paths.iter().chain([&changing]) {
            self.compare(source, &format!("{restored}{source}"))?;
        }
        self.rows.push(("comparison (rsync --checksum)".to_owned(), "no difference".to_owned(), began.elapsed()));

        let before = self.output(&["--json", "find", "*"])?;
        let took = self.step("rebuild the catalog from the volumes alone", &["rebuild", "--discard-old"])?;
        ensure!(before == self.output(&["--json", "find", "*"])?, "the rebuilt catalog differs from the one lost");
        self.rows.push(("rebuild of the catalog".to_owned(), "equal to the one lost".to_owned(), took));
        self.step("status", &["status"])?;
        Ok(())
    }

    fn path(&self, name: &str) -> String {
        self.work.join(name).display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        // The demonstration's key file lies beside its state; a person keeps it elsewhere.
        command.args(arguments).env("CAPSTAN_STATE", self.work.join("state"));
        command.env("CAPSTAN_KEY_FILE", self.work.join("key")).stdin(Stdio::null());
        command
    }

    /// Runs a command as a person would see it, and says how long it took.
    fn step(&self, title: &str, arguments: &[&str]) -> Result<Duration> {
        Ok(self.step_heard(title, arguments)?.0)
    }

    /// The same, and gives what was printed, too. Progress is drawn on standard error, which stays the terminal.
    fn step_heard(&self, title: &str, arguments: &[&str]) -> Result<(Duration, String)> {
        println!("\n\u{1b}[1m# {title}\u{1b}[0m\n$ capstan {}", arguments.join(" "));
        let began = Instant::now();
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().context("cannot start capstan")?;
        let mut said = String::new();
        for line in BufReader::new(child.stdout.take().context("the output is a pipe")?).lines() {
            let line = line?;
            println!("{line}");
            said.push_str(&line);
            said.push('\n');
        }
        let status = child.wait()?;
        // 3 is "done, with something to look at": a live system has files that change while they are read.
        if !matches!(status.code(), Some(0 | 3)) {
            bail!("capstan {} ended with {status}", arguments.join(" "));
        }
        Ok((began.elapsed(), said))
    }

    fn output(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let output = self.command(arguments).output().context("cannot start capstan")?;
        ensure!(
            output.status.success(),
            "capstan {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(output.stdout)
    }

    /// The rows of a list.
    fn rows(&self, list: &str) -> Result<Vec<Value>> {
        let rows = self.output(&["--json", list])?;
        Ok(serde_json::Deserializer::from_slice(&rows).into_iter().collect::<Result<_, _>>()?)
    }

    /// Files, bytes and rate of the first backup, from what the program lists.
    fn measure(&mut self, name: &str, bottleneck: &str, took: Duration) -> Result<()> {
        let objects = self.rows("objects")?;
        let sum = |field: &str| -> u64 { objects.iter().filter_map(|object| object[field].as_u64()).sum() };
        let written: u64 = self.rows("volumes")?.iter().filter_map(|v| v["written_bytes"].as_u64()).sum();
        let (files, bytes) = (sum("files"), sum("bytes"));
        let rate = bytes as f64 / took.as_secs_f64() / 1e6;
        let ratio = bytes as f64 * 2.0 / written.max(1) as f64;
        let what = format!(
            "{files} files, {:.2} GB, {rate:.0} MB/s, ratio {ratio:.2} on each of 2 copies, bottleneck: {bottleneck}",
            bytes as f64 / 1e9
        );
        self.rows.push((name.to_owned(), what, took));
        Ok(())
    }

    fn compare(&self, source: &str, copy: &str) -> Result<()> {
        println!("\n$ rsync -aHAXn --checksum --delete --itemize-changes {source}/ {copy}/");
        let rsync = Command::new("rsync")
            .args(["-aHAXn", "--checksum", "--delete", "--itemize-changes"])
            .args([format!("{source}/"), format!("{copy}/")])
            .output()
            .context("cannot start rsync")?;
        ensure!(rsync.status.success(), "rsync: {}", String::from_utf8_lossy(&rsync.stderr));
        ensure!(rsync.stdout.is_empty(), "the restored tree differs:\n{}", String::from_utf8_lossy(&rsync.stdout));
        println!("no difference");
        Ok(())
    }

    fn print_table(&self) {
        let width = self.rows.iter().map(|(name, ..)| name.len()).max().unwrap_or(0);
        println!("\n\u{1b}[1m# In short\u{1b}[0m");
        for (name, what, took) in &self.rows {
            println!("{name:width$}  {:>10}  {what}", shown_time(*took));
        }
    }
}
