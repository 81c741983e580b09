//! A connection that keeps to the limits of time, or ends.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::ListenerLimits;

/// What a connection is waited for with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waiting {
    /// The next request, until then.
    Request(Instant),
    /// The rest of a request's head, until then, however its bytes trickle in.
    Head(Instant),
    /// The handler, which has a limit of its own.
    Handler,
}

/// Where a connection stands, shared with who serves its requests.
pub(super) struct RequestTimer {
    waiting: Mutex<Waiting>,
    limits: ListenerLimits,
}

impl RequestTimer {
    pub(super) fn new(limits: ListenerLimits) -> Arc<Self> {
        Arc::new(Self { waiting: Mutex::new(Waiting::Request(Instant::now() + limits.idle)), limits })
    }

    /// A request's head is complete.
    pub(super) fn request_begun(&self) {
        self.set(|_| Waiting::Handler);
    }

    /// The answer is known. A next request whose beginning came along with the last has the idle time for the rest.
    pub(super) fn request_ended(&self) {
        let until = Instant::now() + self.limits.idle;
        self.set(|_| Waiting::Request(until));
    }

    fn bytes_came(&self) {
        self.set(|waiting| match waiting {
            Waiting::Request(_) => Waiting::Head(Instant::now() + self.limits.head),
            other => other,
        });
    }

    fn deadline(&self) -> Option<Instant> {
        match *self.waiting.lock().unwrap_or_else(PoisonError::into_inner) {
            Waiting::Request(until) | Waiting::Head(until) => Some(until),
            Waiting::Handler => None,
        }
    }

    fn set(&self, change: impl FnOnce(Waiting) -> Waiting) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        *waiting = change(*waiting);
    }
}

/// A stream that ends with [`io::ErrorKind::TimedOut`] when its peer is too slow.
pub(super) struct TimedStream<S> {
    stream: S,
    timer: Arc<RequestTimer>,
    reading: Pin<Box<Sleep>>,
    /// While the peer takes nothing.
    writing: Option<Pin<Box<Sleep>>>,
}

impl<S> TimedStream<S> {
    pub(super) fn new(stream: S, timer: Arc<RequestTimer>) -> Self {
        let until = Instant::now() + timer.limits.idle;
        Self { stream, timer, reading: Box::pin(sleep_until(until)), writing: None }
    }

    fn or_stalled<T>(&mut self, context: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let until = Instant::now() + self.timer.limits.write;
        let writing = self.writing.get_or_insert_with(|| Box::pin(sleep_until(until)));
        writing.as_mut().poll(context).map(|()| Err(too_slow()))
    }
}

fn too_slow() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the peer is too slow")
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if buffer.filled().len() > before {
            self.timer.bytes_came();
        }
        // A peer that sends without a pause is held to the time as well.
        let Some(deadline) = self.timer.deadline() else { return read };
        if deadline != self.reading.deadline() {
            self.reading.as_mut().reset(deadline);
        }
        match self.reading.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(too_slow())),
            Poll::Pending => read,
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.or_stalled(context, written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.or_stalled(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.or_stalled(context, shut)
    }
}
