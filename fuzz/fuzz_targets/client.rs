//! Fuzzes [`capstan_fuzz::client`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| capstan_fuzz::client(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    capstan_fuzz::replay(capstan_fuzz::client)
}
