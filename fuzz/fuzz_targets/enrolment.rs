//! Fuzzes [`capstan_fuzz::enrolment`].
#![cfg_attr(fuzzing, no_main)]

#[cfg(fuzzing)]
libfuzzer_sys::fuzz_target!(|data: &[u8]| capstan_fuzz::enrolment(data));

#[cfg(not(fuzzing))]
fn main() -> std::process::ExitCode {
    capstan_fuzz::replay(capstan_fuzz::enrolment)
}
