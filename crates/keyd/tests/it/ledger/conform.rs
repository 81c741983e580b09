//! Every ledger passes the same suite.

use capstan_keyd::ledger::{
    EtcdFiles, EtcdLedger, EtcdMembers, Faults, FaultyLedger, Ledger, LedgerError, SimulatedLedger, conformance,
};
use rcgen::{CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair};
use std::path::Path;

use crate::etcd::{Etcd, PATIENT, files_in};

#[tokio::test]
async fn the_simulated_ledger_conforms() {
    let ledger = SimulatedLedger::new();
    conformance::run(&ledger).await;
    conformance::run_compacted(&ledger, async |revision| ledger.compact(revision)).await;
}

#[tokio::test]
async fn a_faulty_ledger_without_faults_conforms_and_its_delays_break_no_promise() {
    let faults = Faults { delayed: 50, ..Faults::default() };
    conformance::run(&FaultyLedger::new(SimulatedLedger::new(), 7, faults)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_one_member_conforms() {
    let etcd = Etcd::start(1).await;
    let ledger = etcd.ledger("conforms", 0, PATIENT).await;
    conformance::run(&ledger).await;
    conformance::run_compacted(&ledger, async |revision| etcd.compact(revision).await).await;
    let other = etcd.ledger("other", 0, PATIENT).await;
    assert_eq!(other.read("").await.unwrap().entries, [], "clusters in one etcd do not see each other");
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_with_three_members_conforms() {
    let etcd = Etcd::start(3).await;
    // Not the leader: everything takes its longest way.
    let own = (etcd.wait_for_leader().await + 1) % 3;
    let ledger = etcd.ledger("conforms", own, PATIENT).await;
    conformance::run(&ledger).await;
    conformance::run_compacted(&ledger, async |revision| etcd.compact(revision).await).await;
}

/// Certificates of an authority of its own: for the member, and for a node.
fn write_certificates(folder: &Path) -> Vec<String> {
    let mut authority = CertificateParams::new(Vec::new()).unwrap();
    authority.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate().unwrap()).unwrap();
    let write = |name: &str, purpose: ExtendedKeyUsagePurpose| {
        let mut parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
        parameters.extended_key_usages = vec![purpose];
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.signed_by(&key, &authority).unwrap();
        std::fs::write(folder.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    };
    std::fs::write(folder.join("authority.pem"), authority.pem()).unwrap();
    write("member", ExtendedKeyUsagePurpose::ServerAuth);
    write("node", ExtendedKeyUsagePurpose::ClientAuth);
    let file = |name: &str| folder.join(name).display().to_string();
    let files = [
        ("--cert-file", file("member.pem")),
        ("--key-file", file("member.key")),
        ("--trusted-ca-file", file("authority.pem")),
        ("--client-cert-auth", "true".to_owned()),
    ];
    files.into_iter().map(|(name, value)| format!("{name}={value}")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn etcd_is_reached_with_our_certificates_and_with_no_others() {
    let mut folder = None;
    let etcd = Etcd::start_tls(|path| {
        folder = Some(path.to_owned());
        write_certificates(path)
    });
    let folder = folder.unwrap();
    let ledger = async |files: EtcdFiles| {
        let members = EtcdMembers { endpoints: etcd.endpoints(), files: Some(files) };
        EtcdLedger::new("tls", &members, PATIENT).await.unwrap()
    };
    let ours = ledger(files_in(&folder)).await;
    while let Err(error) = ours.read("").await {
        assert!(matches!(error, LedgerError::Unreachable { .. }), "{error:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    conformance::run(&ours).await;

    // An authority that the member does not know has given this one out.
    let foreign = tempfile::tempdir().unwrap();
    write_certificates(foreign.path());
    let stranger = EtcdFiles { authority: folder.join("authority.pem"), ..files_in(foreign.path()) };
    assert!(matches!(ledger(stranger).await.read("").await, Err(LedgerError::Unreachable { .. })));
    // The member is none of the authority that the node knows.
    let mistrusting = EtcdFiles { authority: foreign.path().join("authority.pem"), ..files_in(&folder) };
    assert!(matches!(ledger(mistrusting).await.read("").await, Err(LedgerError::Unreachable { .. })));

    let missing = EtcdFiles { private_key: folder.join("nowhere"), ..files_in(&folder) };
    let members = EtcdMembers { endpoints: etcd.endpoints(), files: Some(missing) };
    let error = EtcdLedger::new("tls", &members, PATIENT).await.unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}
