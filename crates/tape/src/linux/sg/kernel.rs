//! The kernel's side of SG_IO (`scsi/sg.h`): the one place of unsafe code.
#![allow(unsafe_code, reason = "ioctl on the generic SCSI driver has no safe binding")]

use std::ffi::{c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;

const SG_GET_VERSION_NUM: libc::Ioctl = 0x2282;
const SG_SET_RESERVED_SIZE: libc::Ioctl = 0x2275;
const SG_GET_RESERVED_SIZE: libc::Ioctl = 0x2272;
const SG_IO: libc::Ioctl = 0x2285;

/// What poll says of a device that was removed.
const GONE: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

const DIRECTION_NONE: c_int = -1;
const DIRECTION_OUT: c_int = -2;
const DIRECTION_IN: c_int = -3;

/// The first version of the driver that has the interface used here (3.0).
pub(super) const VERSION_LEAST: i32 = 30_000;

/// Sense data that the kernel keeps (`SCSI_SENSE_BUFFERSIZE`).
const SENSE_LEN: usize = 96;

/// `struct sg_io_hdr`.
#[repr(C)]
struct Header {
    interface_id: c_int,
    direction: c_int,
    command_len: u8,
    sense_room: u8,
    pieces: u16,
    data_len: u32,
    data: *mut c_void,
    command: *const u8,
    sense: *mut u8,
    timeout_ms: u32,
    flags: u32,
    pack_id: c_int,
    user: *mut c_void,
    status: u8,
    masked_status: u8,
    message_status: u8,
    sense_len: u8,
    host_status: u16,
    driver_status: u16,
    residual: c_int,
    duration_ms: u32,
    info: u32,
}

/// What a command moves.
pub(super) enum Direction<'a> {
    None,
    Out(&'a [u8]),
    In(&'a mut [u8]),
}

/// What the kernel says of a command.
#[derive(Debug)]
pub(super) struct Outcome {
    pub(super) status: u8,
    pub(super) host_status: u16,
    pub(super) driver_status: u16,
    pub(super) residual: i32,
    pub(super) sense: [u8; SENSE_LEN],
    pub(super) sense_len: u8,
}

impl Outcome {
    /// Sense data; empty if there are none.
    pub(super) fn sense(&self) -> &[u8] {
        &self.sense[..usize::from(self.sense_len).min(SENSE_LEN)]
    }
}

/// Version of the driver; 0 if it is another one.
pub(super) fn version(file: &File) -> io::Result<i32> {
    let mut version: c_int = 0;
    // SAFETY: the descriptor is open, and this request writes one int to the pointer, which is valid for it.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), SG_GET_VERSION_NUM, &raw mut version) };
    match result {
        0 => Ok(version),
        _ => match io::Error::last_os_error() {
            // Not for this kind of file.
            error if matches!(error.raw_os_error(), Some(libc::ENOTTY | libc::EINVAL)) => Ok(0),
            error => Err(error),
        },
    }
}

/// Asks for memory of the kernel's own for the data of a command, and returns how much it gave: what one command can
/// move.
pub(super) fn reserve(file: &File, bytes: i32) -> io::Result<usize> {
    let mut got: c_int = bytes;
    // SAFETY: the descriptor is open, and this request reads one int from the pointer, which is valid for it.
    if unsafe { libc::ioctl(file.as_raw_fd(), SG_SET_RESERVED_SIZE, &raw mut got) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above; this one writes one int.
    if unsafe { libc::ioctl(file.as_raw_fd(), SG_GET_RESERVED_SIZE, &raw mut got) } != 0 {
        return Err(io::Error::last_os_error());
    }
    usize::try_from(got).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// How a command's end is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    /// SG_IO: for nodes that are open for reading only. A process that is stopped in it and goes on sends the command
    /// again.
    InOne,
    /// Sent by a write, and what came of it fetched by a read: a process that is stopped between them goes on where it
    /// was.
    InTwo,
}

/// Sends a command and waits for its end. Behind an error of [`Call::InTwo`], but for those of the sending (ENXIO,
/// EINVAL, ENOMEM), the node must not be used again: what belongs to the command may still come.
pub(super) fn send(
    fd: RawFd,
    call: Call,
    cdb: &[u8],
    direction: Direction<'_>,
    timeout_ms: u32,
) -> io::Result<Outcome> {
    let too_long = || io::Error::from(io::ErrorKind::InvalidInput);
    let (code, data, len) = match direction {
        Direction::None => (DIRECTION_NONE, ptr::null_mut(), 0),
        // The kernel only reads from it.
        Direction::Out(bytes) => (DIRECTION_OUT, bytes.as_ptr().cast_mut().cast::<c_void>(), bytes.len()),
        Direction::In(room) => (DIRECTION_IN, room.as_mut_ptr().cast::<c_void>(), room.len()),
    };
    let mut sense = [0; SENSE_LEN];
    let mut header = Header {
        interface_id: c_int::from(b'S'),
        direction: if len == 0 { DIRECTION_NONE } else { code },
        command_len: u8::try_from(cdb.len()).map_err(|_| too_long())?,
        sense_room: SENSE_LEN as u8,
        pieces: 0,
        data_len: u32::try_from(len).map_err(|_| too_long())?,
        data,
        command: cdb.as_ptr(),
        sense: sense.as_mut_ptr(),
        timeout_ms,
        flags: 0,
        pack_id: 0,
        user: ptr::null_mut(),
        status: 0,
        masked_status: 0,
        message_status: 0,
        sense_len: 0,
        host_status: 0,
        driver_status: 0,
        residual: 0,
        duration_ms: 0,
        info: 0,
    };
    match call {
        Call::InOne => in_one(fd, &mut header)?,
        Call::InTwo => in_two(fd, &mut header)?,
    }
    Ok(Outcome {
        status: header.status,
        host_status: header.host_status,
        driver_status: header.driver_status,
        residual: header.residual,
        sense,
        sense_len: header.sense_len,
    })
}

fn in_one(fd: RawFd, header: &mut Header) -> io::Result<()> {
    let blocked = SignalsBlocked::new()?;
    // SAFETY: `header` is laid out as the kernel's structure. Its pointers are to the caller's command, sense and data,
    // with their lengths beside them; all of them live until the call returns, and the kernel keeps none of them: the
    // request is synchronous, and signals, which could have it return before the command has ended, are blocked.
    let result = unsafe { libc::ioctl(fd, SG_IO, ptr::from_mut(header)) };
    let error = io::Error::last_os_error();
    drop(blocked);
    if result == 0 { Ok(()) } else { Err(error) }
}

/// An interruptible wait in the kernel is begun anew when a process that was stopped (Ctrl-Z, SIGSTOP) goes on. Of
/// SG_IO that is the whole call: the block goes to the tape twice, or one is read that nobody gets. Here only the
/// waiting is begun anew.
fn in_two(fd: RawFd, header: &mut Header) -> io::Result<()> {
    let len = size_of::<Header>();
    let ended = |result: libc::ssize_t| match usize::try_from(result) {
        Ok(moved) if moved == len => Ok(()),
        Ok(_) => Err(io::Error::from_raw_os_error(libc::EIO)),
        Err(_) => Err(io::Error::last_os_error()),
    };
    // SAFETY: `header` is laid out as the kernel's structure. Its pointers are to the caller's command, sense and data,
    // with their lengths beside them. They live until this function returns, which is behind the read that ends the
    // request, and the kernel uses them only within the write and the read. Where the read fails, nobody reads from the
    // node again.
    ended(unsafe { libc::write(fd, ptr::from_mut(header).cast(), len) })?;
    loop {
        let mut waited = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        // SAFETY: one structure, valid for the call. Whatever comes of it, the read says what is there.
        unsafe { libc::poll(&raw mut waited, 1, -1) };
        // SAFETY: as above.
        match ended(unsafe { libc::read(fd, ptr::from_mut(header).cast(), len) }) {
            // The device is gone: nothing comes any more, and poll does not wait.
            Err(error) if error.raw_os_error() == Some(libc::EAGAIN) && waited.revents & GONE != 0 => {
                return Err(io::Error::from_raw_os_error(libc::ENODEV));
            }
            // A signal, or nothing yet.
            Err(error) if matches!(error.raw_os_error(), Some(libc::EINTR | libc::EAGAIN)) => {}
            ended => return ended,
        }
    }
}

/// No signal interrupts this thread as long as this lives. They wait, or reach another thread.
struct SignalsBlocked(libc::sigset_t);

impl SignalsBlocked {
    fn new() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        let mut before = MaybeUninit::uninit();
        // SAFETY: `sigfillset` initialises the set that it is given; `pthread_sigmask` reads it and initialises
        // `before`, which is taken as such only if it succeeded.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            match libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) {
                0 => Ok(Self(before.assume_init())),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }
}

impl Drop for SignalsBlocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that `pthread_sigmask` gave out. It cannot fail with valid arguments.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}
