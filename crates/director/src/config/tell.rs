//! Whom the server tells what, by rule: `[tell.NAME]` and `[mail]`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::job::parse_age;

/// Rules at most: each has a sender of its own for each of its ways.
pub(super) const TELL_RULES_MAX: usize = 32;
/// Receivers of mail that a rule has at most.
const RECEIVERS_MAX: usize = 32;

/// What the server tells people about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TellEvent {
    /// A run failed for the last time.
    Failed,
    /// A run was never begun.
    Missed,
    /// A source has no backup, or none that is young enough.
    Overdue,
    /// The mover that has the drives is away.
    MoverAway,
    /// A drive reports something.
    Drive,
    /// A volume is suspect, lacks its key, was not verified, or is waited for.
    Volume,
    /// No volume is left that a pool could take.
    Scratch,
    /// Runs wait for a client.
    ClientAway,
    /// Anything else that `status` calls to attention, or that keeps the server from its work.
    Trouble,
    /// The last run of a policy that went through had problems: a file could not be read, say.
    Problems,
}

impl TellEvent {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Failed,
        Self::Missed,
        Self::Overdue,
        Self::MoverAway,
        Self::Drive,
        Self::Volume,
        Self::Scratch,
        Self::ClientAway,
        Self::Trouble,
        Self::Problems,
    ];

    /// Its name, as the settings have it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Missed => "missed",
            Self::Overdue => "overdue",
            Self::MoverAway => "mover-away",
            Self::Drive => "drive",
            Self::Volume => "volume",
            Self::Scratch => "scratch",
            Self::ClientAway => "client-away",
            Self::Trouble => "trouble",
            Self::Problems => "problems",
        }
    }
}

/// A rule: which events are told, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TellRule {
    /// The events; none for all.
    pub events: Vec<TellEvent>,
    /// Policies, for events that are about one; none for all.
    pub policies: Vec<String>,
    /// How long until the same thing is told again, as in `24h`; `never`.
    pub again: String,
    /// Who gets mail.
    pub mail: Vec<String>,
    /// Where JSON is posted to; empty for nowhere.
    pub webhook: String,
    /// What is run, with JSON on its standard input: program and arguments; none for nothing.
    pub command: Vec<String>,
}

impl Default for TellRule {
    fn default() -> Self {
        Self {
            events: Vec::new(),
            policies: Vec::new(),
            again: "24h".to_owned(),
            mail: Vec::new(),
            webhook: String::new(),
            command: Vec::new(),
        }
    }
}

impl TellRule {
    /// How long until the same thing is told again, in nanoseconds; `None` for never.
    #[must_use]
    pub fn again_ns(&self) -> Option<i64> {
        parse_age(&self.again).ok()
    }

    /// Whether an event that is about a policy, or about none (an empty text), is told by this rule.
    #[must_use]
    pub fn wants(&self, event: TellEvent, policy: &str) -> bool {
        let is_event = self.events.is_empty() || self.events.contains(&event);
        is_event && (policy.is_empty() || self.policies.is_empty() || self.policies.iter().any(|one| one == policy))
    }

    /// What is wrong with it, and with which setting.
    pub(super) fn check(&self, mail: Option<&MailConfig>) -> Result<(), (Option<&'static str>, String)> {
        let wrong = |key, reason: String| Err((Some(key), reason));
        if self.again != "never" && parse_age(&self.again).map_or(true, |ns| ns < 60_000_000_000) {
            return wrong(
                "again",
                format!("{:?} is no duration of a minute or more, as in \"24h\", and not \"never\"", self.again),
            );
        }
        if !self.mail.is_empty() && mail.is_none() {
            return wrong("mail", "there is no [mail] that says how mail is sent".to_owned());
        }
        if self.mail.len() > RECEIVERS_MAX {
            return wrong("mail", format!("at most {RECEIVERS_MAX} addresses: use a list of your mail server"));
        }
        if let Some(address) = self.mail.iter().find(|address| !is_mail_address(address)) {
            return wrong("mail", format!("{address:?} is no mail address, as in \"ops@example.org\""));
        }
        let is_url = ["https://", "http://"].iter().any(|scheme| {
            let rest = self.webhook.strip_prefix(scheme);
            rest.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/') && !rest.contains(char::is_whitespace))
        });
        if !self.webhook.is_empty() && !is_url {
            return wrong("webhook", format!("{:?} is no URL that begins with https:// or http://", self.webhook));
        }
        match self.command.first() {
            Some(program) if !program.starts_with('/') => {
                return wrong("command", format!("{program:?} is not absolute: the first word is the program's path"));
            }
            None if self.mail.is_empty() && self.webhook.is_empty() => {
                return Err((None, "it tells nobody: set mail, webhook or command".to_owned()));
            }
            _ => {}
        }
        Ok(())
    }
}

/// How the connection to the mail server is protected.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MailSecurity {
    /// TLS from the first byte.
    Tls,
    /// TLS before anything is said; a server that does not offer it gets no mail.
    #[default]
    #[serde(rename = "starttls")]
    StartTls,
    /// None.
    None,
}

/// How mail is sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MailConfig {
    /// The mail server: host and port.
    pub server: String,
    /// How the connection is protected.
    pub security: MailSecurity,
    /// Who the mail is from.
    pub from: String,
    /// The name at the mail server; empty for none.
    pub user: String,
    /// The file that has the password; empty for none.
    pub password_file: PathBuf,
}

impl MailConfig {
    /// Host and port of the server, if it names both.
    #[must_use]
    pub fn host_and_port(&self) -> Option<(&str, u16)> {
        let (host, port) = self.server.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port != 0)?;
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        (!host.is_empty() && !host.contains(char::is_whitespace)).then_some((host, port))
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let Some((host, _)) = self.host_and_port() else {
            return Err(format!("mail.server: {:?} is no host and port, as in \"smtp.example.org:587\"", self.server));
        };
        if !is_mail_address(&self.from) {
            return Err(format!("mail.from: {:?} is no mail address, as in \"capstan@example.org\"", self.from));
        }
        if self.user.is_empty() != self.password_file.as_os_str().is_empty() {
            return Err("mail.user and mail.password_file go together: set both or none".to_owned());
        }
        if !self.password_file.as_os_str().is_empty() && !self.password_file.is_absolute() {
            return Err(format!("mail.password_file: {} is not absolute", self.password_file.display()));
        }
        let is_here =
            host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
        if self.security == MailSecurity::None && !self.user.is_empty() && !is_here {
            return Err("mail.security is \"none\", which would send the password in the clear to another machine: \
                        set \"starttls\" or \"tls\", or no user"
                .to_owned());
        }
        Ok(())
    }
}

/// Whether a text has the shape of an address; what it means, the mail server knows.
fn is_mail_address(text: &str) -> bool {
    let parts = text.rsplit_once('@');
    let is_clean = |part: &str| {
        !part.is_empty() && !part.contains(|c: char| c.is_whitespace() || c.is_control() || "<>,;\"@".contains(c))
    };
    parts.is_some_and(|(user, host)| is_clean(user) && is_clean(host))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests fail by panicking")]
    use super::super::Config;
    use super::*;

    const MAIL: &str = "[mail]\nserver = \"smtp.example.org:587\"\nfrom = \"capstan@example.org\"\n";

    fn read(text: &str) -> Result<Config, String> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("capstan.toml");
        std::fs::write(&path, text).unwrap();
        Config::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn rules_are_read_and_written_back() {
        let rule = "[tell.oncall]\nevents = [\"failed\", \"client-away\"]\npolicies = [\"web\"]\nagain = \"never\"\n\
                    mail = [\"ops@example.org\"]\nwebhook = \"https://hooks.example.org/capstan\"\n\
                    command = [\"/usr/local/bin/page\", \"--from\", \"capstan\"]\n";
        let config = read(&format!("{MAIL}{rule}")).unwrap();
        let oncall = &config.tell["oncall"];
        assert!(oncall.wants(TellEvent::Failed, "web") && oncall.wants(TellEvent::ClientAway, ""));
        assert!(!oncall.wants(TellEvent::Failed, "db") && !oncall.wants(TellEvent::Volume, ""));
        assert_eq!(oncall.again_ns(), None);
        assert_eq!(TellRule::default().again_ns(), Some(86_400_000_000_000));
        let mail = config.mail.as_ref().unwrap();
        assert_eq!((mail.host_and_port(), mail.security), (Some(("smtp.example.org", 587)), MailSecurity::StartTls));
        assert_eq!(read(&config.to_text()).unwrap(), config);
        for event in TellEvent::ALL {
            assert_eq!(toml::Value::try_from(event).unwrap().as_str(), Some(event.name()));
        }
    }

    #[test]
    fn what_is_wrong_with_a_rule_is_named() {
        let rule = |text: &str| format!("{MAIL}[tell.a]\n{text}\n");
        let own = |text: &str| format!("[tell.a]\ncommand = [\"/bin/true\"]\n[mail]\nfrom = \"a@b\"\n{text}\n");
        for (text, said) in [
            (rule("events = [\"fialed\"]"), &["line 5", "unknown variant `fialed`", "`failed`", "`client-away`"][..]),
            (rule("evnets = []"), &["line 5", "unknown field `evnets`"]),
            (rule("events = []"), &["line 4: tell.a", "it tells nobody"]),
            (rule("again = \"often\"\nmail = [\"a@b\"]"), &["line 5: tell.a.again", "\"never\""]),
            (rule("again = \"5s\"\nmail = [\"a@b\"]"), &["line 5: tell.a.again", "a minute or more"]),
            (rule("mail = [\"ops\"]"), &["line 5: tell.a.mail", "no mail address"]),
            (rule("mail = [\"a@b\\nBcc: c@d\"]"), &["line 5: tell.a.mail", "no mail address"]),
            (rule("webhook = \"ftp://x\""), &["line 5: tell.a.webhook", "https://"]),
            (rule("command = [\"page\"]"), &["line 5: tell.a.command", "not absolute"]),
            ("[tell.a]\nmail = [\"a@b\"]\n".to_owned(), &["line 2: tell.a.mail", "no [mail]"]),
            ("[tell.\"a b\"]\ncommand = [\"/bin/true\"]\n".to_owned(), &["line 1: tell.a b", "letters, digits"]),
            (own("server = \"smtp.example.org\""), &["mail.server", "host and port"]),
            (own("server = \"x:25\"\nuser = \"a\""), &["mail.user and mail.password_file"]),
            (own("server = \"x:25\"\nuser = \"a\"\npassword_file = \"p\""), &["mail.password_file", "not absolute"]),
            (
                own("server = \"x:25\"\nsecurity = \"none\"\nuser = \"a\"\npassword_file = \"/p\""),
                &["mail.security", "in the clear"],
            ),
            (own("server = \"x:25\"\nsecurity = \"ssl\""), &["unknown variant `ssl`", "`starttls`"]),
            ("[mail]\nserver = \"x:25\"\n".to_owned(), &["mail.from"]),
        ] {
            let error = read(&text).unwrap_err();
            for said in said {
                assert!(error.contains(said), "{said:?} is not in {error:?} of\n{text}");
            }
        }
    }
}
