//! A mover elsewhere, as whoever decides has it.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capstan_format::{CatalogPart, MediumSerial, Volser, VolumeId};
use capstan_tape::{DriveDescription, DriveKey, with_causes};

use super::words::{AskKey, KeyAnswer, MoverCall, MoverLink, OLDEST, Opened, Opening, TELLS_AT_ONCE, VERSION};
use crate::devices::remote::RemoteDevices;
use crate::devices::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DismountReport, KeySource, KeyWanted, LibraryInventory,
    MountOrder, MountReport, MountWatch, VolumeReport, VolumeRequest,
};
use crate::link::Link;
use crate::network::{Dial, NetworkStream, common};
use crate::{FoundCheckpoint, HostError, JobToken, MountId, MoverError};

/// Connections that are tried: those that a mover had kept open may be of one that is gone.
const TRIES: u32 = 16;

/// The first version of movers that let several reads have a drive at the same time.
const SHARES_DRIVES: u32 = 5;
/// The first version of movers that know fragments.
const TAKES_FRAGMENTS: u32 = 6;
/// The first version of movers that write down which object another one stands for.
const WRITES_CONSOLIDATIONS: u32 = 9;
/// The first version of movers that write down tags of objects.
const WRITES_TAGS: u32 = 10;
/// How often a mover of an older version is spoken to in this one.
const NEWEST_TRIED_EVERY: Duration = Duration::from_secs(60);
/// The first version of movers that hold a restore to a rate.
const HOLDS_TO_RATES: u32 = 7;
/// How long the mover may take to take a connection into use.
const OPENS_WITHIN: Duration = Duration::from_secs(60);
/// How long it may say nothing of an order: six heartbeats.
const HEARD_WITHIN: Duration = Duration::from_secs(60);
/// How long a mover that was silent may take to take a connection into use, for as long as it is doubted.
const OPENS_WITHIN_DOUBTED: Duration = Duration::from_secs(5);
const DOUBTED_FOR: Duration = Duration::from_secs(120);

/// Gives connections to a mover.
pub trait Connect: Send + Sync {
    /// One more connection, that nobody uses.
    ///
    /// # Errors
    /// The mover is not connected.
    fn connect(&self) -> io::Result<Box<dyn NetworkStream>>;

    /// Where clients bring their data: host and port.
    ///
    /// # Errors
    /// The mover is not connected, or this process gives no jobs to clients.
    fn data_address(&self) -> io::Result<String>;
}

/// A mover elsewhere. Clones are the same one.
#[derive(Clone)]
pub struct RemoteMover(Arc<Shared>);

struct Shared {
    connect: Arc<dyn Connect>,
    /// Whose its mounts are.
    owner: JobToken,
    keys: Arc<dyn KeySource>,
    /// The volumes whose keys the mover may ask for.
    mounted: Arc<MountedThere>,
    /// Connections of orders that nobody uses.
    idle: Mutex<Vec<Orders>>,
    /// When it was silent last.
    silent: Mutex<Option<Instant>>,
    /// Whoever answers what the mover asks for keys.
    answers_keys: Mutex<Option<JoinHandle<()>>>,
    /// The version of the protocol that it is spoken to in.
    version: AtomicU32,
    /// When it was spoken to in the newest.
    newest_tried: Mutex<Instant>,
}

type Orders = RemoteDevices<Box<dyn NetworkStream>>;

/// The volumes that a mover mounts for this process, and what it said of each when it came into its drive. It gets keys
/// of these alone, whatever it asks for: a machine that somebody else has taken over is one of the cell, too.
#[derive(Default)]
struct MountedThere(Mutex<HashMap<Volser, InDriveThere>>);

enum InDriveThere {
    /// It is on its way. Of a label that a person's cartridge is known by, keys may be asked for meanwhile.
    Coming,
    /// It is in a drive.
    Mounted { mount: MountId, cartridge: Option<MediumSerial>, drive: Option<String> },
}

impl MountedThere {
    /// Mounts a volume, which is known for as long.
    fn mount(
        &self,
        volser: &Volser,
        mount: impl FnOnce() -> Result<MountReport, DevicesError>,
    ) -> Result<MountReport, DevicesError> {
        let before = locked(&self.0).insert(volser.clone(), InDriveThere::Coming);
        let mounted = mount();
        let mut known = locked(&self.0);
        match (&mounted, before) {
            (Ok(MountReport { mount, medium, drive_serial, .. }), _) => {
                let (mount, cartridge, drive) = (*mount, medium.serial, drive_serial.clone());
                known.insert(volser.clone(), InDriveThere::Mounted { mount, cartridge, drive });
            }
            // Another one may have mounted it meanwhile.
            (Err(_), _) if !matches!(known.get(volser), Some(InDriveThere::Coming)) => {}
            (Err(_), Some(before)) => drop(known.insert(volser.clone(), before)),
            (Err(_), None) => drop(known.remove(volser)),
        }
        mounted
    }

    fn ended(&self, ended: MountId) {
        locked(&self.0).retain(|_, known| !matches!(known, InDriveThere::Mounted { mount, .. } if *mount == ended));
    }

    /// A key that the mover asks for, of the drive that has the volume; none if it has not.
    fn wanted(&self, asked: KeyWanted) -> Option<KeyWanted> {
        match locked(&self.0).get(&asked.volser)? {
            InDriveThere::Coming => Some(asked),
            InDriveThere::Mounted { cartridge, drive, .. } => {
                Some(KeyWanted { cartridge: *cartridge, drive: drive.clone(), ..asked })
            }
        }
    }
}

pub(super) fn locked<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteMover {
    /// A mover that is reached in this way. `keys` gives those that blocks name which it reads for this process.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new(connect: Arc<dyn Connect>, keys: Arc<dyn KeySource>) -> io::Result<Self> {
        let owner = JobToken::random()?;
        let (mounted, idle, silent, answers_keys) = Default::default();
        let (version, newest_tried) = (AtomicU32::new(VERSION), Mutex::new(Instant::now()));
        Ok(Self(Arc::new(Shared { connect, owner, keys, mounted, idle, silent, answers_keys, version, newest_tried })))
    }

    /// Whether the mover lets several reads have a drive at the same time, as far as it has said what it speaks.
    pub(super) fn shares_drives(&self) -> bool {
        self.0.version.load(Ordering::Relaxed) >= SHARES_DRIVES
    }

    /// Whether the mover knows fragments.
    pub(super) fn takes_fragments(&self) -> bool {
        self.0.version.load(Ordering::Relaxed) >= TAKES_FRAGMENTS
    }

    /// Whether the mover writes down which object another one stands for.
    pub(super) fn writes_consolidations(&self) -> bool {
        self.0.version.load(Ordering::Relaxed) >= WRITES_CONSOLIDATIONS
    }

    /// Whether the mover writes down tags of objects.
    pub(super) fn writes_tags(&self) -> bool {
        self.0.version.load(Ordering::Relaxed) >= WRITES_TAGS
    }

    /// Whether the mover sends a client no faster than it is told.
    pub(super) fn holds_to_rates(&self) -> bool {
        self.0.version.load(Ordering::Relaxed) >= HOLDS_TO_RATES
    }

    /// What it is spoken to in next: what it spoke last, and the newest now and then, as it may have been upgraded.
    fn version_to_try(&self) -> u32 {
        let version = self.0.version.load(Ordering::Relaxed);
        let mut tried = locked(&self.0.newest_tried);
        if version >= VERSION || tried.elapsed() < NEWEST_TRIED_EVERY {
            return version;
        }
        *tried = Instant::now();
        VERSION
    }

    /// Opens a connection for something.
    pub(super) fn call(&self, call: MoverCall, attached: &[u8]) -> io::Result<MoverLink> {
        let version = self.version_to_try();
        let mut opening = Opening { version, call };
        let mut tries = TRIES;
        loop {
            tries -= 1;
            let mut link = Link(self.0.connect.connect()?);
            let is_doubted = locked(&self.0.silent).is_some_and(|silent| silent.elapsed() < DOUBTED_FOR);
            link.0.set_timeout(Some(if is_doubted { OPENS_WITHIN_DOUBTED } else { OPENS_WITHIN }))?;
            match link.send(&opening, attached).and_then(|()| link.receive_within(0)) {
                Ok((Opened::Taken, _)) => {
                    // Another call may have found it upgraded meanwhile.
                    self.0.version.fetch_max(opening.version, Ordering::Relaxed);
                    *locked(&self.0.silent) = None;
                    link.0.set_timeout(None)?;
                    return Ok(link);
                }
                Ok((Opened::Refused(reason), _)) => {
                    return Err(io::Error::new(io::ErrorKind::PermissionDenied, reason));
                }
                Ok((Opened::Speaks(theirs), _)) => {
                    // It was upgraded since, and does not know any more what it was spoken to in.
                    let is_newer = theirs > opening.version && opening.version < VERSION;
                    opening.version = if is_newer { VERSION } else { common(opening.version, (OLDEST, theirs))? };
                    self.0.version.store(opening.version, Ordering::Relaxed);
                    tries += 1;
                }
                // One that was kept open, by a mover that is gone.
                Err(error) if is_lost(&error) && tries > 0 => {}
                Err(error) if is_silent(&error) => return Err(self.was_silent()),
                Err(error) => return Err(error),
            }
        }
    }

    pub(super) fn data_address(&self) -> io::Result<String> {
        self.0.connect.data_address()
    }

    /// Gives the order on a connection that nobody uses.
    fn order<T>(&self, order: impl Fn(&Orders) -> Result<T, DevicesError>, again: bool) -> Result<T, DevicesError> {
        let kept = locked(&self.0.idle).pop();
        let was_kept = kept.is_some();
        let orders = kept.map_or_else(|| self.orders(), Ok).map_err(DevicesError::Connection)?;
        let asked = self.answer_keys();
        let done = asked.map_err(DevicesError::Connection).and_then(|()| order(&orders));
        match done {
            Err(DevicesError::Connection(error)) if was_kept && again && is_lost(&error) => {
                // The others are of the same mover, and so is whoever it asks for keys. A mover that still runs lets go
                // of what this server has mounted once its last connection ends: so the new one comes first.
                let fresh = self.orders().map_err(DevicesError::Connection)?;
                *locked(&self.0.idle) = vec![fresh];
                locked(&self.0.answers_keys).take();
                self.order(order, false)
            }
            Err(DevicesError::Connection(error)) if is_silent(&error) => {
                // So are the others. Whoever gives up what it has mounted is not to wait a minute for each order.
                locked(&self.0.idle).clear();
                Err(DevicesError::Connection(self.was_silent()))
            }
            Err(DevicesError::Connection(_)) => done,
            _ => {
                locked(&self.0.idle).push(orders);
                done
            }
        }
    }

    /// Notes that the mover says nothing; gives that as an error.
    fn was_silent(&self) -> io::Error {
        *locked(&self.0.silent) = Some(Instant::now());
        let reason = "it says nothing: it hangs, or the network between does";
        io::Error::new(io::ErrorKind::TimedOut, reason)
    }

    /// A new connection of orders.
    fn orders(&self) -> io::Result<Orders> {
        let mut stream = self.call(MoverCall::Devices { owner: self.owner() }, &[])?.0;
        stream.set_timeout(Some(HEARD_WITHIN))?;
        Ok(RemoteDevices::new(stream))
    }

    /// Whose the mounts of this process are.
    pub(super) fn owner(&self) -> JobToken {
        self.0.owner.clone()
    }

    /// Sees to it that the mover can ask for keys. There is a connection of orders.
    fn answer_keys(&self) -> io::Result<()> {
        let mut answers = locked(&self.0.answers_keys);
        if answers.as_ref().is_none_or(JoinHandle::is_finished) {
            let link = self.call(MoverCall::Keys { owner: self.owner() }, &[])?;
            let (keys, mounted) = (Arc::clone(&self.0.keys), Arc::clone(&self.0.mounted));
            let answer = move || {
                // It ends with the connection.
                let _ = answer_keys(link, keys.as_ref(), &mounted);
            };
            *answers = Some(thread::Builder::new().name("keys".to_owned()).spawn(answer)?);
        }
        Ok(())
    }
}

fn is_lost(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe)
}

fn is_silent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}

fn answer_keys(mut link: MoverLink, keys: &dyn KeySource, mounted: &MountedThere) -> io::Result<()> {
    loop {
        let (asked, _): (AskKey, _) = link.receive_within(0)?;
        let asked = KeyWanted::from(asked);
        let refused = format!("volume {} is not mounted at this mover: its keys are not given out", asked.volser);
        match mounted.wanted(asked).ok_or_else(|| HostError::from(refused)).and_then(|wanted| keys.key(&wanted)) {
            Ok(key) => link.send(&KeyAnswer::Key(key.algorithm), &key.key)?,
            Err(error) => link.send(&KeyAnswer::None(with_causes(error.as_ref())), &[])?,
        }
    }
}

/// Connections of data to the mover.
pub(super) struct DataDial<'a>(pub(super) &'a RemoteMover);

impl Dial for DataDial<'_> {
    fn dial(&self) -> io::Result<Box<dyn NetworkStream>> {
        Ok(self.0.call(MoverCall::Data, &[])?.0)
    }
}

/// Why something was not done, where the connection is at fault.
pub(super) fn gone(error: &io::Error) -> MoverError {
    let reason = if is_lost(error) {
        "the mover has ended the connection: it was stopped, or it is down".to_owned()
    } else {
        format!("the mover cannot be reached: {error}")
    };
    MoverError::Elsewhere { reason }
}

impl Devices for RemoteMover {
    fn drives(&self) -> Result<u32, DevicesError> {
        self.order(Devices::drives, true)
    }

    fn describe_drives(&self) -> Result<Vec<DriveDescription>, DevicesError> {
        self.order(Devices::describe_drives, true)
    }

    fn inventory(&self) -> Result<LibraryInventory, DevicesError> {
        self.order(Devices::inventory, true)
    }

    fn inventory_at_once(&self) -> Result<LibraryInventory, DevicesError> {
        // What it speaks is known once there is a connection.
        let ask = |orders: &Orders| match self.0.version.load(Ordering::Relaxed) {
            TELLS_AT_ONCE.. => orders.inventory_at_once(),
            _ => orders.inventory(),
        };
        self.order(ask, true)
    }

    fn change(&self, order: &ChangerOrder) -> Result<(), DevicesError> {
        self.order(|orders| orders.change(order), false)
    }

    fn mount(&self, order: &MountOrder, watch: &dyn MountWatch) -> Result<MountReport, DevicesError> {
        // One that is given twice finds the volume in its drive, and that it is in use: what nobody has heard of is let
        // go of with its connection.
        self.0.mounted.mount(&order.volser, || self.order(|orders| orders.mount(order, watch), true))
    }

    fn set_key(&self, mount: MountId, key: Option<DriveKey>) -> Result<(), DevicesError> {
        let key = std::cell::Cell::new(Some(key));
        self.order(|orders| orders.set_key(mount, key.take().flatten()), false)
    }

    fn at_volume(&self, mount: MountId, request: &VolumeRequest) -> Result<VolumeReport, DevicesError> {
        self.order(|orders| orders.at_volume(mount, request), false)
    }

    fn catalog_part(
        &self,
        mount: MountId,
        volume: VolumeId,
        found: &FoundCheckpoint,
    ) -> Result<CatalogPart, DevicesError> {
        self.order(|orders| orders.catalog_part(mount, volume, found), false)
    }

    fn dismount(&self, order: &DismountOrder) -> Result<DismountReport, DevicesError> {
        let dismounted = self.order(|orders| orders.dismount(order), false);
        self.0.mounted.ended(order.mount);
        dismounted
    }

    fn abandon(&self, mount: MountId) {
        // A mover that is gone has let go of it.
        let _ = self.order(|orders| orders.try_abandon(mount), true);
        self.0.mounted.ended(mount);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::os::unix::net::UnixStream;
    use std::sync::atomic::AtomicBool;

    use capstan_tape::VirtualLibrary;

    use super::*;
    use crate::devices::{Loader, LocalDevices};
    use crate::{MountedDrives, OwnersKeys, ServedMover};

    struct NoKeys;

    impl KeySource for NoKeys {
        fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
            Err(format!("nobody has key {}", wanted.tag).into())
        }
    }

    /// Gives connections whose other end somebody serves.
    struct To<F>(F);

    impl<F: Fn(UnixStream) + Send + Sync> Connect for To<F> {
        fn connect(&self) -> io::Result<Box<dyn NetworkStream>> {
            let (near, far) = UnixStream::pair()?;
            (self.0)(far);
            Ok(Box::new(near))
        }

        fn data_address(&self) -> io::Result<String> {
            Err(io::ErrorKind::Unsupported.into())
        }
    }

    /// A mover with a library, and the way to it.
    fn mover_of(library: &Arc<Mutex<VirtualLibrary>>) -> RemoteMover {
        let library = Arc::clone(library);
        let (mounted, keys) = (Arc::new(MountedDrives::new()), Arc::new(OwnersKeys::default()));
        let devices = LocalDevices::new(library, Loader::Robot, None, Arc::new(NoKeys), Arc::clone(&mounted));
        let served = ServedMover::new(Arc::new(devices), mounted, keys);
        let serve = move |far: UnixStream| {
            let served = served.clone();
            thread::spawn(move || served.serve(Box::new(far), &|| (), &AtomicBool::new(false)));
        };
        RemoteMover::new(Arc::new(To(serve)), Arc::new(NoKeys)).unwrap()
    }

    /// `status` and each scrape of the metrics waited until a robot had brought its cartridge.
    #[test]
    fn who_looks_does_not_wait_for_a_robot_at_work() {
        let folder = tempfile::tempdir().unwrap();
        let library = Arc::new(Mutex::new(VirtualLibrary::open(folder.path(), 2).unwrap()));
        let mover = mover_of(&library);
        let before = mover.inventory().unwrap();
        let works = locked(&library);
        assert_eq!(mover.inventory_at_once().unwrap(), before);
        drop(works);
        assert_eq!(mover.inventory_at_once().unwrap(), before);
    }

    /// Whoever decides is of a later version than the mover, and knows the mover's.
    #[test]
    fn a_mover_of_an_older_version_is_spoken_to_in_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let mover = mover_of(&Arc::new(Mutex::new(VirtualLibrary::open(folder.path(), 2).unwrap())));
        mover.0.version.store(VERSION + 7, Ordering::Relaxed);
        assert_eq!(mover.drives().unwrap(), 2);
        assert_eq!(mover.0.version.load(Ordering::Relaxed), VERSION);
        // One that spoke an older one is spoken to in that, and has what it was upgraded to noticed after a while.
        mover.0.version.store(HOLDS_TO_RATES - 1, Ordering::Relaxed);
        assert!(mover.drives().is_ok() && !mover.holds_to_rates() && mover.takes_fragments());
        *locked(&mover.0.newest_tried) = Instant::now().checked_sub(NEWEST_TRIED_EVERY).unwrap();
        assert!(mover.call(MoverCall::Devices { owner: mover.owner() }, &[]).is_ok() && mover.holds_to_rates());
    }

    /// Gives every key, and says of which drive it was asked for.
    struct AllKeys(std::sync::mpsc::Sender<Option<String>>);

    impl KeySource for AllKeys {
        fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
            self.0.send(wanted.drive.clone()).unwrap();
            Ok(DriveKey { tag: wanted.tag, algorithm: capstan_format::Algorithm::Aes256Gcm, key: [7; 32] })
        }
    }

    /// Whoever had taken a mover over asked for the keys of all volumes by tags that stand on them in the open, as
    /// whatever drive may have them.
    #[test]
    fn a_mover_has_the_keys_of_what_it_has_mounted_and_no_others() {
        let [here, elsewhere] = ["A00001", "B00001"].map(|volser| Volser::new(volser).unwrap());
        let (gives, given) = std::sync::mpsc::channel();
        let mounted = MountedThere::default();
        let mount = MountId(7);
        let report = InDriveThere::Mounted { mount, cartridge: None, drive: Some("IBM-1".to_owned()) };
        locked(&mounted.0).insert(here.clone(), report);
        let (near, far) = UnixStream::pair().unwrap();
        thread::scope(|scope| {
            let mounted = &mounted;
            scope.spawn(move || {
                let near: Box<dyn NetworkStream> = Box::new(near);
                let _ = answer_keys(Link(near), &AllKeys(gives), mounted);
            });
            let mut far = Link(far);
            let mut has_key = |volser: &Volser| {
                let drive = Some("any".to_owned());
                let wanted =
                    KeyWanted { tag: capstan_format::KeyTag([1; 16]), volser: volser.clone(), cartridge: None, drive };
                far.send(&AskKey::from(&wanted), &[]).unwrap();
                matches!(far.receive::<KeyAnswer>().unwrap().0, KeyAnswer::Key(_))
            };
            assert!(has_key(&here) && !has_key(&elsewhere));
            assert_eq!(
                given.try_iter().collect::<Vec<_>>(),
                [Some("IBM-1".to_owned())],
                "its drive, as it was mounted"
            );
            mounted.ended(mount);
            assert!(!has_key(&here));
            let coming = || -> Result<MountReport, DevicesError> {
                assert!(has_key(&here), "a label may be looked at");
                Err(DevicesError::Mover(MoverError::Stopped))
            };
            assert!(mounted.mount(&here, coming).is_err());
            assert!(!has_key(&here));
            drop(far);
        });
    }

    #[test]
    fn one_that_is_too_old_is_named() {
        let serve = |far: UnixStream| {
            thread::spawn(move || {
                let mut link = Link(far);
                let (Opening { version, .. }, _) = link.receive().unwrap();
                assert_eq!(version, VERSION);
                link.send(&Opened::Speaks(OLDEST - 1), &[]).unwrap();
            });
        };
        let mover = RemoteMover::new(Arc::new(To(serve)), Arc::new(NoKeys)).unwrap();
        let told = with_causes(&mover.drives().unwrap_err());
        assert!(told.contains("the other end is too old") && told.contains("install a newer capstan there"), "{told}");
    }
}
