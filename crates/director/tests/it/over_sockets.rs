//! The main job with its devices at the other end of a socket: what decides holds no drive and no library.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{JoinHandle, spawn};

use capstan_catalog::ObjectStatus;
use capstan_director::{BackupRequest, BackupWatch, Level, Place, Shortfall, Site};
use capstan_format::Algorithm;
use capstan_mover::RestoreWatch;
use capstan_mover::devices::remote::{RemoteDevices, serve_devices};
use capstan_mover::extract::ExtractOptions;

use crate::place::{Bench, small};

/// The site whose orders go through a socket to the devices that were its own, and what serves them there.
fn over_a_socket(site: Site) -> (Site, JoinHandle<std::io::Result<()>>) {
    let (near, far) = UnixStream::pair().unwrap();
    let (devices, path) = site.devices();
    let served = spawn(move || serve_devices(devices.as_ref(), far));
    (site.with_devices(Arc::new(RemoteDevices::new(near)), path), served)
}

#[test]
fn a_twin_that_was_interrupted_goes_on_is_verified_mended_and_restored() {
    let bench = Bench::encrypted(small(), Some(Algorithm::Aes256Gcm));
    bench.fill("a", 60, 150_000);
    let request = BackupRequest { copies: 2, ..bench.request(Level::Full) };
    let watch = BackupWatch::default();
    let (stop, checkpoints) = (Arc::clone(&watch.stop), AtomicU32::new(0));
    let events = Arc::new(move |event| {
        if matches!(event, capstan_director::Event::Checkpoint { .. })
            && checkpoints.fetch_add(1, Ordering::Relaxed) == 3
        {
            stop.store(true, Ordering::Relaxed);
        }
    });
    let (site, served) = over_a_socket(bench.site_told(events));
    site.backup(&request, &watch).unwrap_err();
    drop(site);
    served.join().unwrap().unwrap();

    let (site, served) = over_a_socket(bench.site());
    let report = site.backup(&request, &BackupWatch::default()).unwrap();
    assert!(report.sources[0].resumed && report.failed_copies.is_empty(), "{report:?}");
    let objects = bench.objects();
    assert_eq!((objects.len(), objects[0].status), (1, ObjectStatus::Complete));
    let verified = site.verify_objects(&objects, &RestoreWatch::default()).unwrap();
    assert_eq!(verified.len(), 2);
    assert!(verified.iter().all(|copy| copy.report.is_whole()), "{verified:?}");

    bench.fill("b", 3, 150_000);
    let incremental = site.backup(&bench.request(Level::Incremental), &BackupWatch::default()).unwrap();
    assert_eq!(incremental.sources[0].report.as_ref().unwrap().files, 3);
    let lacks = site.repair(&[], Shortfall::Fail, &RestoreWatch::default()).unwrap();
    assert!(lacks.copies.is_empty() && lacks.first_failure.is_none(), "{lacks:?}");
    let latest = bench.objects().into_iter().max_by_key(|object| object.id).unwrap();
    let plan = site.plan_restore(&[Place { object: latest.id, paths: Vec::new() }]).unwrap();
    let options = ExtractOptions::default();
    let restored = site.restore(&plan, &bench.path("over-socket"), &options, &RestoreWatch::default()).unwrap();
    assert!(restored.is_whole(), "{restored:?}");
    drop(site);
    served.join().unwrap().unwrap();
    bench.assert_restores(&latest, "beside");
}

/// The mover dies, or the network does: the job says so, and what it had reserved is free for the next.
#[test]
fn a_mover_that_is_gone_is_named_and_the_next_job_begins() {
    let bench = Bench::new(small());
    bench.fill("a", 3, 150_000);
    let (near, far) = UnixStream::pair().unwrap();
    drop(far);
    let site = bench.site();
    let (_, path) = site.devices();
    let site = site.with_devices(Arc::new(RemoteDevices::new(near)), path);
    let error = site.backup(&bench.request(Level::Full), &BackupWatch::default()).unwrap_err();
    let text = capstan_tape::with_causes(&error);
    assert!(text.contains("the mover cannot be reached"), "{text}");
    drop(site);
    bench.backup(&bench.request(Level::Full)).unwrap();
    let object = bench.objects().into_iter().max_by_key(|object| object.id).unwrap();
    bench.assert_restores(&object, "out");
}
