//! A library being served: the units, the iSCSI target in front of them, and the control socket.

use std::fs::File;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use capstan_format::Volser;
use capstan_tape::Rewritability;
use thiserror::Error;
use zeroize::Zeroizing;

use crate::agent::KeyAgent;
use crate::control::{self, ControlReply, ControlRequest, LibraryStatus, PlaceRow, ServedDrive};
use crate::device::DeviceServer;
use crate::events::{TargetEvents, Teller};
use crate::iscsi::{ChapCredentials, ChapSecret, ConfigError, ServeError, Server, TargetConfig, WireFaults, WirePoint};
use crate::layout::TargetLayout;
use crate::library::{LibraryError, ServedLibrary};

/// A library that is served until it is stopped.
pub struct LibraryService {
    library: Arc<ServedLibrary>,
    server: Arc<Server>,
    folder: PathBuf,
    stopping: Arc<AtomicBool>,
    desk: Option<JoinHandle<()>>,
    /// Nobody else serves the folder as long as it is held.
    _lock: File,
    /// Stands last, and is dropped last: then all has been told.
    _teller: Teller,
}

/// Why a library cannot be served.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// See there.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// See there.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// See there.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Caller: everyone would be served.
    #[error(
        "whoever reaches {portal} could read and write all cartridges: set target.chap_user and chap_secret_file in vtl.toml, or \
         target.initiators, or, where everyone may, target.anyone = true"
    )]
    Open {
        /// Where it would listen.
        portal: SocketAddr,
    },
    /// Caller: the secret is none.
    #[error("others can read the CHAP secret in {}: chmod 600 it", .path.display())]
    SecretShown {
        /// The file.
        path: PathBuf,
    },
    /// Host: the secret cannot be read.
    #[error("the CHAP secret cannot be read from {}", .path.display())]
    Secret {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// Host: the control socket.
    #[error("the control socket of the library in {} cannot be opened", .folder.display())]
    Control {
        /// The library's folder.
        folder: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
}

impl LibraryService {
    /// Opens the library in a folder and serves it, at another address than its layout says if one is given. What
    /// happens then, the listener is told, on a thread of its own: it may take its time.
    ///
    /// # Errors
    /// [`ServiceError::Control`] if another program serves the folder; [`ServiceError::Open`] if everyone could read
    /// and write the cartridges; else the library, the CHAP secret or the listener cannot be opened.
    pub fn start(
        folder: &Path,
        agent: Option<&Arc<dyn KeyAgent>>,
        listen: Option<SocketAddr>,
        listener: TargetEvents,
    ) -> Result<Self, ServiceError> {
        let on_control = |source| ServiceError::Control { folder: folder.to_owned(), source };
        // First of all: two programs at one library would each move its cartridges.
        let (socket, lock) = control::listen(folder).map_err(on_control)?;
        let (teller, events) = Teller::start(listener).map_err(on_control)?;
        let library = Arc::new(ServedLibrary::open_heard(folder, agent, Arc::clone(&events))?);
        let config = target_config(folder, &library.layout().target, listen)?;
        let wire = Arc::<WireFaults>::default();
        let device = Arc::clone(&library) as Arc<dyn DeviceServer>;
        let server = Arc::new(Server::bind_heard(config, device, Arc::clone(&wire), events)?);
        let stopping = Arc::new(AtomicBool::new(false));
        let (at_desk, served, stop) = (Arc::clone(&library), Arc::clone(&server), Arc::clone(&stopping));
        let desk = std::thread::Builder::new().name("vtl-control".into()).spawn(move || {
            for stream in socket.incoming().flatten() {
                if stop.load(Ordering::Acquire) {
                    return;
                }
                // Who went away in the middle of a question gets no answer.
                let _ = control::serve_one(stream, |request| act(&at_desk, &served, &wire, request));
            }
        });
        let desk = desk.map_err(on_control)?;
        Ok(Self {
            library,
            server,
            folder: folder.to_owned(),
            stopping,
            desk: Some(desk),
            _lock: lock,
            _teller: teller,
        })
    }

    /// Where it listens.
    pub fn local_address(&self) -> SocketAddr {
        self.server.local_address()
    }

    /// What is served.
    pub fn library(&self) -> &ServedLibrary {
        &self.library
    }

    /// Ends all; what was written is on the disk then, but for what is returned: drives whose buffers could not be
    /// written.
    pub fn stop(mut self) -> Vec<String> {
        self.stopping.store(true, Ordering::Release);
        // Wakes the desk.
        let _ = control::ask(&self.folder, &ControlRequest::Status);
        if let Some(desk) = self.desk.take() {
            let _ = desk.join();
        }
        // Before the flush: nothing is answered any more that is not in it. The desk has let go of it.
        if let Ok(server) = Arc::try_unwrap(self.server) {
            server.stop();
        }
        let not_written = self.library.flush();
        control::leave(&self.folder);
        not_written
    }
}

fn target_config(
    folder: &Path,
    target: &TargetLayout,
    listen: Option<SocketAddr>,
) -> Result<TargetConfig, ServiceError> {
    let mut config = TargetConfig::new(target.name.clone());
    config.portal = listen.unwrap_or(target.listen);
    if !config.portal.ip().is_loopback()
        && target.chap_user.is_empty()
        && target.initiators.is_empty()
        && !target.anyone
    {
        return Err(ServiceError::Open { portal: config.portal });
    }
    config.initiators.clone_from(&target.initiators);
    if !target.chap_user.is_empty() {
        let path = folder.join(&target.chap_secret_file);
        let unread = |source| ServiceError::Secret { path: path.clone(), source };
        if std::fs::metadata(&path).map_err(unread)?.permissions().mode() & 0o077 != 0 {
            return Err(ServiceError::SecretShown { path });
        }
        let secret = std::fs::read(&path).map_err(unread)?;
        let mut secret = Zeroizing::new(secret);
        while secret.last().is_some_and(u8::is_ascii_whitespace) {
            secret.pop();
        }
        config.chap = Some(ChapCredentials { name: target.chap_user.clone(), secret: ChapSecret::new(secret)? });
    }
    Ok(config)
}

fn act(library: &ServedLibrary, server: &Server, wire: &WireFaults, request: ControlRequest) -> ControlReply {
    let volser = |barcode: &str| Volser::new(barcode).map_err(|error| error.to_string());
    let told = |done: Result<String, String>| done.map_or_else(ControlReply::Refused, ControlReply::Done);
    match request {
        ControlRequest::Status => ControlReply::Status(status(library, server)),
        ControlRequest::Create { barcode, capacity_bytes, generation, worm } => {
            told(volser(&barcode).and_then(|volser| {
                let kind = if worm { Rewritability::WriteOnce } else { Rewritability::Rewritable };
                let made = library.create(&volser, capacity_bytes, generation, kind);
                made.map(|place| format!("cartridge {volser} is in {place}")).map_err(|error| error.to_string())
            }))
        }
        ControlRequest::Export { barcode } => told(volser(&barcode).and_then(|volser| {
            let out = library.export(&volser).map_err(|error| error.to_string())?;
            Ok(format!("cartridge {volser} is outside, in {}", out.display()))
        })),
        ControlRequest::Import { barcode } => told(volser(&barcode).and_then(|volser| {
            let place = library.import(&volser).map_err(|error| error.to_string())?;
            Ok(format!("cartridge {volser} is in {place}"))
        })),
        ControlRequest::Inject { order } => {
            told(library.inject(&order).map(|()| "ordered: it happens once, at the command that was named".to_owned()))
        }
        ControlRequest::Cut { point, passage } => {
            told(point.parse::<WirePoint>().map_err(|error| error.to_string()).map(|point| {
                wire.cut(point, passage);
                format!("ordered: a connection is cut at {point}")
            }))
        }
        ControlRequest::Forgive => {
            wire.clear();
            let (units, cuts) = (library.forgive(), wire.done());
            ControlReply::Done(format!(
                "nothing goes wrong any more; {units} faults happened, {cuts} connections were cut"
            ))
        }
    }
}

fn status(library: &ServedLibrary, server: &Server) -> LibraryStatus {
    let drives = library.drives().into_iter().map(|drive| ServedDrive {
        serial: drive.serial,
        model: drive.model,
        barcode: drive.volser.map(|volser| volser.to_string()),
        unverified_writes: drive.unverified_writes,
    });
    let elements = library.elements().into_iter().map(|row| PlaceRow {
        place: row.place,
        address: row.address,
        barcode: row.volser.map(|volser| volser.to_string()),
    });
    LibraryStatus {
        target: library.layout().target.name.clone(),
        listens: server.local_address().to_string(),
        drives: drives.collect(),
        elements: elements.collect(),
        initiators: server.sessions().into_iter().map(|session| session.initiator).collect(),
    }
}
