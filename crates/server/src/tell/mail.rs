//! A message by mail. Certificates are checked against those that the machine trusts.

use std::error::Error;
use std::fs;
use std::time::Duration;

use capstan_director::{MailConfig, MailSecurity};
use lettre::message::Mailbox;
use lettre::message::header::{ContentType, HeaderName, HeaderValue};
use lettre::transport::smtp::authentication::Credentials;
use lettre::transport::smtp::client::{Tls, TlsParameters};
use lettre::transport::smtp::extension::ClientId;
use lettre::{Address, Message, SmtpTransport, Transport};
use uuid::Uuid;
use zeroize::Zeroizing;

use super::error::TellError;
use super::message::TellMessage;

/// Sends a message to all its receivers at once: it arrives for all of them or counts as not arrived.
pub(super) fn send(
    config: &MailConfig,
    to: &[String],
    host: &str,
    message: &TellMessage,
    patience: Duration,
) -> Result<(), TellError> {
    let failed = |reason: String| TellError::Mail { server: config.server.clone(), reason };
    let mail = letter(config, to, host, message).map_err(failed)?;
    let (server, port) = config.host_and_port().ok_or_else(|| failed("it is no host and port".to_owned()))?;
    let parameters = || TlsParameters::new_rustls(server.to_owned()).map_err(|error| failed(full_text(&error)));
    let tls = match config.security {
        MailSecurity::Tls => Tls::Wrapper(parameters()?),
        MailSecurity::StartTls => Tls::Required(parameters()?),
        MailSecurity::None => Tls::None,
    };
    let mut transport = SmtpTransport::builder_dangerous(server).port(port).tls(tls).timeout(Some(patience));
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    if !host.is_empty() && host.chars().all(is_name) {
        transport = transport.hello_name(ClientId::Domain(host.to_owned()));
    }
    if !config.user.is_empty() {
        let path = &config.password_file;
        let wrong = |source| TellError::Password { path: path.clone(), source };
        let password = fs::read_to_string(path).map(Zeroizing::new).map_err(wrong)?;
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        transport = transport.credentials(Credentials::new(config.user.clone(), password));
    }
    let sent = transport.build().send(&mail).map(drop);
    sent.map_err(|error| failed(with_advice(full_text(&error), error.is_timeout(), config.security)))
}

/// What came back, and what to do where those words alone do not say it.
fn with_advice(text: String, is_timeout: bool, security: MailSecurity) -> String {
    let advice = match security {
        // It waits for the first byte of TLS while we wait for its greeting, until the socket has nothing to read.
        MailSecurity::StartTls | MailSecurity::None if is_timeout || text.contains("os error 11") => {
            "it said nothing. A port with TLS from the first byte, usually 465, needs security = \"tls\""
        }
        MailSecurity::Tls if text.contains("InvalidContentType") => {
            "it speaks no TLS from the first byte: ports 587 and 25 usually need security = \"starttls\""
        }
        MailSecurity::None if text.contains("authentication mechanism") => {
            "many servers let nobody log in without TLS: try security = \"starttls\""
        }
        _ if text.contains("peer certificate") => {
            "this machine must trust the authority that signed the certificate of the mail server, and the certificate \
             must name that server as `server` does"
        }
        _ => return text,
    };
    format!("{text}: {advice}")
}

fn letter(config: &MailConfig, to: &[String], host: &str, message: &TellMessage) -> Result<Message, String> {
    let mailbox = |text: &str| {
        let address = text.parse::<Address>().map_err(|error| format!("{text:?} is no mail address: {error}"))?;
        Ok::<_, String>(Mailbox::new(None, address))
    };
    let from = mailbox(&config.from)?;
    let id = format!("<{}@{}>", Uuid::new_v4(), from.email.domain());
    // No vacation notice answers such a mail (RFC 3834, section 5).
    let automatic = HeaderValue::new(HeaderName::new_from_ascii_str("Auto-Submitted"), "auto-generated".to_owned());
    let mut letter = Message::builder()
        .from(from)
        .message_id(Some(id))
        .subject(message.subject(host))
        .raw_header(automatic)
        .header(ContentType::TEXT_PLAIN);
    for receiver in to {
        letter = letter.to(mailbox(receiver)?);
    }
    letter.body(message.text(host)).map_err(|error| full_text(&error))
}

/// An error with what it came from.
fn full_text(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(inner) = source {
        let inner_text = inner.to_string();
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        source = inner.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Real mail servers were tried with each wrong setting, and "corrupt message" told nobody which one it was.
    #[test]
    fn a_port_that_wants_other_security_is_told_by_what_to_write() {
        let said = |text: &str, security| with_advice(text.to_owned(), false, security);
        let corrupt = "network error: received corrupt message of type InvalidContentType";
        assert!(said(corrupt, MailSecurity::Tls).ends_with("usually need security = \"starttls\""));
        assert_eq!(said(corrupt, MailSecurity::StartTls), corrupt);
        let silent = said("network error: Resource temporarily unavailable (os error 11)", MailSecurity::StartTls);
        assert!(silent.ends_with("needs security = \"tls\""), "{silent}");
        let refused = "internal client error: No compatible authentication mechanism was found";
        assert!(said(refused, MailSecurity::None).contains("try security = \"starttls\""));
        let unknown = said("network error: invalid peer certificate: UnknownIssuer", MailSecurity::Tls);
        assert!(unknown.contains("must trust the authority"), "{unknown}");
        let denied = "permanent error (535): Incorrect authentication data";
        assert_eq!(said(denied, MailSecurity::StartTls), denied);
    }
}
