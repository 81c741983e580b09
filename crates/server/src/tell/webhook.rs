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
/// What stands in place of a secret.
const LEFT_OUT: &str = "...";
/// A part of an address that is shorter is no secret, and is a word in many texts.
const SECRET_LEN_MIN: usize = 6;

/// Posts JSON; 2xx is success, everything else is not.
pub(super) fn post(url: &str, body: &Value, patience: Duration) -> Result<(), TellError> {
    let failed = |reason: String| TellError::Webhook { reason: without_secrets(&reason, url) };
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
    // A part of a secret would not be found: it goes before the text is cut off.
    let said = without_secrets(&said, url);
    let said: String = said.chars().map(|c| if c.is_control() { ' ' } else { c }).take(ANSWER_SHOWN_MAX).collect();
    let said = if said.trim().is_empty() { String::new() } else { format!(": {}", said.trim()) };
    Err(failed(format!("the receiver answered {status}{said}")))
}

/// A text without what follows the host in an address and without its user, which are secrets at many receivers: some
/// say in an answer what they were asked.
fn without_secrets(text: &str, url: &str) -> String {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let user = authority.rsplit_once('@').map_or("", |(user, _)| user);
    let separators = ['/', '?', '#', '&', '=', ':', '@'];
    let whole = [user, path.trim_matches('/')];
    // An answer may have slashes escaped, or only a part.
    let parts = whole.into_iter().flat_map(|whole| whole.split(separators));
    let mut secrets: Vec<&str> = whole.into_iter().chain(parts).filter(|part| part.len() >= SECRET_LEN_MIN).collect();
    secrets.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
    secrets.into_iter().fold(text.to_owned(), |text, secret| text.replace(secret, LEFT_OUT))
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A receiver that answered 404 with the path had its secret in status, mails and the catalog.
    #[test]
    fn an_answer_that_repeats_the_address_is_kept_without_its_secrets() {
        let url = "https://capstan:pa55word@hooks.example.org:8443/services/T0/s3cr3tk3y?token=0p3ns3sam3";
        let said = |text: &str| without_secrets(text, url);
        let path = "/services/T0/s3cr3tk3y?token=0p3ns3sam3";
        assert_eq!(said(&format!("404: no {path} on hooks.example.org")), "404: no /... on hooks.example.org");
        assert_eq!(said("no /services/T0/s3cr3tk3y here"), "no /.../T0/... here");
        assert_eq!(said(r#"{"path": "\/services\/T0\/s3cr3tk3y"}"#), r#"{"path": "\/...\/T0\/..."}"#);
        assert_eq!(said("token 0p3ns3sam3 of capstan:pa55word, or pa55word"), "token ... of ..., or ...");
        assert_eq!(without_secrets("502 Bad Gateway", "http://example.org"), "502 Bad Gateway");
        assert_eq!(without_secrets("502 Bad Gateway", "http://example.org/"), "502 Bad Gateway");
    }
}
