//! A mover that others decide for: what it does on the connections that it keeps open for them.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use capstan_format::Volser;
use capstan_tape::DriveKey;

use super::remote::locked;
use super::words::{AskKey, KeyAnswer, MoverCall, MoverLink, OLDEST, OWN, Opened, Opening, VERSION, other_answer};
use crate::devices::remote::{OwnedMounts, serve_devices_of};
use crate::devices::{Devices, KeySource, KeyWanted};
use crate::link::Link;
use crate::network::{NetworkJobs, NetworkStream};
use crate::{HostError, JobToken, MountedDrives};

/// How long whoever is expected may take to come.
pub(super) const COMES_WITHIN: Duration = Duration::from_secs(45);
/// How often a connection that nobody uses looks whether it is to end.
const LOOKS: Duration = Duration::from_secs(1);

/// A mover's devices and data path, for whoever decides elsewhere. Clones are the same one.
#[derive(Clone)]
pub struct ServedMover(Arc<Shared>);

struct Shared {
    devices: Arc<dyn Devices>,
    drives: Arc<MountedDrives>,
    keys: Arc<OwnersKeys>,
    /// Those who have mounts, as long as they have a connection.
    owners: Mutex<HashMap<JobToken, Weak<Owner>>>,
    /// Sessions and reads that wait for those who decide for them.
    hosts: Mutex<HashMap<JobToken, Arc<Hosts>>>,
    /// Clients that bring or take data.
    jobs: NetworkJobs,
}

/// A process that decides. When its last connection ends, its mounts are let go of.
pub(super) struct Owner {
    devices: Arc<dyn Devices>,
    mounts: OwnedMounts,
    /// Where it is asked for keys.
    asked: Mutex<Option<MoverLink>>,
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.mounts.abandon(self.devices.as_ref());
    }
}

/// Keys of volumes, asked of whoever has mounted them.
#[derive(Default)]
pub struct OwnersKeys(Mutex<HashMap<Volser, Weak<Owner>>>);

impl KeySource for OwnersKeys {
    fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
        let owner = locked(&self.0).get(&wanted.volser).and_then(Weak::upgrade);
        let gone = || format!("whoever has mounted volume {} is gone, and has its keys", wanted.volser);
        let owner = owner.ok_or_else(gone)?;
        let mut asked = locked(&owner.asked);
        let link = asked.as_mut().ok_or_else(gone)?;
        let answer = link.send(&AskKey::from(wanted), &[]).and_then(|()| link.receive::<KeyAnswer>());
        match answer {
            Ok((KeyAnswer::Key(algorithm), key)) => {
                let key = <[u8; 32]>::try_from(key.as_slice()).map_err(|_| other_answer())?;
                Ok(DriveKey { tag: wanted.tag, algorithm, key })
            }
            Ok((KeyAnswer::None(reason), _)) => Err(reason.into()),
            Err(error) => {
                *asked = None;
                Err(error.into())
            }
        }
    }
}

/// The connections that a session or a read waits for.
pub(super) struct Hosts {
    places: Mutex<Vec<Option<Box<dyn NetworkStream>>>>,
    came: Condvar,
}

impl ServedMover {
    /// A mover with these devices, which ask for keys there, and with the drives that they mount volumes in.
    pub fn new(devices: Arc<dyn Devices>, drives: Arc<MountedDrives>, keys: Arc<OwnersKeys>) -> Self {
        let (owners, hosts, jobs) = Default::default();
        Self(Arc::new(Shared { devices, drives, keys, owners, hosts, jobs }))
    }

    /// Serves a connection that this mover keeps open, in this thread: waits until somebody uses it, calls `begun`, and
    /// does what it is for. One that nobody uses ends when `stop` is set.
    ///
    /// # Errors
    /// The connection breaks, or what comes is not of the protocol.
    pub fn serve(&self, stream: Box<dyn NetworkStream>, begun: &dyn Fn(), stop: &AtomicBool) -> io::Result<()> {
        let mut link = Link(stream);
        link.0.set_timeout(Some(LOOKS))?;
        let Some(first) = link.first_byte(stop)? else { return Ok(()) };
        begun();
        link.0.set_timeout(None)?;
        let (Opening { call, version }, attached) = match link.open_behind(first, OLDEST..=VERSION)? {
            Ok(opened) => opened,
            Err(newer) if newer > VERSION => return link.send(&Opened::Speaks(VERSION), &[]),
            // It may be from before there was that answer.
            Err(version) => {
                let reason =
                    format!("whoever decides speaks version {version} of the protocol, and this mover {VERSION}");
                return link.send(&Opened::Refused(reason), &[]);
            }
        };
        let host = match &call {
            MoverCall::Host { of, number } => match locked(&self.0.hosts).get(of).cloned() {
                Some(hosts) => Some((hosts, usize::from(*number))),
                None => {
                    let reason = "nobody waits for this host any more".to_owned();
                    return link.send(&Opened::Refused(reason), &[]);
                }
            },
            _ => None,
        };
        // Before whoever asks hears of it: what it opens next is of the same owner.
        let owner = match &call {
            MoverCall::Devices { owner } | MoverCall::Keys { owner } => Some(self.owner(owner)),
            _ => None,
        };
        link.send(&Opened::Taken, &[])?;
        match call {
            MoverCall::Devices { .. } => {
                let Some(owner) = owner else { return Ok(()) };
                let mounts = |volser: &Volser| {
                    let mut keys = locked(&self.0.keys.0);
                    keys.retain(|_, owner| owner.strong_count() > 0);
                    keys.insert(volser.clone(), Arc::downgrade(&owner));
                };
                serve_devices_of(self.0.devices.as_ref(), link.0, &owner.mounts, &mounts)
            }
            MoverCall::Keys { .. } => {
                if let Some(owner) = owner {
                    *locked(&owner.asked) = Some(link);
                }
                Ok(())
            }
            MoverCall::Session(call) => self.serve_session(link, *call, version),
            MoverCall::Read(call) => self.serve_read(link, *call, &attached),
            MoverCall::Host { .. } => {
                if let Some((hosts, number)) = host
                    && let Some(place) = locked(&hosts.places).get_mut(number)
                {
                    *place = Some(link.0);
                    hosts.came.notify_all();
                }
                Ok(())
            }
            MoverCall::Data => self.0.jobs.accept(OWN, link.0),
        }
    }

    /// Takes a connection of data of a client in, as [`NetworkJobs::accept`] does.
    ///
    /// # Errors
    /// As there.
    pub fn accept(&self, client: &str, stream: Box<dyn NetworkStream>) -> io::Result<()> {
        self.0.jobs.accept(client, stream)
    }

    /// The jobs that clients bring data to.
    pub fn jobs(&self) -> &NetworkJobs {
        &self.0.jobs
    }

    pub(super) fn drives(&self) -> &Arc<MountedDrives> {
        &self.0.drives
    }

    pub(super) fn owner(&self, token: &JobToken) -> Arc<Owner> {
        let mut owners = locked(&self.0.owners);
        owners.retain(|_, owner| owner.strong_count() > 0);
        if let Some(owner) = owners.get(token).and_then(Weak::upgrade) {
            return owner;
        }
        let (mounts, asked) = Default::default();
        let owner = Arc::new(Owner { devices: Arc::clone(&self.0.devices), mounts, asked });
        owners.insert(token.clone(), Arc::downgrade(&owner));
        owner
    }

    /// Expects so many hosts; with what they come.
    pub(super) fn expect_hosts(&self, count: u8) -> io::Result<(JobToken, Arc<Hosts>)> {
        let token = JobToken::random()?;
        let places = Mutex::new((0..count).map(|_| None).collect());
        let hosts = Arc::new(Hosts { places, came: Condvar::new() });
        locked(&self.0.hosts).insert(token.clone(), Arc::clone(&hosts));
        Ok((token, hosts))
    }

    pub(super) fn forget_hosts(&self, token: &JobToken) {
        locked(&self.0.hosts).remove(token);
    }

    /// Waits for them.
    pub(super) fn hosts(&self, token: &JobToken, hosts: &Hosts) -> io::Result<Vec<Box<dyn NetworkStream>>> {
        let until = Instant::now() + COMES_WITHIN;
        let mut places = locked(&hosts.places);
        while places.iter().any(Option::is_none) && Instant::now() < until {
            let left = until.saturating_duration_since(Instant::now());
            places = hosts.came.wait_timeout(places, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        locked(&self.0.hosts).remove(token);
        let came: Option<Vec<_>> = places.drain(..).collect();
        came.ok_or_else(|| io::Error::new(io::ErrorKind::TimedOut, "whoever decides has not come"))
    }
}
