//! Copies a directory into a sandbox that exists and back, by the transfers of its server:
//!
//! ```sh
//! cargo run -p client --example copy_tree SESSION DIRECTORY COPY
//! ```

use std::path::Path;

use client::{Client, Settings};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [name, from, to] = &arguments[..] else {
        anyhow::bail!("usage: copy_tree SESSION DIRECTORY COPY");
    };
    let client = Client::new(Settings::from_env()?)?;
    let info = client
        .session(name)
        .await?
        .ok_or_else(|| anyhow::anyhow!("no sandbox of {name}"))?;
    let sandbox = client.sandbox(info);
    sandbox
        .upload(Path::new(from), "/workspace", "copied", |bytes| {
            eprintln!("{bytes} bytes sent");
        })
        .await?;
    sandbox
        .download("/workspace/copied", Path::new(to), &|bytes| {
            eprintln!("{bytes} bytes received");
        })
        .await?;
    Ok(())
}
