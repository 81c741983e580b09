//! Every byte counts, and so do passphrase, peer and cluster.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use super::*;

fn peer(text: &str) -> PeerId {
    text.parse().unwrap()
}

struct Exchange {
    passphrase: EnrolmentPassphrase,
    peer: PeerId,
    cluster: ClusterId,
}

impl Exchange {
    fn new() -> Self {
        let passphrase = EnrolmentPassphrase::random().unwrap();
        Self { passphrase, peer: peer("agent/DRIVE1"), cluster: ClusterId([7; 16]) }
    }

    fn verifier(&self) -> PakeVerifier {
        let made = PakeVerifier::new(&self.passphrase, &self.peer, &self.cluster).unwrap();
        PakeVerifier::from_bytes(made.expose()).unwrap()
    }
}

/// What a client does with a node that has `verifier` and takes it for `peer` of `cluster`.
fn run(client: &Exchange, verifier: &PakeVerifier, peer: &PeerId, cluster: &ClusterId) -> Result<(), PakeError> {
    let (state, first) = PakeClient::begin(&client.passphrase)?;
    let (node, second) = PakeServer::begin(verifier, peer, cluster, &first)?;
    let (third, ours) = state.finish(&client.passphrase, &client.peer, &client.cluster, &second)?;
    let theirs = node.finish(&third)?;
    assert_eq!(theirs.open_request(&ours.seal_request(b"request")?)?, b"request");
    assert_eq!(ours.open_answer(&theirs.seal_answer(b"answer")?)?, b"answer");
    Ok(())
}

#[test]
fn both_sides_agree() {
    let exchange = Exchange::new();
    run(&exchange, &exchange.verifier(), &exchange.peer, &exchange.cluster).unwrap();
}

#[test]
fn passphrase_peer_and_cluster_are_bound() {
    let exchange = Exchange::new();
    let verifier = exchange.verifier();
    let refused = |result| assert!(matches!(result, Err(PakeError::NotProved)));
    refused(run(&Exchange::new(), &verifier, &exchange.peer, &exchange.cluster));
    refused(run(&exchange, &verifier, &peer("agent/DRIVE2"), &exchange.cluster));
    refused(run(&exchange, &verifier, &peer("user/DRIVE1"), &exchange.cluster));
    refused(run(&exchange, &verifier, &exchange.peer, &ClusterId([8; 16])));
}

/// Every byte of every message counts.
#[test]
fn an_altered_message_ends_it() {
    let exchange = Exchange::new();
    let verifier = exchange.verifier();
    let begin = |first: &[u8]| PakeServer::begin(&verifier, &exchange.peer, &exchange.cluster, first);
    let len_second = begin(&PakeClient::begin(&exchange.passphrase).unwrap().1).unwrap().1.len();
    for (message, len) in [(1, 96), (2, len_second), (3, 64)] {
        for at in 0..len {
            let alter = |which, bytes: &mut Vec<u8>| {
                assert!(which != message || bytes.len() == len, "message {which} has {} bytes", bytes.len());
                if which == message {
                    bytes[at] ^= 1;
                }
            };
            let (client, mut first) = PakeClient::begin(&exchange.passphrase).unwrap();
            alter(1, &mut first);
            let Ok((node, mut second)) = begin(&first) else { continue };
            alter(2, &mut second);
            let Ok((mut third, _)) = client.finish(&exchange.passphrase, &exchange.peer, &exchange.cluster, &second)
            else {
                continue;
            };
            alter(3, &mut third);
            assert!(node.finish(&third).is_err(), "message {message}, byte {at} does not count");
        }
    }
}

#[test]
fn a_damaged_verifier_is_refused() {
    let bytes = Exchange::new().verifier().expose().to_vec();
    for len in 0..bytes.len() {
        assert!(PakeVerifier::from_bytes(&bytes[..len]).is_err(), "{len} bytes were taken for a verifier");
    }
}
