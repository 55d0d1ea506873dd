//! Starts a sandbox, uses it and stops it. Reads `SANDBOX_API_URL` and `SANDBOX_API_KEY`:
//!
//! ```sh
//! . .state/env && cargo run -p client --example first_session host
//! ```

use client::{Client, Edit, Sandbox, Settings, StartRequest};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let image = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "debian:12".into());
    let client = Client::new(Settings::from_env()?)?;
    let request = StartRequest::new(image, "first-session");
    let sandbox = client
        .start_and_wait(&request, &mut |step| {
            eprintln!(
                "{} {}",
                step.status,
                step.message.as_deref().unwrap_or_default()
            );
        })
        .await?;
    let used = use_sandbox(&sandbox).await;
    client.stop(&sandbox.info().runtime_id).await?;
    used
}

async fn use_sandbox(sandbox: &Sandbox) -> anyhow::Result<()> {
    let run = sandbox.run("mkdir -p demo && cd demo && pwd").await?;
    println!("{} (exit code {:?})", run.content, run.exit_code());
    sandbox
        .write("/workspace/demo/notes.txt", "first\nsecond\n")
        .await?;
    let edit = Edit::Replace {
        old: "second".into(),
        new: "third".into(),
    };
    println!(
        "{}",
        sandbox.edit("/workspace/demo/notes.txt", &edit).await?
    );
    println!("{:?}", sandbox.list_files("/workspace/demo").await?);
    println!("{}", sandbox.read("/workspace/demo/notes.txt").await?);
    Ok(())
}
