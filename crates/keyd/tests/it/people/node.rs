//! A node that runs, and people with their identities.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::cheap_keyd::cheap_keyd;
use crate::etcd::free_ports;

const KEYD: &str = env!("CARGO_BIN_EXE_keyd");

/// A cluster of one node; it ends with this.
pub(crate) struct Cluster {
    folder: TempDir,
    /// Where it answers members.
    pub(crate) address: String,
    enrol: String,
    node: Child,
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = self.node.kill();
        let _ = self.node.wait();
    }
}

impl Cluster {
    /// Founds it with these users, runs it, unlocks it, and enrols them all.
    pub(crate) fn found(etcd: &str, users: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (address, enrol) = (free_address(), free_address());
        let state = folder.path().join("state");
        let secret = secret_file(folder.path(), "holder", "a holder's long passphrase");
        let of = |holder: &str| format!("{holder}={}", secret.display());
        let mut found = Command::new(cheap_keyd());
        found.args(["found", "--name", "k1", "--pool", "4", "--needed", "2", "--state"]).arg(&state);
        found.args(["--etcd", etcd, "--address", &address, "--listen", &address, "--enrol-listen", &enrol]);
        found.args(["--site", "attic", "--holder", "h1", "--holder", "h2"]);
        found.args(["--passphrase-file", &of("h1"), "--passphrase-file", &of("h2")]);
        for (user, roles) in users {
            found.args(["--user", &format!("{user}:{roles}")]);
        }
        // Somebody has made the folder, as folders are made.
        fs::create_dir(&state).unwrap();
        fs::set_permissions(&state, fs::Permissions::from_mode(0o755)).unwrap();
        let said = output(&mut found).unwrap();
        assert_eq!(fs::metadata(&state).unwrap().permissions().mode() & 0o777, 0o700);

        let mut node = Command::new(KEYD)
            .arg("run")
            .arg("--state")
            .arg(&state)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(line.contains("ready"), "{line}");
        let cluster = Self { folder, address, enrol, node };
        cluster.unlocks();
        let passphrases = said.lines().filter_map(|line| line.strip_prefix("  ")?.split_once("  "));
        for (user, passphrase) in passphrases {
            // The majority may not have been heard yet.
            in_time(|| cluster.try_enrol("user", user, passphrase));
        }
        cluster
    }

    /// Its holders open it.
    pub(crate) fn unlocks(&self) {
        for holder in ["h1", "h2"] {
            let mut unlock = keyd();
            unlock.args(["unlock", "--holder", holder, "--state"]).arg(self.folder.path().join("state"));
            unlock.arg("--passphrase-file").arg(self.folder.path().join("holder"));
            // The socket may be there a moment after the doors.
            in_time(|| output(&mut unlock));
        }
    }

    /// Waits until somebody is answered so: a node that begins anew answers nobody for a moment.
    pub(crate) fn says_in_time(&self, who: &str, command: &str, so: &str) {
        in_time(|| match self.asks(who, command)? {
            said if said.contains(so) => Ok(said),
            said => Err(said),
        });
    }

    /// Enrols somebody; gives the file of the identity.
    pub(crate) fn enrols(&self, kind: &str, name: &str, passphrase: &str) -> PathBuf {
        self.try_enrol(kind, name, passphrase).unwrap();
        self.identity(name)
    }

    pub(crate) fn try_enrol(&self, kind: &str, name: &str, passphrase: &str) -> Result<String, String> {
        let file = secret_file(self.folder.path(), "once", passphrase);
        let mut enrol = keyd();
        enrol.args(["enrol", "--at", &self.enrol, "--kind", kind, "--name", name, "--passphrase-file"]).arg(file);
        output(enrol.arg("--identity").arg(self.identity(name)))
    }

    /// The same, kept elsewhere: `form` is how.
    pub(crate) fn try_enrol_into(
        &self,
        kind: &str,
        name: &str,
        passphrase: &str,
        form: &str,
        place: &str,
    ) -> Result<String, String> {
        let file = secret_file(self.folder.path(), "once", passphrase);
        let mut enrol = keyd();
        enrol.args(["enrol", "--at", &self.enrol, "--kind", kind, "--name", name, "--passphrase-file"]).arg(file);
        output(enrol.arg(form).arg(self.folder.path().join(place)))
    }

    /// What is said at the node's own machine, where the node to be asked from elsewhere is set as well; `secret` is
    /// the file of all holders.
    pub(crate) fn at_the_machine(&self, command: &str, secret: &str) -> Result<String, String> {
        let mut said = keyd();
        said.env("KEYD_NODE", &self.address).args(command.split(' '));
        said.arg("--state").arg(self.folder.path().join("state"));
        let secret = self.folder.path().join(secret).display().to_string();
        match command.starts_with("reenrol") {
            true => {
                let files = ["h1", "h2"].map(|holder| format!("{holder}={secret}"));
                said.args(["--passphrase-file", &files[0], "--passphrase-file", &files[1]]);
            }
            false => {
                said.args(["--passphrase-file", &secret]);
            }
        }
        output(&mut said)
    }

    /// A file with a secret, for its owner alone.
    pub(crate) fn secret(&self, name: &str, secret: &str) -> PathBuf {
        secret_file(self.folder.path(), name, secret)
    }

    /// Where somebody's identity is.
    pub(crate) fn identity(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.pem"))
    }

    /// What somebody is answered to a command, or what is said against it.
    pub(crate) fn asks(&self, who: &str, command: &str) -> Result<String, String> {
        let mut asked = keyd();
        asked.args(command.split(' ')).arg("--identity").arg(self.identity(who)).args(["--node", &self.address]);
        output(&mut asked)
    }

    /// The same, as a program reads it.
    pub(crate) fn json(&self, who: &str, command: &str) -> Value {
        let said = self.asks(who, &format!("{command} --json"));
        serde_json::from_str(&said.unwrap_or_else(|said| panic!("{who}: {command}: {said}"))).unwrap()
    }

    /// The file of what `keyd audit anchors` says, once there is an anchor.
    pub(crate) fn anchors(&self, who: &str) -> PathBuf {
        let begun = Instant::now();
        loop {
            let said = self.asks(who, "audit anchors").unwrap();
            if !said.is_empty() {
                let file = self.folder.path().join("anchors");
                fs::write(&file, said).unwrap();
                return file;
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "there is no anchor");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What `keyd audit verify` finds, without the node's help.
    pub(crate) fn verified(&self, anchors: &Path) -> Value {
        let mut verify = keyd();
        verify.args(["audit", "verify", "--json", "--state"]).arg(self.folder.path().join("state"));
        let said = verify.arg("--anchors").arg(anchors).output().unwrap();
        serde_json::from_slice(&said.stdout).unwrap()
    }

    /// Changes who did the first thing that somebody did.
    pub(crate) fn alter_log(&self) {
        let folder = self.folder.path().join("state/audit");
        let logs = fs::read_dir(&folder).unwrap().map(Result::unwrap);
        for entry in logs.filter(|entry| entry.path().extension().is_some_and(|name| name == "jsonl")) {
            assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "others may read {entry:?}");
        }
        let mut files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let file = files.find(|file| file.extension().is_some_and(|name| name == "jsonl")).unwrap();
        let log = fs::read_to_string(&file).unwrap();
        assert!(log.contains("user/olga"));
        fs::write(&file, log.replacen("user/olga", "user/carl", 1)).unwrap();
    }
}

fn keyd() -> Command {
    let mut command = Command::new("timeout");
    command.args(["--signal=KILL", "120", KEYD]).stdin(Stdio::null());
    command
}

/// Tries for some seconds.
fn in_time(mut attempt: impl FnMut() -> Result<String, String>) {
    let begun = Instant::now();
    while let Err(said) = attempt() {
        assert!(begun.elapsed() < Duration::from_secs(10), "{said}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn output(command: &mut Command) -> Result<String, String> {
    let said = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    if said.status.success() { Ok(text(said.stdout)) } else { Err(text(said.stderr)) }
}

fn secret_file(folder: &Path, name: &str, secret: &str) -> PathBuf {
    let file = folder.join(name);
    fs::write(&file, secret).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

fn free_address() -> String {
    format!("127.0.0.1:{}", free_ports(1)[0])
}
