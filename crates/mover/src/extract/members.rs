//! Members of a stream, one after another, without copying their content.
//!
//! [`MemberReader`] lends a member and its [`Content`]; restore writes the pieces to a file, verify sums them up, `cat`
//! copies them out. The pieces point into the input's own buffer (a block in memory), so a byte is not touched between
//! the block it came in and the `write` that takes it away.
//!
//! Memory: the input's buffer, one extended header and one sparse map, both bounded by `capstan_format::pax`, and grown
//! only as bytes really arrive.

use std::io::{self, BufRead, ErrorKind, Write};

use capstan_format::FormatError;
use capstan_format::pax::{BLOCK_LEN, DataExtent, DecodedMember, MemberDecoder, Sparse, SparseDecoder, Step, padding};
use thiserror::Error;

use crate::damage::MissingBytes;

/// Longest run of zeros written at once where a hole is copied out.
static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// Why a stream could not be read on. Every byte before `offset` was good.
#[derive(Debug, Error)]
pub enum StreamError {
    /// The source of the bytes failed; it says why.
    #[error("the stream cannot be read at its byte {offset}")]
    Read {
        /// Where, from the beginning of the stream.
        offset: u64,
        /// What the source said.
        source: io::Error,
    },
    /// The bytes are no pax stream.
    #[error("the stream is damaged at its byte {offset}")]
    Malformed {
        /// Where, from the beginning of the stream.
        offset: u64,
        /// What is wrong with them.
        source: FormatError,
    },
    /// The stream ends inside a member.
    #[error("the stream ends at its byte {offset}, inside a member")]
    Truncated {
        /// Where, from the beginning of the stream.
        offset: u64,
    },
}

impl StreamError {
    /// How many bytes are missing, if that is all that is wrong.
    fn missing(&self) -> Option<u64> {
        let Self::Read { source, .. } = self else { return None };
        Some(source.get_ref()?.downcast_ref::<MissingBytes>()?.len)
    }
}

/// A member's headers and where it stands.
#[derive(Debug)]
pub struct MemberHead {
    /// What the headers say.
    pub header: DecodedMember,
    /// Where the member's first header begins in the stream.
    pub offset: u64,
    /// Bytes of its headers.
    pub headers_len: u64,
}

impl MemberHead {
    /// Bytes of the member in the stream: headers, content and padding.
    pub fn member_len(&self) -> u64 {
        self.headers_len + self.header.stored + padding(self.header.stored) as u64
    }
}

/// Reads members from a stream that begins with one.
#[derive(Debug)]
pub struct MemberReader<R> {
    input: Input<R>,
    decoder: MemberDecoder,
    head: MemberHead,
    layout: Layout,
    scratch: Vec<u8>,
    passes_missing: bool,
}

/// The input with the count of bytes that were taken from it.
#[derive(Debug)]
struct Input<R> {
    source: R,
    offset: u64,
    /// Bytes lent by [`Content::next_piece`], to be consumed before anything else.
    lent: usize,
    /// Bytes of content that are left.
    content: u64,
    /// Bytes of padding behind the content.
    padding: u64,
}

/// How the content is laid out in the file.
#[derive(Debug, Default)]
struct Layout {
    /// Offset in the file of the next piece.
    at: u64,
    /// The data of a sparse file, once its map was read.
    extents: Option<Vec<DataExtent>>,
    next: usize,
}

impl<R: BufRead> MemberReader<R> {
    /// A reader of `source`, whose next byte is the first of a member's headers.
    pub fn new(source: R) -> Self {
        Self {
            input: Input { source, offset: 0, lent: 0, content: 0, padding: 0 },
            decoder: MemberDecoder::new(),
            head: MemberHead { header: DecodedMember::new(), offset: 0, headers_len: 0 },
            layout: Layout::default(),
            scratch: Vec::new(),
            passes_missing: false,
        }
    }

    /// Gives [`Piece::Missing`] for what no copy has of a member's content, instead of an error.
    #[must_use]
    pub fn passing_missing(mut self, passes: bool) -> Self {
        self.passes_missing = passes;
        self
    }

    /// The next member and its content; what was not read of the one before is passed over. `None` at the end of the
    /// stream: where its bytes end between two members, or at two blocks of zeros.
    ///
    /// # Errors
    /// [`StreamError`]; the reader is not to be used any more.
    #[expect(clippy::should_implement_trait, reason = "it lends, which an Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<(&MemberHead, Content<'_, R>)>, StreamError> {
        self.input.skip_content(self.passes_missing)?;
        let mut begin = self.input.offset;
        let mut zeros = 0;
        loop {
            let Some(step) = self.header_block()? else { return Ok(None) };
            match step {
                Step::Zeros if zeros == 1 => return Ok(None),
                Step::Zeros => {
                    zeros += 1;
                    begin = self.input.offset;
                    continue;
                }
                Step::Payload(len) => {
                    let offset = self.input.offset;
                    let bytes = self.input.fill()?;
                    let decoded = if let Some(bytes) = bytes.get(..len) {
                        let decoded = self.decoder.payload(bytes);
                        self.input.consume(len);
                        decoded
                    } else {
                        self.input.read(len, &mut self.scratch)?;
                        self.decoder.payload(&self.scratch)
                    };
                    decoded.map_err(|source| StreamError::Malformed { offset, source })?;
                    self.input.content = 0;
                    self.input.padding = padding(len as u64) as u64;
                    self.input.skip_content(false)?;
                }
                Step::Member => break,
            }
            zeros = 0;
        }
        self.head.offset = begin;
        self.head.headers_len = self.input.offset - begin;
        self.input.content = self.head.header.stored;
        self.input.padding = padding(self.head.header.stored) as u64;
        self.layout = Layout::default();
        let (header, passes_missing) = (&self.head.header, self.passes_missing);
        let content = Content { input: &mut self.input, layout: &mut self.layout, header, passes_missing };
        Ok(Some((&self.head, content)))
    }

    /// Bytes of the stream that were taken.
    pub fn offset(&self) -> u64 {
        self.input.offset
    }

    fn header_block(&mut self) -> Result<Option<Step>, StreamError> {
        let bytes = self.input.fill()?;
        if bytes.is_empty() && !self.decoder.is_inside() {
            return Ok(None);
        }
        let decoded = if let Some(block) = bytes.first_chunk::<BLOCK_LEN>() {
            self.decoder.header(block, &mut self.head.header)
        } else {
            // The block straddles two buffers of the source.
            let offset = self.input.offset;
            let block = self.input.block()?;
            let decoded = self.decoder.header(&block, &mut self.head.header);
            return decoded.map(Some).map_err(|source| StreamError::Malformed { offset, source });
        };
        let step = decoded.map_err(|source| StreamError::Malformed { offset: self.input.offset, source })?;
        self.input.consume(BLOCK_LEN);
        Ok(Some(step))
    }
}

impl<R: BufRead> Input<R> {
    /// The next bytes; none only at the end.
    fn fill(&mut self) -> Result<&[u8], StreamError> {
        let lent = std::mem::take(&mut self.lent);
        self.consume(lent);
        loop {
            match self.source.fill_buf() {
                Ok(_) => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(source) => return Err(StreamError::Read { offset: self.offset, source }),
            }
        }
        self.filled()
    }

    /// What [`Input::fill`] found, once more: a full buffer gives the same bytes again at no cost.
    fn filled(&mut self) -> Result<&[u8], StreamError> {
        self.source.fill_buf().map_err(|source| StreamError::Read { offset: self.offset, source })
    }

    fn consume(&mut self, len: usize) {
        self.source.consume(len);
        self.offset += len as u64;
    }

    fn block(&mut self) -> Result<[u8; BLOCK_LEN], StreamError> {
        let mut block = [0; BLOCK_LEN];
        let mut filled = 0;
        while filled < BLOCK_LEN {
            let bytes = self.fill()?;
            let len = bytes.len().min(BLOCK_LEN - filled);
            if len == 0 {
                return Err(StreamError::Truncated { offset: self.offset });
            }
            block[filled..filled + len].copy_from_slice(&bytes[..len]);
            self.consume(len);
            filled += len;
        }
        Ok(block)
    }

    /// Reads `len` bytes; memory grows with what arrives, not with what was announced.
    fn read(&mut self, len: usize, out: &mut Vec<u8>) -> Result<(), StreamError> {
        out.clear();
        out.shrink_to(64 << 10);
        while out.len() < len {
            let bytes = self.fill()?;
            let taken = bytes.len().min(len - out.len());
            if taken == 0 {
                return Err(StreamError::Truncated { offset: self.offset });
            }
            out.extend_from_slice(&bytes[..taken]);
            self.consume(taken);
        }
        Ok(())
    }

    fn skip_content(&mut self, passes_missing: bool) -> Result<(), StreamError> {
        loop {
            // What is lent counts as taken from the content already.
            let left = self.content + self.padding;
            if left == 0 {
                let lent = std::mem::take(&mut self.lent);
                self.consume(lent);
                return Ok(());
            }
            let len = match self.fill() {
                Ok(bytes) => bytes.len(),
                Err(error) => match error.missing().filter(|_| passes_missing) {
                    Some(missing) => usize::try_from(missing).unwrap_or(usize::MAX),
                    None => return Err(error),
                },
            };
            let len = len.min(usize::try_from(left).unwrap_or(usize::MAX));
            if len == 0 {
                return Err(StreamError::Truncated { offset: self.offset });
            }
            self.consume(len);
            let content = self.content.min(len as u64);
            self.content -= content;
            self.padding -= len as u64 - content;
        }
    }
}

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Bytes of the file, in the buffer of the stream's source.
    Data {
        /// Where they stand in the file.
        offset: u64,
        /// The bytes, at least one.
        bytes: &'a [u8],
    },
    /// Zeros that the stream does not hold.
    Hole {
        /// Where they stand in the file.
        offset: u64,
        /// How many, at least one.
        len: u64,
    },
    /// Bytes that no copy gives; [`MemberReader::passing_missing`] asks for it.
    Missing {
        /// Where they stand in the file.
        offset: u64,
        /// How many, at least one.
        len: u64,
    },
}

/// The content of the member that [`MemberReader::next`] lent.
#[derive(Debug)]
pub struct Content<'a, R> {
    input: &'a mut Input<R>,
    layout: &'a mut Layout,
    header: &'a DecodedMember,
    passes_missing: bool,
}

impl<R: BufRead> Content<'_, R> {
    /// The next piece, in ascending order and without gaps from 0 to the file's size; `None` behind the last.
    ///
    /// # Errors
    /// [`StreamError`], also where a sparse map is malformed.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, StreamError> {
        let offset = self.layout.at;
        let mut data_len = self.input.content;
        if self.header.sparse == Sparse::Mapped {
            self.read_map()?;
            let extents = self.layout.extents.as_deref().unwrap_or_default();
            while extents.get(self.layout.next).is_some_and(|extent| extent.offset + extent.len <= offset) {
                self.layout.next += 1;
            }
            let data = extents.get(self.layout.next);
            let hole_end = data.map_or(self.header.size, |extent| extent.offset.max(offset));
            if hole_end > offset {
                self.layout.at = hole_end;
                return Ok(Some(Piece::Hole { offset, len: hole_end - offset }));
            }
            data_len = data.map_or(0, |extent| extent.offset + extent.len - offset);
        }
        if data_len == 0 {
            return Ok(None);
        }
        let len = match self.input.fill() {
            Ok(bytes) => bytes.len().min(usize::try_from(data_len).unwrap_or(usize::MAX)),
            Err(error) => {
                let Some(missing) = error.missing().filter(|_| self.passes_missing) else { return Err(error) };
                let len = missing.min(data_len);
                self.input.consume(usize::try_from(len).unwrap_or(usize::MAX));
                self.layout.at += len;
                self.input.content -= len;
                return Ok(Some(Piece::Missing { offset, len }));
            }
        };
        if len == 0 {
            return Err(StreamError::Truncated { offset: self.input.offset });
        }
        self.layout.at += len as u64;
        self.input.content -= len as u64;
        self.input.lent = len;
        let bytes = self.input.filled()?;
        Ok(Some(Piece::Data { offset, bytes: &bytes[..len.min(bytes.len())] }))
    }

    /// Writes the whole file to `out`, holes and what is missing as zeros; returns its length.
    ///
    /// # Errors
    /// [`CopyError`] tells the stream's faults from the output's.
    pub fn copy_to(&mut self, out: &mut dyn Write) -> Result<u64, CopyError> {
        let mut written = 0;
        while let Some(piece) = self.next_piece()? {
            match piece {
                Piece::Data { bytes, .. } => {
                    out.write_all(bytes).map_err(CopyError::Output)?;
                    written += bytes.len() as u64;
                }
                Piece::Hole { len, .. } | Piece::Missing { len, .. } => {
                    let mut left = len;
                    while left > 0 {
                        let zeros = left.min(ZEROS.len() as u64);
                        out.write_all(&ZEROS[..zeros as usize]).map_err(CopyError::Output)?;
                        left -= zeros;
                    }
                    written += len;
                }
            }
        }
        Ok(written)
    }

    fn read_map(&mut self) -> Result<(), StreamError> {
        if self.layout.extents.is_some() {
            return Ok(());
        }
        let mut decoder = SparseDecoder::new(self.header.size, self.input.content);
        let extents = loop {
            if self.input.content < BLOCK_LEN as u64 {
                return Err(StreamError::Truncated { offset: self.input.offset });
            }
            let offset = self.input.offset;
            let block = self.input.block()?;
            self.input.content -= BLOCK_LEN as u64;
            match decoder.feed(&block) {
                Ok(Some(extents)) => break extents,
                Ok(None) => {}
                Err(source) => return Err(StreamError::Malformed { offset, source }),
            }
        };
        self.layout.extents = Some(extents);
        Ok(())
    }
}

/// Why content could not be copied out.
#[derive(Debug, Error)]
pub enum CopyError {
    /// The stream failed.
    #[error(transparent)]
    Stream(#[from] StreamError),
    /// The output failed.
    #[error("the output cannot be written")]
    Output(#[source] io::Error),
}

#[cfg(test)]
mod damage_tests;
#[cfg(test)]
mod tests;
