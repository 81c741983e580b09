//! Against SoftHSM. A module knows one configuration for the life of a process, so each test runs in a process of its
//! own, with a token of its own.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::path::PathBuf;
use std::process::{Command, Output};

use tempfile::TempDir;
use zeroize::Zeroizing;

use super::*;
use crate::root::tests::dump;
use crate::root::{RootError, SealedRoot};

const CLUSTER: ClusterId = ClusterId([7; 16]);
const LABEL: &str = "capstan test";
const INNER: &str = "CAPSTAN_TEST_INNER";
const TOKENS: &str = "CAPSTAN_TEST_TOKENS";

fn softhsm() -> PathBuf {
    let places =
        ["/usr/lib/softhsm/libsofthsm2.so", "/usr/lib64/pkcs11/libsofthsm2.so", "/usr/lib64/softhsm/libsofthsm2.so"];
    let found = places.iter().map(PathBuf::from).find(|path| path.exists());
    found.expect("SoftHSM is missing: install the package softhsm2 (`./x test` does)")
}

fn run(command: &mut Command, package: &str) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}: install the package {package}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

/// Runs `body` in a process of its own, with a new token.
fn with_token(test: &str, body: fn()) {
    if std::env::var_os(INNER).is_some() {
        return body();
    }
    let directory = tempfile::tempdir().unwrap();
    let configuration = configure(&directory);
    let _ = softhsm();
    let init = ["--init-token", "--free", "--label", LABEL, "--so-pin", "87654321", "--pin", "123456"];
    run(Command::new("softhsm2-util").args(init).env("SOFTHSM2_CONF", &configuration), "softhsm2");
    let inner = Command::new(std::env::current_exe().unwrap())
        .args([&format!("root::token::tests::{test}"), "--exact", "--nocapture"])
        .envs([(INNER, "1")])
        .env("SOFTHSM2_CONF", &configuration)
        .env(TOKENS, directory.path().join("tokens"))
        .output()
        .unwrap();
    let said = [inner.stdout, inner.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(inner.status.success() && said.contains("1 passed"), "{said}");
}

fn configure(directory: &TempDir) -> PathBuf {
    let (tokens, configuration) = (directory.path().join("tokens"), directory.path().join("softhsm2.conf"));
    std::fs::create_dir(&tokens).unwrap();
    let text = format!("directories.tokendir = {}\nobjectstore.backend = file\nlog.level = ERROR\n", tokens.display());
    std::fs::write(&configuration, text).unwrap();
    configuration
}

fn pin(text: &str) -> Pin {
    Pin::new(&Zeroizing::new(text.to_owned()))
}

fn open() -> Token {
    Token::open(&softhsm(), LABEL, &pin("123456")).unwrap()
}

fn refused<T>(result: Result<T, TokenError>) -> TokenError {
    match result {
        Ok(_) => panic!("it was taken"),
        Err(error) => error,
    }
}

#[test]
fn the_cluster_key_comes_back_out_of_the_token() {
    with_token("the_cluster_key_comes_back_out_of_the_token", || {
        let (token, keys) = (open(), ClusterKeys::create(CLUSTER).unwrap());
        let sealed = SealedRoot::under_token(&keys, 3, &token).unwrap();
        drop(token);
        let sealed = SealedRoot::decode(&sealed.encode()).unwrap();
        assert_eq!(sealed.open_with_token(&open()).unwrap().tag(), keys.tag());
        let other_way = sealed.open_share(&"ada".parse().unwrap(), &Zeroizing::new(String::from("x")));
        assert!(matches!(other_way.err(), Some(RootError::NotThisWay { .. })));

        // A second look by a program that is not ours: the key is there, sensitive, and has never left.
        let list = ["--login", "--pin", "123456", "--list-objects", "--type", "secrkey", "--token-label", LABEL];
        let listed = run(Command::new("pkcs11-tool").arg("--module").arg(softhsm()).args(list), "opensc");
        let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(listed.contains("AES length 32") && listed.contains("capstan root key"), "{listed}");
        for fact in ["sensitive", "never extractable", "local"] {
            assert!(listed.contains(fact), "{fact}: {listed}");
        }
    });
}

/// Both ways, whatever this token would choose by itself, each flipped byte of both, and the cluster where it is bound.
#[test]
fn both_ways_of_wrapping_work_and_see_what_was_altered() {
    with_token("both_ways_of_wrapping_work_and_see_what_was_altered", || {
        let (token, keys) = (open(), ClusterKeys::create(CLUSTER).unwrap());
        for wrap in [Wrap::KeyWrapPad, Wrap::Gcm] {
            let sealed = token.seal_by(wrap, &keys).unwrap();
            assert_eq!(sealed.wrapped.len(), if wrap == Wrap::Gcm { 60 } else { 40 });
            assert_eq!(token.unseal(&sealed, CLUSTER).unwrap().tag(), keys.tag());
            for at in 0..sealed.wrapped.len() {
                let mut altered = sealed.clone();
                altered.wrapped[at] ^= 1;
                let error = refused(token.unseal(&altered, CLUSTER));
                assert!(matches!(error, TokenError::Altered { .. }), "{wrap:?}, byte {at}: {error:?}");
            }
            for len in [0, 11, 12, 28, 39] {
                let mut cut = sealed.clone();
                cut.wrapped.truncate(len);
                assert!(token.unseal(&cut, CLUSTER).is_err(), "{wrap:?} cut to {len}");
            }
            let elsewhere = token.unseal(&sealed, ClusterId([8; 16]));
            assert_eq!(elsewhere.is_err(), wrap == Wrap::Gcm, "AES key wrap binds nothing: the file's MAC does");
        }
    });
}

#[test]
fn what_is_wrong_is_named() {
    with_token("what_is_wrong_is_named", || {
        let missing = refused(Token::open(Path::new("/nowhere/libnone.so"), LABEL, &pin("123456")));
        assert!(matches!(missing, TokenError::Module { .. }), "{missing}");
        let no_module = refused(Token::open(Path::new("/proc/self/exe"), LABEL, &pin("123456")));
        assert!(matches!(no_module, TokenError::Module { .. }), "{no_module}");
        let other = refused(Token::open(&softhsm(), "other", &pin("123456")));
        assert!(matches!(&other, TokenError::NoSuchToken { found, .. } if found == LABEL), "{other}");
        for wrong in ["654321", "1", ""] {
            let error = refused(Token::open(&softhsm(), LABEL, &pin(wrong)));
            assert!(matches!(error, TokenError::WrongPin { .. }), "{wrong}: {error:?}");
        }
        let keys = ClusterKeys::create(CLUSTER).unwrap();
        let mut sealed = open().seal(&keys).unwrap();
        sealed.key_id[0] ^= 1;
        let error = refused(open().unseal(&sealed, CLUSTER));
        assert!(matches!(error, TokenError::KeyMissing { .. }), "{error:?}");
    });
}

/// SoftHSM's tokens are folders: taking the folder away is what pulling the device out is.
#[test]
fn a_token_that_is_taken_away_in_use_is_noticed() {
    with_token("a_token_that_is_taken_away_in_use_is_noticed", || {
        let (token, keys) = (open(), ClusterKeys::create(CLUSTER).unwrap());
        let sealed = token.seal(&keys).unwrap();
        std::fs::remove_dir_all(std::env::var_os(TOKENS).unwrap()).unwrap();
        let error = refused(token.unseal(&sealed, CLUSTER));
        assert!(matches!(error, TokenError::Removed { .. } | TokenError::KeyMissing { .. }), "{error:?}");
        assert!(error.to_string().contains("plug"), "{error}");
    });
}

/// The key that a token gives out passes through its module and through the library that calls it.
#[test]
fn a_core_dump_of_a_node_with_a_token_does_not_hold_the_cluster_key() {
    const TEST: &str = "a_core_dump_of_a_node_with_a_token_does_not_hold_the_cluster_key";
    const DUMPED: &str = "CAPSTAN_TEST_TOKEN_DUMPED";
    with_token(TEST, || {
        let path = PathBuf::from(std::env::var_os(TOKENS).unwrap()).with_file_name("root.sealed");
        if std::env::var_os(DUMPED).is_some() {
            let canary = dump::canary();
            let keys = SealedRoot::read(&path).unwrap().open_with_token(&open()).unwrap();
            dump::wait_to_be_dumped();
            drop((canary, keys));
            return;
        }
        let (token, keys) = (open(), ClusterKeys::create(CLUSTER).unwrap());
        let sealed = SealedRoot::under_token(&keys, 3, &token).unwrap();
        sealed.write(&path, crate::root::Existing::Kept).unwrap();
        let dump = dump::dump_of(&format!("root::token::tests::{TEST}"), DUMPED);
        dump::assert_absent(&dump, &[("cluster key", keys.key().expose())]);
    });
}
