//! What this process itself reads for a session elsewhere: packed here, and sent as a client sends it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;

use capstan_format::ObjectId;

use super::RemoteMover;
use super::remote::{DataDial, locked};
use crate::block::Block;
use crate::connection::StreamSending;
use crate::intake::{ExpectedStreams, StreamStart};
use crate::network::{BlockLinks, BlockSender, NotSent};
use crate::pack::{PackWorkers, PackedTo, Packer};
use crate::pool::BlockPool;
use crate::queue::{Sender, queue};
use crate::{Connection, JobToken, MoverError, SessionOptions, Stopped};

/// Memory for blocks that were read and that the mover does not have yet.
const POOL_BYTES: usize = 64 << 20;

/// Sends streams of one job. Nothing is set up before the first.
#[derive(Default)]
pub(super) struct Sending {
    /// Set where nothing more is sent: the job is stopped, or the mover is gone.
    is_over: Arc<AtomicBool>,
    /// Why the mover has not all that was sent, if it is the network's fault.
    lost: Arc<Mutex<Option<String>>>,
    packing: Mutex<Option<Packing>>,
    streams: AtomicU64,
}

/// Where packed blocks go, by their streams.
type Routes = Arc<Mutex<HashMap<u64, Sender<Block>>>>;

struct Packing {
    pool: BlockPool,
    packer: Packer,
    workers: PackWorkers,
    routes: Routes,
    process: JobToken,
}

impl Packing {
    fn start(options: &SessionOptions) -> Result<Self, MoverError> {
        let needed = options.connections * 2 + options.pack_workers * 2 + 8;
        let pool = BlockPool::new(needed.max(POOL_BYTES / options.chunk_len), options.chunk_len);
        let routes = Routes::default();
        let to = Arc::clone(&routes);
        let out: PackedTo = Arc::new(move |block: Block| {
            let route = locked(&to).get(&block.place.stream).cloned();
            // Of a stream that was given up nothing more is sent.
            route.map_or(Ok(()), |route| route.send(block).map_err(|_| Stopped))
        });
        let (packer, workers) = Packer::start(options.pack, options.pack_workers, &pool, out, Arc::default())?;
        let process = JobToken::random().map_err(|error| super::remote::gone(&error))?;
        Ok(Self { pool, packer, workers, routes, process })
    }
}

impl Sending {
    pub(super) fn is_over(&self) -> &AtomicBool {
        &self.is_over
    }

    pub(super) fn why_lost(&self) -> Option<String> {
        locked(&self.lost).clone()
    }

    pub(super) fn stop(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// A connection whose blocks are sent to a mover that expects them. `have_come` asks it whether it has all of them.
    pub(super) fn connection(
        &self,
        (mover, options): (&RemoteMover, &SessionOptions),
        (object, start): (ObjectId, StreamStart),
        expected: Result<ExpectedStreams, MoverError>,
        have_come: impl FnOnce(u64) -> bool + Send + 'static,
    ) -> Connection {
        let mut packing = locked(&self.packing);
        let packing = match &mut *packing {
            Some(packing) => packing,
            place => match Packing::start(options) {
                Ok(started) => place.insert(started),
                Err(_) => {
                    if let Ok(expected) = expected {
                        have_come(expected.number);
                    }
                    return takes_nothing((object, start), options);
                }
            },
        };
        let stream = self.streams.fetch_add(1, Ordering::Relaxed);
        let (route, blocks) = queue(usize::MAX);
        let (done, is_done) = channel();
        let (mover, process, stop) = (mover.clone(), packing.process.clone(), Arc::clone(&self.is_over));
        let lost = Arc::clone(&self.lost);
        let send = move || {
            let expected = match expected {
                Ok(expected) => expected,
                Err(error) => {
                    locked(&lost).get_or_insert(error.to_string());
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
            };
            let (dial, token, reading) = (&DataDial(&mover), (&expected.token, &process), expected.reading);
            // The mover opens these connections, and keeps few.
            let links = BlockLinks::One;
            let sent = BlockSender { dial, token, reading, start, blocks, stop: &stop, links }.run();
            if let Err(NotSent::Lost(reason)) = &sent {
                locked(&lost).get_or_insert(reason.clone());
            }
            // Whatever it says, the mover knows best.
            let has_come = have_come(expected.number);
            let _ = done.send(sent.is_ok() && has_come);
        };
        locked(&packing.routes).insert(stream, route);
        if thread::Builder::new().name("send".to_owned()).spawn(send).is_err() {
            self.stop();
        }
        let sent = StreamSent { stream, routes: Arc::clone(&packing.routes), is_done };
        let (pool, packer) = (packing.pool.clone(), packing.packer.share());
        Connection::new((stream, object, start.connection), pool, packer, None, Arc::clone(&self.is_over))
            .starting_at(start.sequence, start.offset)
            .sent_by(Box::new(sent))
    }
}

/// A connection that takes nothing.
fn takes_nothing((object, start): (ObjectId, StreamStart), options: &SessionOptions) -> Connection {
    let pool = BlockPool::new(1, options.chunk_len);
    let packer = Packer::storing(&pool, Arc::new(|_| Err(Stopped)));
    let stop = Arc::new(AtomicBool::new(true));
    Connection::new((0, object, start.connection), pool, packer, None, stop).starting_at(start.sequence, start.offset)
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(Packing { packer, workers, .. }) = locked(&self.packing).take() {
            drop(packer);
            workers.join();
        }
    }
}

/// A stream that is sent.
struct StreamSent {
    stream: u64,
    routes: Routes,
    is_done: Receiver<bool>,
}

impl StreamSending for StreamSent {
    fn wait(self: Box<Self>) -> Result<(), Stopped> {
        if self.is_done.recv() == Ok(true) { Ok(()) } else { Err(Stopped) }
    }
}

impl Drop for StreamSent {
    fn drop(&mut self) {
        locked(&self.routes).remove(&self.stream);
    }
}
