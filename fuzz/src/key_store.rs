//! What lies on disk of keys: the header of a sealed store, an export, a key file.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;

use capstan_keys::{KeyExport, StoreHeader, Unlock};
use tempfile::NamedTempFile;

use crate::{mend, scratch};

thread_local! {
    static DIRECTORY: tempfile::TempDir = scratch::directory();
}

/// A store's header, an export and a key file of any bytes: decoded or refused, before any secret is asked for.
pub fn key_store(data: &[u8]) {
    decode(data);
    let mut mended = data.to_vec();
    mend::tail(&mut mended);
    decode(&mended);
    key_file(data);
}

fn decode(bytes: &[u8]) {
    let cut = bytes.split_last().map_or(bytes, |(_, front)| front);
    if StoreHeader::decode(bytes).is_ok() {
        assert!(StoreHeader::decode(cut).is_err(), "a header that was cut short was taken");
    }
    if KeyExport::decode(bytes).is_ok() {
        assert!(KeyExport::decode(cut).is_err(), "an export that was cut short was taken");
    }
}

fn key_file(text: &[u8]) {
    let opened = DIRECTORY.with(|directory| {
        let mut file = NamedTempFile::new_in(directory).expect("a file to write in");
        file.write_all(text).expect("room for the file");
        std::fs::set_permissions(file.path(), PermissionsExt::from_mode(0o600)).expect("the file is ours");
        Unlock::key_file(file.path())
    });
    if opened.is_ok() {
        assert!(text.starts_with(b"# Capstan key file v1"), "a file without its heading was taken for a key");
    }
}
