//! Programs in a sandbox with a terminal or with pipes: `/terminals` of its server.

pub(crate) mod channel;
mod connection;
pub(crate) mod session;

use std::collections::BTreeMap;
use std::time::Duration;

use http::{Method, StatusCode};
use jiff::Timestamp;
use reqwest::Response;
use serde::{Deserialize, Serialize};

use crate::api::{Repeat, encode};
use crate::http_client;
use crate::{Error, Sandbox};

const CALL_TIMEOUT: Duration = Duration::from_secs(30);
/// Path segment of the terminals, and id of the view of the agent's shell.
const TERMINALS: &str = "terminals";
pub(crate) const AGENT: &str = "agent";

/// Program to start. Fields that are not set are not sent; without a command: the login shell.
#[derive(Debug, Clone, Serialize)]
pub struct NewTerminal {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// A terminal, or pipes with input, output and error output apart.
    pub tty: bool,
    pub columns: u16,
    pub rows: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
}

/// A program and its state.
#[derive(Debug, Clone, Deserialize, Serialize)]
pub struct Terminal {
    pub id: String,
    pub command: Vec<String>,
    pub tty: bool,
    pub columns: u16,
    pub rows: u16,
    #[serde(default)]
    pub viewers: u32,
    pub state: TerminalState,
    #[serde(default)]
    pub exit_code: Option<i32>,
    /// Name of the signal that ended it, such as `KILL`.
    #[serde(default)]
    pub signal: Option<String>,
    #[serde(default)]
    pub created_at: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TerminalState {
    Running,
    Exited,
}

#[derive(Debug, Deserialize)]
struct List {
    terminals: Vec<Terminal>,
}

impl Default for NewTerminal {
    /// The shell of the user in a terminal of the usual size.
    fn default() -> Self {
        Self {
            command: Vec::new(),
            tty: true,
            columns: 80,
            rows: 24,
            working_directory: None,
            environment: BTreeMap::new(),
        }
    }
}

impl NewTerminal {
    /// A command with pipes.
    pub fn piped(command: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            command: command.into_iter().map(Into::into).collect(),
            tty: false,
            ..Self::default()
        }
    }
}

impl Sandbox {
    /// Starts a program.
    pub async fn open_terminal(&self, terminal: &NewTerminal) -> Result<Terminal, Error> {
        let body = encode(terminal)?;
        let response = self
            .call(Repeat::Unsent, Method::POST, &[TERMINALS], Some(&body))
            .await;
        http_client::json(response.map_err(unsupported)?).await
    }

    pub async fn terminals(&self) -> Result<Vec<Terminal>, Error> {
        let response = self
            .call(Repeat::Temporary, Method::GET, &[TERMINALS], None)
            .await;
        let list: List = http_client::json(response.map_err(unsupported)?).await?;
        Ok(list.terminals)
    }

    pub async fn terminal(&self, id: &str) -> Result<Terminal, Error> {
        let response = self
            .call(Repeat::Temporary, Method::GET, &[TERMINALS, id], None)
            .await;
        http_client::json(response.map_err(|error| gone(error, id))?).await
    }

    /// Ends a program, if it still runs, and forgets it.
    pub async fn close_terminal(&self, id: &str) -> Result<(), Error> {
        let closed = self
            .call(Repeat::Temporary, Method::DELETE, &[TERMINALS, id], None)
            .await;
        match closed.map_err(|error| gone(error, id)) {
            Ok(_) | Err(Error::NotFound(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn call(
        &self,
        repeat: Repeat,
        method: Method,
        path: &[&str],
        body: Option<&[u8]>,
    ) -> Result<Response, Error> {
        let request = || {
            let request = self
                .request(method.clone(), path, &[])?
                .timeout(CALL_TIMEOUT);
            Ok(match body {
                Some(body) => {
                    let request = request.header(http::header::CONTENT_TYPE, "application/json");
                    request.body(body.to_vec())
                }
                None => request,
            })
        };
        self.send(repeat, request).await
    }
}

fn unsupported(error: Error) -> Error {
    match error {
        Error::Rejected {
            status: StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED,
            ..
        } => Error::Unsupported("the server in this sandbox has no terminals".into()),
        Error::Rejected {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            detail,
            ..
        } => Error::NotStarted(detail),
        error => error,
    }
}

fn gone(error: Error, id: &str) -> Error {
    match error {
        Error::Rejected {
            status: StatusCode::NOT_FOUND,
            ..
        } => Error::NotFound(format!("terminal {id}")),
        error => error,
    }
}
