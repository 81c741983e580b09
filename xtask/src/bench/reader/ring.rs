//! The bare reader over io_uring: open, read and close of a file as one chain, many chains in flight.
//!
//! A chain opens into a slot of the ring's own file table, so that no system call waits for the descriptor. Its links
//! are hard: a short read, which every small file ends with, would cut a soft chain before the close.

use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::rc::Rc;

use anyhow::{Context, Result};
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use rustix::io::Errno;

use super::{BUFFER_BYTES, Depth, Folders, Listing, Total, next_listing, read_file};

/// One file in flight. What the kernel reads and writes stays here until its chain is done.
struct Flight {
    name: CString,
    folder: Rc<OwnedFd>,
    buffer: Box<[u8]>,
    /// What the chain's first failure was, or how much it read.
    outcome: i32,
}

/// Whether an error says that this system does not let us have a ring.
pub(super) fn is_forbidden(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<io::Error>().and_then(io::Error::raw_os_error);
    [Errno::PERM, Errno::NOSYS, Errno::ACCESS].iter().any(|errno| cause == Some(errno.raw_os_error()))
}

/// Reads folders from the shared stack until it is empty, with `depth` files in flight.
pub(super) fn read_folders(folders: &Folders, depth: u16) -> Result<Total> {
    let depth = u32::from(depth.max(1));
    let mut ring = IoUring::builder().setup_single_issuer().build(depth * CHAIN).context("set up an io_uring")?;
    ring.submitter().register_files_sparse(depth).context("register a file table")?;
    let mut flights: Vec<Option<Flight>> = (0..depth).map(|_| None).collect();
    // Behind an error the kernel may still write into what is in flight, so that is left to the end of the process.
    fly(&mut ring, &mut flights, folders).inspect_err(|_| std::mem::forget(flights))
}

fn fly(ring: &mut IoUring, flights: &mut [Option<Flight>], folders: &Folders) -> Result<Total> {
    let mut free: Vec<usize> = (0..flights.len()).collect();
    let mut spare: Vec<Box<[u8]>> = free.iter().map(|_| vec![0; BUFFER_BYTES].into_boxed_slice()).collect();
    let mut large = vec![0; BUFFER_BYTES];
    let mut total = Total::default();
    let mut source = Source { folders, current: None };
    let mut dry = false;
    loop {
        while !dry && !free.is_empty() {
            let Some((folder, name)) = source.next()? else {
                dry = true;
                break;
            };
            let (Some(slot), Some(buffer)) = (free.pop(), spare.pop()) else { break };
            let flight = flights[slot].insert(Flight { name, folder, buffer, outcome: 0 });
            submit(ring, slot, flight)?;
        }
        if free.len() == flights.len() {
            return Ok(total);
        }
        ring.submit_and_wait(1)?;
        for completion in ring.completion() {
            let slot = (completion.user_data() / u64::from(CHAIN)) as usize;
            let step = completion.user_data() % u64::from(CHAIN);
            let Some(flight) = &mut flights[slot] else { continue };
            if flight.outcome >= 0 && (step == READ || completion.result() < 0) {
                flight.outcome = completion.result();
            }
            if step == CLOSE
                && let Some(done) = flights[slot].take()
            {
                total.add(finish(&done, &mut large)?);
                free.push(slot);
                spare.push(done.buffer);
            }
        }
    }
}

/// Entries in a chain, and the steps in them that tell something.
const CHAIN: u32 = 3;
const READ: u64 = 1;
const CLOSE: u64 = 2;

fn submit(ring: &mut IoUring, slot: usize, flight: &mut Flight) -> Result<()> {
    let place =
        types::DestinationSlot::try_from_slot_target(u32::try_from(slot)?).ok().context("a slot of the table")?;
    let fixed = types::Fixed(u32::try_from(slot)?);
    let data = slot as u64 * u64::from(CHAIN);
    let folder = types::Fd(flight.folder.as_raw_fd());
    let length = u32::try_from(flight.buffer.len())?;
    let chain: [Entry; CHAIN as usize] = [
        opcode::OpenAt::new(folder, flight.name.as_ptr())
            .flags(libc::O_RDONLY)
            .file_index(Some(place))
            .build()
            .flags(Flags::IO_HARDLINK)
            .user_data(data),
        opcode::Read::new(fixed, flight.buffer.as_mut_ptr(), length)
            .build()
            .flags(Flags::IO_HARDLINK)
            .user_data(data + READ),
        opcode::Close::new(fixed).build().user_data(data + CLOSE),
    ];
    // SAFETY: name, folder and buffer belong to the flight, which stays where it is until the chain's last completion;
    // the ring has room for a whole chain of every slot.
    #[allow(unsafe_code, reason = "the kernel takes pointers")]
    unsafe {
        ring.submission().push_multiple(&chain).context("the ring has room for every slot")
    }
}

/// What a finished chain read; a file that filled the buffer is longer, and read again without the ring.
fn finish(done: &Flight, large: &mut [u8]) -> Result<u64> {
    if done.outcome < 0 {
        return Err(io::Error::from_raw_os_error(-done.outcome)).with_context(|| format!("read {:?}", done.name));
    }
    if (done.outcome as usize) < done.buffer.len() {
        return Ok(done.outcome as u64);
    }
    read_file(&*done.folder, &done.name, Depth::Content, large)
}

/// Files one by one, out of the shared folders.
struct Source<'a> {
    folders: &'a Folders,
    current: Option<(Rc<OwnedFd>, VecDeque<CString>)>,
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<(Rc<OwnedFd>, CString)>> {
        loop {
            if let Some((folder, files)) = &mut self.current
                && let Some(name) = files.pop_front()
            {
                return Ok(Some((Rc::clone(folder), name)));
            }
            let Some(Listing { folder, files }) = next_listing(self.folders)? else { return Ok(None) };
            self.current = Some((Rc::new(folder), files));
        }
    }
}
