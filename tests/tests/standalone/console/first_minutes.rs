//! The first minutes of a newcomer: `make run`, and what its output says.
//!
//! `SCREENSHOTS=DIR` writes a picture of each step of the console to an existing folder.

use std::path::PathBuf;

use tests::binaries::is_root_or_skips;
use tests::make_run::{make_run, press_ctrl_c};
use tests::page::Page;

use super::open_place;

/// The page, and where pictures of it go.
struct Recording {
    page: Page,
    folder: Option<PathBuf>,
    taken: u32,
}

impl Recording {
    async fn start() -> Self {
        let page = Page::open().await;
        page.resize(1280, 800).await;
        Self {
            page,
            folder: std::env::var_os("SCREENSHOTS").map(PathBuf::from),
            taken: 0,
        }
    }

    /// Takes a picture once the page shows this text.
    async fn shows(&mut self, text: &str, name: &str) {
        self.page.until_text(text).await;
        self.taken += 1;
        if let Some(folder) = &self.folder {
            let file = folder.join(format!("{:02}-{name}.png", self.taken));
            std::fs::write(file, self.page.screenshot().await).unwrap();
        }
    }

    /// Takes pictures in both schemes, and in a window of a phone.
    async fn shows_in_all_looks(&mut self, text: &str, name: &str) {
        self.shows(text, name).await;
        self.page.prefer_scheme("dark").await;
        self.shows(text, &format!("{name}-dark")).await;
        self.page.prefer_scheme("light").await;
        self.page.resize(390, 844).await;
        self.shows(text, &format!("{name}-phone")).await;
        self.page.resize(1280, 800).await;
    }

    async fn enter(&self, selector: &str, text: &str) {
        self.page.focus(selector).await;
        self.page.type_text(text).await;
        self.page.press("Enter", "\r").await;
    }
}

#[tokio::test]
async fn newcomer_uses_the_console() {
    if !is_root_or_skips() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let standalone = make_run(&folder.path().join("state"));
    let mut seen = Recording::start().await;
    seen.page.goto(standalone.printed("Console")).await;
    seen.shows("API key", "login").await;
    seen.enter("#api-key", standalone.printed("API key")).await;
    seen.shows("No sandboxes yet", "empty-list").await;

    seen.page.click("Start a sandbox").await;
    seen.page.focus("#start-image").await;
    seen.page.type_text("host").await;
    seen.shows("Image", "start").await;
    seen.page.press("Enter", "\r").await;
    seen.shows("Server up", "sandbox").await;

    seen.page.click("Terminal").await;
    seen.page.focus(".xterm-helper-textarea").await;
    let screen = "document.querySelector('.xterm-rows').innerText";
    seen.page.until(&format!("{screen}.trim() !== ''")).await;
    seen.enter(".xterm-helper-textarea", "echo hello > notes.txt; ls")
        .await;
    seen.page
        .until(&format!("{screen}.split('notes.txt').length > 2"))
        .await;
    seen.shows("Terminal", "terminal").await;
    seen.page.click("Files").await;
    seen.shows("notes.txt", "files").await;
    seen.page.click("notes.txt").await;
    let editor = "document.querySelector('.code')?.shadowRoot.querySelector('.cm-content')";
    seen.page
        .until(&format!("{editor}?.textContent.includes('hello')"))
        .await;
    seen.shows("notes.txt", "file").await;

    seen.page.click("Pause").await;
    seen.shows("paused", "paused").await;
    seen.page.click("Resume").await;
    let names = "document.querySelector('.names')?.innerText";
    seen.page
        .until(&format!("{names}.includes('notes.txt')"))
        .await;
    seen.page
        .until(&format!("{editor}?.textContent.includes('hello')"))
        .await;
    seen.shows("running", "resumed").await;
    seen.page.click("Overview").await;
    seen.shows_in_all_looks("Server up", "overview").await;
    seen.page.click("Logs").await;
    seen.page.until("!!document.querySelector('.log')").await;
    seen.shows("Times", "logs").await;
    for name in ["Snapshots", "Pools", "Builds", "Usage"] {
        open_place(&seen.page, name).await;
        seen.shows(name, &name.to_lowercase()).await;
    }
    open_place(&seen.page, "Sandboxes").await;
    seen.shows_in_all_looks("running", "list").await;
    seen.page.click("console-").await;
    seen.page.click("Files").await;
    seen.shows("notes.txt", "files-again").await;
    seen.page.click("Stop").await;
    seen.shows("Stop and delete files", "stop").await;
    seen.page.click("Stop and delete files").await;
    seen.shows("stopped", "stopped").await;
    let origin = standalone.printed("Runtime API");
    let sockets = origin.replacen("http", "ws", 1);
    seen.page.assert_clean(&[origin, &sockets]).await;
    press_ctrl_c(standalone);
}
