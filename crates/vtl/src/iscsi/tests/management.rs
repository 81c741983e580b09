//! Task management: what is taken away, who is told, and when the answer comes.

use super::super::pdu::{FINAL, READ};
use super::raw::{LONG, Raw, WAIT, serve};
use crate::device::TaskFunction;

const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const LOGICAL_UNIT_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const REASSIGN: u8 = 8;

const COMPLETE: u8 = 0;
const TASK_ABORTED: u8 = 0x40;

#[test]
fn a_command_that_waits_is_aborted_at_once() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    let (running, waiting) = (raw.command(0, WAIT), raw.command(0, 0));
    device.await_executed(1);
    raw.manage(ABORT_TASK, 0, waiting);
    assert_eq!(raw.managed(), COMPLETE);
    raw.manage(ABORT_TASK, 0, waiting);
    assert_eq!(raw.managed(), 1, "it is gone");
    device.open(0);
    assert_eq!(raw.response(), (running, 0));
    assert_eq!((device.executed().len(), device.managed()), (1, vec![(0, TaskFunction::AbortTaskSet)]));
}

/// What a unit does cannot be undone; the answer says that it does it no more.
#[test]
fn a_command_that_runs_is_aborted_when_it_has_ended() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    let running = raw.command(0, WAIT);
    device.await_executed(1);
    raw.manage(ABORT_TASK, 0, running);
    assert!(raw.is_silent());
    let other = raw.command(1, 0);
    assert_eq!(raw.response(), (other, 0), "the session is not held up");
    device.open(0);
    assert_eq!(raw.managed(), COMPLETE);
    let after = raw.command(0, 0);
    assert_eq!(raw.response(), (after, 0), "and nothing was said of the command");
    assert!(device.managed().is_empty());
}

/// VERIFY of a whole tape kept its drive for hours after nobody wanted it any more.
#[test]
fn a_long_command_ends_when_it_is_aborted_or_its_unit_reset_or_its_connection_gone() {
    let (device, server) = serve();
    let (mut one, mut two) = (Raw::log_in(&server, 1, &[]), Raw::log_in(&server, 2, &[]));
    let long = one.command(0, LONG);
    device.await_executed(1);
    one.manage(ABORT_TASK, 0, long);
    assert_eq!(one.managed(), COMPLETE);
    let after = one.command(0, 0);
    assert_eq!(one.response(), (after, 0), "the next one is not meant");
    let long = one.command(0, LONG);
    device.await_executed(3);
    two.manage(LOGICAL_UNIT_RESET, 0, 0);
    assert_eq!((one.response(), two.managed()), ((long, TASK_ABORTED), COMPLETE));
    one.command(0, LONG);
    device.await_executed(4);
    drop(one);
    let begun = std::time::Instant::now();
    while server.sessions().len() > 1 {
        assert!(begun.elapsed().as_secs() < 20, "its session does not end");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let _running = two.command(1, LONG);
    device.await_executed(5);
    server.stop();
}

#[test]
fn a_task_set_is_aborted_for_who_asks() {
    let (device, server) = serve();
    let (mut one, mut two) = (Raw::log_in(&server, 1, &[]), Raw::log_in(&server, 2, &[]));
    let (first, kept) = (one.command(0, WAIT), two.command(0, WAIT));
    device.await_executed(2);
    for _ in 0..3 {
        one.command(0, 0);
    }
    one.manage(ABORT_TASK_SET, 0, 0);
    one.echoes(9);
    device.open(0);
    assert_eq!(one.managed(), COMPLETE);
    assert_eq!(two.response(), (kept, 0));
    let next = one.command(0, 0);
    assert_eq!(one.response(), (next, 0));
    assert_eq!((first, device.executed().len()), (1, 3));
}

#[test]
fn commands_that_another_initiator_takes_away_are_told_of() {
    for (function, told) in [
        (CLEAR_TASK_SET, TaskFunction::AbortTaskSet),
        (LOGICAL_UNIT_RESET, TaskFunction::LogicalUnitReset),
        (WARM_RESET, TaskFunction::TargetReset),
    ] {
        let (device, server) = serve();
        let (mut one, mut two) = (Raw::log_in(&server, 1, &[]), Raw::log_in(&server, 2, &[]));
        let (running, waiting) = (two.command(0, WAIT), two.command(0, 0));
        device.await_executed(1);
        two.echoes(9);
        one.manage(function, 0, 0);
        assert_eq!(two.response(), (waiting, TASK_ABORTED));
        device.open(0);
        assert_eq!(two.response(), (running, TASK_ABORTED));
        assert_eq!(one.managed(), COMPLETE);
        assert_eq!((device.managed(), device.executed().len()), (vec![(0, told)], 1));
        let next = two.command(0, 0);
        assert_eq!(two.response(), (next, 0));
    }
}

#[test]
fn a_cold_reset_ends_all_connections() {
    let (device, server) = serve();
    let (mut one, mut two) = (Raw::log_in(&server, 1, &[]), Raw::log_in(&server, 2, &[]));
    one.manage(COLD_RESET, 0, 0);
    assert_eq!(one.managed(), COMPLETE);
    assert!(one.is_closed() && two.is_closed());
    assert_eq!(device.managed(), [(0, TaskFunction::TargetReset)]);
}

#[test]
fn functions_that_there_are_not_are_told_apart() {
    let (_device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    for (function, lun, answer) in [(LOGICAL_UNIT_RESET, 9, 2), (REASSIGN, 0, 4), (CLEAR_ACA, 0, 5), (99, 0, 5)] {
        raw.manage(function, lun, 0);
        assert_eq!(raw.managed(), answer, "function {function}");
    }
}

/// Data of a write that is aborted while they are on their way.
#[test]
fn a_write_is_aborted_before_its_data_have_come() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[("InitialR2T", "Yes")]);
    let write = raw.write(FINAL, 5000);
    raw.send(write.encode(), &[1; 1000]);
    let (r2t, _) = raw.receive();
    assert_eq!(r2t.opcode(), 0x31);
    raw.manage(ABORT_TASK, 0, write.task_tag);
    assert_eq!(raw.managed(), COMPLETE);
    let next = raw.command(0, 0);
    assert_eq!(raw.response(), (next, 0));
    assert_eq!(device.executed(), [(0, 0)]);
    assert_eq!(write.flags & READ, 0);
}

#[test]
fn functions_under_way_are_bounded() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    raw.command(0, WAIT);
    device.await_executed(1);
    (0..5).for_each(|_| raw.manage(LOGICAL_UNIT_RESET, 0, 0));
    assert_eq!(raw.managed(), 255, "one too many");
    device.open(0);
    (0..4).for_each(|_| assert_eq!(raw.managed(), COMPLETE));
}
