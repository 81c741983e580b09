//! A node that was removed, and what the others take in of what it left.

use std::sync::Arc;

use capstan_format::{Algorithm, KeyTag, Volser};
use capstan_keyd::desk::{Answer, Decided, Operation};
use capstan_keyd::node::{MajorityContact, Node, NodeError, Noted, Removal};
use capstan_keyd::path::Path;
use capstan_keyd::record::{RemovedKma, unconfirmed_group};
use capstan_keys::{KeyState, Name};

use super::cluster::{Cluster, name, until};

fn volume(text: &str) -> Volser {
    Volser::new(text).unwrap()
}

async fn begin(node: &Node, volser: &str, request: u8) -> Result<KeyTag, NodeError> {
    let (volser, drive) = (volume(volser), name("drive"));
    let operation = Operation::Begin { volser, drive, group: None, algorithm: Algorithm::Aes256Gcm, draw: None };
    match node.ask(operation, &name("drive"), [request; 16]).await?.answer {
        Answer::Key(record) => Ok(node.open(&record)?.tag()),
        other => panic!("{other:?}"),
    }
}

/// The ledger loses answers: asked until it is done.
async fn begun(node: &Node, volser: &str, request: u8) -> KeyTag {
    for _ in 0..100 {
        match begin(node, volser, request).await {
            Ok(tag) => return tag,
            Err(NodeError::NeedsMajority { .. } | NodeError::Contended { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("no key in a hundred tries");
}

async fn reports(node: &Node, operation: Operation) {
    for _ in 0..100 {
        if node.ask(operation.clone(), &name("drive"), [0; 16]).await.is_ok() {
            return;
        }
    }
    panic!("not reported in a hundred tries");
}

async fn claimed(node: &Node, volser: &str, tag: KeyTag) {
    let (_, group_key) = node.keys().new_group_key(&unconfirmed_group()).unwrap();
    reports(node, Operation::Claim { volser: volume(volser), tag, group_key }).await;
}

async fn removed(by: &Node, kma: &str) {
    let kma = name(kma);
    for _ in 0..100 {
        let removing = by.change(|view| {
            let Some(was) = view.ledger().kmas().get(&kma).cloned() else {
                return Ok(Decided::records(Vec::new(), Vec::new()));
            };
            let held = view.ledger().held(&kma);
            let record = RemovedKma {
                was,
                held,
                epoch: 1,
                by: name("ada"),
                removed_ns: by.now_ns(),
                destroyed_ns: None,
                met_ns: None,
            };
            let put = (Path::removed(&kma), serde_json::to_vec(&record).unwrap());
            let removes = [Path::Kma(kma.clone()), Path::Held(kma.clone())].into_iter();
            let removes = removes.filter(|path| view.ledger().mark(path).revision != 0).collect();
            Ok::<_, NodeError>(Decided::records(vec![put], removes))
        });
        if removing.await.is_ok() {
            return;
        }
    }
    panic!("not removed in a hundred tries");
}

async fn taken_in(node: &Node, kma: &str, journal: &[Noted]) -> capstan_keyd::node::Reconciled {
    for _ in 0..100 {
        match node.reconcile_copy(&name(kma), journal).await {
            Ok(reconciled) => return reconciled,
            Err(NodeError::NeedsMajority { .. }) => {}
            Err(error) => panic!("{error}"),
        }
    }
    panic!("not taken in in a hundred tries");
}

async fn cut_off(cluster: &Cluster, seat: usize) -> Arc<Node> {
    cluster.cut(seat, true);
    let node = cluster.seats[seat].node().unwrap();
    until("a node knows that it is cut off", || node.standing() != MajorityContact::Current).await;
    node
}

/// The story: a site was lost for good, and the pool of the other one drained, for its keys waited for ever to be
/// stored at the site that was gone.
#[tokio::test(start_paused = true)]
async fn a_removed_node_counts_for_nothing_and_serves_nobody() {
    let cluster = Cluster::start(1).await;
    let story = async {
        let a = cluster.seats[0].node().unwrap();
        cluster.kill(2);
        for request in 1..=6 {
            begun(&a, &format!("A0000{request}"), request).await;
        }
        until("what was given out is drawn again", || a.pool().waiting >= 6).await;

        removed(&a, "c").await;
        until("keys are ready that are at the site that is left", || a.pool().waiting == 0).await;
        assert!(a.pool().ready >= 20);
        let set_aside = |node: &Node| node.view(|view| view.ledger().others("recovered/").count());
        until("the pool is set aside", || a.view(|view| view.ledger().pool(&name("c")).next().is_none())).await;
        assert!(set_aside(&a) >= 40, "all of it: {}", set_aside(&a));
        // A volume that names one of them proves that it was given out cut off: it is on record then, and read once
        // somebody has confirmed its group.
        let tag =
            a.view(|view| Path::parse(view.ledger().others("recovered/").next().unwrap().0).recovered_tag()).unwrap();
        let (drive, of_lost) = (name("drive"), volume("A00009"));
        let read = || a.look_up(&drive, &drive, &of_lost, &tag);
        let is_unconfirmed = async || read().await.err().unwrap().to_string().contains("must be confirmed first");
        assert!(is_unconfirmed().await);
        claimed(&a, "A00009", tag).await;
        assert!(is_unconfirmed().await && a.view(|view| view.ledger().unconfirmed().len() == 1));
        let before = set_aside(&a);
        reports(&a, Operation::Confirm { volser: volume("A00009"), tag, group: Name::default() }).await;
        assert_eq!(read().await.unwrap().1.tag(), tag);
        assert_eq!((set_aside(&a), a.view(|view| view.ledger().unconfirmed().len())), (before, 0));

        // It comes back, hears of it, and is never again a node that is merely cut off.
        cluster.boot(2);
        let c = cluster.seats[2].node().unwrap();
        until("the removed node knows", || matches!(c.removal(), Some(Removal::Recorded(_)))).await;
        assert!(matches!(begin(&c, "A00010", 10).await, Err(NodeError::Removed { .. })));
        cut_off(&cluster, 2).await;
        assert!(matches!(begin(&c, "A00010", 10).await, Err(NodeError::Removed { .. })));
        let read = c.look_up(&name("drive"), &name("drive"), &volume("A00009"), &tag).await;
        assert!(matches!(read, Err(NodeError::Removed { .. })));
    };
    cluster.beside(story).await;
}

/// A node that the others refuse has to believe it, until the majority says otherwise.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_refused_stops_unless_the_majority_knows_it() {
    let cluster = Cluster::start(2).await;
    let story = async {
        let c = cut_off(&cluster, 2).await;
        begin(&c, "A00001", 1).await.unwrap();
        c.refused_by_others(true);
        assert_eq!(c.removal(), Some(Removal::Refused));
        assert!(matches!(begin(&c, "A00002", 2).await, Err(NodeError::Removed { .. })));
        cluster.cut(2, false);
        until("the majority knows it", || c.is_refused_in_vain()).await;
        assert_eq!(c.removal(), None);
        begun(&c, "A00002", 2).await;
    };
    cluster.beside(story).await;
}

/// The story: a node died cut off, and what it had given out was unknown to the majority for good, though a peer had a
/// copy of its journal.
#[tokio::test(start_paused = true)]
async fn the_journal_of_a_removed_node_is_taken_in_from_a_copy() {
    let cluster = Cluster::start(3).await;
    let story = async {
        let a = cluster.seats[0].node().unwrap();
        let first = begun(&a, "A00003", 1).await;
        reports(&a, Operation::Activate { volser: volume("A00003"), serial: None, tag: first }).await;
        let c = cluster.seats[2].node().unwrap();
        until("every node knows the key", || c.view(|view| view.key(&first).is_some())).await;

        let c = cut_off(&cluster, 2).await;
        let alone = begin(&c, "A00001", 2).await.unwrap();
        c.ask(Operation::Activate { volser: volume("A00001"), serial: None, tag: alone }, &name("drive"), [3; 16])
            .await
            .unwrap();
        c.ask(Operation::End { volser: volume("A00003"), serial: None, last: Some(first) }, &name("drive"), [4; 16])
            .await
            .unwrap();
        let journal = cluster.seats[2].journal();
        assert!(journal.len() >= 3);
        cluster.kill(2);
        // Meanwhile the volume that was ended is begun anew.
        let newer = begun(&a, "A00003", 5).await;
        reports(&a, Operation::Activate { volser: volume("A00003"), serial: None, tag: newer }).await;
        assert!(a.view(|view| view.key(&alone).is_none()));

        removed(&a, "c").await;
        until("the pool is set aside", || a.view(|view| view.ledger().pool(&name("c")).next().is_none())).await;
        let set_aside = Path::recovered(&alone).to_string();
        assert!(a.view(|view| view.ledger().other(&set_aside).is_some()));
        // A drive has named it meanwhile, with a barcode that was read wrongly: the node's own journal knows better, of
        // its group as well.
        claimed(&a, "A00008", alone).await;
        assert_eq!(a.view(|view| view.ledger().realm().unit(&volume("A00008")).unwrap().keys.len()), 1);
        for round in 1..=2 {
            let reconciled = taken_in(&a, "c", &journal).await;
            assert!(reconciled.void.iter().any(|void| void.contains("A00003")), "round {round}: {reconciled:?}");
            a.view(|view| {
                let record = view.ledger().key(&alone).unwrap();
                assert_eq!(record.stored.record.state, KeyState::ProtectAndProcess);
                assert_eq!(record.origin.kma, name("c"));
                assert_eq!((record.volser(), &record.issued.group), (&volume("A00001"), &Name::default()));
                assert_eq!(view.ledger().unconfirmed().len(), 0);
                assert_eq!(view.ledger().realm().unit(&volume("A00008")).unwrap().keys.len(), 0);
                assert!(view.ledger().other(&set_aside).is_none(), "it is issued, and no key of a pool any more");
                let newer = view.ledger().key(&newer).unwrap();
                assert_eq!((newer.stored.record.state, newer.issued.dropped_ns), (KeyState::ProtectAndProcess, None));
            });
        }

        // A journal that was put back to an older state gave one key to two volumes: that is on record for people.
        let mut forked = journal.clone();
        for asked in forked.iter_mut().flat_map(|noted| &mut noted.asked) {
            if let Operation::Adopt(adopted) = &mut asked.operation {
                adopted.volser = volume("A00007");
            }
        }
        let reconciled = taken_in(&a, "c", &forked).await;
        assert!(reconciled.void.iter().any(|void| void.contains("is volume A00001's")), "{reconciled:?}");
        let conflict = format!("conflict/{alone}/A00007");
        assert!(a.view(|view| {
            view.ledger()
                .other(&conflict)
                .is_some_and(|said| said.ends_with(b"\"kma\":\"c\",\"owner\":\"A00001\",\"volume\":\"A00007\"}"))
        }));
        // What another node's journal says of a third is not that node's to say.
        let reconciled = taken_in(&a, "b", &journal).await;
        assert_eq!((reconciled.taken, reconciled.void.len()), (0, 0));

        // It comes back with its journal, which changes nothing any more, and is through with it.
        cluster.cut(2, false);
        cluster.boot(2);
        until("the removed node is through with its journal", || cluster.seats[2].journal().is_empty()).await;
        let newer = a.view(|view| view.ledger().key(&newer).unwrap().issued.dropped_ns);
        assert_eq!(newer, None);
    };
    cluster.beside(story).await;
}
