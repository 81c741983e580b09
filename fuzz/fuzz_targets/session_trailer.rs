//! Fuzzes [`capstan_fuzz::session_trailer`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| capstan_fuzz::session_trailer(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    capstan_fuzz::replay(capstan_fuzz::session_trailer)
}
