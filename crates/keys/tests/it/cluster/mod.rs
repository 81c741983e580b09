//! Keys from a cluster, as drives see it: what comes across, what a node's problems become, and what is said by the
//! way.

mod node;

use std::collections::BTreeSet;
use std::fs;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use capstan_format::{Algorithm, KeyTag, MediumSerial, Volser};
use capstan_keys::api::{Activated, Base64, KeyGiven, KeyOfVolume, KeyTagText, Problem, RenewCertificate, Standing};
use capstan_keys::cluster::{ClusterError, ClusterPlace, Identity, KeyCluster, Silence, hand_over};
use capstan_keys::{
    Cartridge, ClusterRefusal, KeyError, KeyPlace, KeyProvider, KeyRecord, KeyState, Name, Period, RuleRefusal, Secret,
    VolumeKey, random,
};

use node::{AGENT, Asked, Nodes, Reply};

const GCM: Algorithm = Algorithm::Aes256Gcm;
/// In 2030 and 2045 and 2060, in nanoseconds since 1970: before the certificate is due, when it is, and when it is
/// over.
const EARLY: fn() -> i64 = || 1_900_000_000_000_000_000;
const DUE: fn() -> i64 = || 2_370_000_000_000_000_000;
const OVER: fn() -> i64 = || 2_850_000_000_000_000_000;

/// A node of an epoch that is over gave out keys as before, and nothing knew of them afterwards.
#[test]
fn nothing_is_taken_from_a_node_of_an_older_epoch() {
    let nodes = Nodes::start(2);
    nodes.answer(|_| Reply::of(&Vec::<KeyOfVolume>::new()));
    let tell = |epochs: [u32; 2]| {
        nodes.epochs.iter().zip(epochs).for_each(|(told, epoch)| told.store(epoch, Ordering::Relaxed));
    };
    tell([2, 1]);
    // Whichever is asked first, there is one that is believed.
    for _ in 0..4 {
        keys(&nodes, EARLY).0.keys_of(&volser()).unwrap();
    }
    // Remembered over a start: the nodes of before are no cluster any more.
    tell([1, 1]);
    let error = keys(&nodes, EARLY).0.keys_of(&volser()).unwrap_err().to_string();
    assert!(error.contains("It is of epoch 1, and the cluster has gone on in epoch 2"), "{error}");
    tell([1, 3]);
    keys(&nodes, EARLY).0.keys_of(&volser()).unwrap();
}

fn volser() -> Volser {
    Volser::new("A00001").unwrap()
}

fn drawn(algorithm: Algorithm) -> VolumeKey {
    VolumeKey::new(Secret::filled(|bytes| random(bytes)).unwrap(), algorithm)
}

/// The provider, and what it says by the way.
fn keys(nodes: &Nodes, clock: fn() -> i64) -> (KeyCluster, Arc<Mutex<Vec<String>>>) {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let notices = Arc::clone(&said);
    let notice = Box::new(move |notice| notices.lock().unwrap().push(notice));
    (KeyCluster::new(nodes.place(), clock, notice), said)
}

/// A key as a node gives it to whoever asked this.
fn given(key: &VolumeKey, asked: &Asked, standing: Standing) -> Reply {
    let public: Base64 = serde_json::from_value(asked.body["public"].clone()).unwrap();
    let handed_over = hand_over(key, &public, &AGENT.parse().unwrap(), &asked.request).unwrap();
    Reply::of(&KeyGiven { key: key.tag(), algorithm: key.algorithm(), group: Name::default(), handed_over, standing })
}

fn new_key(keys: &KeyCluster, drive: Option<&Name>) -> Result<VolumeKey, KeyError> {
    keys.key_for_new_volume(&volser(), drive, Some("vault"), GCM, 0)
}

#[track_caller]
fn refused<T>(result: Result<T, KeyError>) -> KeyError {
    match result {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error,
    }
}

#[test]
fn keys_come_across_for_drives_with_and_without_a_name() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, EARLY);
    let key = Arc::new(drawn(GCM));
    let gives = Arc::clone(&key);
    nodes.answer(move |asked| given(&gives, asked, Standing::Current));
    let drive: Name = "HU12345".parse().unwrap();
    let (volser, tag) = (volser(), key.tag());
    let serial = MediumSerial::new("HPE 4711").unwrap();
    let cartridge = Cartridge { volser: &volser, serial: Some(&serial) };
    let got = [
        new_key(&keys, Some(&drive)),
        new_key(&keys, None),
        keys.key_for_append(cartridge, &tag, Some(&drive), 0),
        keys.key_for_reading((&volser).into(), &tag, None, 0),
    ];
    assert!(got.into_iter().all(|got| got.unwrap().expose() == key.expose()));
    let asked = nodes.asked.lock().unwrap();
    let drives: Vec<_> = asked.iter().map(|asked| asked.body["drive"].as_str().unwrap()).collect();
    assert_eq!(drives, ["HU12345", "mover1", "HU12345", "mover1"]);
    // Older nodes know no such member: it is there only where there is a number.
    let serials: Vec<_> =
        asked.iter().map(|asked| asked.body.get("serial").and_then(|serial| serial.as_str())).collect();
    assert_eq!(serials, [None, None, Some("HPE 4711"), None]);
    assert!(asked[3].body.get("serial").is_none());
    assert_eq!(
        asked.iter().map(|asked| asked.path.as_str()).collect::<Vec<_>>(),
        ["/v1/keys/begin", "/v1/keys/begin", "/v1/keys/append", "/v1/keys/read"]
    );
    assert_eq!((&asked[0].body["pool"], &asked[0].body["algorithm"]), (&"vault".into(), &"AES-256-GCM".into()));
    assert_eq!((&asked[2].body["first"], &asked[3].body["key"]), (&tag.to_string().into(), &tag.to_string().into()));
    // Another question has another id.
    assert_ne!(asked[0].request, asked[1].request);
}

#[test]
fn reports_and_questions_come_across() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, EARLY);
    let (old, new) = (KeyTag([1; 16]), KeyTag([2; 16]));
    let time = |second| jiff::Timestamp::from_second(second).unwrap();
    nodes.answer(move |asked| match asked.path.as_str() {
        "/v1/keys/activate" => Reply::of(&Activated { retired: vec![KeyTagText(old)] }),
        "/v1/keys/end" => Reply::Json(serde_json::json!({})),
        "/v1/units/A00001/keys" => Reply::of(&vec![KeyOfVolume {
            key: old,
            group: Name::default(),
            algorithm: GCM,
            state: KeyState::Destroyed,
            issued: time(1),
            activated: Some(time(2)),
            destroyed: Some(time(3)),
            dropped: None,
        }]),
        other => panic!("{other}"),
    });
    assert_eq!(keys.activate((&volser()).into(), &new, 0).unwrap(), [old]);
    keys.ended((&volser()).into(), 0).unwrap();
    let known = keys.keys_of(&volser()).unwrap().remove(0);
    assert_eq!((known.tag, known.state, known.created_ns), (old, KeyState::Destroyed, 1_000_000_000));
    assert_eq!((known.activated_ns, known.destroyed_ns), (Some(2_000_000_000), Some(3_000_000_000)));
    keys.check_new_volume(None, "vault", GCM).unwrap();
}

/// A node lists the keys of a volume in any order. The director took a destroyed one of an earlier life for one that
/// the volume holds, gave the volume up and advised to label it anew.
#[test]
fn the_keys_of_a_volume_are_told_as_they_were_issued_and_those_of_a_life_that_is_over_apart() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, EARLY);
    let time = |second| jiff::Timestamp::from_second(second).unwrap();
    let key = move |byte: u8, issued, dropped: Option<i64>| KeyOfVolume {
        key: KeyTag([byte; 16]),
        group: Name::default(),
        algorithm: GCM,
        state: if dropped.is_some() { KeyState::Destroyed } else { KeyState::ProtectAndProcess },
        issued: time(issued),
        activated: Some(time(issued)),
        destroyed: dropped.map(time),
        dropped: dropped.map(time),
    };
    nodes.answer(move |_| {
        Reply::of(&vec![key(2, 30, None), key(9, 40, None), key(7, 10, Some(30)), key(3, 20, Some(30))])
    });
    let tags = |known: Vec<KeyRecord>| known.into_iter().map(|key| key.tag.0[0]).collect::<Vec<_>>();
    assert_eq!(tags(keys.keys_of(&volser()).unwrap()), [7, 3, 2, 9]);
    assert_eq!(tags(keys.keys_held(&volser()).unwrap()), [2, 9]);
}

#[test]
fn what_a_node_says_of_a_key_becomes_the_error_that_callers_know() {
    let nodes = Nodes::start(2);
    let (keys, _) = keys(&nodes, EARLY);
    let tag = KeyTag([7; 16]);
    let other = Volser::new("A00002").unwrap();
    let over = RuleRefusal::CryptoperiodOver {
        volser: volser(),
        tag,
        policy: Name::default(),
        period: Period::Seconds(1),
        ended_ns: 5,
    };
    let errors = [
        KeyError::KeyMissing { place: KeyPlace::Cluster, tag, volser: Some(volser()) },
        KeyError::KeyDestroyed { tag, volser: volser(), destroyed_ns: 1_790_000_000_000_000_000 },
        KeyError::KeyRetired { tag, volser: volser(), state: KeyState::Compromised },
        KeyError::KeyOfOtherVolume { tag, volser: volser(), owner: other },
        over.into(),
        RuleRefusal::KeysUsedUp { volser: volser() }.into(),
        RuleRefusal::UnknownGroup { group: Name::default() }.into(),
    ];
    for error in errors {
        let problem = Problem::of_key(&error).unwrap();
        nodes.answer(move |_| Reply::Problem(Box::new(problem.clone())));
        let got = refused(keys.key_for_reading((&volser()).into(), &tag, None, 0));
        let said = match &error {
            KeyError::Refused(refusal) => refusal.to_string(),
            other => other.to_string(),
        };
        assert!(got.to_string().contains(&said), "{got} for {error}");
        let reason = match &error {
            KeyError::Refused(RuleRefusal::CryptoperiodOver { .. }) => {
                // It was the store's words that came across.
                let words = ["a compliance officer", "keyd units extend-decryption A00001"];
                assert!(words.iter().all(|part| got.to_string().contains(part)), "{got}");
                assert!(!got.to_string().contains("secret"), "{got}");
                ClusterRefusal::CryptoperiodOver { tag }
            }
            KeyError::Refused(RuleRefusal::KeysUsedUp { .. }) => ClusterRefusal::KeysUsedUp,
            KeyError::Refused(_) => ClusterRefusal::Other,
            _ => {
                assert_eq!(format!("{got:?}"), format!("{error:?}"));
                continue;
            }
        };
        assert!(matches!(&got, KeyError::RefusedByCluster { reason: is, .. } if *is == reason), "{got:?}");
    }
    // Each was asked of one node: what a rule forbids every node forbids.
    assert_eq!(nodes.paths().len(), 7);

    // A rule of a later release, and a problem that says less than it must.
    nodes.answer(|_| Reply::Problem(Box::new(Problem::new(403, "new-moon", "Not tonight", "Wait."))));
    let got = refused(new_key(&keys, None));
    assert!(matches!(&got, KeyError::RefusedByCluster { reason: ClusterRefusal::Other, .. }), "{got:?}");
    assert_eq!(got.to_string(), "the key cluster refused: Not tonight: Wait.");
    let bare = Problem::new(410, "key-destroyed", "Gone", "Gone.");
    nodes.answer(move |_| Reply::Problem(Box::new(bare.clone())));
    let got = refused(new_key(&keys, None));
    assert!(matches!(got.of_cluster(), Some(ClusterError::Refused(_))), "{got:?}");
}

#[test]
fn what_one_node_cannot_do_another_is_asked_for_and_once() {
    let nodes = Nodes::start(2);
    let (keys, _) = keys(&nodes, EARLY);
    let key = Arc::new(drawn(GCM));
    let unready = ["pool-empty", "isolated-too-long", "locked", "needs-majority"];
    // A node whose clock had jumped ahead by years said of each peer that its certificate had ended, and drives took
    // its word for it.
    for kind in unready.into_iter().chain(["turned-away", "the answer is lost", "it fails"]) {
        nodes.asked.lock().unwrap().clear();
        let (gives, mut first) = (Arc::clone(&key), true);
        nodes.answer(move |asked| match std::mem::take(&mut first) {
            true if kind == "the answer is lost" => Reply::Nothing,
            true if kind == "it fails" => Reply::Problem(Box::new(Problem::new(500, "failed", "This node failed", ""))),
            true if kind == "turned-away" => Reply::Problem(Box::new(Problem::new(403, kind, "Not let in", "Enrol."))),
            true => Reply::Problem(Box::new(Problem::new(503, kind, "Not here", "Ask another."))),
            false => given(&gives, asked, Standing::Current),
        });
        assert_eq!(new_key(&keys, None).unwrap().tag(), key.tag());
        let asked = nodes.asked.lock().unwrap();
        assert_eq!(asked.len(), 2, "{kind}");
        assert_eq!(asked[0].request, asked[1].request, "a second key was asked for");
    }
}

#[test]
fn when_no_node_can_each_is_named_and_why() {
    let nodes = Nodes::start(2);
    let (keys, _) = keys(&nodes, EARLY);
    nodes.answer(|_| Reply::Problem(Box::new(Problem::new(503, "pool-empty", "No key is ready", "Make a backup."))));
    let error = refused(new_key(&keys, None));
    let text = error.to_string();
    for part in ["kma1 (", "kma2 (", "cannot serve now: No key is ready: Make a backup."] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    let Some(ClusterError::AllGone(gone)) = error.of_cluster() else { panic!("{text}") };
    assert!(gone.iter().all(|gone| matches!(gone.silence, Silence::Unready(_))));

    // And it is no state to stay in.
    let key = drawn(GCM);
    nodes.answer(move |asked| given(&key, asked, Standing::Current));
    new_key(&keys, None).unwrap();
}

#[test]
fn nodes_that_fail_at_it_are_asked_once_and_named() {
    let nodes = Nodes::start(2);
    let (keys, _) = keys(&nodes, EARLY);
    nodes.answer(|_| Reply::Problem(Box::new(Problem::new(500, "failed", "This node failed", "Look at its log."))));
    let error = refused(new_key(&keys, None));
    let text = error.to_string();
    for part in ["kma1 (", "kma2 (", "failed: This node failed: Look at its log."] {
        assert!(text.contains(part), "{text:?} lacks {part:?}");
    }
    assert_eq!(nodes.paths().len(), 2, "what one failed at once it was asked again");
}

/// One lock was held over the network: a node that hung for one drive kept all drives of the process waiting.
#[test]
fn a_drive_whose_node_hangs_keeps_no_other_waiting() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, EARLY);
    let (slow, fast): (Name, Name) = ("SLOW".parse().unwrap(), "FAST".parse().unwrap());
    let key = Arc::new(drawn(GCM));
    let gives = Arc::clone(&key);
    let hangs = Arc::new(AtomicBool::new(true));
    let still = Arc::clone(&hangs);
    nodes.answer(move |asked| {
        let reply = given(&gives, asked, Standing::Current);
        if asked.body["drive"] == "SLOW" { Reply::Late(Arc::clone(&still), Box::new(reply)) } else { reply }
    });
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| new_key(&keys, Some(&slow)));
        while nodes.paths().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(new_key(&keys, Some(&fast)).unwrap().tag(), key.tag());
        assert!(!waits.is_finished(), "it had its answer from a node that hangs");
        hangs.store(false, Ordering::Relaxed);
        assert_eq!(waits.join().unwrap().unwrap().tag(), key.tag());
    });
}

#[test]
fn a_key_that_was_not_asked_for_is_not_taken() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, EARLY);
    let key = drawn(Algorithm::Aes256Ccm);
    nodes.answer(move |asked| given(&key, asked, Standing::Current));
    // Another key than the one that the block names; a key for another cipher than the pool's.
    let errors =
        [refused(keys.key_for_reading((&volser()).into(), &KeyTag([9; 16]), None, 0)), refused(new_key(&keys, None))];
    assert!(errors.iter().all(|error| matches!(error, KeyError::Host { .. })), "{errors:?}");

    // An answer to another question, sent again.
    let (key, mut first) = (drawn(GCM), None);
    nodes.answer(move |asked| {
        Reply::Json(
            first
                .get_or_insert_with(|| match given(&key, asked, Standing::Current) {
                    Reply::Json(answer) => answer,
                    _ => panic!("no key"),
                })
                .clone(),
        )
    });
    new_key(&keys, None).unwrap();
    assert!(matches!(refused(new_key(&keys, None)), KeyError::Host { .. }));
}

#[test]
fn the_certificate_is_renewed_by_the_way() {
    let nodes = Nodes::start(1);
    let (keys, said) = keys(&nodes, DUE);
    let (key, authority) = (drawn(GCM), Arc::clone(&nodes.authority));
    let before = Identity::load(&nodes.identity()).unwrap().certificate().serial;
    nodes.answer(move |asked| match asked.path.as_str() {
        "/v1/certificates/renew" => {
            let RenewCertificate { request } = serde_json::from_value(asked.body.clone()).unwrap();
            Reply::of(&authority.renew(&request, 4))
        }
        _ => given(&key, asked, Standing::Current),
    });
    new_key(&keys, None).unwrap();
    assert_eq!(nodes.paths(), ["/v1/certificates/renew", "/v1/keys/begin"]);
    assert_ne!(Identity::load(&nodes.identity()).unwrap().certificate().serial, before);
    assert!(said.lock().unwrap()[0].contains("was renewed: it holds until 2050-01-01"), "{said:?}");
}

/// A node whose clock was ahead by years made out a certificate that began years later. The mover put it in the place
/// of the one that held, and was let in nowhere.
#[test]
fn a_certificate_of_another_time_is_not_taken() {
    let nodes = Nodes::start(1);
    let (keys, said) = keys(&nodes, DUE);
    let (key, authority) = (drawn(GCM), Arc::clone(&nodes.authority));
    let before = Identity::load(&nodes.identity()).unwrap().certificate().serial;
    nodes.answer(move |asked| match asked.path.as_str() {
        "/v1/certificates/renew" => {
            let RenewCertificate { request } = serde_json::from_value(asked.body.clone()).unwrap();
            Reply::of(&authority.renew_from(2049, &request, 4))
        }
        _ => given(&key, asked, Standing::Current),
    });
    new_key(&keys, None).unwrap();
    assert_eq!(Identity::load(&nodes.identity()).unwrap().certificate().serial, before);
    assert!(said.lock().unwrap()[0].contains("does not hold now: the clock"), "{said:?}");
}

#[test]
fn a_renewal_that_fails_keeps_no_key_back_and_is_not_tried_with_each() {
    let nodes = Nodes::start(1);
    let (keys, said) = keys(&nodes, DUE);
    let key = drawn(GCM);
    nodes.answer(move |asked| match asked.path.as_str() {
        "/v1/certificates/renew" => Reply::Problem(Box::new(Problem::new(500, "failed", "This node failed", ""))),
        _ => given(&key, asked, Standing::Current),
    });
    new_key(&keys, None).unwrap();
    new_key(&keys, None).unwrap();
    assert_eq!(nodes.paths(), ["/v1/certificates/renew", "/v1/keys/begin", "/v1/keys/begin"]);
    let said = said.lock().unwrap();
    assert!(
        said.len() == 1 && said[0].contains("could not be") && said[0].contains("holds until 2050-01-01"),
        "{said:?}"
    );
}

#[test]
fn a_certificate_that_has_ended_says_so_before_anybody_is_asked() {
    let nodes = Nodes::start(1);
    let (keys, _) = keys(&nodes, OVER);
    let error = refused(new_key(&keys, None));
    assert!(error.to_string().contains("ended on 2050-01-01T00:00:00Z. Enrol this machine anew"), "{error}");
    assert!(matches!(error, KeyError::Cluster(_)) && nodes.paths().is_empty());
}

#[test]
fn that_the_majority_is_lost_is_said_once() {
    let nodes = Nodes::start(1);
    let (keys, said) = keys(&nodes, EARLY);
    let key = Arc::new(drawn(GCM));
    for standing in [Standing::Current, Standing::CutOff, Standing::CutOff, Standing::Current] {
        let key = Arc::clone(&key);
        nodes.answer(move |asked| given(&key, asked, standing));
        new_key(&keys, None).unwrap();
    }
    let said = said.lock().unwrap();
    assert!(said.len() == 2 && said[0].contains("cut off") && said[1].contains("majority again"), "{said:?}");
}

#[test]
fn the_status_asks_each_node_by_itself() {
    let nodes = Nodes::start(2);
    let mut place = nodes.place();
    // One that is known from the other, and one that is not there.
    place.nodes = vec![nodes.addresses[0].clone(), "127.0.0.1:1".to_owned()];
    let keys = KeyCluster::new(place, EARLY, Box::new(|_| {}));
    let status = keys.status().unwrap();
    let rows: Vec<_> = status.nodes.iter().map(|node| (node.name.as_deref(), node.answer.is_ok())).collect();
    assert_eq!(rows, [(Some("kma1"), true), (None, false), (Some("kma2"), true)]);
    assert_eq!(status.certificate.peer.to_string(), AGENT);
}

/// The settings named one node, and that was gone for good when the mover started anew: it found nobody, while the
/// others served.
#[test]
fn a_start_finds_the_nodes_that_were_known_last() {
    let nodes = Nodes::start(2);
    let key = Arc::new(drawn(GCM));
    let gives = Arc::clone(&key);
    nodes.answer(move |asked| given(&gives, asked, Standing::Current));
    let gone = TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().to_string();
    let place = |node: &str| ClusterPlace { nodes: vec![node.to_owned()], ..nodes.place() };
    let start = |node: &str| new_key(&KeyCluster::new(place(node), EARLY, Box::new(|_| {})), None);
    let list = nodes.identity().with_extension("nodes");
    let Err(KeyError::Cluster(_)) = start(&gone) else { panic!("nobody could have told it") };
    assert!(!list.exists());

    start(&nodes.addresses[0]).unwrap();
    let kept = fs::read_to_string(&list).unwrap();
    assert!(nodes.addresses.iter().all(|address| kept.contains(address)), "{kept}");
    start(&gone).unwrap();
    let status = KeyCluster::new(place(&gone), EARLY, Box::new(|_| {})).status().unwrap();
    let answer: Vec<_> = status.nodes.iter().filter(|node| node.answer.is_ok()).map(|node| &node.address).collect();
    assert_eq!(BTreeSet::from_iter(answer), BTreeSet::from_iter(&nodes.addresses));

    // Who has the file has addresses to say, and no more: a node of another authority is believed nothing.
    let stranger = Nodes::start(1);
    stranger.answer(move |asked| given(&key, asked, Standing::Current));
    fs::write(&list, kept.replace(&nodes.addresses[0], &stranger.addresses[0])).unwrap();
    start(&gone).unwrap();
    assert!(stranger.paths().is_empty(), "a stranger was asked for a key");
    // And the list is right again, for the node that answered has said who there is.
    assert_eq!(fs::read_to_string(&list).unwrap(), kept);
}
