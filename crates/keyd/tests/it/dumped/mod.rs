//! The memory of a node that works is dumped, as root can, and searched for what must not lie about in it.
//!
//! Others get no dump of it at all (`keep_memory_private`). What is derived for use at this moment and the key of the
//! node's own certificate, which lies on its disk as well, are in it; what was opened once, used and let go must not
//! be.

use std::io::{BufRead, Write};

use capstan_keyd::authority_record::AuthorityRecord;
use capstan_keys::api::Base64;
use capstan_keys::cluster::ClusterClient;
use serde_json::Value;

use crate::etcd::Etcd;
use crate::recovery::node::{Place, Workshop, begin, runtime, wait_for};

/// Where a P-256 key in PKCS#8 has its 32 secret bytes.
const SCALAR: std::ops::Range<usize> = 36..68;

#[test]
fn a_dump_of_a_node_holds_nothing_that_was_only_passing() {
    let runtime = runtime();
    let etcd = runtime.block_on(Etcd::start(1));
    let workshop = Workshop::new();
    let [a, b] = ["a", "b"].map(|name| Place::new(name, &etcd.endpoints()[0]));
    let passphrases = workshop.found_only(&a, "state");
    let node = workshop.start(&a, "state");
    // What is typed wrongly is often a passphrase for something else.
    let typed = (0..20).map(|number| format!("typed at the wrong place, {number}")).collect::<Vec<_>>();
    for passphrase in &typed {
        workshop.secret("wrong", passphrase);
        let given = ["unlock", "--state", "state", "--holder", "h1", "--passphrase-file", "wrong.secret"];
        wait_for(|| match workshop.keyd(&given) {
            Err(said) if said.contains("passphrase") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    workshop.unlock("state");
    for user in ["ada", "q1", "q2"] {
        workshop.enrol(&a, "user", user, &passphrases[user]);
    }
    let asked = workshop.json_as(&a, "ada", &["kmas", "add", "b", "--address", &b.address()]);
    workshop.approved(&a, &asked);
    workshop.join(&b, "state-b", &a, asked["passphrase"].as_str().unwrap()).unwrap();
    let _other = workshop.run(&b, "state-b");
    // It makes up one-time passphrases, and shows each once.
    let shown: Vec<_> = (0..20)
        .map(|number| {
            let (name, address) = (format!("node{number}"), format!("127.0.0.1:{}", 9000 + number));
            let asked = workshop.json_as(&a, "ada", &["kmas", "add", &name, "--address", &address]);
            asked["passphrase"].as_str().unwrap().to_owned()
        })
        .collect();
    let passphrase = runtime.block_on(workshop.open_enrolment(&etcd, "state", "agent/drive1"));
    workshop.enrol(&a, "agent", "drive1", &passphrase);

    // Drives ask for keys, and one of them again after its mount.
    let identity = workshop.identity("drive1");
    let client = ClusterClient::open(&identity, &[a.address()], "").unwrap();
    let keys: Vec<_> = (0..20).map(|number| wait_for(|| begin(&client, &identity, &format!("A{number:05}")))).collect();

    let (authority, cluster) = runtime.block_on(workshop.record(&etcd, "state", "authority"));
    let known: Value = serde_json::from_slice(&authority).unwrap();
    let authority: AuthorityRecord = serde_json::from_slice(&authority).unwrap();
    let authority = authority.key(&workshop.cluster_keys("state")).unwrap();
    // As it lay in the record once, and as the record lies there now.
    let (clear, wrapped) = (base64(&authority.expose()[..66]), known["wrapped"].as_str().unwrap().to_owned());
    let scalar: [u8; 32] = authority.expose()[SCALAR].try_into().unwrap();
    let mut turned = scalar;
    turned.reverse();

    let Some(dump) = node.dumped() else {
        let _ = writeln!(std::io::stderr(), "dumped: only root gets a dump of a node, so there is nothing to search");
        return;
    };
    let holds = |bytes: &[u8]| memmem(&dump, bytes);
    assert!(holds(cluster.as_bytes()) && holds(a.address().as_bytes()), "it holds what every dump of a node holds");
    for (number, key) in keys.iter().enumerate() {
        assert!(!holds(key.expose()), "volume key {number} is in the dump");
    }
    for holder in ["h1", "h2"] {
        assert!(!holds(format!("the passphrase of {holder}").as_bytes()), "the passphrase of {holder} is in the dump");
    }
    for passphrase in &typed {
        assert!(!holds(passphrase.as_bytes()), "{passphrase:?} is in the dump");
    }
    for (number, shown) in shown.iter().enumerate() {
        assert!(
            !holds(shown.as_bytes()),
            "one-time passphrase {number} that it showed to whoever asked is in the dump"
        );
    }
    for (user, passphrase) in &passphrases {
        assert!(!holds(passphrase.as_bytes()), "the one-time passphrase of {user} is in the dump");
    }
    assert!(holds(wrapped.as_bytes()), "the record of the cluster's authority is in it, its key wrapped");
    assert!(
        !holds(&scalar) && !holds(&turned) && !holds(&clear.as_bytes()[48..]),
        "the key of the cluster's authority is in the dump"
    );
}

fn base64(bytes: &[u8]) -> String {
    let text = serde_json::to_string(&Base64(bytes.to_vec())).unwrap();
    text.trim_matches('"').trim_end_matches('=').to_owned()
}

fn memmem(dump: &[u8], bytes: &[u8]) -> bool {
    let mut rest = dump;
    // Byte by byte it takes two minutes without optimisation, which the standard library's search has.
    while rest.skip_until(bytes[0]).unwrap() > 0 {
        if rest.starts_with(&bytes[1..]) {
            return true;
        }
    }
    false
}
