//! Image builds of any Dockerfile through the runtime API.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use client::{BuildStatus, Client, Event};
use testing::image_build::context;

use crate::session::client;

/// A tenant of a gateway.
#[derive(Debug)]
pub struct Builder(Client);

impl Builder {
    pub fn new(api: &str, key: &str) -> Self {
        Self(client(api, key))
    }

    /// Begins a build with a few files of code; the id.
    pub async fn submit(&self, dockerfile: &str, target: &str) -> String {
        let archive = BASE64_STANDARD.decode(context(dockerfile, 1));
        let build = self.0.build(&archive.expect("base64"), target, &[]).await;
        build.expect("an accepted build")
    }

    /// Waits for the end of a build.
    pub async fn end(&self, id: &str) -> BuildStatus {
        self.0.wait_build(id, &mut |_| ()).await.expect("an end")
    }

    /// Waits until events tell a step that ends so.
    pub async fn wait_step(&self, id: &str, end: &str) {
        let mut events = self.0.events(None).await.expect("events");
        loop {
            if let Event::Build(told) = events.next().await.expect("an event")
                && told.build_id == id
            {
                let is_open = ["QUEUED", "WORKING"].contains(&told.build.status.as_str());
                assert!(is_open, "the build has ended: {:?}", told.build);
                if told.build.step.is_some_and(|step| step.ends_with(end)) {
                    return;
                }
            }
        }
    }

    /// The whole log, to its end.
    pub async fn log(&self, id: &str) -> String {
        let mut log = self.0.build_logs(id).await.expect("a log");
        let mut lines = Vec::new();
        while let Some(line) = log.next_line().await.expect("a line or the end") {
            lines.push(line);
        }
        lines.join("\n")
    }
}
