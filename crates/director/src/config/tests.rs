//! What the settings file says of itself, and what is said of one that is wrong.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn read(text: &str) -> Result<Config, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capstan.toml");
    std::fs::write(&path, text).unwrap();
    Config::read(&path).map_err(|error| error.to_string())
}

/// `init` wrote names and values, and what they meant stood elsewhere.
#[test]
fn each_setting_has_a_comment_and_the_text_is_read_back() {
    let text = Config::default().to_text();
    let lines: Vec<_> = text.lines().collect();
    let mut settings = 0;
    for (number, line) in lines.iter().enumerate() {
        if line.starts_with(|c: char| c.is_ascii_lowercase() || c == '[') {
            settings += 1;
            assert!(lines[number - 1].starts_with("# "), "no comment above {line:?}");
        }
    }
    assert!(settings > 20, "{text}");
    assert_eq!(read(&text).unwrap(), Config::default());
    // The example is a job once its comment signs are gone.
    let example = text.split("# [jobs.nightly]").nth(1).unwrap().split("#\n# Further libraries").next().unwrap();
    let job: String =
        example.lines().map(|line| line.trim_start_matches("# ")).fold(String::new(), |a, b| a + b + "\n");
    let config = read(&format!("[jobs.nightly]{job}")).unwrap();
    let nightly = &config.jobs["nightly"];
    assert!(nightly.is_incremental() && nightly.keep.is_some_and(|rule| rule.monthly == 12));
    assert_eq!(nightly.full_every_ns(), Some(28 * 86_400 * 1_000_000_000));
    assert_eq!(nightly.after.len(), 1);
    // A job that is in the settings is written and read back as it is.
    assert_eq!(read(&config.to_text()).unwrap(), config);
}

#[test]
fn what_is_wrong_with_a_job_is_named_with_its_line() {
    let job = |rest: &str| format!("[data]\nblock_kib = 512\n\n[jobs.nightly]\nsources = [\"/etc\"]\n{rest}\n");
    for (text, said) in [
        (job("exlude = [\"*.tmp\"]"), &["line 6", "unknown field `exlude`"][..]),
        (job("level = \"differential\""), &["line 6", "unknown variant `differential`"]),
        (job("keep = { last = 3, dayly = 7 }"), &["line 6", "unknown field `dayly`"]),
        (
            job("copies = 2\nlevel = \"full\"\nfull_every = \"4w\""),
            &["line 8: jobs.nightly.full_every", "remove one of them"],
        ),
        (
            job("retention = \"30d\"\nkeep = { last = 3 }"),
            &["line 7: jobs.nightly.keep", "takes the place of retention"],
        ),
        (job("keep = { last = 0 }"), &["line 6: jobs.nightly.keep", "set at least last = 1"]),
        (job("full_every = \"monthly\""), &["line 6: jobs.nightly.full_every", "\"monthly\" is not a duration"]),
        (job("copies = 5"), &["line 6: jobs.nightly.copies", "between 1 and 4"]),
        (job("connections = 0"), &["line 6: jobs.nightly.connections", "between 1 and 256"]),
        (job("compression = 20"), &["line 6: jobs.nightly.compression", "between -7 and 19"]),
        (job("before = [\"\"]"), &["line 6: jobs.nightly.before", "it is empty"]),
        (job("schedule = \"daily\""), &["line 6: jobs.nightly.schedule", "only policies have it"]),
        ("[scripts]\nquiesce = []\n".to_owned(), &["scripts.quiesce", "it is empty"]),
        (job("stdin = \"shop.sql\""), &["line 6: jobs.nightly.stdin", "make two of it"]),
        ("[jobs.a]\nsources = [\"etc\"]\n".to_owned(), &["line 2: jobs.a.sources", "etc is not absolute"]),
        (job("exclude_from = [\"patterns\"]"), &["line 6: jobs.nightly.exclude_from", "not absolute"]),
        ("[jobs.a]\nwait = true\n".to_owned(), &["line 1: jobs.a", "it backs up nothing"]),
        ("[jobs.a]\nstdin = \"x\"\n".to_owned(), &["line 2: jobs.a.stdin", "set stdin_command"]),
        ("[jobs.a]\nstdin_command = [\"x\"]\n".to_owned(), &["line 2: jobs.a.stdin_command", "set stdin"]),
        (
            "[jobs.a]\nstdin = \"x\"\nstdin_command = [\"x\"]\nlevel = \"incremental\"\n".to_owned(),
            &["line 4: jobs.a.level", "always backed up in full"],
        ),
        ("\n[jobs.\"a/b\"]\nsources = [\"/etc\"]\n".to_owned(), &["line 2: jobs.a/b", "letters, digits"]),
        ("\n[jobs.manual]\nsources = [\"/etc\"]\n".to_owned(), &["line 2: jobs.manual", "another name"]),
        ("[jobs]\nnightly = { sources = [\"/etc\"], copies = 9 }\n".to_owned(), &["line 2: jobs.nightly.copies"]),
    ] {
        let error = read(&text).unwrap_err();
        for said in said {
            assert!(error.contains(said), "{said:?} is not in {error:?} of\n{text}");
        }
    }
}
