//! A server of PostgreSQL: on loopback, in a folder of its own, ended with whoever started it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, geteuid, kill_process};
use tempfile::TempDir;

/// Where Debian puts each version's programs, which are not in anybody's path.
const VERSIONS: &str = "/usr/lib/postgresql";
/// Who runs it where the tests run as root, which it refuses to run as.
const USER: &str = "postgres";
/// The certificate of the authority that signed the server's.
const AUTHORITY: &str = "authority.crt";
const START_MAX: Duration = Duration::from_secs(60);
const LOOKED_AT_EVERY: Duration = Duration::from_millis(100);

/// Whether what a commit says outlives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    /// It does, as wherever data are kept.
    Full,
    /// Nobody cuts the power, and nothing is measured.
    None,
}

/// A server that runs.
pub(crate) struct Server {
    process: Child,
    port: u16,
    folder: TempDir,
}

impl Server {
    /// Starts one with its data in a folder; none where PostgreSQL is not installed.
    pub(crate) fn start(place: &Path, durability: Durability) -> Result<Option<Self>> {
        let Some(programs) = programs() else { return Ok(None) };
        let folder = tempfile::Builder::new().prefix("capstan-postgres-").tempdir_in(place)?;
        if geteuid().is_root() {
            let user = id_of(USER)?;
            chown(folder.path(), Some(user), Some(user)).with_context(|| folder.path().display().to_string())?;
        }
        let data = folder.path().join("data");
        let made = as_user(&programs.join("initdb"))
            .args(["--no-sync", "--auth=trust", "--encoding=UTF8", "--username=capstan", "--pgdata"])
            .arg(&data)
            .output()
            .context("start initdb")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        certify(folder.path())?;
        // Free a moment ago; another program may be faster, and the server says so.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let log = fs::File::create(folder.path().join("log"))?;
        let process = as_user(&programs.join("postgres"))
            .arg("-D")
            .arg(&data)
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-k"])
            .arg(folder.path())
            .args(["-c", if durability == Durability::Full { "fsync=on" } else { "fsync=off" }])
            .args(["-c", "max_connections=200", "-c", "ssl=on"])
            .args(["-c", "ssl_cert_file=../server.crt", "-c", "ssl_key_file=../server.key"])
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("start postgres")?;
        let mut server = Self { process, port, folder };
        server.wait_until_it_answers(&programs)?;
        Ok(Some(server))
    }

    /// Where it is, with a database that takes any number of catalogs.
    pub(crate) fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// Where another database of it is.
    pub(crate) fn url_of(&self, database: &str) -> String {
        format!("postgres://capstan@127.0.0.1:{}/{database}", self.port)
    }

    /// The same over TLS, for whoever checks the certificate.
    pub(crate) fn url_with_tls(&self) -> String {
        let authority = self.folder.path().join(AUTHORITY);
        format!(
            "postgres://capstan@localhost:{}/postgres?sslmode=verify-full&sslrootcert={}",
            self.port,
            authority.display()
        )
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Its first process, whose children the others are.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    fn wait_until_it_answers(&mut self, programs: &Path) -> Result<()> {
        let until = Instant::now() + START_MAX;
        while Instant::now() < until {
            if let Some(status) = self.process.try_wait()? {
                bail!("postgres has ended: {status}");
            }
            let mut asked = Command::new(programs.join("pg_isready"));
            asked.args(["-q", "-h", "127.0.0.1", "-p", &self.port.to_string()]);
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() && asked.status()?.success() {
                return Ok(());
            }
            std::thread::sleep(LOOKED_AT_EVERY);
        }
        bail!("postgres does not answer after {} s", START_MAX.as_secs())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fast shutdown: it ends its connections, and then itself.
        if let Ok(Some(pid)) = i32::try_from(self.process.id()).map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::INT);
        }
        let _ = self.process.wait();
    }
}

/// The folder of the newest version's programs.
fn programs() -> Option<PathBuf> {
    let versions = fs::read_dir(VERSIONS).ok()?;
    let number = |path: &PathBuf| path.file_name()?.to_str()?.parse::<u32>().ok();
    let newest = versions.filter_map(|entry| Some(entry.ok()?.path())).max_by_key(number)?;
    Some(newest.join("bin")).filter(|programs| programs.join("postgres").exists())
}

/// A program as whoever may run a server.
fn as_user(program: &Path) -> Command {
    if !geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", USER, "--regid", USER, "--clear-groups"]).arg(program);
    command
}

/// Makes an authority and a certificate for `localhost`, with the commands of docs/OPERATIONS.md.
fn certify(folder: &Path) -> Result<()> {
    let key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "3650"];
    let authority = ["-keyout", "authority.key", "-out", AUTHORITY, "-subj", "/CN=databases of the tests"];
    let server = ["-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=localhost"];
    let signed = ["-CA", AUTHORITY, "-CAkey", "authority.key", "-addext", "subjectAltName=DNS:localhost"];
    let no_authority = ["-addext", "basicConstraints=critical,CA:FALSE"];
    for rest in [authority.to_vec(), [&server[..], &signed, &no_authority].concat()] {
        let mut made = as_user(Path::new("openssl"));
        made.current_dir(folder).args(["req", "-x509"]).args(key).args(rest);
        let made = made.output().context("start openssl")?;
        ensure!(made.status.success(), "openssl: {}", String::from_utf8_lossy(&made.stderr));
    }
    Ok(())
}

fn id_of(user: &str) -> Result<u32> {
    let asked = Command::new("id").args(["-u", user]).output().context("run id")?;
    let text = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    text.parse().with_context(|| format!("there is no user {user}"))
}
