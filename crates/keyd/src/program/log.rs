//! The log of a node: lines on standard error, each with the node's name, and those of a request with its id.

use std::fmt;
use std::io::IsTerminal;

use capstan_keys::Name;
use capstan_service::listener::ACCESS_LOG;
use clap::ValueEnum;
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// How lines are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogForm {
    /// An object a line, for collectors
    Json,
    /// For people
    Text,
}

/// Begins the log: in the form that was asked for, else in JSON where standard error is no terminal. `KEYD_LOG` says
/// what is in it.
pub(super) fn begin(form: Option<LogForm>, node: &Name) {
    let filter =
        EnvFilter::try_from_env("KEYD_LOG").unwrap_or_else(|_| EnvFilter::new(format!("info,{ACCESS_LOG}=warn")));
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let by_itself = if std::io::stderr().is_terminal() { LogForm::Text } else { LogForm::Json };
    let node = node.clone();
    match form.unwrap_or(by_itself) {
        LogForm::Text => lines.map_event_format(|lines| Named { node, form: LogForm::Text, lines }).init(),
        LogForm::Json => lines.json().map_event_format(|lines| Named { node, form: LogForm::Json, lines }).init(),
    }
}

/// Lines with the node's name in front: logs of several nodes are read together.
struct Named<F> {
    node: Name,
    form: LogForm,
    lines: F,
}

impl<S, N, F> FormatEvent<S, N> for Named<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        match (self.form, line.strip_prefix('{')) {
            // A name has no character that JSON would escape.
            (LogForm::Json, Some(rest)) => write!(writer, "{{\"kma\":\"{}\",{rest}", self.node),
            _ => write!(writer, "{} {line}", self.node),
        }
    }
}
