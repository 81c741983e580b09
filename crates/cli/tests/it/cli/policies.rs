//! Key policies from the command line: a pool whose keys encrypt and decrypt for a time.

use super::*;

/// Whether there is the program that lets hours pass.
fn has_faketime() -> bool {
    let has = Command::new("faketime").arg("--version").output().is_ok();
    if !has {
        eprintln!("SKIP faketime is not installed");
    }
    has
}

/// A bench with a pool `vault` whose keys encrypt for an hour and decrypt for three.
fn bench() -> Bench {
    let bench = Bench::new(&[]);
    bench.done(&["keys", "policies", "add", "brief", "--encrypt-for", "1h", "--decrypt-for", "3h"], 0);
    bench.done(&["keys", "groups", "add", "vault", "--policy", "brief"], 0);
    bench.done(&["pools", "add", "vault"], 0);
    bench
}

#[test]
fn an_append_behind_the_encryption_period_gets_a_key_of_its_own_and_all_comes_back() {
    if !has_faketime() {
        return;
    }
    let mut bench = bench();
    bench.done(&["backup", "home", "--pool", "vault"], 0);
    bench.hours_ahead = 1;
    fs::write(bench.source().join("letters/bob.txt"), "dear Bob\n").unwrap();
    bench.done(&["backup", "home", "--pool", "vault", "--incremental"], 0);
    let units = bench.rows(&["keys", "volumes", "A00001"]);
    let keys = units[0]["keys"].as_array().unwrap();
    let issued: Vec<_> = keys.iter().map(|key| (key["group"].as_str(), key["issued_for"].as_str())).collect();
    assert_eq!(issued, [(Some("vault"), Some("begin")), (Some("vault"), Some("append"))]);
    let states = bench.rows(&["keys", "list"]);
    assert_eq!(states[0]["state"], "process-only");
    bench.done(&["restore", "home", "--to", "back"], 0);
    let restored = bench.dir.path().join("back").join(bench.source().strip_prefix("/").unwrap());
    assert_eq!(fs::read(restored.join("letters/bob.txt")).unwrap(), b"dear Bob\n");
    assert_eq!(fs::read(restored.join("noise")).unwrap(), noise(3 << 20));

    // Past the cryptoperiod of both nothing is given back, until somebody says so.
    bench.hours_ahead = 5;
    let said = bench.said(&["verify", "home"], 4);
    assert!(said.contains("cryptoperiod") && said.contains("capstan keys extend-decryption A00001"), "{said}");
    bench.done(&["keys", "extend", "A00001", "--for", "1h"], 0);
    bench.done(&["verify", "home"], 0);
}

#[test]
fn a_backup_does_not_wait_for_a_volume_whose_keys_are_past_their_time() {
    if !has_faketime() {
        return;
    }
    let mut bench = bench();
    bench.done(&["backup", "home", "--pool", "vault"], 0);
    bench.hours_ahead = 4;
    let said = bench.said(&["backup", "home", "--pool", "vault"], 0);
    assert!(said.contains("cryptoperiod") && said.contains("A00001"), "{said}");
    let objects = bench.rows(&["keys", "volumes"]);
    assert_eq!(objects.len(), 2, "another volume was taken");
}

#[test]
fn what_cannot_be_meant_is_said() {
    let bench = bench();
    for (args, words) in [
        (
            &["keys", "policies", "add", "p", "--encrypt-for", "2d", "--decrypt-for", "1d"][..],
            "must not be the shorter one",
        ),
        (&["keys", "policies", "add", "p", "--decrypt-for", "1d"], "there must be an encryption period"),
        (&["keys", "groups", "add", "g", "--policy", "nowhere"], "there is no key policy nowhere"),
        (&["keys", "groups", "add", "vault", "--policy", "default"], "a group keeps its policy"),
        (&["keys", "drives", "set", "CPT1", "--group", "nowhere"], "there is no key group nowhere"),
    ] {
        let said = bench.said(args, 4);
        assert!(said.contains(words), "capstan {args:?} said:\n{said}");
    }
    let said = bench.said(&["keys", "volumes", "A00009"], 2);
    assert!(said.contains("no key was issued for volume A00009"), "{said}");
    bench.said(&["keys", "groups", "add", "-x", "--policy", "brief"], 2);
    bench.said(&["keys", "policies", "add", "p", "--encrypt-for", "500y"], 2);
}

#[test]
fn keys_that_must_stay_are_named_when_the_others_leave() {
    let bench = bench();
    bench.done(&["keys", "policies", "add", "here", "--no-export"], 0);
    bench.done(&["keys", "groups", "add", "cellar", "--policy", "here"], 0);
    bench.done(&["pools", "add", "cellar"], 0);
    bench.done(&["backup", "home"], 0);
    bench.done(&["backup", "home", "--pool", "cellar"], 0);
    let export = |args: &[&str], code| {
        let output = bench.command(args).env("CAPSTAN_EXPORT_PASSPHRASE", "another three words").output().unwrap();
        ended(&output, args, code);
        String::from_utf8(output.stderr).unwrap()
    };
    assert!(export(&["keys", "export", "all.keys"], 0).contains("1 key is not in it"));
    let said = export(&["keys", "export", "one.keys", "--volume", "A00002"], 4);
    assert!(said.contains("A00002") && said.contains("may not leave"), "{said}");
}

#[test]
fn a_compromised_key_reads_and_is_followed_by_another() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    assert!(bench.said(&["keys", "compromise", "A00001"], 2).contains("encrypt nothing any more"));
    assert!(bench.done(&["keys", "compromise", "A00001", "--yes"], 0).contains("others may be able to read"));
    assert_eq!(bench.rows(&["keys", "list"])[0]["state"], "compromised");
    bench.done(&["backup", "home"], 0);
    bench.done(&["verify", "home"], 0);
    assert_eq!(bench.rows(&["keys", "list"]).len(), 2);
    bench.said(&["keys", "compromise", "A00009", "--yes"], 2);
}

#[test]
fn a_key_that_is_retired_reads_and_is_followed_by_another() {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    assert!(bench.said(&["keys", "retire", "A00001"], 2).contains("encrypt nothing any more"));
    assert!(bench.done(&["keys", "retire", "A00001", "--yes"], 0).contains("process-only"));
    bench.done(&["backup", "home"], 0);
    bench.done(&["verify", "home"], 0);
    let states: Vec<_> = bench.rows(&["keys", "list"]).iter().map(|key| key["state"].clone()).collect();
    assert_eq!(states, ["process-only", "protect-and-process"]);
    bench.said(&["keys", "retire", "A00009", "--yes"], 2);
}

/// Each run once made a cartridge before it found out.
#[test]
fn a_pool_whose_cipher_is_not_that_of_its_policy_makes_no_cartridges() {
    let bench = bench();
    bench.done(&["keys", "policies", "add", "ccm", "--cipher", "ccm"], 0);
    bench.done(&["keys", "groups", "add", "annex", "--policy", "ccm"], 0);
    bench.done(&["pools", "add", "annex"], 0);
    let said = bench.said(&["backup", "home", "--pool", "annex"], 4);
    assert!(said.contains("key group annex has keys for AES-256-CCM"), "{said}");
    assert!(bench.rows(&["volumes"]).is_empty());
}

/// A run was interrupted on a volume whose keys are past their time by now: nobody knows what it left there, nobody can
/// look, and the next run goes on without it.
#[test]
fn an_interrupted_run_is_taken_up_past_a_volume_whose_keys_are_past_their_time() {
    if !has_faketime() {
        return;
    }
    let mut bench = bench();
    set(&bench, "checkpoint_mib = 4096", "checkpoint_mib = 1");
    set(&bench, "extent_longest_mib = 256", "extent_longest_mib = 1");
    let program = format!("while cat {}; do sleep 0.1; done", bench.source().join("noise").display());
    let args = ["backup", "--stdin", "dump", "--pool", "vault", "--from-command", "--", "sh", "-c", &program];
    let mut killed = bench.command(&args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    until(&bench, |bench| !bench.rows(&["objects"]).is_empty());
    killed.kill().unwrap();
    killed.wait().unwrap();
    let interrupted = bench.rows(&["objects"]);
    assert_eq!(interrupted[0]["status"], "interrupted");
    bench.hours_ahead = 4;
    let said = bench.said(&["backup", "home", "--pool", "vault"], 0);
    assert!(said.contains("cryptoperiod") && said.contains("A00001"), "{said}");
    assert_eq!(bench.rows(&["volumes"]).len(), 2, "another volume was taken");
    bench.done(&["restore", "home", "--to", "back"], 0);
    let again = bench.rows(&["objects"]);
    assert!(again.iter().any(|object| object["object"] == interrupted[0]["object"]), "it is listed still");
}
