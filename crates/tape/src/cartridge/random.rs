//! Random numbers that are no secrets: salts and ids, which stand on the cartridge for everybody to read.
//!
//! They come from the kernel. The library that draws keys gathers entropy of its own before its first number, which
//! takes 40 ms of a processor, and a backup would pay that for eleven public bytes.

use std::io;

use rustix::rand::{GetRandomFlags, getrandom};

/// Fills a few bytes.
pub(super) fn draw<const LEN: usize>() -> io::Result<[u8; LEN]> {
    let mut bytes = [0; LEN];
    // Up to 256 bytes come at once or not at all.
    let drawn = getrandom(&mut bytes[..], GetRandomFlags::empty())?;
    if drawn == LEN { Ok(bytes) } else { Err(io::Error::other("no random numbers to be had")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_draws_differ() -> io::Result<()> {
        assert_ne!(draw::<16>()?, draw::<16>()?);
        Ok(())
    }
}
