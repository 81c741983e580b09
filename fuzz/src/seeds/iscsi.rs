//! What initiators say: logins of each kind, commands, data, text.

use super::Seeds;

const LOGIN: u8 = 0x43;
const COMMAND: u8 = 0x01;
const DATA_OUT: u8 = 0x05;
const NOP_OUT: u8 = 0x40;
const TEXT: u8 = 0x44;
const TASK_MANAGEMENT: u8 = 0x42;
const LOGOUT: u8 = 0x46;

/// A PDU without checksums.
fn pdu(opcode: u8, flags: u8, ahs: &[u8], data: &[u8]) -> Vec<u8> {
    let mut pdu = vec![0; 48];
    (pdu[0], pdu[1], pdu[4]) = (opcode, flags, (ahs.len() / 4) as u8);
    pdu[5..8].copy_from_slice(&(data.len() as u32).to_be_bytes()[1..]);
    pdu[16..20].copy_from_slice(&7u32.to_be_bytes());
    pdu.extend_from_slice(ahs);
    pdu.extend_from_slice(data);
    pdu.resize(pdu.len().next_multiple_of(4), 0);
    pdu
}

/// One PDU with room for both checksums, which the target makes right.
fn checked(opcode: u8, flags: u8, ahs: &[u8], data: &[u8]) -> Vec<u8> {
    let mut whole = pdu(opcode, flags, ahs, data);
    let header_end = 48 + ahs.len();
    whole.splice(header_end..header_end, [0; 4]);
    if !data.is_empty() {
        whole.extend_from_slice(&[0; 4]);
    }
    whole
}

/// Each behind its settings: 0 without checksums, 3 with both.
pub(super) fn conversations() -> Seeds {
    let names = b"InitiatorName=iqn.2026-01.org.capstan:host\0TargetName=iqn.2026-01.org.capstan:fuzz\0";
    let with = |keys: &[u8]| [&names[..], keys].concat();
    let (stay, security_to_operational, operational_to_full) = (0x00, 0x81, 0x87);
    let keys = b"HeaderDigest=CRC32C,None\0DataDigest=None\0MaxRecvDataSegmentLength=262144\0InitialR2T=No\0\
        ImmediateData=Yes\0FirstBurstLength=65536\0MaxBurstLength=0x40000\0DefaultTime2Wait=2\0\
        DefaultTime2Retain=0\0MaxConnections=1\0MaxOutstandingR2T=1\0ErrorRecoveryLevel=0\0IFMarker=No\0\
        DataPDUInOrder=Yes\0DataSequenceInOrder=Yes\0TaskReporting=RFC3720\0X-org.example.odd=1\0";
    let chap = b"CHAP_N=host\0CHAP_R=0x000102030405060708090a0b0c0d0e0f\0CHAP_I=1\0CHAP_C=0bAAECAwQFBgcICQoLDA0ODw==\0";
    let proof = [
        pdu(LOGIN, security_to_operational, &[], &with(b"AuthMethod=CHAP,None\0")),
        pdu(LOGIN, stay, &[], b"CHAP_A=7,5\0"),
        pdu(LOGIN, security_to_operational, &[], chap),
        pdu(LOGIN, operational_to_full, &[], keys),
    ];
    let pieces = [
        pdu(LOGIN, 0x44, &[], &names[..20]),
        pdu(LOGIN, 0x44, &[], &names[20..50]),
        pdu(LOGIN, operational_to_full, &[], &names[50..]),
    ];
    let discovery = b"InitiatorName=iqn.2026-01.org.capstan:host\0SessionType=Discovery\0AuthMethod=None\0";
    let commands = |pdu: fn(u8, u8, &[u8], &[u8]) -> Vec<u8>| {
        [
            pdu(COMMAND, 0xa1, &[], &[0x5a; 70]),
            pdu(COMMAND, 0x21, &[0, 5, 1, 0, 9, 8, 7, 6], &[]),
            pdu(DATA_OUT, 0x80, &[], &[0xa5; 33]),
            pdu(NOP_OUT, 0x80, &[], b"ping"),
            pdu(TEXT, 0x80, &[], b"SendTargets=All\0"),
            pdu(TASK_MANAGEMENT, 0x85, &[], &[]),
            pdu(LOGOUT, 0x80, &[], &[]),
        ]
        .concat()
    };
    let behind = |settings: u8, pdus: &[u8]| [&[settings], pdus].concat();
    vec![
        behind(0, &pdu(LOGIN, operational_to_full, &[], &with(keys))),
        behind(0, &proof.concat()),
        behind(0, &pieces.concat()),
        behind(0, &pdu(LOGIN, security_to_operational, &[], discovery)),
        behind(0, &commands(pdu)),
        behind(3, &commands(checked)),
    ]
}
