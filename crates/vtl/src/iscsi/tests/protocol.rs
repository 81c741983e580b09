//! The full feature phase: numbers, lengths, checksums, and PDUs out of place.

use std::time::{Duration, Instant};

use super::super::config::TargetLimits;
use super::super::pdu::{
    CONTINUE, Command, DataIn, DataOut, FINAL, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, ReadyToTransfer,
    RejectReason, STATUS, Snack, TextRequest, TextResponse, WRITE,
};
use super::super::wire::Digest;
use super::raw::{Raw, TARGET, WAIT, nop, request, serve, serve_with};

#[test]
fn pdus_that_are_not_obeyed_are_rejected_and_the_session_goes_on() {
    let (_device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    let mut vendor = nop(1, 1);
    vendor.0[0] = 0x1c;
    let snack = Snack { flags: FINAL, ..Snack::default() }.encode();
    let bidirectional_length = Command { flags: FINAL | 1, task_tag: 9, ..Command::default() }.encode().immediate();
    for (header, reason) in [(vendor, RejectReason::NotSupported), (snack, RejectReason::Snack)] {
        raw.send(header, b"data of it");
        let (told, rejected) = raw.rejected();
        assert_eq!((told, &rejected[8..]), (reason as u8, &header.0[8..]));
        raw.echoes(5);
    }
    raw.writer.write_with_ahs(bidirectional_length, &[0, 99, 1, 0], &[]).unwrap();
    assert_eq!(raw.rejected().0, RejectReason::InvalidField as u8);
    raw.echoes(6);
}

#[test]
fn pdus_that_leave_no_way_to_go_on_end_the_connection() {
    let (device, server) = serve();
    let too_long = |raw: &mut Raw| {
        let mut header = nop(1, 1);
        header.set_data_len(1 << 20);
        std::io::Write::write_all(raw.writer.sink(), &header.0).unwrap();
    };
    let gap = |raw: &mut Raw| {
        raw.command_number += 1;
        raw.command(0, 0);
    };
    let second_login = |raw: &mut Raw| raw.send(request(1).encode().immediate(), &[]);
    let answer = |raw: &mut Raw| raw.send(NopIn::default().encode(), &[]);
    let data_without_write = |raw: &mut Raw| {
        let read = raw.read(512);
        raw.send(read.encode(), &[0; 4]);
    };
    let more_data_than_announced = |raw: &mut Raw| {
        let write = raw.write(FINAL, 100);
        raw.send(write.encode(), &[0; 104]);
    };
    let steps: [fn(&mut Raw); 6] = [too_long, gap, second_login, answer, data_without_write, more_data_than_announced];
    for (number, step) in steps.into_iter().enumerate() {
        println!("step {number}");
        let mut raw = Raw::log_in(&server, 1, &[]);
        step(&mut raw);
        assert_eq!(raw.rejected().0, RejectReason::Protocol as u8);
        assert!(raw.is_closed());
    }
    assert!(device.executed().is_empty());
}

#[test]
fn data_that_were_not_agreed_upon_end_the_connection() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[("ImmediateData", "No"), ("InitialR2T", "Yes")]);
    let write = raw.write(FINAL, 100);
    raw.send(write.encode(), &[0; 100]);
    assert_eq!(raw.rejected().0, RejectReason::Protocol as u8);
    assert!(raw.is_closed());
    let mut raw = Raw::log_in(&server, 1, &[("InitialR2T", "Yes")]);
    let more_to_come = raw.write(0, 100);
    raw.send(more_to_come.encode(), &[]);
    assert_eq!(raw.rejected().0, RejectReason::Protocol as u8);
    assert!(raw.is_closed() && device.executed().is_empty());
}

/// Data for an R2T: at the wrong place, too many, for another tag, of the wrong number, and at last the right ones.
#[test]
fn data_answer_the_r2t_that_asked_for_them() {
    let (_device, server) = serve();
    for wrong in 0..5 {
        let mut raw = Raw::log_in(&server, 1, &[("InitialR2T", "Yes"), ("MaxBurstLength", "512")]);
        let write = raw.write(FINAL, 1000);
        raw.send(write.encode(), &[1; 100]);
        let (header, _) = raw.receive();
        let ask = ReadyToTransfer::decode(&header);
        assert_eq!((header.opcode(), ask.offset, ask.len, ask.request_number), (ReadyToTransfer::OPCODE, 100, 512, 0));
        let right = DataOut {
            flags: FINAL,
            task_tag: write.task_tag,
            target_tag: ask.target_tag,
            offset: 100,
            ..DataOut::default()
        };
        let (pdu, len) = match wrong {
            0 => (DataOut { offset: 0, ..right }, 512),
            1 => (right, 516),
            2 => (DataOut { target_tag: ask.target_tag + 1, ..right }, 512),
            3 => (DataOut { data_number: 1, ..right }, 512),
            _ => (right, 512),
        };
        raw.send(pdu.encode(), &vec![2; len]);
        if wrong < 4 {
            assert_eq!(raw.rejected().0, RejectReason::Protocol as u8);
            assert!(raw.is_closed());
            continue;
        }
        let ask = ReadyToTransfer::decode(&raw.receive().0);
        assert_eq!((ask.offset, ask.len, ask.request_number), (612, 388, 1));
        let rest = DataOut { target_tag: ask.target_tag, offset: 612, ..right };
        raw.send(rest.encode(), &[3; 388]);
        assert_eq!(raw.response(), (write.task_tag, 0));
    }
}

#[test]
fn data_of_a_command_that_is_not_there_are_thrown_away() {
    let (_device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    raw.send(DataOut { flags: FINAL, task_tag: 99, target_tag: 3, ..DataOut::default() }.encode(), &[7; 1000]);
    raw.echoes(1);
}

#[test]
fn wrong_checksums_are_noticed() {
    let (device, server) = serve();
    let keys = [("HeaderDigest", "CRC32C"), ("DataDigest", "CRC32C")];
    let mut raw = Raw::log_in(&server, 1, &keys);
    raw.echoes(1);
    let write = raw.write(FINAL, 8);
    let mut bytes = Vec::new();
    let mut writer = super::super::wire::PduWriter::new(&mut bytes);
    writer.digests = raw.writer.digests;
    writer.write(write.encode(), &[1; 8]).unwrap();
    let data_at = bytes.len() - 12;
    bytes[data_at] ^= 1;
    std::io::Write::write_all(raw.writer.sink(), &bytes).unwrap();
    assert_eq!(raw.rejected().0, RejectReason::DataDigest as u8);
    assert!(raw.is_closed());
    // Behind a header that is wrong nobody knows where the next one begins: nothing is said.
    let mut raw = Raw::log_in(&server, 1, &keys);
    raw.writer.digests.header = Digest::None;
    raw.send(nop(1, 1), &[]);
    raw.send(nop(2, 1), &[]);
    assert!(raw.is_closed() && device.executed().is_empty());
}

#[test]
fn commands_outside_the_window_are_as_if_they_had_not_come() {
    let (device, server) = serve_with(TargetLimits { commands: 4, ..TargetLimits::default() });
    let mut raw = Raw::log_in(&server, 1, &[]);
    for _ in 0..5 {
        raw.command(0, WAIT);
    }
    device.await_executed(1);
    raw.echoes(90);
    // The fifth stood outside; the first comes again.
    raw.command_number = 1;
    raw.command(0, 0);
    raw.send(nop(91, 1), &[]);
    let numbers = raw.receive().0.numbers();
    assert_eq!((numbers.expected_command, numbers.command_max), (5, 4), "the window is closed");
    device.open(0);
    for tag in 1..=4 {
        let (header, _) = raw.receive();
        assert_eq!((header.task_tag(), header.numbers().command_max), (tag, 4 + tag));
    }
    raw.command_number = 5;
    raw.command(0, 0);
    assert_eq!(raw.response(), (5, 0));
    assert_eq!(device.executed().len(), 5);
}

#[test]
fn immediate_commands_and_tags_are_bounded() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    raw.command(0, WAIT);
    device.await_executed(1);
    let immediate = |task_tag| Command { flags: FINAL | 1, task_tag, command_number: 2, ..Command::default() };
    (100..108).for_each(|tag| raw.send(immediate(tag).encode().immediate(), &[]));
    raw.send(immediate(108).encode().immediate(), &[]);
    assert_eq!(raw.rejected().0, RejectReason::TooManyImmediate as u8);
    raw.send(immediate(1).encode(), &[]);
    assert_eq!(raw.rejected().0, RejectReason::TaskInProgress as u8);
    device.open(0);
    assert_eq!(raw.response(), (1, 0));
    (100..108).for_each(|tag| assert_eq!(raw.response(), (tag, 0)));
}

/// A LOCATE may take a minute: NOPs are answered meanwhile, and the other logical unit goes on.
#[test]
fn a_long_command_holds_up_neither_nops_nor_other_units() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    let long = raw.command(0, WAIT);
    device.await_executed(1);
    let begun = Instant::now();
    (1..=20).for_each(|tag| raw.echoes(500 + tag));
    let other = raw.command(1, 0);
    assert_eq!(raw.response(), (other, 0));
    let behind = raw.command(0, 0);
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    assert!(raw.is_silent());
    device.open(0);
    assert_eq!((raw.response(), raw.response()), ((long, 0), (behind, 0)));
}

/// All logical units are busy at once, each with a command of its own and one waiting.
#[test]
fn every_unit_has_a_thread_when_all_are_busy() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    for lun in [0, 1, 0, 1] {
        raw.command(lun, WAIT);
    }
    device.await_executed(2);
    raw.echoes(1);
    device.open(1);
    assert_eq!((raw.response().0, raw.response().0), (2, 4));
    device.open(0);
    assert_eq!((raw.response().0, raw.response().0), (1, 3));
}

#[test]
fn an_initiator_that_says_nothing_is_asked_and_then_given_up() {
    let (_device, server) = serve_with(TargetLimits { idle: Duration::from_millis(200), ..TargetLimits::default() });
    let mut raw = Raw::log_in(&server, 1, &[]);
    for _ in 0..3 {
        let (header, _) = raw.receive();
        let ping = NopIn::decode(&header);
        assert_eq!((header.opcode(), ping.task_tag), (NopIn::OPCODE, NO_TAG));
        assert_ne!(ping.target_tag, NO_TAG);
        let answer = NopOut { flags: FINAL, task_tag: NO_TAG, target_tag: ping.target_tag, ..NopOut::default() };
        raw.send(answer.encode().immediate(), &[]);
    }
    assert_eq!(raw.receive().0.opcode(), NopIn::OPCODE);
    assert!(raw.is_closed());
}

#[test]
fn text_tells_of_the_target() {
    let (_device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    let mut ask = |flags: u8, tag: u32, text: &[u8]| {
        let request = TextRequest {
            flags,
            task_tag: tag,
            target_tag: NO_TAG,
            command_number: raw.command_number,
            ..TextRequest::default()
        };
        raw.send(request.encode().immediate(), text);
        let (header, text) = raw.receive();
        let answer = TextResponse::decode(&header);
        assert_eq!((header.opcode(), answer.task_tag), (TextResponse::OPCODE, tag));
        (answer.flags, answer.target_tag, String::from_utf8(text).unwrap())
    };
    let told = format!("TargetName={TARGET}\0TargetAddress={},1\0", server.local_address());
    assert_eq!(ask(FINAL, 1, b"SendTargets=\0"), (FINAL, NO_TAG, told.clone()));
    assert_eq!(ask(FINAL, 2, format!("SendTargets={TARGET}\0").as_bytes()).2, told);
    assert_eq!(ask(FINAL, 3, b"SendTargets=iqn.2026-01.org.capstan:other\0").2, "");
    assert_eq!(ask(FINAL, 4, b"SendTargets=All\0").2, "SendTargets=Reject\0");
    assert_eq!(ask(FINAL, 5, b"X-odd=1\0").2, "X-odd=NotUnderstood\0");
    let (flags, target_tag, none) = ask(CONTINUE, 6, b"SendTar");
    assert!(flags == 0 && target_tag != NO_TAG && none.is_empty());
    assert_eq!(ask(FINAL, 6, b"gets=\0").2, told);
}

#[test]
fn logout_ends_the_session_and_nothing_else_does() {
    let (device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[]);
    raw.command(0, WAIT);
    raw.command(0, 0);
    device.await_executed(1);
    let mut log_out = |reason: u8, cid: u16| {
        let request = LogoutRequest { flags: FINAL | reason, task_tag: 77, cid, ..LogoutRequest::default() };
        raw.send(request.encode().immediate(), &[]);
        let (header, _) = raw.receive();
        assert_eq!(header.opcode(), LogoutResponse::OPCODE);
        LogoutResponse::decode(&header).response
    };
    assert_eq!((log_out(1, 5), log_out(2, 0), log_out(0, 0)), (1, 2, 0));
    assert!(raw.is_closed(), "nothing is said of commands behind the logout");
    device.open(0);
    assert_eq!(device.executed().len(), 1);
}

/// What the target sends has its numbers in order, status or not.
#[test]
fn answers_are_numbered() {
    let (_device, server) = serve();
    let mut raw = Raw::log_in(&server, 1, &[("MaxRecvDataSegmentLength", "512")]);
    let write = Command { flags: FINAL | WRITE, ..raw.write(FINAL, 4) };
    raw.send(write.encode(), &[1; 4]);
    let first = raw.receive().0.numbers();
    raw.send(nop(9, 2), &[]);
    let second = raw.receive().0.numbers();
    assert_eq!((second.status, second.expected_command), (first.status + 1, 2));
    let read = raw.read(0);
    raw.send(read.encode(), &[]);
    let (header, _) = raw.receive();
    assert_eq!(header.numbers().status, first.status + 2);
    assert!(header.opcode() != DataIn::OPCODE && header.flags() & STATUS == 0);
}
