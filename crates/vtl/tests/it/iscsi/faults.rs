//! The wire cut at each point: what was carried out, what the initiator is told, and that it gets in again.

use capstan_vtl::iscsi::{Initiator, InitiatorConfig, InitiatorError, Unsolicited, WirePoint};

use super::device::{Bench, READ_BLOCK, TEST_UNIT_READY, WRITE_BLOCK, eventually};

/// What became of a command whose connection was cut.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Fate {
    NeverBegun,
    CarriedOut,
}

fn cut_at(point: WirePoint, unsolicited: Unsolicited, operation: u8, fate: Fate) {
    println!("{point} with {unsolicited:?} data");
    let bench = Bench::new();
    let config = InitiatorConfig { unsolicited, ..bench.initiator(1) };
    let mut initiator = Initiator::connect(&config).unwrap();
    let prepare = |initiator: &mut Initiator| {
        initiator.execute(0, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &[1; 300_000], &mut []).unwrap();
    };
    if point == WirePoint::AfterResponse {
        // The first command comes by when its response is here already.
        bench.faults.cut(point, 2);
        prepare(&mut initiator);
    } else {
        prepare(&mut initiator);
        bench.faults.cut(point, 1);
    }
    let data = vec![2; 300_000];
    let mut read = vec![0; 300_000];
    let (data, read): (&[u8], &mut [u8]) = if operation == WRITE_BLOCK { (&data, &mut []) } else { (&[], &mut read) };
    let lost = initiator.execute(0, &[operation, 0, 0, 0, 0, 0], data, read);
    if point == WirePoint::AfterResponse {
        assert!(lost.unwrap().is_good(), "the answer was sent before the cut");
        assert!(initiator.execute(0, &TEST_UNIT_READY, &[], &mut []).is_err());
    } else {
        assert!(matches!(lost, Err(InitiatorError::Lost { .. })), "{lost:?}");
    }
    eventually("the session is gone", || bench.server.sessions().is_empty());
    let block = if fate == Fate::CarriedOut && operation == WRITE_BLOCK { 2 } else { 1 };
    assert!(bench.device.block(0) == [block; 300_000]);
    let executed = if fate == Fate::CarriedOut { 2 } else { 1 };
    assert_eq!((bench.device.executed().len(), bench.faults.done()), (executed, 1));
    let mut again = Initiator::connect(&config).unwrap();
    assert!(again.execute(0, &TEST_UNIT_READY, &[], &mut []).unwrap().is_good());
    assert_eq!(bench.device.lost().len(), 1);
}

#[test]
fn a_connection_is_cut_at_each_point() {
    for (point, fate) in [
        (WirePoint::AfterCommand, Fate::NeverBegun),
        (WirePoint::AmidDataOut, Fate::NeverBegun),
        (WirePoint::BeforeResponse, Fate::CarriedOut),
        (WirePoint::AfterResponse, Fate::CarriedOut),
    ] {
        cut_at(point, Unsolicited::Both, WRITE_BLOCK, fate);
        cut_at(point, Unsolicited::None, WRITE_BLOCK, fate);
    }
    cut_at(WirePoint::BeforeReadyToTransfer, Unsolicited::None, WRITE_BLOCK, Fate::NeverBegun);
    cut_at(WirePoint::AmidDataIn, Unsolicited::Both, READ_BLOCK, Fate::CarriedOut);
}

#[test]
fn a_login_is_cut_at_each_of_its_requests() {
    let bench = Bench::new();
    for request in 1..=2 {
        bench.faults.cut(WirePoint::LoginRequest, request);
        assert!(matches!(Initiator::connect(&bench.initiator(1)), Err(InitiatorError::Lost { .. })));
    }
    bench.connect(1).logout().unwrap();
    assert_eq!((bench.faults.done(), bench.faults.waiting().len()), (2, 0));
}

/// The third write of many.
#[test]
fn a_cut_comes_at_the_passage_that_was_named() {
    let bench = Bench::new();
    bench.faults.cut(WirePoint::BeforeResponse, 3);
    let mut initiator = bench.connect(1);
    let mut write = || initiator.execute(0, &[WRITE_BLOCK, 0, 0, 0, 0, 0], &[7; 10], &mut []);
    assert!(write().unwrap().is_good() && write().unwrap().is_good() && write().is_err());
}
