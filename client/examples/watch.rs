//! Prints every change of the sandboxes of a key until it is interrupted.

use client::{Client, Event, Settings};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let client = Client::new(Settings::from_env()?)?;
    let mut events = client.events(None).await?;
    loop {
        match events.next().await? {
            Event::Runtime(event) => {
                let info = event.info;
                println!("{} {}", info.session_id, info.explanation());
            }
            Event::Deleted(gone) => println!("{} is gone", gone.session_id),
            Event::Build(build) => println!("build {}: {}", build.build_id, build.build.status),
            Event::Synced | Event::Resumed => println!("up to date"),
            Event::Reopened => println!("connected again"),
        }
    }
}
