//! `keyd`: a node of the key-management cluster, and what people do with it.

use std::alloc::System;
use std::process::ExitCode;

use capstan_keyd::program;
use capstan_keys::Argon2Cost;
use zeroizing_alloc::ZeroAlloc;

/// Whatever is freed is wiped: keys, passphrases and what was opened of records pass through the buffers of many
/// libraries.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    program::main(Argon2Cost::default())
}
