//! The seam between whoever decides and a mover, over a socket.
//!
//! ```text
//!   decides                              touches
//!   RemoteDevices  ---- orders ---->     serve_devices(LocalDevices)
//!   serve_copy_host(AppendHost)  <----   RemoteCopyHost, asked by a session's copy
//!   serve_read_host(ReadMounter) <----   RemoteReadHost, asked by a read
//! ```
//! One connection carries one call at a time, so a job has connections of its own. An order takes the time that robot
//! and drive take, so the mover sends a heartbeat while it works: silence means that its process hangs, or the network
//! does. (A drive that hangs is the business of its driver's time-outs.) While a volume is mounted, the mover also says
//! what is waited for, and asks whether to go on waiting. When a connection of orders ends, the mounts that were made
//! on it and not ended are let go of: whoever made them is gone.
//!
//! What protects a connection (TLS, identities) is for whoever opens it; a key that is loaded crosses it.

mod hosts;

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use capstan_format::{Algorithm, CatalogPart, KeyTag, Volser, VolumeId};
use capstan_tape::{DriveDescription, DriveKey};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::wire::ErrorForm;
use super::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DismountReport, LibraryInventory, MountOrder, MountReport,
    MountWatch, VolumeReport, VolumeRequest,
};
use crate::link::Link;
use crate::{DriveHealth, FoundCheckpoint, MountId, MoverError};

pub use hosts::{RemoteCopyHost, RemoteReadHost, serve_copy_host, serve_read_host};
pub(crate) use hosts::{serve_copy_host_until, serve_read_host_until};

/// How often a mover that works on an order sends a heartbeat.
const HEARTBEAT: Duration = Duration::from_secs(10);

/// What whoever decides sends to devices.
#[derive(Serialize, Deserialize)]
enum Order {
    Drives,
    DescribeDrives,
    Inventory,
    InventoryAtOnce,
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
    /// The order is worked on.
    Heartbeat,
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
    loop {
        match link.receive().map_err(DevicesError::Connection)? {
            (Report::Heartbeat, _) => {}
            (Report::Failed(form), _) => return Err(form.into()),
            told => return Ok(told),
        }
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

    fn inventory_at_once(&self) -> Result<LibraryInventory, DevicesError> {
        expect!(self.ask(&Order::InventoryAtOnce, &[]), Report::Inventory(inventory) => inventory)
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
    let orders = Orders { devices, owned, mounts, heartbeat: HEARTBEAT };
    let served = orders.serve(&mut Link(stream), &mut made);
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

/// Carries out orders.
struct Orders<'a> {
    devices: &'a dyn Devices,
    owned: &'a OwnedMounts,
    mounts: &'a dyn Fn(&Volser),
    heartbeat: Duration,
}

impl Orders<'_> {
    fn serve<S: Read + Write + Send>(&self, link: &mut Link<S>, made: &mut Vec<MountId>) -> io::Result<()> {
        loop {
            let (order, attached): (Order, _) = link.receive()?;
            if let Some(mount) = order.mount().filter(|mount| !self.owned.used(*mount)) {
                // One of another process, or of one before this.
                let unknown = DevicesError::from(MoverError::NotMounted { mount });
                link.send(&Report::Failed(ErrorForm::from(&unknown)), &[])?;
                continue;
            }
            let watch = LinkWatch { link: Mutex::new(&mut *link), broken: Mutex::new(None) };
            let done = watch.with_heartbeat(self.heartbeat, || self.carry_out(order, &attached, &watch, made));
            if let Some(error) = watch.broken.into_inner().unwrap_or_else(PoisonError::into_inner) {
                return Err(error);
            }
            let (report, part) = match done? {
                Ok(done) => done,
                Err(error) => (Report::Failed(ErrorForm::from(&error)), Vec::new()),
            };
            link.send(&report, &part)?;
        }
    }

    /// Carries an order out; what is answered, and what is attached to it.
    fn carry_out(
        &self,
        order: Order,
        attached: &[u8],
        watch: &dyn MountWatch,
        made: &mut Vec<MountId>,
    ) -> io::Result<Result<(Report, Vec<u8>), DevicesError>> {
        let devices = self.devices;
        let mut part = Vec::new();
        let done = match order {
            Order::Drives => devices.drives().map(Report::Drives),
            Order::DescribeDrives => devices.describe_drives().map(Report::Described),
            Order::Inventory => devices.inventory().map(Report::Inventory),
            Order::InventoryAtOnce => devices.inventory_at_once().map(Report::Inventory),
            Order::Change(order) => devices.change(&order).map(|()| Report::Done),
            Order::Mount(order) => {
                (self.mounts)(&order.volser);
                devices.mount(&order, watch).map(|report| {
                    locked(&self.owned.0).insert(report.mount, false);
                    made.push(report.mount);
                    Report::Mounted(Box::new(report))
                })
            }
            Order::Stopped(_) => return Err(other_question()),
            Order::SetKey(mount, name) => {
                let key = match (name, <[u8; 32]>::try_from(attached)) {
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
                self.owned.forget(order.mount);
                let DismountReport { drive, health, notices, outcome } = report;
                Report::Dismounted {
                    drive,
                    health: health.map(Box::new),
                    notices,
                    failed: outcome.as_ref().err().map(ErrorForm::from),
                }
            }),
            Order::Abandon(mount) => {
                self.owned.forget(mount);
                devices.abandon(mount);
                Ok(Report::Done)
            }
        };
        Ok(done.map(|report| (report, part)))
    }
}

/// Tells the other end how an order goes on. Once the connection is broken nobody waits any more.
struct LinkWatch<'a, S> {
    link: Mutex<&'a mut Link<S>>,
    broken: Mutex<Option<io::Error>>,
}

impl<S: Read + Write + Send> LinkWatch<'_, S> {
    /// Does some work, and sends heartbeats meanwhile.
    fn with_heartbeat<T>(&self, every: Duration, work: impl FnOnce() -> T) -> T {
        // It ends when its sender is dropped, by a panic too.
        let (works, work_ends) = channel::<()>();
        thread::scope(|scope| {
            let beat = move || {
                while work_ends.recv_timeout(every) == Err(RecvTimeoutError::Timeout) {
                    self.tell(&Report::Heartbeat);
                }
            };
            // If there is no thread to be had, an order that takes long counts as one that hangs.
            let _ = thread::Builder::new().name("heartbeat".to_owned()).spawn_scoped(scope, beat);
            let _works = works;
            work()
        })
    }

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

/// Orders and reports as this version says them.
#[cfg(test)]
pub(crate) fn words_in_tests() -> Vec<crate::kept_words::Word> {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use capstan_tape::{DriveNeeds, EncryptionState, Medium, Position, Rewritability};

    use super::{DriveReservation, ReservationKey};
    use crate::kept_words::Word;

    let (volser, mount, life) = (Volser::new("A00001").unwrap(), MountId(1), VolumeId(2));
    let reservation = DriveReservation { key: ReservationKey::new("0123", 4), living: Some(vec![4]) };
    let needs = DriveNeeds {
        generation: Some("LTO-9".to_owned()),
        writes: true,
        encrypts: true,
        models: vec!["LTO-9".to_owned()],
    };
    let first_key = Some(KeyTag([2; 16]));
    let medium = Medium {
        volser: Some(volser.clone()),
        serial: None,
        generation: Some("LTO-9".to_owned()),
        capacity_bytes: 1,
        remaining_bytes: 2,
        write_protected: false,
        rewritability: Rewritability::Rewritable,
        encryption: EncryptionState::Blank,
    };
    let mounted = MountReport {
        mount,
        number: 0,
        drive: "/dev/sg1".to_owned(),
        drive_serial: Some("d1".to_owned()),
        medium,
        left_alerts: vec![1],
        health: None,
    };
    let order = |name, order: Order| Word::of(name, &order);
    let at_volume = |name, request| Word::of(name, &Order::AtVolume(mount, request));
    let report = |name, report: Report| Word::of(name, &report);
    let mut words = hosts::words_in_tests(mount, &volser);
    words.extend([
        order("drives", Order::Drives),
        order("describe-drives", Order::DescribeDrives),
        order("inventory", Order::Inventory),
        order("inventory-at-once", Order::InventoryAtOnce),
        order("load", Order::Change(ChangerOrder::Load { volser: volser.clone(), drive: 1 })),
        order("unload", Order::Change(ChangerOrder::Unload { drive: 1 })),
        order("mount", Order::Mount(MountOrder { volser, reservation, labelled: true, first_key, needs })),
        order("stopped", Order::Stopped(true)),
        order("set-key", Order::SetKey(mount, first_key.map(|tag| (tag, Algorithm::Aes256Gcm)))),
        at_volume("read-label", VolumeRequest::ReadLabel),
        at_volume("end-of-data", VolumeRequest::EndOfData),
        at_volume("flush", VolumeRequest::Flush),
        at_volume("erase", VolumeRequest::Erase),
        at_volume("last-checkpoint", VolumeRequest::LastCheckpoint(life)),
        at_volume("last-checkpoint-lbn", VolumeRequest::LastCheckpointLbn(life)),
        at_volume("checkpoint", VolumeRequest::Checkpoint(life, 3)),
        at_volume("checkpoint-before", VolumeRequest::CheckpointLbnBefore(life, 3)),
        at_volume("session-record", VolumeRequest::SessionRecord(life, 3)),
        order("dismount", Order::Dismount(DismountOrder { mount, description: None })),
        order("abandon", Order::Abandon(mount)),
        report("waiting", Report::Waiting("for a person".to_owned())),
        report("notice", Report::Notice("a notice".to_owned())),
        report("is-stopped", Report::IsStopped),
        report("heartbeat", Report::Heartbeat),
        report("drives-are", Report::Drives(2)),
        report("described", Report::Described(vec![DriveDescription::default()])),
        report(
            "inventory-is",
            Report::Inventory(LibraryInventory { elements: Vec::new(), findings: Vec::new(), rooms: Vec::new() }),
        ),
        report("mounted", Report::Mounted(Box::new(mounted))),
        report("volume-done", Report::Volume(VolumeReport::Done)),
        report("volume-position", Report::Volume(VolumeReport::Position(Position { lbn: 1, early_warning: false }))),
        report("volume-lbn", Report::Volume(VolumeReport::Lbn(Some(1)))),
        report("part", Report::Part),
        report(
            "dismounted",
            Report::Dismounted { drive: "d".to_owned(), health: None, notices: Vec::new(), failed: None },
        ),
        report("done", Report::Done),
    ]);
    words.extend(super::wire::words_in_tests());
    words
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::Receiver;

    use super::*;

    /// Devices that say how many drives there are once they are let.
    struct Slow(Mutex<Receiver<()>>);

    impl Devices for Slow {
        fn drives(&self) -> Result<u32, DevicesError> {
            locked(&self.0).recv().unwrap();
            Ok(7)
        }

        fn describe_drives(&self) -> Result<Vec<DriveDescription>, DevicesError> {
            panic!("nobody asks")
        }

        fn inventory(&self) -> Result<LibraryInventory, DevicesError> {
            panic!("nobody asks")
        }

        fn change(&self, _: &ChangerOrder) -> Result<(), DevicesError> {
            panic!("nobody asks")
        }

        fn mount(&self, _: &MountOrder, _: &dyn MountWatch) -> Result<MountReport, DevicesError> {
            panic!("nobody asks")
        }

        fn set_key(&self, _: MountId, _: Option<DriveKey>) -> Result<(), DevicesError> {
            panic!("nobody asks")
        }

        fn at_volume(&self, _: MountId, _: &VolumeRequest) -> Result<VolumeReport, DevicesError> {
            panic!("nobody asks")
        }

        fn catalog_part(&self, _: MountId, _: VolumeId, _: &FoundCheckpoint) -> Result<CatalogPart, DevicesError> {
            panic!("nobody asks")
        }

        fn dismount(&self, _: &DismountOrder) -> Result<DismountReport, DevicesError> {
            panic!("nobody asks")
        }

        fn abandon(&self, _: MountId) {}
    }

    #[test]
    fn an_order_that_takes_long_has_a_heartbeat() {
        let (lets, is_let) = channel();
        let (near, far) = UnixStream::pair().unwrap();
        let serve = move || {
            let (devices, owned) = (Slow(Mutex::new(is_let)), OwnedMounts::default());
            let heartbeat = Duration::from_millis(5);
            let orders = Orders { devices: &devices, owned: &owned, mounts: &|_| {}, heartbeat };
            orders.serve(&mut Link(far), &mut Vec::new())
        };
        let served = thread::spawn(serve);
        let mut link = Link(near);
        link.send(&Order::Drives, &[]).unwrap();
        for _ in 0..3 {
            let (report, _) = link.receive::<Report>().unwrap();
            assert!(matches!(report, Report::Heartbeat));
        }
        lets.send(()).unwrap();
        assert!(matches!(answer(&mut link).unwrap().0, Report::Drives(7)));
        drop(link);
        assert_eq!(served.join().unwrap().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_mover_that_says_nothing_is_not_waited_for() {
        let (near, _far) = UnixStream::pair().unwrap();
        near.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let drives = RemoteDevices::new(near).drives();
        let Err(DevicesError::Connection(error)) = drives else { panic!("{drives:?}") };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    }
}
