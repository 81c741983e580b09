//! Bacula, set up in the scratch folder and gone with it.
//!
//! Its packages are unpacked and not installed, since installing them starts three services and asks for a database.
//! The daemons run in the foreground on ports of their own on the loopback address, with SQLite, file storage, and the
//! least work: no compression, no encryption, MD5 as the default has it. They end with the value that holds them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::measure::{Stage, Usage, account};

const PACKAGES: &str = "bacula-common bacula-common-sqlite3 bacula-console bacula-director bacula-director-sqlite3 bacula-fd \
                        bacula-sd";

/// A running director, storage daemon and file daemon.
#[derive(Debug)]
pub(super) struct Bacula {
    folder: PathBuf,
    daemons: Vec<Child>,
}

/// The ports of director, file daemon and storage daemon.
#[derive(Debug, Clone, Copy)]
struct Ports([u16; 3]);

impl Bacula {
    /// Unpacks, configures and starts Bacula with one job, which backs up `source`.
    pub(super) fn start(stage: &Stage, source: &Path) -> Result<Self> {
        let folder = stage.work.join("bacula");
        stage.run(&format!(
            "rm -rf bacula && mkdir -p bacula/debs bacula/run bacula/volumes && cd bacula/debs
            apt-get download -q {PACKAGES} && for package in *.deb; do dpkg-deb -x $package ../root; done
            sqlite3 ../run/bacula.db <../root/usr/share/dbconfig-common/data/bacula-director-sqlite3/install/sqlite3"
        ))?;
        let ports = free_ports()?;
        for (name, text) in configuration(&folder, source, ports) {
            fs::write(folder.join(name), text)?;
        }
        let mut bacula = Self { folder, daemons: Vec::new() };
        for name in ["fd", "sd", "dir"] {
            let log = File::create(bacula.folder.join(format!("run/{name}.out")))?;
            let mut command = bacula.command(&format!("root/usr/sbin/bacula-{name}"), &format!("{name}.conf"));
            let daemon = command.arg("-f").stdout(log.try_clone()?).stderr(log).spawn();
            bacula.daemons.push(daemon.with_context(|| format!("start bacula-{name}"))?);
        }
        for port in ports.0 {
            bacula.wait_for(port)?;
        }
        Ok(bacula)
    }

    fn command(&self, program: &str, configuration: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.arg("-c").arg(self.folder.join(configuration));
        command.env("LD_LIBRARY_PATH", self.folder.join("root/usr/lib/bacula"));
        command
    }

    fn wait_for(&self, port: u16) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            ensure!(
                started.elapsed() < Duration::from_secs(20),
                "a daemon of Bacula does not start; see {}/run",
                self.folder.display()
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Runs the job once as a full backup. Wall time is by Bacula's own clock, in whole seconds: its console polls.
    /// Returns the bytes of files that it says it took, too.
    pub(super) fn back_up(&self, stage: &Stage) -> Result<(Usage, u64)> {
        let before = self.accounts()?;
        let mut console = self.command("root/usr/sbin/bconsole", "console.conf");
        let input = self.folder.join("run/input");
        fs::write(&input, "run job=Bench yes\nwait\n")?;
        let output = console.stdin(File::open(input)?).output().context("run bconsole")?;
        ensure!(output.status.success(), "bconsole: {}", String::from_utf8_lossy(&output.stdout));
        let after = self.accounts()?;
        let row = stage.run(
            "sqlite3 -readonly bacula/run/bacula.db \"select JobStatus, JobBytes, strftime('%s', EndTime) - \
            strftime('%s', StartTime) from Job order by JobId desc limit 1\"",
        )?;
        let fields: Vec<&str> = row.trim().split('|').collect();
        let &[status, bytes, seconds] = fields.as_slice() else { bail!("Bacula's catalog has no such job: {row}") };
        ensure!(status == "T", "Bacula's job ended with {status}; see {}/run/log", self.folder.display());
        let usage = Usage {
            wall: Duration::from_secs(seconds.parse::<u64>()?.max(1)),
            processor: after.processor.saturating_sub(before.processor),
            peak_bytes: after.peak_bytes,
        };
        Ok((usage, bytes.parse()?))
    }

    /// What the daemons cost so far: processor time together, memory of the largest.
    fn accounts(&self) -> Result<Usage> {
        let mut sum = Usage::default();
        for daemon in &self.daemons {
            let one = account(daemon.id())?;
            sum.processor += one.processor;
            sum.peak_bytes = sum.peak_bytes.max(one.peak_bytes);
        }
        Ok(sum)
    }
}

impl Drop for Bacula {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // A daemon that has ended already is what this is for.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

/// Three ports that nobody listens on now.
fn free_ports() -> Result<Ports> {
    let listeners = [0; 3].map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let mut ports = [0; 3];
    for (port, listener) in ports.iter_mut().zip(listeners) {
        *port = listener?.local_addr()?.port();
    }
    Ok(Ports(ports))
}

fn configuration(folder: &Path, source: &Path, Ports([dir, fd, sd]): Ports) -> [(&'static str, String); 4] {
    let (folder, source) = (folder.display(), source.display());
    let daemon = format!("WorkingDirectory = \"{folder}/run\"; PidDirectory = \"{folder}/run\"");
    let me = "Name = bench-dir; Password = bench";
    let director = format!(
        "Director {{ {me}; DirPort = {dir}; DirAddress = 127.0.0.1; QueryFile = /dev/null; {daemon}; Messages = Log }}
Messages {{ Name = Log; append = \"{folder}/run/log\" = all }}
Catalog {{ Name = Catalog; dbname = bacula; dbuser = \"\"; dbpassword = \"\" }}
Client {{ Name = bench-fd; Address = 127.0.0.1; FDPort = {fd}; Catalog = Catalog; Password = bench }}
Storage {{ Name = File; Address = 127.0.0.1; SDPort = {sd}; Password = bench; Device = File; Media Type = File }}
Pool {{ Name = Default; Pool Type = Backup; Label Format = bench- }}
FileSet {{ Name = Bench; Include {{ Options {{ signature = MD5; aclsupport = yes; xattrsupport = yes }} File = \"{source}\" }} }}
Job {{ Name = Bench; Type = Backup; Level = Full; Client = bench-fd; FileSet = Bench; Storage = File; Pool = Default; Messages = Log }}
"
    );
    let messages = "Messages { Name = Log; director = bench-dir = all }";
    let storage = format!(
        "Storage {{ Name = bench-sd; SDPort = {sd}; SDAddress = 127.0.0.1; {daemon} }}
Director {{ {me} }}
Device {{ Name = File; Media Type = File; Archive Device = \"{folder}/volumes\"; LabelMedia = yes; Random Access = yes
AutomaticMount = yes; RemovableMedia = no; AlwaysOpen = no }}
{messages}
"
    );
    let file = format!(
        "FileDaemon {{ Name = bench-fd; FDPort = {fd}; FDAddress = 127.0.0.1; {daemon} }}
Director {{ {me} }}
{messages}
"
    );
    let console = format!("Director {{ {me}; DirPort = {dir}; address = 127.0.0.1 }}\n");
    [("dir.conf", director), ("sd.conf", storage), ("fd.conf", file), ("console.conf", console)]
}
