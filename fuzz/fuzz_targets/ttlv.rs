//! Fuzzes [`capstan_fuzz::ttlv`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| capstan_fuzz::ttlv(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    capstan_fuzz::replay(capstan_fuzz::ttlv)
}
