//! Those who decide for a copy or a read, asked by a session or a read of a mover.

use std::io::{self, Read, Write};
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use capstan_format::{CatalogPart, Checkpoint, ObjectId, SessionId, SessionRecord, Volser, VolumeId};
use capstan_tape::with_causes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{ended_well, locked, other_question};
use crate::link::Link;
use crate::network::NetworkStream;
use crate::{
    Commit, CopyHost, DriveHealth, Filled, HostError, MountId, Mounted, ReadHost, ReadOrder, VolumeEnd, VolumePlace,
};

/// How often whoever serves a copy looks whether its session is over.
const LOOKS: Duration = Duration::from_millis(500);
/// How long a call may be on its way, once it has begun to come.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// What a copy asks and reports.
#[derive(Serialize, Deserialize)]
enum CopyCall {
    Mount,
    /// The catalog part is attached.
    Committed(Box<CommitForm>),
    Health(Volser, Box<DriveHealth>),
    Release(MountId, Volser, VolumeEnd),
    Settled(Vec<ObjectId>),
    Ended(Option<String>),
    Now,
}

/// A [`Commit`] without its catalog part.
#[derive(Serialize, Deserialize)]
struct CommitForm {
    volser: Volser,
    volume: VolumeId,
    session: SessionId,
    session_record: SessionRecord,
    checkpoint_lbn: u64,
    checkpoint: Checkpoint,
    end_lbn: u64,
    session_bytes: u64,
}

/// What a read asks and reports.
#[derive(Serialize, Deserialize)]
enum ReadCall {
    Mount(VolumePlace),
    Filled(VolumePlace),
    Ordered(ReadOrder, Option<String>),
    Release(MountId, VolumePlace),
}

/// What a host answers.
#[derive(Serialize, Deserialize)]
enum HostAnswer {
    Mounted(Mounted),
    Mount(MountId),
    Filled(Option<Filled>),
    Now(i64),
    Done,
    Failed { text: String },
}

/// Whoever decides for a copy, at the other end of a connection.
pub struct RemoteCopyHost<S> {
    link: Mutex<Link<S>>,
    /// Whether whoever decides knows [`VolumeEnd::WriteFailed`].
    knows_failed_writes: bool,
}

impl<S: Read + Write> RemoteCopyHost<S> {
    /// A host that [`serve_copy_host`] serves at the other end.
    pub fn new(stream: S) -> Self {
        Self { link: Mutex::new(Link(stream)), knows_failed_writes: true }
    }

    /// The same for whoever decides in an older version, which knows no failed writes.
    pub(crate) fn of_older(stream: S) -> Self {
        Self { knows_failed_writes: false, ..Self::new(stream) }
    }
}

fn call<S: Read + Write, C: Serialize>(
    link: &Mutex<Link<S>>,
    call: &C,
    attached: &[u8],
) -> Result<HostAnswer, HostError> {
    let mut link = locked(link);
    link.send(call, attached)?;
    match link.receive()?.0 {
        HostAnswer::Failed { text } => Err(text.into()),
        answer => Ok(answer),
    }
}

impl<S: Read + Write + Send> CopyHost for RemoteCopyHost<S> {
    fn mount(&mut self) -> Result<Mounted, HostError> {
        match call(&self.link, &CopyCall::Mount, &[])? {
            HostAnswer::Mounted(mounted) => Ok(mounted),
            _ => Err(other_question().into()),
        }
    }

    fn committed(&mut self, commit: &Commit) -> Result<(), HostError> {
        let form = CommitForm {
            volser: commit.volser.clone(),
            volume: commit.volume,
            session: commit.session,
            session_record: commit.session_record.clone(),
            checkpoint_lbn: commit.checkpoint_lbn,
            checkpoint: commit.checkpoint,
            end_lbn: commit.end_lbn,
            session_bytes: commit.session_bytes,
        };
        match call(&self.link, &CopyCall::Committed(Box::new(form)), &commit.part.encode())? {
            HostAnswer::Done => Ok(()),
            _ => Err(other_question().into()),
        }
    }

    fn health(&mut self, volser: &Volser, health: &DriveHealth) {
        // It is told for the record; what is wrong with the connection the next commit says.
        let _ = call(&self.link, &CopyCall::Health(volser.clone(), Box::new(health.clone())), &[]);
    }

    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd) {
        let end = match end {
            VolumeEnd::WriteFailed if !self.knows_failed_writes => VolumeEnd::Failed,
            end => end,
        };
        // Where nobody hears it, nobody dismounts; the mover lets go of the mount with the connection of orders.
        let _ = call(&self.link, &CopyCall::Release(mount, volser.clone(), end), &[]);
    }

    fn settled(&mut self, objects: &[ObjectId]) {
        // Where nobody hears it, nobody waits for it.
        let _ = call(&self.link, &CopyCall::Settled(objects.to_vec()), &[]);
    }

    fn ended(&mut self, failure: Option<&str>) {
        // Where nobody hears it, whoever serves the host ends it with the connection.
        let _ = call(&self.link, &CopyCall::Ended(failure.map(str::to_owned)), &[]);
    }

    fn now_ns(&self) -> i64 {
        match call(&self.link, &CopyCall::Now, &[]) {
            Ok(HostAnswer::Now(now_ns)) => now_ns,
            // What is written with it is not recorded either.
            _ => 0,
        }
    }
}

/// Answers what a copy asks over a connection until its other end closes it.
///
/// # Errors
/// The connection breaks, or what comes is no question.
pub fn serve_copy_host<S: Read + Write>(host: &mut dyn CopyHost, stream: S) -> io::Result<()> {
    serve_host(&mut Link(stream), |call, attached| answer_copy(host, call, attached), Link::receive)
}

/// The same until `is_over` is set.
pub(crate) fn serve_copy_host_until(
    host: &mut dyn CopyHost,
    stream: Box<dyn NetworkStream>,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let answer = |call, attached: &[u8]| answer_copy(host, call, attached);
    serve_host(&mut Link(stream), answer, |link| receive_until(link, is_over))
}

/// The next call, unless `is_over` is set before it comes.
fn receive_until<C: DeserializeOwned>(
    link: &mut Link<Box<dyn NetworkStream>>,
    is_over: &AtomicBool,
) -> io::Result<(C, Zeroizing<Vec<u8>>)> {
    let over = || io::Error::new(io::ErrorKind::ConnectionAborted, "nobody asks any more");
    // Calls come when they come, and then at once.
    link.0.set_timeout(Some(LOOKS))?;
    let first = link.first_byte(is_over)?.ok_or_else(over)?;
    link.0.set_timeout(Some(CALL_WITHIN))?;
    link.receive_behind(first)
}

fn answer_copy(host: &mut dyn CopyHost, call: CopyCall, attached: &[u8]) -> io::Result<Result<HostAnswer, HostError>> {
    Ok(match call {
        CopyCall::Mount => host.mount().map(HostAnswer::Mounted),
        CopyCall::Committed(form) => {
            let form = *form;
            let part =
                CatalogPart::decode(attached).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
            let commit = Commit {
                volser: form.volser,
                volume: form.volume,
                session: form.session,
                session_record: form.session_record,
                checkpoint_lbn: form.checkpoint_lbn,
                checkpoint: form.checkpoint,
                part,
                end_lbn: form.end_lbn,
                session_bytes: form.session_bytes,
            };
            host.committed(&commit).map(|()| HostAnswer::Done)
        }
        CopyCall::Health(volser, health) => {
            host.health(&volser, &health);
            Ok(HostAnswer::Done)
        }
        CopyCall::Release(mount, volser, end) => {
            host.release(mount, &volser, end);
            Ok(HostAnswer::Done)
        }
        CopyCall::Settled(objects) => {
            host.settled(&objects);
            Ok(HostAnswer::Done)
        }
        CopyCall::Ended(failure) => {
            host.ended(failure.as_deref());
            Ok(HostAnswer::Done)
        }
        CopyCall::Now => Ok(HostAnswer::Now(host.now_ns())),
    })
}

fn serve_host<S: Read + Write, C: DeserializeOwned>(
    link: &mut Link<S>,
    mut answer: impl FnMut(C, &[u8]) -> io::Result<Result<HostAnswer, HostError>>,
    mut receive: impl FnMut(&mut Link<S>) -> io::Result<(C, Zeroizing<Vec<u8>>)>,
) -> io::Result<()> {
    let mut serve = || -> io::Result<()> {
        loop {
            let (call, attached) = receive(link)?;
            let answer = answer(call, &attached)?;
            let failed = |error: HostError| HostAnswer::Failed { text: with_causes(error.as_ref()) };
            link.send(&answer.unwrap_or_else(failed), &[])?;
        }
    };
    ended_well(serve())
}

/// What a copy says, for [`crate::kept_words`].
#[cfg(test)]
pub(super) fn words_in_tests(mount: MountId, volser: &Volser) -> Vec<crate::kept_words::Word> {
    use crate::kept_words::Word;

    let release = |name, end| Word::of(name, &CopyCall::Release(mount, volser.clone(), end));
    vec![
        Word::of("copy-mount", &CopyCall::Mount),
        release("copy-closed", VolumeEnd::Closed),
        release("copy-full", VolumeEnd::Full),
        release("copy-failed", VolumeEnd::Failed),
        release("copy-write-failed", VolumeEnd::WriteFailed),
        Word::of("copy-settled", &CopyCall::Settled(vec![ObjectId([1; 16])])),
        Word::of("copy-ended", &CopyCall::Ended(Some("no".to_owned()))),
        Word::of("copy-now", &CopyCall::Now),
        Word::of("host-mount", &HostAnswer::Mount(mount)),
        Word::of("host-now", &HostAnswer::Now(1)),
        Word::of("host-done", &HostAnswer::Done),
        Word::of("host-failed", &HostAnswer::Failed { text: "no".to_owned() }),
    ]
}

/// Whoever decides for a read, at the other end of a connection.
pub struct RemoteReadHost<S>(Mutex<Link<S>>);

impl<S: Read + Write> RemoteReadHost<S> {
    /// A host that [`serve_read_host`] serves at the other end.
    pub fn new(stream: S) -> Self {
        Self(Mutex::new(Link(stream)))
    }
}

impl<S: Read + Write + Send> ReadHost for RemoteReadHost<S> {
    fn mount(&mut self, place: &VolumePlace) -> Result<MountId, HostError> {
        match call(&self.0, &ReadCall::Mount(place.clone()), &[])? {
            HostAnswer::Mount(mount) => Ok(mount),
            _ => Err(other_question().into()),
        }
    }

    fn filled(&mut self, place: &VolumePlace) -> Option<Filled> {
        match call(&self.0, &ReadCall::Filled(place.clone()), &[]) {
            Ok(HostAnswer::Filled(filled)) => filled,
            // Front to back is right, and slower at most.
            _ => None,
        }
    }

    fn ordered(&mut self, order: &ReadOrder, notice: Option<String>) {
        // It is told for the record.
        let _ = call(&self.0, &ReadCall::Ordered(order.clone(), notice), &[]);
    }

    fn release(&mut self, mount: MountId, place: &VolumePlace) {
        // See RemoteCopyHost.
        let _ = call(&self.0, &ReadCall::Release(mount, place.clone()), &[]);
    }
}

/// Answers what a read asks over a connection until its other end closes it.
///
/// # Errors
/// The connection breaks, or what comes is no question.
pub fn serve_read_host<S: Read + Write>(host: &mut dyn ReadHost, stream: S) -> io::Result<()> {
    serve_host(&mut Link(stream), |call, _| Ok(answer_read(host, call)), Link::receive)
}

/// The same until `is_over` is set.
pub(crate) fn serve_read_host_until(
    host: &mut dyn ReadHost,
    stream: Box<dyn NetworkStream>,
    is_over: &AtomicBool,
) -> io::Result<()> {
    let answer = |call, _: &[u8]| Ok(answer_read(host, call));
    serve_host(&mut Link(stream), answer, |link| receive_until(link, is_over))
}

fn answer_read(host: &mut dyn ReadHost, call: ReadCall) -> Result<HostAnswer, HostError> {
    match call {
        ReadCall::Mount(place) => host.mount(&place).map(HostAnswer::Mount),
        ReadCall::Filled(place) => Ok(HostAnswer::Filled(host.filled(&place))),
        ReadCall::Ordered(order, notice) => {
            host.ordered(&order, notice);
            Ok(HostAnswer::Done)
        }
        ReadCall::Release(mount, place) => {
            host.release(mount, &place);
            Ok(HostAnswer::Done)
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::os::unix::net::UnixStream;
    use std::thread;

    use super::*;

    /// Notes how volumes are given back.
    struct Notes(Vec<VolumeEnd>);

    impl CopyHost for Notes {
        fn mount(&mut self) -> Result<Mounted, HostError> {
            panic!("nobody asks")
        }

        fn committed(&mut self, _: &Commit) -> Result<(), HostError> {
            panic!("nobody asks")
        }

        fn release(&mut self, _: MountId, _: &Volser, end: VolumeEnd) {
            self.0.push(end);
        }

        fn now_ns(&self) -> i64 {
            panic!("nobody asks")
        }
    }

    #[test]
    fn whoever_knows_no_failed_writes_hears_of_a_failure() {
        let volser = Volser::new("A00001").unwrap();
        for (remote, heard) in [
            (RemoteCopyHost::new as fn(UnixStream) -> RemoteCopyHost<UnixStream>, VolumeEnd::WriteFailed),
            (RemoteCopyHost::of_older, VolumeEnd::Failed),
        ] {
            let (near, far) = UnixStream::pair().unwrap();
            let decides = thread::spawn(move || {
                let mut notes = Notes(Vec::new());
                serve_copy_host(&mut notes, near).unwrap();
                notes.0
            });
            remote(far).release(MountId(1), &volser, VolumeEnd::WriteFailed);
            assert_eq!(decides.join().unwrap(), [heard]);
        }
    }
}
