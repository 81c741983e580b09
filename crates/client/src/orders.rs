//! What the server and the members of its cell say to each other: orders, and the words around them.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroize;

/// How long the server keeps a question for orders open, in seconds, when there is none.
pub const ORDERS_WAIT_SECONDS: u64 = 25;

/// A text is not as many bytes in hexadecimal as there have to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("that is not {bytes} bytes in hexadecimal digits")]
pub struct InvalidHex {
    bytes: usize,
}

fn from_hex<const LEN: usize>(text: &str) -> Result<[u8; LEN], InvalidHex> {
    let invalid = InvalidHex { bytes: LEN };
    if text.len() != 2 * LEN || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(invalid);
    }
    let mut bytes = [0; LEN];
    for (byte, at) in bytes.iter_mut().zip((0..2 * LEN).step_by(2)) {
        *byte = u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| invalid)?;
    }
    Ok(bytes)
}

fn to_hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    // Room for all of it: a text that grows leaves a part of a secret behind.
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// The job that an order is about, drawn at random; written as 32 hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct JobId(pub [u8; 16]);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&to_hex(&self.0))
    }
}

impl FromStr for JobId {
    type Err = InvalidHex;

    fn from_str(text: &str) -> Result<Self, InvalidHex> {
        from_hex(text).map(Self)
    }
}

impl TryFrom<String> for JobId {
    type Error = InvalidHex;

    fn try_from(text: String) -> Result<Self, InvalidHex> {
        text.parse()
    }
}

impl From<JobId> for String {
    fn from(id: JobId) -> Self {
        id.to_string()
    }
}

/// What a client shows to prove that a data connection is the one that was ordered: 32 random bytes, written as 64
/// hexadecimal digits. It must not be logged or stored. No `Display`, and `Debug` does not show it; zeroised.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct OrderToken([u8; 32]);

impl OrderToken {
    /// Takes what was drawn at random.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The bytes, to be sent over the data connection and compared there, in time that does not depend on them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for OrderToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OrderToken")
    }
}

impl Drop for OrderToken {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl TryFrom<String> for OrderToken {
    type Error = InvalidHex;

    fn try_from(text: String) -> Result<Self, InvalidHex> {
        from_hex(&text).map(Self)
    }
}

impl From<OrderToken> for String {
    fn from(token: OrderToken) -> Self {
        to_hex(&token.0)
    }
}

/// When a file that exists at a client is replaced by a restore.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Replaces {
    /// Never: it is reported.
    #[default]
    Never,
    /// If its size or modification time differs.
    Changed,
    /// Always.
    Always,
}

/// Where and how a client writes what a user has restored to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrderedRestore {
    /// The directory, below which everything is written.
    pub directory: String,
    /// When a file that exists is replaced.
    #[serde(default)]
    pub replaces: Replaces,
    /// Leading components that are taken from each path.
    #[serde(default)]
    pub strip: u16,
}

/// What the server has a client do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "do", rename_all = "kebab-case")]
pub enum CellOrder {
    /// Dial the data listener and serve a job over it.
    Serve {
        /// The job.
        job: JobId,
        /// What proves there that the connection is the one that was ordered.
        token: OrderToken,
        /// Where: `host:port`, or `:port` at the host that orders come from; a handler gets `host:port`.
        data: String,
        /// How many connections.
        links: u16,
        /// Where what is restored is written, if the server says so: the client's own settings must allow it. Without
        /// it, a job of a restore is served by whoever asked for that at the client.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        restore: Option<OrderedRestore>,
    },
    /// End what is done for a job.
    Stop {
        /// The job.
        job: JobId,
    },
}

impl CellOrder {
    /// The same, with the host that orders come from where it names none.
    pub(crate) fn at(mut self, address: &str) -> Self {
        if let Self::Serve { data, .. } = &mut self {
            *data = with_host_of(data, address);
        }
        self
    }

    /// The job that it is about.
    pub fn job(&self) -> JobId {
        match self {
            Self::Serve { job, .. } | Self::Stop { job } => *job,
        }
    }
}

/// Host and port: those that `place` says or, where it is `:port`, the host of `address` (host and port).
pub fn with_host_of(place: &str, address: &str) -> String {
    if !place.starts_with(':') {
        return place.to_owned();
    }
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    format!("{host}{place}")
}

/// An order and its number: higher than that of every order before to the same peer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NumberedOrder {
    /// The number.
    pub number: u64,
    /// The order.
    pub order: CellOrder,
}

/// The answer to `GET /v1/orders`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrdersAnswer {
    /// Which start of the server this is: numbers of orders begin anew with each.
    pub epoch: String,
    /// The orders, by their numbers; none when the time is up.
    pub orders: Vec<NumberedOrder>,
}

/// `GET /v1/orders`: which orders a peer has already. Those are forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OrdersQuery {
    /// The highest number that it has seen.
    #[serde(default)]
    pub after: u64,
    /// The start of the server that this number is of; of another one, no number counts.
    #[serde(default)]
    pub epoch: Option<String>,
}

/// `POST /v1/hello`: what a peer is, and what it may be asked to do.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PeerHello {
    /// The version of its program.
    pub version: String,
    /// The name of its host.
    pub host: String,
    /// The folders that it may be asked to read; none if there is no bound.
    #[serde(default)]
    pub paths: Vec<String>,
    /// The names of the programs that it may be asked to run.
    #[serde(default)]
    pub scripts: Vec<String>,
    /// The folders below which users of the cell may have something restored; none if they may not.
    #[serde(default)]
    pub restore_to: Vec<String>,
    /// Where clients bring a mover their data: `host:port`, or `:port` at the host that it comes from; none of a
    /// client.
    #[serde(default)]
    pub data: Option<String>,
}

/// The answer to [`PeerHello`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct HelloAnswer {
    /// The version of the server.
    pub version: String,
    /// Which start of the server this is.
    pub epoch: String,
    /// Who the server takes the peer for.
    pub peer: String,
    /// The port for data, at the same host; 0 from a server that does not say it.
    #[serde(default)]
    pub data_port: u16,
}

/// `GET /v1/listeners`, at the port for enrolments: where the server listens for its peers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ListenersAnswer {
    /// The port of the members' listener, at the same host.
    pub members_port: u16,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    #[test]
    fn an_order_is_written_and_read() {
        let token = OrderToken::new([0xa5; 32]);
        let serve = CellOrder::Serve { job: JobId([1; 16]), token, data: ":5703".to_owned(), links: 2, restore: None };
        let text = serde_json::to_string(&serve).unwrap();
        assert_eq!(
            text,
            format!(
                r#"{{"do":"serve","job":"{}","token":"{}","data":":5703","links":2}}"#,
                "01".repeat(16),
                "a5".repeat(32)
            )
        );
        assert_eq!(serde_json::from_str::<CellOrder>(&text).unwrap(), serve);
        assert!(!format!("{serve:?}").contains("a5") && !format!("{serve:?}").contains("165"), "{serve:?}");
    }

    #[test]
    fn an_order_names_the_host_that_it_came_from() {
        let at = |data: &str, address: &str| {
            let token = OrderToken::new([0; 32]);
            let order = CellOrder::Serve { job: JobId([1; 16]), token, data: data.to_owned(), links: 1, restore: None };
            let CellOrder::Serve { data, .. } = order.at(address) else { panic!("it serves") };
            data
        };
        assert_eq!(at(":5703", "server:5701"), "server:5703");
        assert_eq!(at(":5703", "[::1]:5701"), "[::1]:5703");
        assert_eq!(at("mover:5703", "server:5701"), "mover:5703");
    }

    #[test]
    fn words_of_an_older_program_are_read() {
        let hello: PeerHello = serde_json::from_str(r#"{"version":"0.1.0","host":"tern"}"#).unwrap();
        assert_eq!(hello.data, None);
        let answer = r#"{"version":"0.1.0","epoch":"e","peer":"client/tern"}"#;
        assert_eq!(serde_json::from_str::<HelloAnswer>(answer).unwrap().data_port, 0);
    }

    #[test]
    fn digits_that_are_too_few_or_none_are_refused() {
        for text in ["", "00", &"0".repeat(31), &"g".repeat(32), &"\u{e9}".repeat(16), &"+0".repeat(16)] {
            assert!(text.parse::<JobId>().is_err(), "{text:?} was taken for a job");
        }
    }
}
