//! Files of a cell, as its server tells them: to a user, of clients that the user may see; to a client, its own.

use std::time::Duration;

use capstan_client::files::{FileVersions, FilesAnswer, FindFiles, ListFiles};
use capstan_client::{ClientError, MemberState, ServerQuestions};
use capstan_keys::api::PeerKind;
use capstan_server::cell::users::words::{FileVersionsOf, FindFilesOf, ListFilesOf};
use serde::Serialize;

use crate::failure::{Failure, of_member};
use crate::globals::Globals;
use crate::secrets::{now_ns, state_dir, user_state};

/// How often a further part is asked for, and how long apart.
const FURTHER_TRIES: u32 = 5;
const TRIES_APART: Duration = Duration::from_secs(5);

/// Whose files are asked about.
pub(crate) enum FilesOf {
    /// Those of one client, or of all that the user may see.
    Seen { server: ServerQuestions, of: Option<String> },
    /// Those of the client that asks.
    Own(ServerQuestions),
}

impl FilesOf {
    /// Those that a user may see, if the state directory is that of a user.
    pub(super) fn user(cli: &Globals, of: Option<&str>) -> Result<Option<Self>, Failure> {
        let Some(state) = user_state(cli)? else { return Ok(None) };
        crate::rustix_sigpipe::ignore_of_network();
        let server = ServerQuestions::of_user(&state, now_ns()).map_err(of_member)?;
        Ok(Some(Self::Seen { server, of: of.map(str::to_owned) }))
    }

    /// Those of the client whose state directory this is.
    pub(crate) fn own(cli: &Globals) -> Result<Self, Failure> {
        let state = MemberState::new(&state_dir(cli)?, PeerKind::Client);
        crate::rustix_sigpipe::ignore_of_network();
        Ok(Self::Own(ServerQuestions::of_client(&state, now_ns()).map_err(of_member)?))
    }

    /// Whether they are those of this machine.
    pub(super) fn is_own(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    /// Whether rows may be of several clients.
    pub(super) fn are_of_several(&self) -> bool {
        matches!(self, Self::Seen { of: None, .. })
    }

    pub(super) fn find(&self, asked: &FindFiles) -> Result<FilesAnswer, Failure> {
        self.ask("find", asked, asked.after.is_some(), |of| FindFilesOf { of, find: asked.clone() })
    }

    pub(super) fn list(&self, asked: &ListFiles) -> Result<FilesAnswer, Failure> {
        self.ask("list", asked, asked.after.is_some(), |of| ListFilesOf { of, list: asked.clone() })
    }

    pub(super) fn versions(&self, asked: &FileVersions) -> Result<FilesAnswer, Failure> {
        self.ask("versions", asked, asked.after.is_some(), |of| FileVersionsOf { of, versions: asked.clone() })
    }

    /// Asks for one part of an answer; for a further one several times, if the server is busy or away for moments.
    fn ask<Q: Serialize>(
        &self,
        what: &str,
        own: &impl Serialize,
        is_further: bool,
        seen: impl Fn(Option<String>) -> Q,
    ) -> Result<FilesAnswer, Failure> {
        let mut tries = if is_further { FURTHER_TRIES } else { 1 };
        loop {
            let answer = match self {
                Self::Own(server) => server.look(&format!("/v1/own/files/{what}"), own),
                Self::Seen { server, of } => server.look(&format!("/v1/files/{what}"), &seen(of.clone())),
            };
            tries -= 1;
            match answer {
                Err(ClientError::Away { .. }) if tries > 0 => std::thread::sleep(TRIES_APART),
                answer => return answer.map_err(of_member),
            }
        }
    }
}
