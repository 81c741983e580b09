//! Where the server of a cell listens.

use std::net::SocketAddr;

use capstan_director::ServerConfig;

use super::CellError;

/// Where the server of a cell listens: for members, for those that enrol, and for data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CellAddresses {
    /// For clients and movers that have a certificate.
    pub members: SocketAddr,
    /// For those that enrol.
    pub enrolment: SocketAddr,
    /// For data.
    pub data: SocketAddr,
}

impl CellAddresses {
    /// The addresses that settings name; empty texts follow the members' address, at the next two ports. `None` if
    /// nothing is to be listened for.
    ///
    /// # Errors
    /// [`CellError::Address`] if a text is no address and port, or the members' address is missing.
    pub fn of(settings: &ServerConfig) -> Result<Option<Self>, CellError> {
        let ServerConfig { listen, enrolment, data, .. } = settings;
        if listen.is_empty() {
            return match [("enrolment", enrolment), ("data", data)].into_iter().find(|(_, text)| !text.is_empty()) {
                None => Ok(None),
                Some((setting, _)) => Err(CellError::NoMembersAddress { setting }),
            };
        }
        let members = address("listen", listen)?;
        let behind = |setting: &'static str, text: &str, by: u16| match text {
            "" => behind(members, by).ok_or(CellError::NoPortBehind { setting, members }),
            text => address(setting, text),
        };
        let (enrolment, data) = (behind("enrolment", enrolment, 1)?, behind("data", data, 2)?);
        Ok(Some(Self { members, enrolment, data }))
    }
}

fn address(setting: &'static str, text: &str) -> Result<SocketAddr, CellError> {
    text.parse().map_err(|_| CellError::Address { setting, text: text.to_owned() })
}

/// The port that lies so many behind another one; any port lies behind any port.
fn behind(members: SocketAddr, by: u16) -> Option<SocketAddr> {
    let port = if members.port() == 0 { 0 } else { members.port().checked_add(by)? };
    Some(SocketAddr::new(members.ip(), port))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

    use super::*;

    fn of(listen: &str, enrolment: &str, data: &str) -> Result<Option<CellAddresses>, CellError> {
        let [listen, enrolment, data] = [listen, enrolment, data].map(str::to_owned);
        CellAddresses::of(&ServerConfig { listen, enrolment, data, ..ServerConfig::default() })
    }

    #[test]
    fn ports_follow_the_members_port_unless_they_are_named() {
        assert_eq!(of("", "", "").unwrap(), None);
        let all = of("0.0.0.0:5701", "", "").unwrap().unwrap();
        assert_eq!((all.enrolment.port(), all.data.port()), (5702, 5703));
        let named = of("[::1]:5701", "127.0.0.1:9", "").unwrap().unwrap();
        assert_eq!(
            (named.enrolment.to_string().as_str(), named.data.to_string().as_str()),
            ("127.0.0.1:9", "[::1]:5703")
        );
        assert_eq!(of("127.0.0.1:0", "", "").unwrap().unwrap().data.port(), 0);
        for (listen, enrolment, data) in [("5701", "", ""), ("", "0.0.0.0:1", ""), ("0.0.0.0:65534", "", "")] {
            assert!(of(listen, enrolment, data).is_err(), "{listen:?} {enrolment:?} {data:?}");
        }
    }
}
