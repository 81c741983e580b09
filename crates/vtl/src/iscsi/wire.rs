//! PDUs on a socket: headers, data segments, padding and digests (RFC 7143, sections 11.2 and 13.1).
//!
//! ```text
//! header 48 | AHS 0..1020 | header digest 0 or 4 | data 0..2^24-1 | padding to 4 | data digest 0 or 4
//! ```
//! Every length is compared with what its reader allows before anything is read for it. Data go from the socket
//! straight to where they belong, and from where they lie straight to the socket, in one call with their headers.

use std::io::{self, IoSlice, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use capstan_format::{crc32c, crc32c_append};
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, recv, sendmsg};
use thiserror::Error;

use super::pdu::{HEADER_LEN, Header};

/// Longest AHS: a command descriptor block of 260 bytes and the length of a bidirectional read.
const AHS_LEN_MAX: usize = 272;
/// Data that nobody wants are read in pieces of this size.
const DISCARD_LEN: usize = 4096;
/// PDUs that are written with one call.
pub(crate) const BATCH_MAX: usize = 64;

/// Whether PDUs carry checksums.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Digest {
    /// None: TCP's own has to do.
    #[default]
    None,
    /// CRC32C.
    Crc32c,
}

/// Which checksums a connection carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Digests {
    pub(crate) header: Digest,
    pub(crate) data: Digest,
}

/// Why no PDU could be read or written.
#[derive(Debug, Error)]
pub(crate) enum WireError {
    #[error("the peer closed the connection")]
    Closed,
    #[error("the peer did not answer in time")]
    Stalled,
    #[error("the connection failed")]
    Io(#[from] io::Error),
    #[error("the checksum of a header is wrong")]
    HeaderDigest,
    #[error("the checksum of data is wrong")]
    DataDigest,
    #[error("a PDU is longer than agreed")]
    TooLong,
}

/// Where PDUs come from: a socket, or bytes.
pub(crate) trait Source {
    /// Fills all of `bytes`.
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), WireError>;
}

impl Source for &[u8] {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), WireError> {
        let (taken, rest) = self.split_at_checked(bytes.len()).ok_or(WireError::Closed)?;
        bytes.copy_from_slice(taken);
        *self = rest;
        Ok(())
    }
}

/// How long a socket waits for bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// Until then, whatever comes before.
    Until(Instant),
    /// So long for each byte.
    Each(Duration),
}

/// The receiving half of a connection.
pub(crate) struct Socket {
    stream: Arc<TcpStream>,
    patience: Patience,
}

impl Socket {
    pub(crate) fn new(stream: Arc<TcpStream>, patience: Patience) -> io::Result<Self> {
        if let Patience::Each(time) = patience {
            stream.set_read_timeout(Some(time))?;
        }
        Ok(Self { stream, patience })
    }

    #[cfg(test)]
    pub(crate) fn patience(&mut self) -> &mut Patience {
        &mut self.patience
    }

    fn receive(&self, bytes: &mut [u8], flags: RecvFlags) -> Result<usize, WireError> {
        use rustix::io::Errno;
        loop {
            if let Patience::Until(deadline) = self.patience {
                let rest = deadline.saturating_duration_since(Instant::now());
                if rest.is_zero() {
                    return Err(WireError::Stalled);
                }
                self.stream.set_read_timeout(Some(rest))?;
            }
            match recv(&*self.stream, &mut *bytes, flags) {
                Ok((0, _)) => return Err(WireError::Closed),
                Ok((len, _)) => return Ok(len),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(WireError::Stalled),
                Err(error) => return Err(WireError::Io(error.into())),
            }
        }
    }

    /// Fills `bytes` unless not one came in time.
    fn fill_unless_idle(&mut self, bytes: &mut [u8]) -> Result<bool, WireError> {
        let mut filled = 0;
        while filled < bytes.len() {
            match self.receive(&mut bytes[filled..], RecvFlags::WAITALL) {
                Ok(len) => filled += len,
                Err(WireError::Stalled) if filled == 0 => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Source for Socket {
    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), WireError> {
        // An empty read would be taken for the end.
        if bytes.is_empty() || self.fill_unless_idle(bytes)? { Ok(()) } else { Err(WireError::Stalled) }
    }
}

/// Reads PDUs.
pub(crate) struct PduReader<S> {
    source: S,
    pub(crate) digests: Digests,
    ahs: Vec<u8>,
}

impl<S: Source> PduReader<S> {
    pub(crate) fn new(source: S) -> Self {
        Self { source, digests: Digests::default(), ahs: Vec::new() }
    }

    pub(crate) fn source(&mut self) -> &mut S {
        &mut self.source
    }

    /// The next header. Its AHS is at [`PduReader::ahs`]; its data must be read or discarded next.
    pub(crate) fn header(&mut self) -> Result<Header, WireError> {
        let mut first = [0; HEADER_LEN + 4];
        let first_len = self.first_len();
        self.source.fill(&mut first[..first_len])?;
        self.rest_of_header(&first)
    }

    /// Header and header digest come with one call; where there is an AHS, the latter is its begin.
    fn first_len(&self) -> usize {
        if self.digests.header == Digest::Crc32c { HEADER_LEN + 4 } else { HEADER_LEN }
    }

    fn rest_of_header(&mut self, first: &[u8; HEADER_LEN + 4]) -> Result<Header, WireError> {
        let (bytes, mut digest) = ([0; HEADER_LEN], [0; 4]);
        let mut header = Header(bytes);
        header.0.copy_from_slice(&first[..HEADER_LEN]);
        digest.copy_from_slice(&first[HEADER_LEN..]);
        let ahs_len = header.ahs_len();
        if ahs_len > AHS_LEN_MAX {
            return Err(WireError::TooLong);
        }
        self.ahs.clear();
        if ahs_len > 0 {
            self.ahs.resize(ahs_len, 0);
            if self.digests.header == Digest::Crc32c {
                self.ahs[..4].copy_from_slice(&digest);
                self.source.fill(&mut self.ahs[4..])?;
                self.source.fill(&mut digest)?;
            } else {
                self.source.fill(&mut self.ahs)?;
            }
        }
        let whole = self.digests.header == Digest::None
            || crc32c_append(crc32c(&header.0), &self.ahs) == u32::from_le_bytes(digest);
        if whole { Ok(header) } else { Err(WireError::HeaderDigest) }
    }

    /// Additional header segments of the last header.
    pub(crate) fn ahs(&self) -> &[u8] {
        &self.ahs
    }

    /// The data segment, into exactly as many bytes as the header says.
    pub(crate) fn data(&mut self, data: &mut [u8]) -> Result<(), WireError> {
        self.source.fill(data)?;
        let crc = if self.digests.data == Digest::Crc32c { crc32c(data) } else { 0 };
        self.data_end(data.len(), crc)
    }

    /// Padding and digest behind `len` bytes of data with this checksum.
    fn data_end(&mut self, len: usize, crc: u32) -> Result<(), WireError> {
        let padding = padding_len(len);
        let digest_len = if self.digests.data == Digest::Crc32c && len > 0 { 4 } else { 0 };
        let mut tail = [0; 8];
        let tail = &mut tail[..padding + digest_len];
        self.source.fill(tail)?;
        match tail[padding..].first_chunk() {
            Some(digest) if crc32c_append(crc, &tail[..padding]) != u32::from_le_bytes(*digest) => {
                Err(WireError::DataDigest)
            }
            _ => Ok(()),
        }
    }

    /// A data segment of text, at most `len_max` bytes long, behind what `text` has.
    pub(crate) fn append_data(&mut self, header: &Header, text: &mut Vec<u8>, len_max: usize) -> Result<(), WireError> {
        let (begin, len) = (text.len(), header.data_len());
        if len > len_max {
            return Err(WireError::TooLong);
        }
        text.resize(begin + len, 0);
        self.data(&mut text[begin..])
    }

    /// Reads a data segment that nobody wants. Its digest is not looked at.
    pub(crate) fn discard_data(&mut self, header: &Header) -> Result<(), WireError> {
        let len = header.data_len();
        let digest_len = if self.digests.data == Digest::Crc32c && len > 0 { 4 } else { 0 };
        let (mut rest, mut piece) = (len + padding_len(len) + digest_len, [0; DISCARD_LEN]);
        while rest > 0 {
            let len = rest.min(DISCARD_LEN);
            self.source.fill(&mut piece[..len])?;
            rest -= len;
        }
        Ok(())
    }
}

impl PduReader<Socket> {
    /// The next header, or `None` when the peer said nothing for as long as the socket's patience lasts.
    pub(crate) fn header_unless_idle(&mut self) -> Result<Option<Header>, WireError> {
        let mut first = [0; HEADER_LEN + 4];
        let first_len = self.first_len();
        if !self.source.fill_unless_idle(&mut first[..first_len])? {
            return Ok(None);
        }
        self.rest_of_header(&first).map(Some)
    }
}

/// Zeros behind `len` bytes.
fn padding_len(len: usize) -> usize {
    len.wrapping_neg() % 4
}

/// A header with its digest, and a piece of data with its padding and digest.
struct Outgoing<'a> {
    head: [u8; HEADER_LEN + 4],
    head_len: usize,
    data: &'a [u8],
    tail: [u8; 8],
    tail_len: usize,
}

impl<'a> Outgoing<'a> {
    fn new(digests: Digests, mut header: Header, ahs: &[u8], data: &'a [u8]) -> Self {
        header.set_data_len(data.len());
        header.set_ahs_len(ahs.len());
        let mut head = [0; HEADER_LEN + 4];
        head[..HEADER_LEN].copy_from_slice(&header.0);
        let mut head_len = HEADER_LEN;
        if digests.header == Digest::Crc32c && ahs.is_empty() {
            head[HEADER_LEN..].copy_from_slice(&crc32c(&header.0).to_le_bytes());
            head_len += 4;
        }
        let (mut tail, mut tail_len) = ([0; 8], padding_len(data.len()));
        if digests.data == Digest::Crc32c && !data.is_empty() {
            let crc = crc32c_append(crc32c(data), &tail[..tail_len]);
            tail[tail_len..tail_len + 4].copy_from_slice(&crc.to_le_bytes());
            tail_len += 4;
        }
        Self { head, head_len, data, tail, tail_len }
    }

    fn slices(&self) -> [IoSlice<'_>; 3] {
        [IoSlice::new(&self.head[..self.head_len]), IoSlice::new(self.data), IoSlice::new(&self.tail[..self.tail_len])]
    }
}

/// Writes PDUs.
pub(crate) struct PduWriter<W> {
    sink: W,
    pub(crate) digests: Digests,
}

impl<W: Write> PduWriter<W> {
    pub(crate) fn new(sink: W) -> Self {
        Self { sink, digests: Digests::default() }
    }

    /// What bytes that are no PDU are written to.
    #[cfg(test)]
    pub(crate) fn sink(&mut self) -> &mut W {
        &mut self.sink
    }

    pub(crate) fn write(&mut self, header: Header, data: &[u8]) -> Result<(), WireError> {
        let pdu = Outgoing::new(self.digests, header, &[], data);
        write_all(&mut self.sink, &mut pdu.slices())
    }

    /// A PDU with additional header segments, whose length is a multiple of four.
    pub(crate) fn write_with_ahs(&mut self, header: Header, ahs: &[u8], data: &[u8]) -> Result<(), WireError> {
        if ahs.is_empty() {
            return self.write(header, data);
        }
        let pdu = Outgoing::new(self.digests, header, ahs, data);
        let digest = match self.digests.header {
            Digest::Crc32c => crc32c_append(crc32c(&pdu.head[..HEADER_LEN]), ahs).to_le_bytes().to_vec(),
            Digest::None => Vec::new(),
        };
        let [head, data, tail] = pdu.slices();
        write_all(&mut self.sink, &mut [head, IoSlice::new(ahs), IoSlice::new(&digest), data, tail])
    }

    /// Several PDUs with as few calls as can be.
    pub(crate) fn write_many(&mut self, pdus: &mut dyn Iterator<Item = (Header, &[u8])>) -> Result<(), WireError> {
        let mut batch = Vec::new();
        loop {
            batch.clear();
            batch.extend(pdus.take(BATCH_MAX).map(|(header, data)| Outgoing::new(self.digests, header, &[], data)));
            if batch.is_empty() {
                return Ok(());
            }
            let mut slices: Vec<_> = batch.iter().flat_map(Outgoing::slices).collect();
            write_all(&mut self.sink, &mut slices)?;
        }
    }

    /// A PDU cut off in the middle of its data, for whoever plays a broken wire.
    pub(crate) fn write_half(&mut self, header: Header, data: &[u8]) -> Result<(), WireError> {
        let pdu = Outgoing::new(self.digests, header, &[], data);
        let [head, _, _] = pdu.slices();
        write_all(&mut self.sink, &mut [head, IoSlice::new(&data[..data.len() / 2])])
    }
}

fn write_all(sink: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> Result<(), WireError> {
    IoSlice::advance_slices(&mut slices, 0);
    while !slices.is_empty() {
        match sink.write_vectored(slices) {
            Ok(0) => return Err(WireError::Closed),
            Ok(len) => IoSlice::advance_slices(&mut slices, len),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(WireError::Stalled),
            Err(error) => return Err(WireError::Io(error)),
        }
    }
    Ok(())
}

/// The sending half of a connection: a socket that is shared with the receiving half.
pub(crate) struct SharedStream(pub(crate) Arc<TcpStream>);

impl Write for SharedStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        (&*self.0).write(bytes)
    }

    /// An initiator that went away is an error here, and must not end a program that has SIGPIPE end it, as programs do
    /// that people pipe into `head`.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        Ok(sendmsg(&*self.0, slices, &mut nothing, SendFlags::NOSIGNAL)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
