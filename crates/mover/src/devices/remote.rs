//! The seam between whoever decides and a mover, over a socket.
//!
//! ```text
//!   decides                              touches
//!   RemoteDevices  ---- orders ---->     serve_devices(LocalDevices)
//!   serve_copy_host(AppendHost)  <----   RemoteCopyHost, asked by a session's copy
//!   serve_read_host(ReadMounter) <----   RemoteReadHost, asked by a read
//! ```
//! One connection carries one call at a time, so a job has connections of its own. While a volume is mounted, the mover
//! says on it what is waited for and asks whether to go on waiting. When a connection of orders ends, the mounts that
//! were made on it and not ended are let go of: whoever made them is gone.
//!
//! What protects a connection (TLS, identities) is for whoever opens it; a key that is loaded crosses it.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_format::{
    Algorithm, CatalogPart, Checkpoint, KeyTag, ObjectId, SessionId, SessionRecord, Volser, VolumeId,
};
use capstan_tape::{DriveDescription, DriveKey, with_causes};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::wire::ErrorForm;
use super::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DismountReport, LibraryInventory, MountOrder, MountReport,
    MountWatch, VolumeReport, VolumeRequest,
};
use crate::link::Link;
use crate::network::NetworkStream;
use crate::{
    Commit, CopyHost, DriveHealth, Filled, FoundCheckpoint, HostError, MountId, Mounted, MoverError, ReadHost,
    ReadOrder, VolumeEnd, VolumePlace,
};

/// How often whoever serves a copy looks whether its session is over.
const LOOKS: Duration = Duration::from_millis(500);
/// How long a call may be on its way, once it has begun to come.
const CALL_WITHIN: Duration = Duration::from_secs(60);

/// What whoever decides sends to devices.
#[derive(Serialize, Deserialize)]
enum Order {
    Drives,
    DescribeDrives,
    Inventory,
    Change(ChangerOrder),
    Mount(MountOrder),
    /// The answer to [`Report::IsStopped`].
    Stopped(bool),
    /// The key is attached.
    SetKey(MountId, Option<(KeyTag, Algorithm)>),
    AtVolume(MountId, VolumeRequest),
    CatalogPart(MountId, VolumeId, FoundCheckpoint),
    Dismount(DismountOrder),
    Abandon(MountId),
}

impl Order {
    /// The mount that it is about.
    fn mount(&self) -> Option<MountId> {
        match self {
            Self::SetKey(mount, _)
            | Self::AtVolume(mount, _)
            | Self::CatalogPart(mount, ..)
            | Self::Dismount(DismountOrder { mount, .. })
            | Self::Abandon(mount) => Some(*mount),
            _ => None,
        }
    }
}

/// What devices send back.
#[derive(Serialize, Deserialize)]
enum Report {
    Waiting(String),
    Notice(String),
    IsStopped,
    Drives(u32),
    Described(Vec<DriveDescription>),
    Inventory(LibraryInventory),
    Mounted(Box<MountReport>),
    Volume(VolumeReport),
    /// The part is attached.
    Part,
    Dismounted {
        drive: String,
        health: Option<Box<DriveHealth>>,
        notices: Vec<String>,
        failed: Option<ErrorForm>,
    },
    Done,
    Failed(ErrorForm),
}

/// Devices at the other end of a connection.
pub struct RemoteDevices<S>(Mutex<Link<S>>);

impl<S: Read + Write> RemoteDevices<S> {
    /// Devices that [`serve_devices`] serves at the other end.
    pub fn new(stream: S) -> Self {
        Self(Mutex::new(Link(stream)))
    }

    /// As [`Devices::abandon`]; whether it was heard.
    pub(crate) fn try_abandon(&self, mount: MountId) -> Result<(), DevicesError> {
        self.ask(&Order::Abandon(mount), &[]).map(drop)
    }

    fn ask(&self, order: &Order, attached: &[u8]) -> Result<(Report, Zeroizing<Vec<u8>>), DevicesError> {
        let mut link = locked(&self.0);
        link.send(order, attached).map_err(DevicesError::Connection)?;
        answer(&mut link)
    }
}

fn answer<S: Read + Write>(link: &mut Link<S>) -> Result<(Report, Zeroizing<Vec<u8>>), DevicesError> {
    match link.receive().map_err(DevicesError::Connection)? {
        (Report::Failed(form), _) => Err(form.into()),
        told => Ok(told),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn unexpected() -> DevicesError {
    DevicesError::Connection(other_question())
}

fn other_question() -> io::Error {
    io::Error::other("the other end answers another question: it is of another version")
}

/// The value of the one report that answers an order.
macro_rules! expect {
    ($answer:expr, $pattern:pat => $value:expr) => {
        match $answer? {
            ($pattern, _) => Ok($value),
            _ => Err(unexpected()),
        }
    };
}

impl<S: Read + Write + Send> Devices for RemoteDevices<S> {
    fn drives(&self) -> Result<u32, DevicesError> {
        expect!(self.ask(&Order::Drives, &[]), Report::Drives(drives) => drives)
    }

    fn describe_drives(&self) -> Result<Vec<DriveDescription>, DevicesError> {
        expect!(self.ask(&Order::DescribeDrives, &[]), Report::Described(drives) => drives)
    }

    fn inventory(&self) -> Result<LibraryInventory, DevicesError> {
        expect!(self.ask(&Order::Inventory, &[]), Report::Inventory(inventory) => inventory)
    }

    fn change(&self, order: &ChangerOrder) -> Result<(), DevicesError> {
        expect!(self.ask(&Order::Change(order.clone()), &[]), Report::Done => ())
    }

    fn mount(&self, order: &MountOrder, watch: &dyn MountWatch) -> Result<MountReport, DevicesError> {
        let mut link = locked(&self.0);
        link.send(&Order::Mount(order.clone()), &[]).map_err(DevicesError::Connection)?;
        loop {
            match answer(&mut link)?.0 {
                Report::Waiting(message) => watch.waiting(message),
                Report::Notice(message) => watch.notice(message),
                Report::IsStopped => {
                    link.send(&Order::Stopped(watch.is_stopped()), &[]).map_err(DevicesError::Connection)?;
                }
                Report::Mounted(report) => return Ok(*report),
                _ => return Err(unexpected()),
            }
        }
    }

    fn set_key(&self, mount: MountId, key: Option<DriveKey>) -> Result<(), DevicesError> {
        let name = key.as_ref().map(|key| (key.tag, key.algorithm));
        let attached = key.as_ref().map_or(&[][..], |key| &key.key);
        expect!(self.ask(&Order::SetKey(mount, name), attached), Report::Done => ())
    }

    fn at_volume(&self, mount: MountId, request: &VolumeRequest) -> Result<VolumeReport, DevicesError> {
        expect!(self.ask(&Order::AtVolume(mount, request.clone()), &[]), Report::Volume(report) => report)
    }

    fn catalog_part(
        &self,
        mount: MountId,
        volume: VolumeId,
        found: &FoundCheckpoint,
    ) -> Result<CatalogPart, DevicesError> {
        match self.ask(&Order::CatalogPart(mount, volume, found.clone()), &[])? {
            (Report::Part, attached) => CatalogPart::decode(&attached)
                .map_err(|error| DevicesError::Connection(io::Error::new(io::ErrorKind::InvalidData, error))),
            _ => Err(unexpected()),
        }
    }

    fn dismount(&self, order: &DismountOrder) -> Result<DismountReport, DevicesError> {
        match self.ask(&Order::Dismount(order.clone()), &[])?.0 {
            Report::Dismounted { drive, health, notices, failed } => {
                let outcome = failed.map_or(Ok(()), |form| Err(form.into()));
                Ok(DismountReport { drive, health: health.map(|health| *health), notices, outcome })
            }
            _ => Err(unexpected()),
        }
    }

    fn abandon(&self, mount: MountId) {
        // A connection that is lost has let go of it already.
        let _ = self.try_abandon(mount);
    }
}

/// The mounts of one process at a mover, over however many connections; and whether it has used each.
#[derive(Default)]
pub(crate) struct OwnedMounts(Mutex<HashMap<MountId, bool>>);

impl OwnedMounts {
    /// Notes that one is used; whether it is there.
    fn used(&self, mount: MountId) -> bool {
        locked(&self.0).get_mut(&mount).map(|is_used| *is_used = true).is_some()
    }

    fn forget(&self, mount: MountId) {
        locked(&self.0).remove(&mount);
    }

    /// Lets go of all: whoever made them is gone.
    pub(crate) fn abandon(&self, devices: &dyn Devices) {
        let mounts = std::mem::take(&mut *locked(&self.0));
        mounts.into_keys().for_each(|mount| devices.abandon(mount));
    }

    /// Lets go of one if whoever ordered it has not heard of it.
    fn abandon_unheard(&self, mount: MountId, devices: &dyn Devices) {
        let mut mounts = locked(&self.0);
        if mounts.get(&mount) == Some(&false) {
            mounts.remove(&mount);
            drop(mounts);
            devices.abandon(mount);
        }
    }
}

/// Carries out the orders that come over a connection until its other end closes it.
///
/// # Errors
/// The connection breaks, or what comes is no order.
pub fn serve_devices<S: Read + Write + Send>(devices: &dyn Devices, stream: S) -> io::Result<()> {
    let owned = OwnedMounts::default();
    let served = serve_devices_of(devices, stream, &owned, &|_| {});
    owned.abandon(devices);
    served
}

/// The same for a process that has several connections, and its mounts as long as one of them. `mounts` hears of each
/// volume that is to be mounted.
pub(crate) fn serve_devices_of<S: Read + Write + Send>(
    devices: &dyn Devices,
    stream: S,
    owned: &OwnedMounts,
    mounts: &dyn Fn(&Volser),
) -> io::Result<()> {
    let mut made = Vec::new();
    let served = serve_orders((devices, owned), mounts, &mut Link(stream), &mut made);
    made.into_iter().for_each(|mount| owned.abandon_unheard(mount, devices));
    ended_well(served)
}

/// A connection that was closed between two calls is over, and nothing is wrong with it.
fn ended_well(served: io::Result<()>) -> io::Result<()> {
    match served {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
        served => served,
    }
}

fn serve_orders<S: Read + Write + Send>(
    (devices, owned): (&dyn Devices, &OwnedMounts),
    mounts: &dyn Fn(&Volser),
    link: &mut Link<S>,
    made: &mut Vec<MountId>,
) -> io::Result<()> {
    loop {
        let (order, attached): (Order, _) = link.receive()?;
        if let Some(mount) = order.mount().filter(|mount| !owned.used(*mount)) {
            // One of another process, or of one before this.
            let unknown = DevicesError::from(MoverError::NotMounted { mount });
            link.send(&Report::Failed(ErrorForm::from(&unknown)), &[])?;
            continue;
        }
        let mut part = Vec::new();
        let done = match order {
            Order::Drives => devices.drives().map(Report::Drives),
            Order::DescribeDrives => devices.describe_drives().map(Report::Described),
            Order::Inventory => devices.inventory().map(Report::Inventory),
            Order::Change(order) => devices.change(&order).map(|()| Report::Done),
            Order::Mount(order) => {
                mounts(&order.volser);
                let watch = LinkWatch { link: Mutex::new(&mut *link), broken: Mutex::new(None) };
                let mounted = devices.mount(&order, &watch);
                let broken = watch.broken.into_inner().unwrap_or_else(PoisonError::into_inner);
                if let Ok(report) = &mounted {
                    locked(&owned.0).insert(report.mount, false);
                    made.push(report.mount);
                }
                if let Some(error) = broken {
                    return Err(error);
                }
                mounted.map(|report| Report::Mounted(Box::new(report)))
            }
            Order::Stopped(_) => return Err(other_question()),
            Order::SetKey(mount, name) => {
                let key = match (name, <[u8; 32]>::try_from(attached.as_slice())) {
                    (None, _) => None,
                    (Some((tag, algorithm)), Ok(key)) => Some(DriveKey { tag, algorithm, key }),
                    (Some(_), Err(_)) => return Err(io::Error::other("a key that came has not 32 bytes")),
                };
                devices.set_key(mount, key).map(|()| Report::Done)
            }
            Order::AtVolume(mount, request) => devices.at_volume(mount, &request).map(Report::Volume),
            Order::CatalogPart(mount, volume, found) => devices.catalog_part(mount, volume, &found).map(|found| {
                part = found.encode();
                Report::Part
            }),
            Order::Dismount(order) => devices.dismount(&order).map(|report| {
                owned.forget(order.mount);
                let DismountReport { drive, health, notices, outcome } = report;
                Report::Dismounted {
                    drive,
                    health: health.map(Box::new),
                    notices,
                    failed: outcome.as_ref().err().map(ErrorForm::from),
                }
            }),
            Order::Abandon(mount) => {
                owned.forget(mount);
                devices.abandon(mount);
                Ok(Report::Done)
            }
        };
        let report = done.unwrap_or_else(|error| Report::Failed(ErrorForm::from(&error)));
        link.send(&report, &part)?;
    }
}

/// Tells the other end how a mount goes on. Once the connection is broken nobody waits any more.
struct LinkWatch<'a, S> {
    link: Mutex<&'a mut Link<S>>,
    broken: Mutex<Option<io::Error>>,
}

impl<S: Read + Write> LinkWatch<'_, S> {
    fn tell(&self, report: &Report) {
        let sent = locked(&self.link).send(report, &[]);
        if let Err(error) = sent {
            locked(&self.broken).get_or_insert(error);
        }
    }
}

impl<S: Read + Write + Send> MountWatch for LinkWatch<'_, S> {
    fn waiting(&self, message: String) {
        self.tell(&Report::Waiting(message));
    }

    fn notice(&self, message: String) {
        self.tell(&Report::Notice(message));
    }

    fn is_stopped(&self) -> bool {
        if locked(&self.broken).is_some() {
            return true;
        }
        let mut link = locked(&self.link);
        let answer = link.send(&Report::IsStopped, &[]).and_then(|()| link.receive());
        match answer {
            Ok((Order::Stopped(stopped), _)) => stopped,
            Ok(_) => {
                locked(&self.broken).get_or_insert(other_question());
                true
            }
            Err(error) => {
                locked(&self.broken).get_or_insert(error);
                true
            }
        }
    }
}

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
pub struct RemoteCopyHost<S>(Mutex<Link<S>>);

impl<S: Read + Write> RemoteCopyHost<S> {
    /// A host that [`serve_copy_host`] serves at the other end.
    pub fn new(stream: S) -> Self {
        Self(Mutex::new(Link(stream)))
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
        match call(&self.0, &CopyCall::Mount, &[])? {
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
        match call(&self.0, &CopyCall::Committed(Box::new(form)), &commit.part.encode())? {
            HostAnswer::Done => Ok(()),
            _ => Err(other_question().into()),
        }
    }

    fn health(&mut self, volser: &Volser, health: &DriveHealth) {
        // It is told for the record; what is wrong with the connection the next commit says.
        let _ = call(&self.0, &CopyCall::Health(volser.clone(), Box::new(health.clone())), &[]);
    }

    fn release(&mut self, mount: MountId, volser: &Volser, end: VolumeEnd) {
        // Where nobody hears it, nobody dismounts; the mover lets go of the mount with the connection of orders.
        let _ = call(&self.0, &CopyCall::Release(mount, volser.clone(), end), &[]);
    }

    fn settled(&mut self, objects: &[ObjectId]) {
        // Where nobody hears it, nobody waits for it.
        let _ = call(&self.0, &CopyCall::Settled(objects.to_vec()), &[]);
    }

    fn ended(&mut self, failure: Option<&str>) {
        // Where nobody hears it, whoever serves the host ends it with the connection.
        let _ = call(&self.0, &CopyCall::Ended(failure.map(str::to_owned)), &[]);
    }

    fn now_ns(&self) -> i64 {
        match call(&self.0, &CopyCall::Now, &[]) {
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

/// Whoever decides for a read, at the other end of a connection.
pub struct RemoteReadHost<S>(Mutex<Link<S>>);

impl<S: Read + Write> RemoteReadHost<S> {
    /// A host that [`serve_read_host`] serves at the other end.
    pub fn new(stream: S) -> Self {
        Self(Mutex::new(Link(stream)))
    }
}

impl<S: Read + Write> ReadHost for RemoteReadHost<S> {
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
