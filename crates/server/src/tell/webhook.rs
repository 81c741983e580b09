//! A message as JSON, posted. Certificates are checked against those that the machine trusts; redirects and proxies are
//! not followed, so that the settings say where everything goes.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, RootCerts, TlsConfig, TlsProvider};

use super::error::TellError;

/// So much of an answer is kept for the message that it was a refusal.
const ANSWER_SHOWN_MAX: usize = 200;
/// Longest answer that is read.
const ANSWER_LEN_MAX: u64 = 16 << 10;

/// Posts JSON; 2xx is success, everything else is not.
pub(super) fn post(url: &str, body: &Value, patience: Duration) -> Result<(), TellError> {
    let failed = |reason: String| TellError::Webhook { reason };
    let mut config = Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .proxy(None)
        .timeout_global(Some(patience))
        .max_response_header_size(16 << 10)
        .user_agent(concat!("capstan/", env!("CARGO_PKG_VERSION")));
    if url.starts_with("https://") {
        config = config.https_only(true).tls_config(tls().map_err(failed)?);
    }
    let text = body.to_string();
    let sent = Agent::from(config.build()).post(url).content_type("application/json").send(text.as_bytes());
    let mut answer = sent.map_err(|error| failed(error.to_string()))?;
    let status = answer.status();
    if status.is_success() {
        return Ok(());
    }
    let said = answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_string().unwrap_or_default();
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(ANSWER_SHOWN_MAX).collect();
    let said = if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) };
    Err(failed(format!("the receiver answered {status}{said}")))
}

fn tls() -> Result<TlsConfig, String> {
    let found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty() {
        return Err("this machine has no certificates of authorities that it trusts: install ca-certificates".into());
    }
    let roots: Vec<_> = found.certs.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
    let provider = Arc::new(aws_lc_rs::default_provider());
    Ok(TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .unversioned_rustls_crypto_provider(provider)
        .root_certs(RootCerts::Specific(Arc::new(roots)))
        .build())
}
