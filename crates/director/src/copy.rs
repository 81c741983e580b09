//! Object copy: from the volumes it is on to another pool, demultiplexed on the way.

use std::collections::BTreeMap;
use std::io::BufRead;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use capstan_catalog::{Object, ObjectStatus};
use capstan_format::{FileEntry, SessionRecord, Volser};
use capstan_mover::{
    Connection, CopyHost, Damage, RestoreWatch, Session, StreamSink, WantedMember, plan_reads, read_streams,
};
use capstan_tape::with_causes;

use crate::DirectorError;
use crate::append::{AppendHost, Shortfall};
use crate::desk::{Desk, ReadDesk};
use crate::jobs::record_of;
use crate::select::{Layout, locate_streams};
use crate::site::{Site, locked};

/// How an object copy ended.
#[derive(Debug, Default)]
pub struct CopyReport {
    /// The copy's number.
    pub copy: u8,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes of the object's streams.
    pub bytes: u64,
    /// Blocks that no copy gives; the new copy ends before the first.
    pub lost: Vec<Damage>,
    /// Volumes that no key opens, and why. Another copy may have stood in for them.
    pub without_key: Vec<(Volser, DirectorError)>,
    /// How long it took.
    pub elapsed_ns: u64,
}

impl Site {
    /// Writes a further copy of an object to a pool: one connection after the other, so that a restore of it reads straight on.
    pub fn copy_object(&self, object: &Object, pool: &str, watch: &RestoreWatch) -> Result<CopyReport, DirectorError> {
        let _lock = self.writer_lock()?;
        let began = Instant::now();
        let pool =
            locked(&self.catalog).pool(pool)?.ok_or_else(|| DirectorError::UnknownPool { pool: pool.to_owned() })?;
        let copies = locked(&self.catalog).copies(object.id)?;
        for volser in copies.iter().flat_map(|copy| &copy.volumes) {
            let volume = locked(&self.catalog).volume(volser)?;
            if volume.is_some_and(|volume| volume.pool.as_ref() == Some(&pool.name)) {
                return Err(DirectorError::CopyInPool { object: object.id.to_string(), pool: pool.name });
            }
        }
        let wanted = locked(&self.catalog).wanted_copies(object.id)?;
        let numbers = copies.iter().map(|copy| copy.copy).chain(wanted.iter().map(|wanted| wanted.copy));
        // A copy that was promised to this pool and never begun is the one that is made now.
        let promised = wanted.iter().find(|wanted| wanted.pool == pool.name).map(|wanted| wanted.copy);
        let next = numbers.max().unwrap_or(0).checked_add(1);
        let copy = promised.or(next).ok_or_else(|| DirectorError::TooManyCopies { object: object.id.to_string() })?;
        locked(&self.catalog).want_copies(&[(object.id, copy, &pool.name)])?;
        let desk = Desk::new(self).stopped_by(&watch.stop);
        let host: Box<dyn CopyHost> = Box::new(AppendHost {
            desk: desk.clone(),
            config: self.config.clone(),
            pool,
            copy,
            shortfall: Shortfall::Fail,
            stop: Arc::clone(&watch.stop),
            mounted: None,
            asked_ns: 0,
        });
        let record = SessionRecord {
            started_ns: self.now_ns(),
            host: self.client.clone(),
            software: concat!("capstan ", env!("CARGO_PKG_VERSION")).to_owned(),
        };
        let mut options = self.session_options_for_copy(object.chunk_len as usize);
        options.first_copy = copy;
        let session = Session::start(&options, &record, vec![host], Arc::default())?;
        let moved = session.begin_object(record_of(object)).map_err(DirectorError::from).and_then(|()| {
            let moved = self.move_streams(object, &session, desk, watch)?;
            // The copy of an object that a run left open is as open as the object.
            if object.status == ObjectStatus::Complete && moved.lost.is_empty() {
                let connections = locked(&self.catalog).parts(object.id)?.len();
                session.end_object(object.id, connections, object.ended_ns)?;
            }
            Ok(moved)
        });
        // Why the copy failed says more than that nothing could be handed to it any more.
        for outcome in session.finish().copies {
            outcome.map_err(DirectorError::of_copy)?;
        }
        self.look_at_copies()?;
        let mut report = moved?;
        report.copy = copy;
        report.elapsed_ns = began.elapsed().as_nanos() as u64;
        Ok(report)
    }

    fn move_streams(
        &self,
        object: &Object,
        session: &Session,
        desk: Desk,
        watch: &RestoreWatch,
    ) -> Result<CopyReport, DirectorError> {
        let present = self.present()?;
        let (parts, mut entries) = {
            let catalog = locked(&self.catalog);
            let entries: Result<Vec<_>, _> = catalog.index(object.id)?.iter().collect();
            (catalog.parts(object.id)?, entries?)
        };
        entries.sort_by_key(|entry| (entry.connection, entry.offset + entry.member_len));
        let mut report = CopyReport::default();
        let mut host = ReadDesk::new(desk);
        for part in parts {
            let mut sink = session.connection(object.id, part.connection);
            let own: Vec<_> = entries.iter().filter(|entry| entry.connection == part.connection).cloned().collect();
            let member = WantedMember { offset: 0, len: part.valid_len, crc: 0 };
            let streams = BTreeMap::from([((object.id, part.connection), vec![member])]);
            let located = locate_streams(&locked(&self.catalog), streams, &present, None, Layout::Apart)?;
            let reads = plan_reads(&located.wanted);
            let failure = Mutex::new(None);
            let shared = Mutex::new((&mut sink, own));
            let stop = AtomicBool::new(false);
            let read = read_streams(&located.wanted, &reads, &mut host, &stop, &|_, reader| {
                let mut guard = shared.lock().unwrap_or_else(PoisonError::into_inner);
                let (sink, own) = &mut *guard;
                if let Err(reason) = move_bytes(&mut reader.range(0..part.valid_len), sink, own, watch) {
                    *failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
                    stop.store(true, Ordering::Relaxed);
                }
            });
            drop(shared);
            report.blocks += read.blocks;
            report.bytes += read.plain_bytes;
            report.lost.extend(read.lost);
            let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
            if watch.stop.load(Ordering::Relaxed) {
                return Err(DirectorError::Interrupted);
            }
            match failure {
                None => sink.finish().map_err(|error| DirectorError::Output { reason: with_causes(&error) })?,
                Some(_) if !report.lost.is_empty() => break,
                Some(reason) => return Err(host.why_not(reason)),
            }
        }
        report.without_key = host.without_key;
        Ok(report)
    }
}

/// Moves one connection's bytes and tells the sink of each member where it ends.
pub(crate) fn move_bytes(
    bytes: &mut dyn BufRead,
    sink: &mut Connection,
    entries: &mut Vec<FileEntry>,
    watch: &RestoreWatch,
) -> Result<(), String> {
    let mut own = entries.drain(..).peekable();
    loop {
        while let Some(entry) =
            own.next_if(|entry| entry.member_len == 0 || entry.offset + entry.member_len <= sink.position())
        {
            sink.member(entry);
        }
        // Up to the end of the next member, so that its entry travels with the block that ends it.
        let until = own.peek().map_or(u64::MAX, |entry| entry.offset + entry.member_len) - sink.position();
        let available = bytes.fill_buf().map_err(|error| error.to_string())?;
        if available.is_empty() {
            return Ok(());
        }
        let len = available.len().min(usize::try_from(until).unwrap_or(usize::MAX));
        sink.write(&available[..len]).map_err(|error| error.to_string())?;
        bytes.consume(len);
        watch.bytes.fetch_add(len as u64, Ordering::Relaxed);
        if watch.stop.load(Ordering::Relaxed) {
            return Err("stopped".to_owned());
        }
    }
}
