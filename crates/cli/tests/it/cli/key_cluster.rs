//! A site whose keys a cluster keeps, from the command line: no passphrase, and words of where to go.

use super::*;

/// A bench that was switched to a cluster of which no node is there, without a passphrase in the environment.
fn switched() -> Bench {
    let bench = Bench::new(&[]);
    bench.done(&["backup", "home"], 0);
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    let text =
        text.replace("nodes = []", "nodes = [\"127.0.0.1:1\"]").replace("identity = \"\"", "identity = \"agent.pem\"");
    fs::write(&settings, text).unwrap();
    bench
}

fn without_passphrase(bench: &Bench, args: &[&str], code: i32) -> (String, String) {
    let output = bench.command(args).env_remove("CAPSTAN_KEY_FILE").stdin(Stdio::null()).output().unwrap();
    ended(&output, args, code);
    (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn nothing_asks_for_a_passphrase_and_what_needs_no_key_works() {
    let bench = switched();
    let (listed, _) = without_passphrase(&bench, &["ls", "home", "-R"], 0);
    assert!(listed.contains("ada.txt"), "{listed}");
    without_passphrase(&bench, &["restore", "home", "--dry-run"], 0);
    for args in [&["backup", "home"][..], &["label", "A00009", "--pool", "default"], &["rebuild"]] {
        let (_, said) = without_passphrase(&bench, args, 4);
        assert!(said.contains("agent.pem") && said.contains("Enrol this machine"), "{args:?}: {said}");
    }
    let (_, said) = without_passphrase(&bench, &["keys", "status"], 1);
    assert!(said.contains("agent.pem"), "{said}");
    // Nothing was lost by trying.
    let settings = bench.dir.path().join("state/capstan.toml");
    let text = fs::read_to_string(&settings).unwrap();
    fs::write(&settings, text.replace("\"127.0.0.1:1\"", "").replace("agent.pem", "")).unwrap();
    bench.done(&["verify", "home"], 0);
}

#[test]
fn what_concerns_a_key_store_says_where_it_is_done_instead() {
    let bench = switched();
    for args in [
        &["keys", "export", "out"][..],
        &["keys", "export", "out", "--volume", "A00001"],
        &["keys", "export", "out", "--request", "0123"],
        &["keys", "export", "out", "--last"],
        &["keys", "import", "in", "--group", "vault"],
        &["keys", "import", "in", "--last"],
        &["keys", "policies"],
        &["keys", "groups", "add", "vault", "--policy", "default"],
        &["keys", "destroy", "A00001", "--yes"],
        &["keys", "passphrase"],
    ] {
        let (_, said) = without_passphrase(&bench, args, 2);
        let instead = match args[1] {
            "passphrase" => "keys status",
            "export" if args.contains(&"--volume") => "`keyd keys export --unit A00001`",
            "export" if args.contains(&"--request") => "`keyd keys export --request 0123 --out out`",
            "export" if args.contains(&"--last") => "`keyd keys export --last --out out`",
            "export" => "`keyd keys export --all`",
            "import" if args.contains(&"--last") => "`keyd keys import in --last`",
            "import" => "`keyd keys import in --group vault`",
            "groups" => "`keyd groups add vault --policy default`",
            "destroy" => "`keyd keys destroy TAG`",
            _ => "`keyd policies list`",
        };
        assert!(said.contains("127.0.0.1:1") && said.contains(instead), "{args:?}: {said}");
    }
    assert!(!bench.dir.path().join("out").exists());
    // What a mover may know it asks for itself, and here nobody answers.
    for args in [&["keys", "list"][..], &["keys", "volumes"]] {
        let (_, said) = without_passphrase(&bench, args, 4);
        assert!(said.contains("agent.pem"), "{args:?}: {said}");
    }
}

#[test]
fn a_site_of_a_cluster_is_not_made_without_an_identity() {
    let bench = Bench { dir: TempDir::new().unwrap(), hours_ahead: 0, unlock: None };
    let args = ["init", "--key-cluster", "kma1:7443", "--key-identity", "agent.pem"];
    let (_, said) = without_passphrase(&bench, &args, 4);
    assert!(said.contains("agent.pem") && said.contains("Enrol this machine"), "{said}");
    assert!(!bench.dir.path().join("state/capstan.toml").exists());
    let (_, said) = without_passphrase(&bench, &["init", "--key-cluster", "kma1:7443"], 2);
    assert!(said.contains("--key-identity"), "{said}");
}

#[test]
fn the_status_of_a_key_store_needs_no_passphrase() {
    let bench = Bench::new(&[]);
    let (said, _) = without_passphrase(&bench, &["keys", "status"], 0);
    assert!(said.contains("keys.db"), "{said}");
    assert_eq!(bench.json(&["keys", "status"])["kept_by"], "key store");
}
