//! Runs a program in a sandbox that exists, with its input and output apart:
//!
//! ```sh
//! cargo run -p client --example program SESSION sort -r < names.txt
//! ```

use std::io::Write as _;
use std::process::ExitCode;

use client::{Client, ExitStatus, NewTerminal, Settings, TerminalEvent};
use tokio::io::AsyncReadExt as _;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let mut words = std::env::args().skip(1);
    let name = words
        .next()
        .ok_or_else(|| anyhow::anyhow!("usage: program SESSION COMMAND…"))?;
    let client = Client::new(Settings::from_env()?)?;
    let info = client
        .session(&name)
        .await?
        .ok_or_else(|| anyhow::anyhow!("no sandbox of {name}"))?;
    let mut session = client
        .sandbox(info)
        .exec(&NewTerminal::piped(words))
        .await?;
    let input = session.input();
    tokio::spawn(async move {
        let (mut stdin, mut buffer) = (tokio::io::stdin(), vec![0; 32 << 10]);
        while let Ok(read @ 1..) = stdin.read(&mut buffer).await {
            input.write(&buffer[..read]).await?;
        }
        input.end().await
    });
    while let Some(event) = session.next().await? {
        match event {
            TerminalEvent::Output(data) => std::io::stdout().write_all(&data)?,
            TerminalEvent::ErrorOutput(data) => std::io::stderr().write_all(&data)?,
            TerminalEvent::Exit(ExitStatus::Code(code)) => {
                return Ok(ExitCode::from(u8::try_from(code)?));
            }
            TerminalEvent::Exit(ExitStatus::Signal(name)) => {
                anyhow::bail!("ended by the signal {name}")
            }
            _ => {}
        }
    }
    anyhow::bail!("the program ended without a status")
}
