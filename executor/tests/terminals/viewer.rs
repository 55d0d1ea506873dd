//! Client of a terminal: blocking, one message at a time.

use std::net::{SocketAddr, TcpStream};

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Error as SocketError;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::client::client;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::{HeaderName, HeaderValue};
use tokio_tungstenite::tungstenite::{Bytes, HandshakeError, Message, WebSocket};

use crate::client::{SESSION_KEY, TestProcess};

pub(crate) struct Viewer {
    socket: WebSocket<TcpStream>,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Received {
    Output(Vec<u8>),
    Error(Vec<u8>),
    Status(Value),
    /// Code and reason; absent if the connection broke.
    Closed(Option<(u16, String)>),
}

/// All that a viewer got.
#[derive(Debug, Default)]
pub(crate) struct Session {
    pub(crate) output: Vec<u8>,
    pub(crate) error: Vec<u8>,
    pub(crate) statuses: Vec<Value>,
    pub(crate) closed: Option<(u16, String)>,
}

impl Session {
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    pub(crate) fn exit(&self) -> &Value {
        let mut exits = self.statuses.iter().filter_map(|status| status.get("exit"));
        exits.next().unwrap_or(&Value::Null)
    }

    fn add(&mut self, received: Received) {
        match received {
            Received::Output(bytes) => self.output.extend(bytes),
            Received::Error(bytes) => self.error.extend(bytes),
            Received::Status(status) => self.statuses.push(status),
            Received::Closed(closed) => self.closed = closed,
        }
    }
}

impl Viewer {
    pub(crate) fn new(server: &TestProcess, path: &str) -> Self {
        Self::of_address(server.address, path)
    }

    pub(crate) fn of_address(address: SocketAddr, path: &str) -> Self {
        let opened = Self::open(address, path, &[SESSION_KEY]);
        opened.unwrap_or_else(|status| panic!("{path} is answered with {status}"))
    }

    /// Returns the status of a rejection.
    pub(crate) fn open(
        address: SocketAddr,
        path: &str,
        headers: &[(&str, &str)],
    ) -> Result<Self, u16> {
        let (request, stream) = opening(address, path, headers);
        match client(request, stream) {
            Ok((socket, _)) => Ok(Self { socket }),
            Err(HandshakeError::Failure(SocketError::Http(response))) => {
                Err(response.status().as_u16())
            }
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn send(&mut self, message: &[u8]) {
        let message = Message::Binary(Bytes::copy_from_slice(message));
        self.socket.send(message).unwrap();
    }

    pub(crate) fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub(crate) fn type_in(&mut self, text: &str) {
        self.send(&[b"\0", text.as_bytes()].concat());
    }

    pub(crate) fn resize(&mut self, width: u16, height: u16) {
        let size = json!({"Width": width, "Height": height}).to_string();
        self.send(&[b"\x04", size.as_bytes()].concat());
    }

    pub(crate) fn end_input(&mut self) {
        self.send(b"\xff\0");
    }

    pub(crate) fn receive(&mut self) -> Received {
        loop {
            let message = match self.socket.read() {
                Ok(Message::Binary(message)) => message,
                Ok(Message::Close(frame)) => {
                    let frame = frame.map(|frame| (frame.code.into(), frame.reason.to_string()));
                    // Sends the answer, for which the server waits.
                    let _ = self.socket.flush();
                    return Received::Closed(frame);
                }
                Ok(_) => continue,
                Err(_) => return Received::Closed(None),
            };
            let (channel, content) = message.split_first().unwrap();
            return match channel {
                1 => Received::Output(content.to_vec()),
                2 => Received::Error(content.to_vec()),
                3 => Received::Status(serde_json::from_slice(content).unwrap()),
                other => panic!("channel {other}"),
            };
        }
    }

    /// Reads until the text is in the output.
    pub(crate) fn until(&mut self, text: &str) -> Session {
        let mut session = Session::default();
        while !session.text().contains(text) {
            let received = self.receive();
            let is_closed = matches!(received, Received::Closed(_));
            session.add(received);
            assert!(!is_closed, "{text:?} is missing: {}", session.text());
        }
        session
    }

    /// Reads to the end of the connection.
    pub(crate) fn rest(&mut self) -> Session {
        let mut session = Session::default();
        loop {
            let received = self.receive();
            let is_closed = matches!(received, Received::Closed(_));
            session.add(received);
            if is_closed {
                return session;
            }
        }
    }

    /// Next status, which must come before any output.
    pub(crate) fn status(&mut self) -> Value {
        match self.receive() {
            Received::Status(status) => status,
            other => panic!("no status: {other:?}"),
        }
    }
}

fn opening(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> (Request, TcpStream) {
    let mut request = format!("ws://x{path}").into_client_request().unwrap();
    for (name, value) in headers {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        let value = HeaderValue::from_str(value).unwrap();
        request.headers_mut().insert(name, value);
    }
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    (request, stream)
}

/// Starts a terminal and returns its path.
pub(crate) fn create(server: &TestProcess, body: &Value) -> String {
    let response = server.keyed("POST /terminals", &body.to_string());
    assert_eq!(response.status, 201, "{}", response.body);
    let id = response.json()["id"].as_str().unwrap().to_owned();
    format!("/terminals/{id}")
}

/// Starts a terminal and connects to it. Returns its path as well.
pub(crate) fn open(server: &TestProcess, body: &Value) -> (String, Viewer) {
    let path = create(server, body);
    let viewer = Viewer::new(server, &format!("{path}/connect"));
    (path, viewer)
}

/// A terminal with a shell that shows no prompt.
pub(crate) fn shell() -> Value {
    json!({"command": ["sh"], "environment": {"PS1": "", "ENV": ""}})
}

pub(crate) fn info(server: &TestProcess, path: &str) -> Value {
    let response = server.keyed(&format!("GET {path}"), "");
    assert_eq!(response.status, 200, "{}", response.body);
    response.json()
}
