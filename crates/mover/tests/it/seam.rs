//! The seam between whoever decides and a mover: the same rules in one process and over socket pairs.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};
use std::thread::spawn;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_mover::devices::conformance::{Ends, run};
use capstan_mover::devices::remote::{
    RemoteCopyHost, RemoteDevices, RemoteReadHost, serve_copy_host, serve_devices, serve_read_host,
};
use capstan_mover::devices::{
    ChangerOrder, Devices, DevicesError, DismountOrder, DriveReservation, KeySource, KeyWanted, Loader, LocalDevices,
    MountOrder, MountWatch, ReservationKey, VolumeRequest,
};
use capstan_mover::{CopyHost, HostError, MountedDrives, MoverError, ReadHost};
use capstan_tape::{CartridgeSpec, DriveKey, Library, VirtualLibrary, with_causes};

/// Has no key.
struct NoKeys;

impl KeySource for NoKeys {
    fn key(&self, wanted: &KeyWanted) -> Result<DriveKey, HostError> {
        Err(format!("nobody has key {}", wanted.tag).into())
    }
}

/// A folder of cartridges with two drives, and the devices of this process over it.
fn devices(folder: &tempfile::TempDir) -> (Arc<LocalDevices>, Arc<MountedDrives>) {
    let library: Arc<Mutex<dyn Library>> = Arc::new(Mutex::new(VirtualLibrary::open(folder.path(), 2).unwrap()));
    let mounted = Arc::new(MountedDrives::new());
    (Arc::new(LocalDevices::new(library, Loader::Robot, None, Arc::new(NoKeys), Arc::clone(&mounted))), mounted)
}

/// The other end of devices that a thread serves.
fn served(devices: &Arc<LocalDevices>) -> RemoteDevices<UnixStream> {
    let (near, far) = UnixStream::pair().unwrap();
    let devices = Arc::clone(devices);
    spawn(move || serve_devices(devices.as_ref(), far).unwrap());
    RemoteDevices::new(near)
}

#[test]
fn in_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, mounted) = devices(&folder);
    run(&Ends { devices, mounted, copy_host: &|host| host, read_host: &|host| host });
}

#[test]
fn over_socket_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, mounted) = devices(&folder);
    let copy_host = |mut host: Box<dyn CopyHost>| -> Box<dyn CopyHost> {
        let (near, far) = UnixStream::pair().unwrap();
        spawn(move || serve_copy_host(host.as_mut(), far).unwrap());
        Box::new(RemoteCopyHost::new(near))
    };
    let read_host = |mut host: Box<dyn ReadHost + Send>| -> Box<dyn ReadHost> {
        let (near, far) = UnixStream::pair().unwrap();
        spawn(move || serve_read_host(host.as_mut(), far).unwrap());
        Box::new(RemoteReadHost::new(near))
    };
    run(&Ends { devices: Arc::new(served(&devices)), mounted, copy_host: &copy_host, read_host: &read_host });
}

struct NoWatch;

impl MountWatch for NoWatch {
    fn waiting(&self, _message: String) {}
    fn notice(&self, _message: String) {}
    fn is_stopped(&self) -> bool {
        false
    }
}

fn order(volser: &Volser) -> MountOrder {
    let reservation = DriveReservation { key: ReservationKey::new("seam", 1), living: None };
    MountOrder { volser: volser.clone(), reservation, labelled: false, first_key: None, needs: Default::default() }
}

fn create(devices: &dyn Devices, volser: &Volser) {
    let spec = CartridgeSpec {
        volser: volser.clone(),
        capacity_bytes: 16 << 20,
        early_warning_bytes: 1 << 20,
        generation: "virtual".to_owned(),
    };
    devices.change(&ChangerOrder::Create(spec)).unwrap();
}

/// A server that dies must not keep a drive from everybody else.
#[test]
fn what_was_mounted_over_a_connection_that_ends_is_let_go_of() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, _) = devices(&folder);
    let volser = Volser::new("A00001").unwrap();
    let (near, far) = UnixStream::pair().unwrap();
    let server = {
        let devices = Arc::clone(&devices);
        spawn(move || serve_devices(devices.as_ref(), far))
    };
    let remote = RemoteDevices::new(near);
    create(&remote, &volser);
    let lost = remote.mount(&order(&volser), &NoWatch).unwrap().mount;
    drop(remote);
    server.join().unwrap().unwrap();
    devices.at_volume(lost, &VolumeRequest::EndOfData).unwrap_err();
    devices.mount(&order(&volser), &NoWatch).unwrap();
}

/// Whoever decides and has lost a mount, or has it from a mover before this one, changes nothing of another's.
#[test]
fn a_mount_is_obeyed_for_whoever_made_it_alone() {
    let folder = tempfile::tempdir().unwrap();
    let (devices, _) = devices(&folder);
    let (one, other) = (served(&devices), served(&devices));
    let volser = Volser::new("A00001").unwrap();
    create(&one, &volser);
    let mount = one.mount(&order(&volser), &NoWatch).unwrap().mount;
    let is_refused = |done: Result<(), DevicesError>| {
        assert!(
            matches!(done, Err(DevicesError::Mover(MoverError::NotMounted { mount: of })) if of == mount),
            "{done:?}"
        );
    };
    is_refused(other.at_volume(mount, &VolumeRequest::Erase).map(drop));
    is_refused(other.set_key(mount, None));
    is_refused(other.dismount(&DismountOrder { mount, description: None }).map(drop));
    other.abandon(mount);
    one.at_volume(mount, &VolumeRequest::EndOfData).unwrap();
    let drive = || Box::new(capstan_tape::NullDrive::new());
    assert_ne!(MountedDrives::new().add(drive()), MountedDrives::new().add(drive()), "a mover that begins anew");
}

/// A key that is loaded over a socket encrypts, and a key that a block names is asked for where the mover is.
#[test]
fn a_key_crosses_and_opens_what_it_has_encrypted() {
    let folder = tempfile::tempdir().unwrap();
    let (local, _) = devices(&folder);
    let remote = served(&local);
    let volser = Volser::new("A00001").unwrap();
    create(&remote, &volser);
    let key = || DriveKey { tag: KeyTag([5; 16]), algorithm: Algorithm::Aes256Gcm, key: [9; 32] };
    let header = capstan_format::VolumeHeader {
        volume: capstan_format::VolumeId(1),
        volser: volser.clone(),
        labelled_ns: 1,
        pool: "pool".to_owned(),
        block_len_max: 1 << 20,
        recycled: 0,
    };
    let mount = remote.mount(&order(&volser), &NoWatch).unwrap().mount;
    remote.set_key(mount, Some(key())).unwrap();
    remote.at_volume(mount, &VolumeRequest::WriteLabel(header)).unwrap();
    remote.at_volume(mount, &VolumeRequest::ReadLabel).unwrap();
    remote.set_key(mount, None).unwrap();
    let locked = remote.at_volume(mount, &VolumeRequest::ReadLabel).unwrap_err();
    let text = with_causes(&locked);
    assert!(text.contains("nobody has key 0505"), "{text}");
    remote.set_key(mount, Some(key())).unwrap();
    remote.at_volume(mount, &VolumeRequest::ReadLabel).unwrap();
}
