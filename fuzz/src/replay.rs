//! Files through targets without a fuzzer: the kept corpus in a test, a finding from the command line.

use std::process::ExitCode;

/// What each target's program does when it was not built by cargo-fuzz: runs the files named on its command line.
pub fn replay(target: fn(&[u8])) -> ExitCode {
    let files: Vec<_> = std::env::args_os().skip(1).collect();
    if files.is_empty() {
        eprintln!("name the files to feed to this target; to fuzz it, run ./x fuzz");
        return ExitCode::from(2);
    }
    for file in files {
        match std::fs::read(&file) {
            Ok(data) => target(&data),
            Err(error) => {
                eprintln!("{}: {error}", file.display());
                return ExitCode::FAILURE;
            }
        }
    }
    ExitCode::SUCCESS
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use std::path::Path;
    use std::time::Instant;

    fn corpus(name: &str, target: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        assert!(!files.is_empty(), "the corpus of {name} is gone: {} is empty", folder.display());
        files.sort();
        let begun = Instant::now();
        for file in &files {
            // Shown when the target panics, and so the file to look at.
            println!("{}", file.display());
            target(&std::fs::read(file).unwrap());
        }
        println!("{} files in {:?}", files.len(), begun.elapsed());
    }

    macro_rules! corpora {
        ($($name:ident)*) => {
            $(
                #[test]
                fn $name() {
                    corpus(stringify!($name), crate::$name);
                }
            )*

            /// A target that is not replayed would rot.
            #[test]
            fn every_target_is_replayed() {
                let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz_targets");
                let mut found: Vec<_> =
                    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                found.sort();
                let mut named = [$(concat!(stringify!($name), ".rs")),*];
                named.sort_unstable();
                assert_eq!(found, named);
            }
        };
    }

    corpora!(
        label block session_trailer pax_reader extract key_store backup cartridge volume rebuild iscsi commands ttlv
        enrolment client
    );
}
