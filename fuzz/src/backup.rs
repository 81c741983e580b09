//! What a key node reads of files: its sealed root key, a core security backup, a database backup.

use std::path::PathBuf;
use std::sync::LazyLock;

use capstan_keyd::backup::{CoreBackup, Held, Knowledge, OpenCore, read_manifest, verify};
use capstan_keyd::root::{ClusterKeys, SealedRoot};
use capstan_keys::api::ClusterId;
use tempfile::TempDir;
use zeroize::Zeroizing;

use crate::{mend, scratch};

const CLUSTER: ClusterId = ClusterId([7; 16]);

/// A cluster whose backup nobody who does not have its keys can make.
static CORE: LazyLock<OpenCore> = LazyLock::new(|| {
    let keys = ClusterKeys::create(CLUSTER).expect("random bytes");
    OpenCore { keys, ca_key: Zeroizing::new(Vec::new()), epoch: 0 }
});

thread_local! {
    static DIRECTORY: TempDir = scratch::directory();
}

/// Files of any bytes: decoded or refused, and never believed by those who hold the keys.
pub fn backup(data: &[u8]) {
    read(data);
    let mut mended = data.to_vec();
    mend::tail(&mut mended);
    read(&mended);
    // As one of this cluster, under its key, so that what stands behind the header is reached.
    if mended.len() > 84 {
        mended[12..28].copy_from_slice(&CLUSTER.0);
        mended[48..64].copy_from_slice(&CORE.keys.tag().0);
        mend::tail(&mut mended);
        let path = written(&mended);
        let believed = verify(&CORE, &path, &no_keys, Knowledge::Nothing);
        assert!(believed.is_err(), "a database backup was believed that this cluster has not made");
    }
}

fn read(bytes: &[u8]) {
    let cut = bytes.split_last().map_or(bytes, |(_, front)| front);
    if let Ok(core) = CoreBackup::decode(bytes) {
        assert_eq!(core.encode(), bytes, "a core security backup is another when it is written again");
        assert!(CoreBackup::decode(cut).is_err(), "a core security backup that was cut short was taken");
    }
    if let Ok(root) = SealedRoot::decode(bytes) {
        assert_eq!(root.encode(), bytes, "a sealed root key is another when it is written again");
        assert!(SealedRoot::decode(cut).is_err(), "a sealed root key that was cut short was taken");
    }
    if read_manifest(&written(bytes)).is_ok() {
        assert!(read_manifest(&written(cut)).is_err(), "a database backup that was cut short was taken");
    }
}

fn no_keys(_: &str, _: &[u8]) -> Result<Vec<Held>, String> {
    Ok(Vec::new())
}

fn written(bytes: &[u8]) -> PathBuf {
    DIRECTORY.with(|directory| {
        let path = directory.path().join("backup");
        std::fs::write(&path, bytes).expect("room for the file");
        path
    })
}
