//! `keyd` for tests, which found clusters by the dozen: the same program, but guessing a passphrase that somebody makes
//! up costs next to nothing. Never keep anything under one.

use std::alloc::System;
use std::process::ExitCode;

use capstan_keyd::program;
use capstan_keys::Argon2Cost;
use zeroizing_alloc::ZeroAlloc;

/// As in `keyd`: tests look for what is left in memory.
#[global_allocator]
static ALLOCATOR: ZeroAlloc<System> = ZeroAlloc(System);

fn main() -> ExitCode {
    program::main(Argon2Cost { memory_kib: 64, iterations: 1, lanes: 1 })
}
