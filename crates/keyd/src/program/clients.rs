//! What people ask of a node.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use crate::service::{GivenShare, Opener, Reenrol, StateDirectory, TokenPin};
use anyhow::Context;
use capstan_keys::Name;
use capstan_keys::api::{
    Base64, EnrolmentOpened, IssuedCertificate, JobSeen, JobStarted, NodeLocked, PeerId, RenewCertificate,
};
use capstan_keys::cluster::{
    CertificateKey, Identity, NodeClient, check_place, check_split_place, enrol as enrol_peer,
};
use capstan_officer::{Asking, passphrase};
use serde::de::DeserializeOwned;
use serde_json::Value;
use zeroize::Zeroizing;

use super::arguments::{self, Enrol, Renew};

/// How soon a job is asked for again: at first, and once it takes its time.
const LOOK_MIN: Duration = Duration::from_millis(50);
const LOOK_MAX: Duration = Duration::from_secs(2);

pub(super) fn enrol(asked: &Enrol) -> anyhow::Result<()> {
    let kept = asked.identity.as_deref().or(asked.split.as_deref()).context("give --identity or --split")?;
    anyhow::ensure!(!exists(kept), "{} exists already and is left as it is: name another", kept.display());
    // An enrolment is used up by the node's answer: what could not be kept then would be lost.
    match asked.split {
        Some(_) => check_split_place(kept)?,
        None => check_place(kept)?,
    }
    let text = passphrase("one-time passphrase", asked.passphrase_file.as_deref())?;
    let peer = PeerId { kind: asked.kind, name: asked.name.clone() };
    let identity = enrol_peer(&asked.at, peer, &text.parse()?)?;
    match asked.split {
        Some(_) => identity.save_split(kept)?,
        None => identity.save(kept)?,
    }
    println!(
        "{} of cluster {} is enrolled; its certificate and key are in {}",
        identity.certificate().peer,
        identity.certificate().cluster,
        kept.display()
    );
    Ok(())
}

/// Gets a new certificate, for a new key, under the old one.
pub(super) fn renew(asked: &Renew) -> anyhow::Result<()> {
    let into = &asked.into;
    anyhow::ensure!(!exists(into), "{} exists already and is left as it is: name another", into.display());
    let old = Identity::load_split(&asked.split)?;
    let key = CertificateKey::generate()?;
    let question = RenewCertificate { request: Base64(key.request().to_vec()) };
    let node = NodeClient::new(&old, &asked.node, Duration::from_secs(15))?;
    let issued: IssuedCertificate = node.post("/v1/certificates/renew", &question)?;
    key.certified(&issued)?.save_split(into)?;
    println!(
        "{} has a new certificate and key in {}; the old one holds until its end, or until it is revoked",
        old.certificate().peer,
        into.display()
    );
    Ok(())
}

fn exists(path: &Path) -> bool {
    path.symlink_metadata().is_ok()
}

/// Waits for a job of a node that was begun at `path`, and says on a terminal how far it is.
pub(super) fn awaited<T: DeserializeOwned>(client: &NodeClient, path: &str) -> anyhow::Result<T> {
    let JobStarted { job } = client.post(path, &())?;
    let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
    let mut pause = LOOK_MIN;
    loop {
        match client.get(&format!("{path}/jobs/{job}"))? {
            JobSeen::Done(made) => {
                if terminal {
                    eprint!("\r{:60}\r", "");
                }
                return Ok(made);
            }
            JobSeen::Working { done, of } if terminal && of > 0 => eprint!("\r{done} of {of} steps"),
            JobSeen::Working { .. } => {}
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(LOOK_MAX);
    }
}

pub(super) fn unlock(asked: &arguments::Unlock) -> anyhow::Result<()> {
    let file = asked.passphrase_file.as_deref();
    let share = || match &asked.holder {
        Some(holder) => {
            let passphrase = passphrase(&format!("passphrase of holder {holder}"), file)?;
            let holder = holder.clone();
            anyhow::Ok(Opener::Share(GivenShare { holder, passphrase }))
        }
        None => Ok(Opener::Token(TokenPin { pin: passphrase("PIN of the token", file)? })),
    };
    let said: Value = match (&asked.state, &asked.identity, &asked.node) {
        (Some(state), ..) => here(&StateDirectory::open(state)?.0.socket(), &share()?)?,
        (None, Some(identity), Some(node)) => {
            let client = Asking { identity: identity.clone(), node: vec![node.clone()] }.client()?;
            client.post("/v1/unlock", &share()?)?
        }
        _ => anyhow::bail!("give --state on the node's own machine, or --identity and --node from elsewhere"),
    };
    match (said["state"].as_str(), said["needed"].as_u64(), said["given"].as_array()) {
        (Some("unlocked"), ..) => println!("the node is unlocked"),
        (_, Some(needed), Some(given)) => {
            println!("{} of {needed} shares are there; the others have a quarter of an hour", given.len());
        }
        _ => println!("{said}"),
    }
    Ok(())
}

/// Has the holders open an enrolment, at the node's own machine.
pub(super) fn reenrol(asked: &arguments::Reenrol) -> anyhow::Result<()> {
    let share = |holder: &Name| {
        let file = asked.passphrase_files.iter().find(|(name, _)| name == holder).map(|(_, file)| file.as_path());
        let passphrase = passphrase(&format!("passphrase of holder {holder}"), file)?;
        anyhow::Ok(GivenShare { holder: holder.clone(), passphrase })
    };
    let token = asked.token.then(|| anyhow::Ok(TokenPin { pin: passphrase("PIN of the token", None)? })).transpose()?;
    let shares = asked.holders.iter().map(share).collect::<Result<_, _>>()?;
    let reenrol = Opener::Reenrol(Reenrol { reenrol: asked.user.clone(), shares, token });
    let said = here(&StateDirectory::open(&asked.state)?.0.socket(), &reenrol)?;
    let opened: EnrolmentOpened = serde_json::from_value(said)?;
    let passphrase = opened.passphrase.0.expose();
    println!(
        "{} enrols once, until {}, with this passphrase, which is shown only here:\n  {}",
        opened.peer,
        opened.expires,
        passphrase.as_str()
    );
    Ok(())
}

/// Locks the node that is named, and no other.
pub(super) fn lock(asking: &Asking) -> anyhow::Result<()> {
    let NodeLocked { kma } = asking.client()?.post("/v1/lock", &Value::Null)?;
    println!("node {kma} is locked: nothing but its holders opens it (`keyd unlock`)");
    Ok(())
}

/// Says something to the node of a state directory on this machine.
fn here(socket: &Path, share: &Opener) -> anyhow::Result<Value> {
    let unreachable = || format!("no node runs here ({}): start it with `keyd run`", socket.display());
    let mut stream = UnixStream::connect(socket).with_context(unreachable)?;
    let mut line = Zeroizing::new(serde_json::to_vec(share)?);
    line.push(b'\n');
    stream.write_all(&line)?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let answer: Value = serde_json::from_str(&answer).context("the node said nothing: look at its log")?;
    if let Some(refused) = answer.get("refused") {
        anyhow::bail!("{}", refused["detail"].as_str().unwrap_or("it was refused"));
    }
    Ok(answer)
}
