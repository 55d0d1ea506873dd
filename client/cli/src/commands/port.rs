//! `sandbox port`: TCP ports of this machine that lead to ports in a sandbox.
//!
//! The gateway reaches named ports only, and by HTTP. A connection here is a program in the sandbox
//! instead, whose input and output it becomes.

use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use client::{Client, NewTerminal, Sandbox, Session, SessionInput, TerminalEvent};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::console::Signals;
use crate::failure::Failure;
use crate::names;
use crate::output::note;

/// Connections at once. A sandbox runs 32 programs.
const MAX_CONNECTIONS: usize = 24;
const CHUNK_BYTES: usize = 32 << 10;
/// A client that has closed its side gets the rest of a response for so long without a byte.
const CLOSED_TIMEOUT: Duration = Duration::from_secs(30);
/// Connects its input and output to a port, and ends when the server in the sandbox closes.
const RELAY: &str = r#"exec 3<>"/dev/tcp/127.0.0.1/$1" || exit 1
cat >&3 <&0 & writer=$!
cat <&3
kill "$writer" 2>/dev/null; exit 0"#;

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Session id, runtime id or a unique prefix
    name: String,
    /// Port in the sandbox, and port of this machine if that is another one
    #[arg(required = true, value_name = "PORT[:LOCAL]")]
    ports: Vec<Mapping>,
    /// Address of this machine to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mapping {
    remote: u16,
    local: u16,
}

impl FromStr for Mapping {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (remote, local) = text.split_once(':').unwrap_or((text, text));
        let port = |text: &str| {
            text.parse::<u16>()
                .map_err(|_| format!("{text:?} is not a port"))
        };
        let (remote, local) = (port(remote)?, port(local)?);
        match remote {
            0 => Err("port 0 is not a port in a sandbox".into()),
            _ => Ok(Self { remote, local }),
        }
    }
}

pub(crate) async fn run(client: &Client, args: &Args) -> Result<(), Failure> {
    let sandbox = names::sandbox(client, &args.name).await?;
    let mut listeners = Vec::new();
    for mapping in &args.ports {
        let taken = |error| Failure::Local(format!("{}:{}: {error}", args.address, mapping.local));
        let listener = TcpListener::bind((args.address, mapping.local))
            .await
            .map_err(taken)?;
        let local = listener.local_addr()?;
        // Standard error, so that the command can be part of a pipe; also without a terminal.
        note(&format!(
            "forwarding {local} to port {} of {}",
            mapping.remote, args.name
        ));
        listeners.push((listener, mapping.remote));
    }
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    for (listener, port) in listeners {
        tokio::spawn(accept(listener, port, sandbox.clone(), permits.clone()));
    }
    Err(Failure::Interrupted(Signals::new()?.ended().await))
}

async fn accept(listener: TcpListener, port: u16, sandbox: Sandbox, permits: Arc<Semaphore>) {
    loop {
        // Further clients wait in the queue of the listener.
        let Ok(permit) = permits.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                note(&format!("cannot accept a connection: {error}"));
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let sandbox = sandbox.clone();
        tokio::spawn(async move {
            if let Err(failure) = forward(stream, port, &sandbox).await {
                note(&format!("port {port}: {failure}"));
            }
            drop(permit);
        });
    }
}

async fn forward(stream: TcpStream, port: u16, sandbox: &Sandbox) -> Result<(), Failure> {
    let command = ["bash", "-c", RELAY, "relay", &port.to_string()].map(String::from);
    let mut session = sandbox.exec(&NewTerminal::piped(command)).await?;
    let (reader, writer) = stream.into_split();
    let input = tokio::spawn(send(reader, session.input()));
    let done = receive(&mut session, writer, &input).await;
    input.abort();
    let _ = session.close().await;
    done
}

async fn send(mut reader: OwnedReadHalf, input: SessionInput) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
        if input.write(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // A failure is that of the session, whose output side reports it.
    let _ = input.end().await;
}

async fn receive(
    session: &mut Session,
    mut writer: OwnedWriteHalf,
    input: &tokio::task::JoinHandle<()>,
) -> Result<(), Failure> {
    loop {
        let event = match tokio::time::timeout(CLOSED_TIMEOUT, session.next()).await {
            Ok(event) => event?,
            Err(_) if input.is_finished() => return Ok(()),
            Err(_) => continue,
        };
        match event {
            // A client that has left ends the relay.
            Some(TerminalEvent::Output(data)) => {
                if writer.write_all(&data).await.is_err() {
                    return Ok(());
                }
            }
            Some(TerminalEvent::ErrorOutput(text)) => {
                note(String::from_utf8_lossy(&text).trim_end());
            }
            Some(TerminalEvent::Exit(_)) | None => return Ok(()),
            Some(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_an_optional_local_one() {
        assert_eq!(
            "8080".parse(),
            Ok(Mapping {
                remote: 8080,
                local: 8080
            })
        );
        assert_eq!(
            "80:8080".parse(),
            Ok(Mapping {
                remote: 80,
                local: 8080
            })
        );
        for text in ["", "0", "70000", "80:", ":80", "a"] {
            assert!(text.parse::<Mapping>().is_err(), "{text}");
        }
    }
}
