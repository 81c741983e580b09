//! What a node unlocks itself with after a start, where the quorum lets it: two files of its own, of which neither is
//! in a backup.
//!
//! ```text
//! autonomous.sealed                                     autonomous.key, or where `autonomous_key_file` says
//!   0   8  "CAPSAUTO"                                     a key file, as of `capstan_keys`
//!   8   4  version, 1
//!  12  16  cluster id
//!  28   4  epoch
//!  32  16  number of the request that the quorum approved
//!  48  16  salt
//!  64  40  cluster key, wrapped under HKDF(key file, salt, `capstan keyd own unlock v1 CLUSTER EPOCH REQUEST KMA MACHINE`)
//! 104   1  key file: 0 it was there, 1 this program made it
//! 105   4  CRC32C of all before
//! ```
//! **A key file that was there is somebody's:** other things may open with it alone, so it is used and never erased.
//! One that this program made goes with the file that it opens.
//!
//! The cluster key and not the root key: a node that is unlocked has it, so that no holder need be asked for what the
//! quorum has approved, and the root key stays where it was. MACHINE is what `/etc/machine-id` says: files that were
//! copied to another machine open nothing there. That is no secret: **whoever has all the files of a machine has the
//! keys**, unless the key file is of something that the machine alone can read.
//!
//! Whether the quorum's word still holds is not said here but in the ledger, and the node asks there before it opens
//! with this.

use std::path::Path;

use capstan_format::{Cursor, FormatError, crc32c};
use capstan_keys::{Name, RootKey, SALT_LEN, Secret, WrappedKey, create_key_file, random, read_key_file};

use super::file::{self, Existing};
use super::{ClusterKeys, RootError};
use crate::authority::PendingId;
use capstan_keys::api::ClusterId;

const MAGIC: &[u8; 8] = b"CAPSAUTO";
const VERSION: u32 = 1;
const WHAT: &str = "file that a node unlocks itself with";
const LEN: usize = 109;

/// A node, and the machine that it runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OnMachine {
    /// The node.
    pub kma: Name,
    /// What its machine calls itself; empty where that says nothing.
    pub machine: String,
}

impl OnMachine {
    /// A node on the machine that this runs on.
    pub fn here(kma: Name) -> Self {
        let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
        Self { kma, machine: machine.trim().to_owned() }
    }
}

/// The cluster key, for one node on one machine, by one approval.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnUnlock {
    cluster: ClusterId,
    epoch: u32,
    approved: PendingId,
    salt: [u8; SALT_LEN],
    wrapped: WrappedKey,
    made_key_file: bool,
}

impl OwnUnlock {
    /// Makes it, and the key file if there is none yet. It opens again before it is given; where it does not, the key
    /// file that was made is gone again.
    pub fn make(
        keys: &ClusterKeys,
        epoch: u32,
        approved: PendingId,
        on: &OnMachine,
        key_file: &Path,
    ) -> Result<Self, RootError> {
        let made_key_file = !key_file.exists();
        if made_key_file {
            create_key_file(key_file)?;
        }
        let own =
            Self { cluster: keys.cluster(), epoch, approved, salt: [0; SALT_LEN], wrapped: [0; _], made_key_file };
        own.wrapping_of(keys, on, key_file).inspect_err(|_| {
            if made_key_file && let Err(error) = file::erase(key_file) {
                tracing::error!(%error, "a key file that opens nothing is still there: remove it");
            }
        })
    }

    fn wrapping_of(mut self, keys: &ClusterKeys, on: &OnMachine, key_file: &Path) -> Result<Self, RootError> {
        random(&mut self.salt)?;
        self.wrapped = keys.key().wrap(&self.wrapping(on, key_file)?)?;
        self.open(on, key_file)?;
        Ok(self)
    }

    /// The keys of the cluster, on the machine and with the key file that it was made with.
    pub fn open(&self, on: &OnMachine, key_file: &Path) -> Result<ClusterKeys, RootError> {
        let key = RootKey::unwrap(&self.wrapping(on, key_file)?, &self.wrapped)?;
        let other = || RootError::NotThisWay {
            cluster: self.cluster,
            offered: "what this node unlocks itself with",
            instead: "its files are of another machine, node or approval. Its holders give their shares, and what the quorum \
                      allows is made anew",
        };
        Ok(ClusterKeys::new(key.ok_or_else(other)?, self.cluster))
    }

    /// The request that the quorum approved.
    pub fn approved(&self) -> PendingId {
        self.approved
    }

    /// Whether the key file was made with it: one that was there before stays when it goes.
    pub fn made_key_file(&self) -> bool {
        self.made_key_file
    }

    fn wrapping(&self, on: &OnMachine, key_file: &Path) -> Result<Secret, RootError> {
        let (Self { cluster, epoch, approved, salt, .. }, OnMachine { kma, machine }) = (self, on);
        let purpose = format!("capstan keyd own unlock v1 {cluster} {epoch} {approved} {kma} {machine}");
        Ok(capstan_keys::derive(read_key_file(key_file)?.expose(), salt, &purpose)?)
    }

    /// The bytes of the file.
    pub fn encode(&self) -> Vec<u8> {
        let Self { cluster, epoch, approved, salt, wrapped, made_key_file } = self;
        let mut bytes = [&MAGIC[..], &VERSION.to_le_bytes(), &cluster.0, &epoch.to_le_bytes(), &approved.0].concat();
        bytes.extend_from_slice(salt);
        bytes.extend_from_slice(wrapped);
        bytes.push(u8::from(*made_key_file));
        bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        bytes
    }

    /// Decodes a file: pure, bounded by the bytes given, and for any bytes at all.
    pub fn decode(bytes: &[u8]) -> Result<Self, FormatError> {
        let body = super::checked_body(WHAT, MAGIC, VERSION, bytes)?;
        let mut fields = Cursor::new(WHAT, body);
        fields.take(MAGIC.len() + 4)?;
        let own = Self {
            cluster: ClusterId(fields.array()?),
            epoch: fields.u32()?,
            approved: PendingId(fields.array()?),
            salt: fields.array()?,
            wrapped: fields.array()?,
            made_key_file: match fields.u8()? {
                0 => false,
                1 => true,
                other => return Err(fields.field("key file", &other)),
            },
        };
        fields.end()?;
        Ok(own)
    }

    /// Reads the file, if there is one.
    pub fn read(path: &Path) -> Result<Option<Self>, RootError> {
        match file::read(path, LEN) {
            Err(RootError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
            Ok(bytes) => {
                Self::decode(&bytes).map(Some).map_err(|source| RootError::Format { path: path.to_owned(), source })
            }
        }
    }

    /// Writes the file, for its owner alone.
    pub fn write(&self, path: &Path) -> Result<(), RootError> {
        file::write(path, &self.encode(), Existing::Replaced)
    }

    /// Overwrites the file, and the key file that was made with it, and takes them away. What is left of them where a
    /// disk does not overwrite in place, or in a copy, opens still.
    pub fn destroy(path: &Path, made_key_file: Option<&Path>) -> Result<(), RootError> {
        let of_key = made_key_file.map_or(Ok(()), file::erase);
        file::erase(path).and(of_key)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::path::PathBuf;

    use super::*;

    const CLUSTER: ClusterId = ClusterId([7; 16]);

    fn on(kma: &str, machine: &str) -> OnMachine {
        OnMachine { kma: kma.parse().unwrap(), machine: machine.to_owned() }
    }

    struct Made {
        directory: tempfile::TempDir,
        keys: ClusterKeys,
        own: OwnUnlock,
    }

    impl Made {
        fn new() -> Self {
            let (directory, keys) = (tempfile::tempdir().unwrap(), ClusterKeys::create(CLUSTER).unwrap());
            let key_file = directory.path().join("key");
            let own = OwnUnlock::make(&keys, 3, PendingId([9; 16]), &on("k1", "one"), &key_file).unwrap();
            own.write(&directory.path().join("sealed")).unwrap();
            Self { directory, keys, own }
        }

        fn path(&self, name: &str) -> PathBuf {
            self.directory.path().join(name)
        }
    }

    #[test]
    fn it_opens_for_its_node_on_its_machine_by_its_approval_and_for_nothing_else() {
        let made = Made::new();
        let read = OwnUnlock::read(&made.path("sealed")).unwrap().unwrap();
        assert_eq!((&read, read.approved()), (&made.own, PendingId([9; 16])));
        let key_file = made.path("key");
        assert_eq!(read.open(&on("k1", "one"), &key_file).unwrap().tag(), made.keys.tag());

        let refused = |own: &OwnUnlock, on: &OnMachine, key_file: &Path| {
            assert!(matches!(own.open(on, key_file).err(), Some(RootError::NotThisWay { .. })), "{own:?} {on:?}");
        };
        refused(&read, &on("k2", "one"), &key_file);
        refused(&read, &on("k1", "two"), &key_file);
        create_key_file(&made.path("another")).unwrap();
        refused(&read, &on("k1", "one"), &made.path("another"));
        for altered in [
            OwnUnlock { epoch: 4, ..read.clone() },
            OwnUnlock { approved: PendingId([8; 16]), ..read.clone() },
            OwnUnlock { cluster: ClusterId([8; 16]), ..read.clone() },
            OwnUnlock { salt: [0; SALT_LEN], ..read.clone() },
        ] {
            refused(&altered, &on("k1", "one"), &key_file);
        }
    }

    /// What is destroyed is overwritten before it is taken away: whoever holds the file open from before reads nothing
    /// of it.
    #[test]
    fn it_is_overwritten_before_it_goes() {
        use std::io::{Read, Seek};
        let made = Made::new();
        let (sealed, key) = (made.path("sealed"), made.path("key"));
        let mut held = [&sealed, &key].map(|path| std::fs::File::open(path).unwrap());
        assert!(made.own.made_key_file());
        OwnUnlock::destroy(&sealed, Some(&key)).unwrap();
        assert!(!sealed.exists() && !key.exists());
        for file in &mut held {
            let mut left = Vec::new();
            file.rewind().unwrap();
            file.read_to_end(&mut left).unwrap();
            assert!(!left.is_empty() && left.iter().all(|byte| *byte == 0), "{left:?}");
        }
        assert_eq!(OwnUnlock::read(&sealed).unwrap(), None);
        OwnUnlock::destroy(&sealed, Some(&key)).unwrap();
    }

    /// An operator named a key file that other things opened with as well. It was taken, and erased when the quorum
    /// took its word back.
    #[test]
    fn a_key_file_that_was_there_is_known_for_somebody_elses() {
        let (directory, keys) = (tempfile::tempdir().unwrap(), ClusterKeys::create(CLUSTER).unwrap());
        let [sealed, key] = ["sealed", "key"].map(|name| directory.path().join(name));
        create_key_file(&key).unwrap();
        let before = std::fs::read(&key).unwrap();
        let own = OwnUnlock::make(&keys, 3, PendingId([9; 16]), &on("k1", "one"), &key).unwrap();
        own.write(&sealed).unwrap();
        let read = OwnUnlock::read(&sealed).unwrap().unwrap();
        assert!(!read.made_key_file());
        OwnUnlock::destroy(&sealed, read.made_key_file().then_some(&*key)).unwrap();
        assert!(!sealed.exists());
        assert_eq!(std::fs::read(&key).unwrap(), before);
    }

    #[test]
    fn its_bytes_are_as_they_are_written_above() {
        let own = OwnUnlock {
            cluster: CLUSTER,
            epoch: 3,
            approved: PendingId([9; 16]),
            salt: [5; SALT_LEN],
            wrapped: [6; _],
            made_key_file: true,
        };
        let mut golden = b"CAPSAUTO\x01\0\0\0".to_vec();
        golden.extend_from_slice(&[7; 16]);
        golden.extend_from_slice(&[3, 0, 0, 0]);
        golden.extend([[9; 16], [5; 16]].concat());
        golden.extend([6; 40]);
        golden.push(1);
        golden.extend(crc32c(&golden).to_le_bytes());
        assert_eq!((own.encode(), LEN), (golden.clone(), golden.len()));
        for at in 0..golden.len() {
            let mut altered = golden.clone();
            altered[at] ^= 1;
            assert!(OwnUnlock::decode(&altered).is_err(), "byte {at}");
            assert!(OwnUnlock::decode(&golden[..at]).is_err(), "cut to {at} bytes");
        }
        let mut neither = golden[..104].to_vec();
        neither.push(2);
        neither.extend(crc32c(&neither).to_le_bytes());
        assert!(matches!(OwnUnlock::decode(&neither), Err(FormatError::Field { .. })));
    }
}
