//! The root key, the one secret that stays in memory as long as a store is open.
//!
//! It lies in a page of its own that is kept out of the swap (`mlock`), out of core dumps (`MADV_DONTDUMP`) and out of
//! child processes (`MADV_DONTFORK`). It is used for nothing but deriving the keys of the store, anew for each
//! operation. Where the system refuses the lock (RLIMIT_MEMLOCK) the store works all the same: then the swap has to be
//! encrypted, as `docs/KEYS.md` says.

use std::ffi::c_void;
use std::ptr::NonNull;

use aws_lc_rs::hmac;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mlock, mmap_anonymous, munmap};
use zeroize::Zeroize;

use crate::KeyError;
use crate::envelope::{WrappedKey, derive, unwrap, wrap};
use crate::secret::{KEY_LEN, Secret, random};

/// Length of the mapping; the system rounds it up to its page.
const MAPPING_LEN: usize = 4096;

/// The root key of an open store, or another key that wraps keys and stays in memory (the cluster key of a key node).
pub struct RootKey {
    page: NonNull<[u8; KEY_LEN]>,
}

// SAFETY: the mapping belongs to this value alone and has no tie to a thread; shared references only read it.
#[allow(unsafe_code, reason = "the pointer is owned, as a Box would own it")]
unsafe impl Send for RootKey {}

// SAFETY: as above; nothing is written through a shared reference.
#[allow(unsafe_code, reason = "the pointer is owned, as a Box would own it")]
unsafe impl Sync for RootKey {}

impl RootKey {
    /// A new root key.
    ///
    /// # Errors
    /// [`KeyError::Host`] if no memory can be mapped, or the random generator fails.
    pub fn random() -> Result<Self, KeyError> {
        let mut root = Self::zeroed()?;
        random(root.bytes_mut())?;
        Ok(root)
    }

    /// A root key written in place by `fill`.
    ///
    /// # Errors
    /// No memory can be mapped, or `fill` fails.
    pub fn filled<E: From<KeyError>>(fill: impl FnOnce(&mut [u8; KEY_LEN]) -> Result<(), E>) -> Result<Self, E> {
        let mut root = Self::zeroed()?;
        fill(root.bytes_mut())?;
        Ok(root)
    }

    /// The bytes, for the one purpose of handing them to a token that wraps them; never to be copied into memory that
    /// is not zeroised.
    pub fn expose(&self) -> &[u8; KEY_LEN] {
        self.bytes()
    }

    /// The root key out of a slot, if `wrapping` opens it.
    ///
    /// # Errors
    /// [`KeyError::Host`] if no memory can be mapped. A wrong `wrapping` is no error but `None`.
    pub fn unwrap(wrapping: &Secret, wrapped: &WrappedKey) -> Result<Option<Self>, KeyError> {
        let Some(secret) = unwrap(wrapping, wrapped) else { return Ok(None) };
        let mut root = Self::zeroed()?;
        root.bytes_mut().copy_from_slice(secret.expose());
        Ok(Some(root))
    }

    /// The root key wrapped for a slot.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the cryptographic library fails.
    pub fn wrap(&self, wrapping: &Secret) -> Result<WrappedKey, KeyError> {
        wrap(wrapping, self.bytes())
    }

    /// A key for one purpose, derived from the root key.
    ///
    /// # Errors
    /// [`KeyError::Host`] if the cryptographic library fails.
    pub fn derive(&self, salt: &[u8], purpose: &str) -> Result<Secret, KeyError> {
        derive(self.bytes(), salt, purpose)
    }

    /// The keys of one store under this root.
    pub(crate) fn store_keys(&self, store_id: &[u8; 16]) -> Result<StoreKeys, KeyError> {
        let key = |purpose| derive(self.bytes(), store_id, purpose);
        let mac = |purpose| Ok::<_, KeyError>(hmac::Key::new(hmac::HMAC_SHA256, key(purpose)?.expose()));
        Ok(StoreKeys {
            wrapping: key("capstan key store wrap v1")?,
            row: mac("capstan key store row v1")?,
            realm: mac("capstan key store realm v1")?,
            set: mac("capstan key store set v1")?,
        })
    }

    #[allow(unsafe_code, reason = "a page of its own cannot be had from the allocator")]
    fn zeroed() -> Result<Self, KeyError> {
        let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
        // SAFETY: a fresh anonymous mapping at an address of the system's choice touches nothing that exists.
        let address = unsafe { mmap_anonymous(std::ptr::null_mut(), MAPPING_LEN, protection, flags) }
            .map_err(|error| KeyError::host("mapping a page for the root key", error))?;
        let page = NonNull::new(address.cast::<[u8; KEY_LEN]>())
            .ok_or_else(|| KeyError::host("mapping a page for the root key", "the address is zero"))?;
        let root = Self { page };
        // SAFETY: the whole range is the mapping made above. The calls protect the page better where they succeed and
        // change nothing where they do not, so that their failure is no reason to refuse the store.
        unsafe {
            let _ = mlock(address, MAPPING_LEN);
            let _ = madvise(address, MAPPING_LEN, Advice::LinuxDontDump);
            let _ = madvise(address, MAPPING_LEN, Advice::LinuxDontFork);
        }
        Ok(root)
    }

    #[allow(unsafe_code, reason = "reads the mapping")]
    fn bytes(&self) -> &[u8; KEY_LEN] {
        // SAFETY: the mapping is at least KEY_LEN long, zero-initialised by the system, aligned to a page, lives as
        // long as `self`, and is written only through `bytes_mut`.
        unsafe { self.page.as_ref() }
    }

    #[allow(unsafe_code, reason = "writes the mapping")]
    fn bytes_mut(&mut self) -> &mut [u8; KEY_LEN] {
        // SAFETY: as in `bytes`; `&mut self` makes this reference the only one.
        unsafe { self.page.as_mut() }
    }
}

impl Drop for RootKey {
    #[allow(unsafe_code, reason = "gives the mapping back")]
    fn drop(&mut self) {
        self.bytes_mut().zeroize();
        // SAFETY: the mapping was made in `zeroed` with this length, and no reference to it outlives `self`.
        let unmapped = unsafe { munmap(self.page.as_ptr().cast::<c_void>(), MAPPING_LEN) };
        debug_assert!(unmapped.is_ok(), "the mapping is ours");
    }
}

/// What is derived from the root key for one store, each for one purpose.
pub(crate) struct StoreKeys {
    /// Wraps the volume keys.
    pub(crate) wrapping: Secret,
    /// MAC of each record.
    pub(crate) row: hmac::Key,
    /// MAC of each record of the realm.
    pub(crate) realm: hmac::Key,
    /// MAC of the header and of all records together.
    pub(crate) set: hmac::Key,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn a_root_key_comes_back_from_its_slot_and_from_no_other() {
        let (root, wrapping) = (RootKey::random().unwrap(), Secret::random().unwrap());
        let wrapped = root.wrap(&wrapping).unwrap();
        let again = RootKey::unwrap(&wrapping, &wrapped).unwrap().unwrap();
        assert_eq!(root.bytes(), again.bytes());
        assert!(RootKey::unwrap(&Secret::random().unwrap(), &wrapped).unwrap().is_none());
    }

    #[test]
    fn purposes_and_stores_have_keys_of_their_own() {
        let root = RootKey::random().unwrap();
        let (one, other) = (root.store_keys(&[1; 16]).unwrap(), root.store_keys(&[2; 16]).unwrap());
        assert_ne!(one.wrapping.expose(), other.wrapping.expose());
        let sign = |key| hmac::sign(key, b"x").as_ref().to_vec();
        assert_ne!(sign(&one.row), sign(&one.set));
        assert_ne!(sign(&one.row), sign(&other.row));
    }

    /// The kernel's own account of the page: locked, and left out of dumps and children.
    #[test]
    fn the_page_is_locked_and_left_out_of_dumps() {
        let root = RootKey::random().unwrap();
        let start = format!("{:x}-", root.page.as_ptr() as usize);
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let entry = maps.split_once(&start).expect("the root key has a mapping of its own").1;
        let flags = entry.lines().find_map(|line| line.strip_prefix("VmFlags: ")).unwrap();
        for flag in ["dd", "dc", "lo"] {
            assert!(flags.split(' ').any(|found| found == flag), "{flag} is missing in {flags}");
        }
    }
}
