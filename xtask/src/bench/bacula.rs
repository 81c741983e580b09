//! Bacula, set up in the scratch folder and gone with it.
//!
//! Its packages are unpacked and not installed, since installing them starts three services and asks for a database.
//! The daemons run in the foreground on ports of their own on the loopback address, with SQLite or PostgreSQL, file
//! storage, and the least work: no compression, no encryption, MD5 as the default has it. They end with the value that
//! holds them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::measure::{Stage, Usage, account};

const PACKAGES: &str = "bacula-common bacula-console bacula-director bacula-fd bacula-sd libwrap0 libnsl2 liblzo2-2";
/// Jobs that may be at work at the same time.
const JOBS_MAX: usize = 100;

/// Where its catalog is.
#[derive(Debug, Clone, Copy)]
pub(super) enum CatalogIn {
    /// In a file of its own.
    Sqlite,
    /// In a database `bacula` of the server that listens at this port.
    Postgres(u16),
}

impl CatalogIn {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite3",
            Self::Postgres(_) => "pgsql",
        }
    }

    /// What answers a query, from the scratch folder; columns are parted by `|`.
    fn query(self) -> String {
        match self {
            Self::Sqlite => "sqlite3 -readonly bacula/run/bacula.db".to_owned(),
            Self::Postgres(port) => format!("psql -h 127.0.0.1 -p {port} -U capstan -d bacula -qAtc"),
        }
    }
}

/// A running director, storage daemon and a file daemon for each source.
#[derive(Debug)]
pub(super) struct Bacula {
    folder: PathBuf,
    catalog: CatalogIn,
    jobs: usize,
    daemons: Vec<Child>,
}

/// The ports of director and storage daemon, and of the file daemons.
#[derive(Debug, Clone)]
struct Ports {
    director: u16,
    storage: u16,
    files: Vec<u16>,
}

/// What a backup cost, and the bytes of files that Bacula says it took.
pub(super) type BaculaRun = (Usage, u64);

impl Bacula {
    /// Unpacks, configures and starts Bacula with a job for each source, which a file daemon of its own reads.
    pub(super) fn start(stage: &Stage, sources: &[PathBuf], catalog: CatalogIn) -> Result<Self> {
        ensure!((1..=JOBS_MAX).contains(&sources.len()), "Bacula has 1 to {JOBS_MAX} jobs here");
        let (folder, database) = (stage.work.join("bacula"), catalog.name());
        let packages = format!("{PACKAGES} bacula-common-{database} bacula-director-{database}");
        let script =
            format!("bacula/root/usr/share/dbconfig-common/data/bacula-director-{database}/install/{database}");
        let make = match catalog {
            CatalogIn::Sqlite => format!("sqlite3 bacula/run/bacula.db <{script}"),
            // The characters of names are nobody's business.
            CatalogIn::Postgres(port) => format!(
                "psql -h 127.0.0.1 -p {port} -U capstan -d postgres -qc \"create database bacula encoding 'SQL_ASCII' \
                 lc_collate 'C' lc_ctype 'C' template template0\"
                psql -h 127.0.0.1 -p {port} -U capstan -d bacula -q <{script}"
            ),
        };
        stage.run(&format!(
            "rm -rf bacula && mkdir -p bacula/debs bacula/run bacula/volumes
            (cd bacula/debs && apt-get download -q {packages})
            for package in bacula/debs/*.deb; do dpkg-deb -x $package bacula/root; done
            {make}"
        ))?;
        let ports = free_ports(sources.len())?;
        for (name, text) in configuration(&folder, sources, &ports, catalog) {
            fs::write(folder.join(name), text)?;
        }
        let mut bacula = Self { folder, catalog, jobs: sources.len(), daemons: Vec::new() };
        let files = (0..sources.len()).map(|number| ("fd", format!("fd-{number}")));
        let daemons = files.chain(["sd", "dir"].map(|name| (name, name.to_owned())));
        for (program, name) in daemons {
            let log = File::create(bacula.folder.join(format!("run/{name}.out")))?;
            let mut command = bacula.command(&format!("root/usr/sbin/bacula-{program}"), &format!("{name}.conf"));
            let daemon = command.arg("-f").stdout(log.try_clone()?).stderr(log).spawn();
            bacula.daemons.push(daemon.with_context(|| format!("start bacula-{program}"))?);
        }
        for port in [ports.director, ports.storage].into_iter().chain(ports.files) {
            bacula.wait_for(port)?;
        }
        Ok(bacula)
    }

    fn command(&self, program: &str, configuration: &str) -> Command {
        let mut command = Command::new(self.folder.join(program));
        command.arg("-c").arg(self.folder.join(configuration));
        // Libraries of its own, and what it needs of others that may not be installed.
        let root = self.folder.join("root");
        let libraries = format!("{0}/usr/lib/bacula:{0}/usr/lib/{1}-linux-gnu", root.display(), std::env::consts::ARCH);
        command
            .env("LD_LIBRARY_PATH", format!("{libraries}:{}/lib/{}-linux-gnu", root.display(), std::env::consts::ARCH));
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

    /// Runs all jobs at the same time, as full backups. Wall time is by Bacula's own clock, in whole seconds: its
    /// console polls.
    pub(super) fn back_up(&self, stage: &Stage) -> Result<BaculaRun> {
        let before = self.accounts()?;
        let mut console = self.command("root/usr/sbin/bconsole", "console.conf");
        let input = self.folder.join("run/input");
        let runs: String = (0..self.jobs).map(|number| format!("run job=Bench-{number} yes\n")).collect();
        fs::write(&input, format!("{runs}wait\n"))?;
        let output = console.stdin(File::open(input)?).output().context("run bconsole")?;
        ensure!(output.status.success(), "bconsole: {}", String::from_utf8_lossy(&output.stdout));
        let after = self.accounts()?;
        let seconds = match self.catalog {
            CatalogIn::Sqlite => "max(strftime('%s', EndTime)) - min(strftime('%s', StartTime))",
            CatalogIn::Postgres(_) => "extract(epoch from max(EndTime) - min(StartTime))::bigint",
        };
        let row = stage.run(&format!(
            "{} \"select sum(case when JobStatus = 'T' then 1 else 0 end), sum(JobBytes), {seconds} from \
             (select * from Job order by JobId desc limit {}) as latest\"",
            self.catalog.query(),
            self.jobs
        ))?;
        let fields: Vec<&str> = row.trim().split('|').collect();
        let &[good, bytes, seconds] = fields.as_slice() else { bail!("Bacula's catalog has no such jobs: {row}") };
        let (good, of) = (good.parse::<usize>()?, self.jobs);
        ensure!(good == of, "{good} of {of} jobs of Bacula ended well; see {}/run/log", self.folder.display());
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

/// Ports that nobody listens on now.
fn free_ports(sources: usize) -> Result<Ports> {
    let listeners: Result<Vec<_>, _> = (0..sources + 2).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let ports: Result<Vec<u16>, _> = listeners?.iter().map(|listener| Ok(listener.local_addr()?.port())).collect();
    match ports.map_err(|error: std::io::Error| error)?.as_slice() {
        [director, storage, files @ ..] => Ok(Ports { director: *director, storage: *storage, files: files.to_vec() }),
        _ => bail!("there are no ports"),
    }
}

fn configuration(folder: &Path, sources: &[PathBuf], ports: &Ports, catalog: CatalogIn) -> Vec<(String, String)> {
    let (folder, Ports { director, storage, files }) = (folder.display(), ports);
    let daemon = format!(
        "WorkingDirectory = \"{folder}/run\"; PidDirectory = \"{folder}/run\"; Maximum Concurrent Jobs = {JOBS_MAX}"
    );
    let me = "Name = bench-dir; Password = bench";
    let access = match catalog {
        CatalogIn::Sqlite => "dbuser = \"\"; dbpassword = \"\"".to_owned(),
        CatalogIn::Postgres(port) => {
            format!("dbuser = capstan; dbpassword = none; DB Address = 127.0.0.1; DB Port = {port}")
        }
    };
    let jobs = sources.iter().zip(files).enumerate().map(|(number, (source, port))| {
        let source = source.display();
        format!(
            "Client {{ Name = bench-fd-{number}; Address = 127.0.0.1; FDPort = {port}; Catalog = Catalog; Password = bench }}
FileSet {{ Name = Bench-{number}; Include {{ Options {{ signature = MD5; aclsupport = yes; xattrsupport = yes }} File = \"{source}\" }} }}
Job {{ Name = Bench-{number}; Type = Backup; Level = Full; Client = bench-fd-{number}; FileSet = Bench-{number}; Storage = File; \
Pool = Default; Messages = Log }}
"
        )
    });
    let jobs: String = jobs.collect();
    let director = format!(
        "Director {{ {me}; DirPort = {director}; DirAddress = 127.0.0.1; QueryFile = /dev/null; {daemon}; Messages = Log }}
Messages {{ Name = Log; append = \"{folder}/run/log\" = all }}
Catalog {{ Name = Catalog; dbname = bacula; {access} }}
Storage {{ Name = File; Address = 127.0.0.1; SDPort = {storage}; Password = bench; Device = File; Media Type = File; \
Maximum Concurrent Jobs = {JOBS_MAX} }}
Pool {{ Name = Default; Pool Type = Backup; Label Format = bench- }}
{jobs}"
    );
    let messages = "Messages { Name = Log; director = bench-dir = all }";
    let storage = format!(
        "Storage {{ Name = bench-sd; SDPort = {storage}; SDAddress = 127.0.0.1; {daemon} }}
Director {{ {me} }}
Device {{ Name = File; Media Type = File; Archive Device = \"{folder}/volumes\"; LabelMedia = yes; Random Access = yes
AutomaticMount = yes; RemovableMedia = no; AlwaysOpen = no; Maximum Concurrent Jobs = {JOBS_MAX} }}
{messages}
"
    );
    let file = |(number, port): (usize, &u16)| {
        let text = format!(
            "FileDaemon {{ Name = bench-fd-{number}; FDPort = {port}; FDAddress = 127.0.0.1; {daemon} }}
Director {{ {me} }}
{messages}
"
        );
        (format!("fd-{number}.conf"), text)
    };
    let console = format!("Director {{ {me}; DirPort = {}; address = 127.0.0.1 }}\n", ports.director);
    let others = [("dir.conf", director), ("sd.conf", storage), ("console.conf", console)];
    files.iter().enumerate().map(file).chain(others.map(|(name, text)| (name.to_owned(), text))).collect()
}
