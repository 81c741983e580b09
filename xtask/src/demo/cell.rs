//! A cell, shown in a minute: two machines and a mover join a server, the machines are backed up when a policy is due,
//! and one of them is killed in the middle of it. A person has what it had restored to the other one. Then a slow
//! machine and a fast one share the drive of the mover. Each step is the command that somebody would type, and where.
//!
//! ```text
//! server: init, server run       tern, plover: client join, client run       heron: mover join, mover run
//!    policy home, due every five seconds ----> both are backed up
//!    policy archive: plover is killed -------> the queue says what the run waits for; plover goes on from its checkpoint
//!    restore of what plover had, compared with it
//!    ada, a user of the cell: what plover had comes to tern
//!    policies slow (plover) and fast (tern), to the one drive of heron: tern is done while plover goes on
//! ```

mod network;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use self::network::Network;
use crate::amount::shown_time;

/// How long anything may take that has to come.
const PATIENCE: Duration = Duration::from_secs(90);
const LOOKS: Duration = Duration::from_millis(100);
/// The archive that one client has: so many bytes, which are read slowly, since they are compressed well.
const ARCHIVE_FILES: usize = 28;
const ARCHIVE_FILE_BYTES: usize = 1 << 20;
/// So much of it is on a volume, under several checkpoints, when its client is killed.
const KILLED_AT_BYTES: u64 = 4 << 20;
const CLIENTS: [&str; 2] = ["tern", "plover"];
/// The machine with a drive of its own.
const MOVER: &str = "heron";
/// All that have an address.
const MACHINES: [&str; 5] = ["server", "tern", "plover", MOVER, "ada"];
/// Where a user restores something to.
const RESTORED_AT: &str = "tern";

#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    /// Where the demonstration keeps its state [default: a new directory in TMPDIR, or else in /var/tmp]
    #[arg(long)]
    work: Option<PathBuf>,
    /// Leave the work directory
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<ExitCode> {
    let program = env::current_exe()?.with_file_name("capstan");
    ensure!(program.exists(), "{} is not built: start this as ./x demo cell", program.display());
    let work = match &arguments.work {
        Some(work) => work.clone(),
        None => {
            let folder = env::var_os("TMPDIR").map_or_else(|| PathBuf::from("/var/tmp"), PathBuf::from);
            folder.join(format!("capstan-demo-cell-{}", std::process::id()))
        }
    };
    let network = Network::of_this_process(&MACHINES)?;
    fs::create_dir_all(&work).with_context(|| format!("cannot make {}", work.display()))?;
    println!("{}", network.in_words(&MACHINES));
    let began = Instant::now();
    let mut cell = Cell { program, work: work.canonicalize()?, network, services: BTreeMap::new() };
    let outcome = cell.show();
    drop(cell);
    if !arguments.keep {
        fs::remove_dir_all(&work).with_context(|| format!("cannot remove {}", work.display()))?;
    }
    outcome?;
    println!("\nAll of it as it should be, in {}.", shown_time(began.elapsed()));
    Ok(ExitCode::SUCCESS)
}

/// The machines of the cell, all of them on this one.
struct Cell {
    program: PathBuf,
    work: PathBuf,
    network: Network,
    /// What runs at the moment, by its machine.
    services: BTreeMap<String, Child>,
}

impl Drop for Cell {
    fn drop(&mut self) {
        for service in self.services.values_mut() {
            // What they serve is scratch.
            let _ = service.kill();
            let _ = service.wait();
        }
    }
}

impl Cell {
    fn show(&mut self) -> Result<()> {
        self.found()?;
        self.back_up_when_due()?;
        let object = self.kill_and_go_on()?;
        self.restore(&object)?;
        self.restore_elsewhere()?;
        self.slow_beside_fast()?;
        title("Everything stops when it is told to");
        for machine in ["plover", "tern", MOVER, "server"] {
            self.stop(machine)?;
        }
        Ok(())
    }

    /// A server, and two machines that join it.
    fn found(&mut self) -> Result<()> {
        title("A server, with a library of virtual tapes");
        println!("server$ capstan init --drives 2");
        // What it says of keys is for those who keep theirs.
        let init = ["--quiet", "init", "--volume-size", "256M", "--drives", "2"];
        let made = self.command("server", &init).output().context("cannot start capstan")?;
        ensure!(made.status.success(), "capstan init: {}", String::from_utf8_lossy(&made.stderr));
        self.configure("server/capstan.toml", "checkpoint_mib", "1")?;
        let west = format!("\n[libraries.west]\nmover = {MOVER:?}\n");
        let settings = self.work.join("server/capstan.toml");
        fs::write(&settings, fs::read_to_string(&settings)? + &west)?;
        println!("server$ tail -n 2 capstan.toml\n  {}", west.trim().replace('\n', "\n  "));
        let listen = self.network.listens(&MACHINES, "server", 5701)?;
        self.start("server", &["server", "run", "--listen", &listen], "are listened for at")?;
        for client in CLIENTS {
            title(&format!("Machine {client} joins, by a passphrase that can be used once"));
            self.join(client, &["client", "enrol", client])?;
            if client == RESTORED_AT {
                self.allow_restores(client)?;
            }
            self.start(client, &["client", "run"], "connected to the server")?;
        }
        self.step("server", &["client", "list"])?;
        title("Machine heron, which has a drive, joins as a mover");
        self.join(MOVER, &["mover", "enrol", MOVER])?;
        let listen = self.network.listens(&MACHINES, MOVER, 5703)?;
        self.configure("heron/mover.toml", "listen", &format!("{listen:?}"))?;
        self.configure("heron/mover.toml", "drives", "1")?;
        self.start(MOVER, &["mover", "run"], "connected to the server")?;
        self.step("server", &["mover", "list"])?;
        Ok(())
    }

    /// Opens an enrolment by these words, and has whoever it is for join.
    fn join(&self, machine: &str, enrol: &[&str]) -> Result<()> {
        let said = self.step("server", enrol)?;
        let passphrase = said.lines().map(str::trim).nth(1).context("no passphrase was printed")?.to_owned();
        let command = said.lines().last().unwrap_or_default().trim().to_owned();
        let arguments: Vec<&str> = command.strip_prefix("capstan ").context("no command")?.split(' ').collect();
        self.step_with(machine, &arguments, &[("CAPSTAN_ENROLMENT_PASSPHRASE", &passphrase)]).map(drop)
    }

    /// The owner of a machine lets users restore something to it, below one folder.
    fn allow_restores(&self, client: &str) -> Result<()> {
        let path = self.work.join(client).join("client.toml");
        let allowed = format!("restore_to = [{:?}]", self.folder_at(client).display().to_string());
        let text = fs::read_to_string(&path)?.replace("restore_to = []", &allowed);
        ensure!(text.contains(&allowed), "client.toml has no setting restore_to");
        fs::write(&path, text)?;
        println!("{client}$ grep ^restore_to client.toml\n  {allowed}");
        Ok(())
    }

    fn folder_at(&self, client: &str) -> PathBuf {
        self.work.join(format!("restored-at-{client}"))
    }

    /// A policy that is due while one watches.
    fn back_up_when_due(&mut self) -> Result<()> {
        title("A policy of both machines, due every five seconds");
        let home = self.work.join("home");
        fs::create_dir_all(home.join("letters"))?;
        fs::write(home.join("letters/first.txt"), "Dear Ada,\n")?;
        self.apply(&format!("{}schedule = \"*:*:0/5\"\n", self.home_policy()))?;
        let both = || {
            let rows = self.rows(&["queue", "done"])?;
            let done = rows.iter().filter(|row| row["state"] == "done" && row["policy"] == "home");
            let clients: Vec<_> = done.filter_map(|row| row["client"].as_str()).collect();
            Ok(CLIENTS.iter().all(|client| clients.contains(client)))
        };
        self.until("both machines are backed up", &both)?;
        // From here on it runs when it is asked to, so that nothing comes between.
        self.apply(&self.home_policy())?;
        self.until("the queue is empty", &|| Ok(self.rows(&["queue"])?.is_empty()))?;
        self.step("server", &["queue", "done"])?;
        Ok(())
    }

    /// A client that is killed during its backup; gives the object.
    fn kill_and_go_on(&mut self) -> Result<String> {
        title("A larger backup of plover, which is killed in the middle of it");
        let archive = self.work.join("archive");
        fs::create_dir_all(&archive)?;
        let mut noise = 0x2545_f491_4f6c_dd1d_u64;
        for number in 0..ARCHIVE_FILES {
            fs::write(archive.join(format!("volume-{number:02}.txt")), text(&mut noise, ARCHIVE_FILE_BYTES))?;
        }
        let policy = "[policies.archive]\nclients = [\"plover\"]\ncompression = 19\nretry_after = \"1s\"\n";
        self.apply(&format!("{}{policy}sources = [{:?}]\n", self.home_policy(), archive.display()))?;
        let before = self.written_bytes()?;
        self.step("server", &["queue", "add", "archive"])?;
        self.until("a part of the archive is on a volume", &|| Ok(self.written_bytes()? > before + KILLED_AT_BYTES))?;
        self.kill("plover")?;
        self.until("the queue says what the run waits for", &|| {
            Ok(self.rows(&["queue"])?.iter().any(|row| row["waits_for"] == "client"))
        })?;
        self.step("server", &["queue"])?;
        let interrupted = self.object("interrupted")?;
        let size = (ARCHIVE_FILES * ARCHIVE_FILE_BYTES) as u64;
        println!("object {} is begun; its first {} MB are safe", interrupted.0, (self.written_bytes()? - before) >> 20);

        title("plover is back, and goes on from its last checkpoint");
        self.start("plover", &["client", "run"], "connected to the server")?;
        self.until("the queue is empty", &|| Ok(self.rows(&["queue"])?.is_empty()))?;
        self.step("server", &["queue", "done", "--last", "1"])?;
        self.step("server", &["objects", "--policy", "archive"])?;
        let complete = self.object("complete")?;
        ensure!(complete == interrupted, "object {} was begun anew: it is {} now", interrupted.0, complete.0);
        let all = self.written_bytes()? - before;
        println!("all {} MB of it, {} MB on the volume, and nothing of it twice", size >> 20, all >> 20);
        Ok(complete.0)
    }

    /// What one machine had comes back, as it was.
    fn restore(&self, object: &str) -> Result<()> {
        title("plover gets a file of it back, and the server restores all of it");
        let file = self.work.join("archive/volume-07.txt").display().to_string();
        let to = self.work.join("restored").display().to_string();
        self.step("plover", &["client", "restore", &file, "--to", &to])?;
        let came = fs::read(format!("{to}{file}")).with_context(|| format!("{file} did not come back"))?;
        ensure!(came == fs::read(&file)?, "{file} came back as something else");
        println!("$ cmp {file} {to}{file}");
        self.step("server", &["--quiet", "restore", object, "--to", &format!("{to}-whole")])?;
        for number in 0..ARCHIVE_FILES {
            let file = self.work.join(format!("archive/volume-{number:02}.txt"));
            let came = fs::read(format!("{to}-whole{}", file.display()))?;
            ensure!(came == fs::read(&file)?, "{} came back as something else", file.display());
        }
        println!("all {ARCHIVE_FILES} files of it are what they were");
        Ok(())
    }

    /// A user of the cell has something that one machine had restored to another one.
    fn restore_elsewhere(&self) -> Result<()> {
        title("ada, who may restore for both machines, has a file of plover restored to tern");
        self.join(
            "ada",
            &["user", "enrol", "ada", "--role", "restorer", "--client", "plover", "--client", RESTORED_AT],
        )?;
        let file = self.work.join("archive/volume-21.txt").display().to_string();
        let to = self.folder_at(RESTORED_AT).display().to_string();
        self.step("ada", &["restore", &file, "--of", "plover", "--to-client", RESTORED_AT, "--to", &to])?;
        let came = fs::read(format!("{to}{file}")).with_context(|| format!("{file} did not come"))?;
        ensure!(came == fs::read(&file)?, "{file} came as something else");
        println!("{RESTORED_AT}$ cmp {file} {to}{file}");
        self.step("server", &["audit", "--last", "4"]).map(drop)
    }

    /// A slow machine that has begun first holds up nobody at the one drive there is.
    fn slow_beside_fast(&self) -> Result<()> {
        title("plover, at 2 MB/s, and tern, as fast as it can, write to the one drive of heron");
        let archive = self.work.join("archive").display().to_string();
        let policy = |name: &str, client: &str, bandwidth: &str| {
            format!("[policies.{name}]\nclients = [{client:?}]\nunit = \"west\"\n{bandwidth}sources = [{archive:?}]\n")
        };
        let slow = policy("slow", "plover", "bandwidth = [\"2M\"]\n");
        self.apply(&format!("{}{slow}{}", self.home_policy(), policy("fast", "tern", "")))?;
        self.step("server", &["queue", "add", "slow"])?;
        let is_at_work = |policy: &str| {
            Ok(self.rows(&["queue"])?.iter().any(|row| row["policy"] == policy && row["state"] == "running"))
        };
        self.until("plover is backed up", &|| is_at_work("slow"))?;
        let began = Instant::now();
        self.step("server", &["queue", "add", "fast"])?;
        self.until("tern is done", &|| {
            Ok(self.rows(&["queue", "done", "--last", "1"])?.iter().any(|row| row["policy"] == "fast"))
        })?;
        ensure!(is_at_work("slow")?, "plover was done before tern");
        println!("tern is done {} after it was asked for:", shown_time(began.elapsed()));
        self.step("server", &["queue"])?;
        self.until("the queue is empty", &|| Ok(self.rows(&["queue"])?.is_empty()))?;
        self.step("server", &["queue", "done", "--last", "2"])?;
        let rows = self.rows(&["queue", "done", "--last", "2"])?;
        ensure!(rows.iter().all(|row| row["state"] == "done"), "one of them failed: {rows:?}");
        self.step("server", &["volumes"])?;
        let file = self.work.join("archive/volume-03.txt").display().to_string();
        let to = self.work.join("from-heron").display().to_string();
        self.step("tern", &["client", "restore", &file, "--to", &to])?;
        let came = fs::read(format!("{to}{file}")).with_context(|| format!("{file} did not come back"))?;
        ensure!(came == fs::read(&file)?, "{file} came back as something else");
        println!("tern$ cmp {file} {to}{file}");
        Ok(())
    }

    fn written_bytes(&self) -> Result<u64> {
        Ok(self.rows(&["volumes"])?.iter().filter_map(|volume| volume["written_bytes"].as_u64()).sum())
    }

    fn home_policy(&self) -> String {
        let clients = CLIENTS.map(|client| format!("{client:?}")).join(", ");
        let home = self.work.join("home").display().to_string();
        format!("[policies.home]\nclients = [{clients}]\nsources = [{home:?}]\nfull_every = \"4w\"\n")
    }

    /// Shows a file of policies, and applies it.
    fn apply(&self, text: &str) -> Result<()> {
        let path = self.work.join("cell.toml");
        fs::write(&path, text)?;
        println!("$ cat cell.toml");
        for line in text.lines() {
            println!("  {line}");
        }
        self.step("server", &["policies", "apply", &path.display().to_string()]).map(drop)
    }

    /// The object of the archive, which has this status.
    fn object(&self, status: &str) -> Result<Object> {
        let objects = self.rows(&["objects", "--policy", "archive"])?;
        let found = objects.iter().find(|object| object["status"] == status);
        let id = found.and_then(|object| object["object"].as_str());
        Ok(Object(id.with_context(|| format!("no object of the archive is {status}: {objects:?}"))?.to_owned()))
    }

    fn configure(&self, file: &str, setting: &str, value: &str) -> Result<()> {
        let path = self.work.join(file);
        let before = fs::read_to_string(&path)?;
        let is_it = |line: &str| line.starts_with(&format!("{setting} = "));
        ensure!(before.lines().any(is_it), "{file} has no setting {setting}");
        let set = format!("{setting} = {value}");
        let lines: Vec<&str> = before.lines().map(|line| if is_it(line) { set.as_str() } else { line }).collect();
        Ok(fs::write(path, lines.join("\n") + "\n")?)
    }

    fn command(&self, machine: &str, arguments: &[&str]) -> Command {
        let mut command = self.network.command(machine, &self.program);
        command.args(arguments).env("CAPSTAN_STATE", self.work.join(machine)).stdin(Stdio::null());
        // The demonstration's key file lies beside its state; a person keeps it elsewhere.
        command.env("CAPSTAN_KEY_FILE", self.work.join("key")).env_remove("CAPSTAN_DATABASE");
        command
    }

    fn step(&self, machine: &str, arguments: &[&str]) -> Result<String> {
        self.step_with(machine, arguments, &[])
    }

    /// Runs a command as a person would see it, and gives what it printed.
    fn step_with(&self, machine: &str, arguments: &[&str], with: &[(&str, &str)]) -> Result<String> {
        println!("{machine}$ capstan {}", arguments.join(" "));
        let output = self.command(machine, arguments).envs(with.iter().copied()).output()?;
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        for line in said.lines().chain(String::from_utf8_lossy(&output.stderr).lines()) {
            println!("  {line}");
        }
        ensure!(output.status.success(), "capstan {} ended with {}", arguments.join(" "), output.status);
        Ok(said)
    }

    fn rows(&self, arguments: &[&str]) -> Result<Vec<Value>> {
        let all: Vec<&str> = ["--json"].into_iter().chain(arguments.iter().copied()).collect();
        let output = self.command("server", &all).output().context("cannot start capstan")?;
        ensure!(output.status.success(), "capstan {}: {}", all.join(" "), String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::Deserializer::from_slice(&output.stdout).into_iter().collect::<Result<_, _>>()?)
    }

    /// Starts what runs until it is stopped; what it says is shown beside the name of its machine.
    fn start(&mut self, machine: &str, arguments: &[&str], ready: &str) -> Result<()> {
        println!("{machine}$ capstan {} &", arguments.join(" "));
        let mut child = self.command(machine, arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let (says, said) = std::sync::mpsc::channel();
        let outputs: [Box<dyn Read + Send>; 2] = [
            Box::new(child.stdout.take().context("the output is a pipe")?),
            Box::new(child.stderr.take().context("the output is a pipe")?),
        ];
        for output in outputs {
            let (machine, says) = (machine.to_owned(), says.clone());
            thread::spawn(move || {
                for line in BufReader::new(output).lines().map_while(Result::ok) {
                    println!("  [{machine}] {line}");
                    // Nobody listens once it is ready.
                    let _ = says.send(line);
                }
            });
        }
        drop(says);
        self.services.insert(machine.to_owned(), child);
        let until = Instant::now() + PATIENCE;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = said.recv_timeout(left).with_context(|| format!("{machine} does not say: {ready}"))?;
            if line.contains(ready) {
                return Ok(());
            }
        }
    }

    /// Ends what runs at a machine.
    fn signal(&mut self, machine: &str, signal: Signal) -> Result<Option<i32>> {
        let mut child = self.services.remove(machine).with_context(|| format!("nothing runs at {machine}"))?;
        let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process has a number")?;
        kill_process(pid, signal)?;
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = child.try_wait()? {
                return Ok(status.code());
            }
            if Instant::now() > until {
                // Nothing is left behind.
                child.kill()?;
                child.wait()?;
                bail!("{machine} does not end");
            }
            thread::sleep(LOOKS);
        }
    }

    fn kill(&mut self, machine: &str) -> Result<()> {
        println!("{machine}$ kill -9 %1");
        self.signal(machine, Signal::KILL).map(drop)
    }

    fn stop(&mut self, machine: &str) -> Result<()> {
        println!("{machine}$ kill %1");
        let code = self.signal(machine, Signal::TERM)?;
        ensure!(code == Some(0), "{machine} ended with {code:?}");
        Ok(())
    }

    fn until(&self, what: &str, holds: &dyn Fn() -> Result<bool>) -> Result<()> {
        let until = Instant::now() + PATIENCE;
        while !holds()? {
            ensure!(Instant::now() < until, "it has not come within {}: {what}", shown_time(PATIENCE));
            thread::sleep(LOOKS);
        }
        Ok(())
    }
}

#[derive(Debug, PartialEq, Eq)]
struct Object(String);

fn title(text: &str) {
    println!("\n\u{1b}[1m# {text}\u{1b}[0m");
}

/// Text that is compressed to half of its length, and slowly.
fn text(noise: &mut u64, len_bytes: usize) -> Vec<u8> {
    let mut next = || {
        // Marsaglia's xorshift: what it draws only has to differ.
        *noise ^= *noise << 13;
        *noise ^= *noise >> 7;
        *noise ^= *noise << 17;
        *noise
    };
    (0..len_bytes).map(|at| if at % 64 == 63 { b'\n' } else { b"0123456789abcdef"[(next() >> 60) as usize] }).collect()
}
