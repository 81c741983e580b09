//! Metrics of a server, for those who scrape them: plain HTTP at an address of its own.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use capstan_keys::api::Problem;
use capstan_service::health::Readiness;
use capstan_service::listener::listen;
use capstan_service::metrics::{self, MetricsSource};
use capstan_service::shutdown::ShutdownTrigger;

use crate::cell::CellError;

/// The setting that names the address.
const SETTING: &str = "metrics_listen";
/// What was found out so lately is told again: whoever asks often costs nothing. Of what took long to find out, it is
/// this many times as long.
const FRESH: Duration = Duration::from_secs(10);
const FRESH_TIMES: u32 = 10;
/// One of them answers who asks for health while the other finds metrics out.
const THREADS: usize = 2;

/// Gives all metrics as text; or says why it cannot.
pub(crate) type Metrics = dyn Fn() -> Result<String, String> + Send + Sync;

/// A listener for scrapers; it ends when this is dropped.
pub struct ServedMetrics {
    trigger: ShutdownTrigger,
    thread: Option<JoinHandle<()>>,
    address: SocketAddr,
}

struct Source {
    text: Box<Metrics>,
    /// Until when what was found out last is told, and that.
    last: Mutex<Option<(Instant, String)>>,
}

/// Listens for scrapers of these metrics.
///
/// # Errors
/// [`CellError::Listen`] if the port is taken; [`CellError::Host`] if no thread can be had.
pub fn serve_metrics(address: SocketAddr, text: Box<Metrics>) -> Result<ServedMetrics, CellError> {
    let host = |source| CellError::Host { what: "start a thread for metrics", source };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build().map_err(host)?;
    let refused = |source| CellError::Listen { setting: SETTING, address, source };
    let listener = {
        let _on_runtime = runtime.enter();
        listen(address).map_err(refused)?
    };
    let address = listener.local_addr().map_err(refused)?;
    let (trigger, shutdown) = ShutdownTrigger::new();
    let source = Arc::new(Source { text, last: Mutex::default() });
    let serves = move || runtime.block_on(metrics::serve_metrics(source, listener, shutdown));
    let thread = thread::Builder::new().name("metrics".to_owned()).spawn(serves).map_err(host)?;
    Ok(ServedMetrics { trigger, thread: Some(thread), address })
}

impl ServedMetrics {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for ServedMetrics {
    fn drop(&mut self) {
        self.trigger.begin();
        if let Some(thread) = self.thread.take() {
            // It has said what it had to say.
            let _ = thread.join();
        }
    }
}

impl Readiness for Source {
    /// A server that has begun its term serves.
    fn ready(&self) -> Result<(), Problem> {
        Ok(())
    }
}

impl MetricsSource for Source {
    fn metrics_text(&self) -> Result<String, fmt::Error> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, text)) = last.as_ref().filter(|(until, _)| Instant::now() < *until) {
            return Ok(text.clone());
        }
        let began = Instant::now();
        // Why not, whoever made the text says at the server.
        let text = (self.text)().map_err(|_| fmt::Error)?;
        let took = began.elapsed();
        *last = Some((Instant::now() + FRESH.max(took * FRESH_TIMES), text.clone()));
        Ok(text)
    }
}
