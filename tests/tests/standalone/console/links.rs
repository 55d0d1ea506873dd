//! Links of the page of a sandbox. In every form of URLs they lead to the programs in it, and the pages
//! that they open get no way back to the console.

use serde_json::{Value, json};
use tests::binaries::is_root_or_skips;
use tests::page::Page;
use tests::plugin_session::IMAGE;
use tests::session::Session;

use super::log_in;
use crate::fixture::{Fixture, fixture_with, start_body};
use crate::plugins;

/// Served on the first port for applications.
const NOTE: &str = "words of the application";

#[tokio::test]
async fn links_to_browser_and_applications_open_apart_from_the_console() {
    for form in ["nested", "path", "loopback"] {
        let Some(fixture) = fixture_with(&["--url-form", form]) else {
            return;
        };
        let page = Page::open().await;
        log_in(&page, fixture.api(), fixture.key()).await;
        browser_and_application(&fixture, &page).await;
    }
}

/// In the form `loopback` its address is that of `path`.
#[tokio::test]
async fn link_to_vscode_opens_apart_from_the_console() {
    if !is_root_or_skips() {
        return;
    }
    let images = tempfile::tempdir().unwrap();
    let Some(image) = plugins::image(images.path()) else {
        return;
    };
    for form in ["nested", "path"] {
        let fixture = fixture_with(&["--url-form", form, &image]).unwrap();
        let page = Page::open().await;
        log_in(&page, fixture.api(), fixture.key()).await;
        vscode(&fixture, &page).await;
    }
}

async fn browser_and_application(fixture: &Fixture, page: &Page) {
    let options = ["--enable-browser", "--plugins", "browser:view"];
    let session = sandbox(fixture, "pages", "debian:12", &options).await;
    session.run("mkdir site").await;
    session.write("/workspace/site/note.txt", NOTE).await;
    let serve = "python3 -m http.server 12000 --directory site > /dev/null 2>&1 &";
    session.run(serve).await;

    page.click("pages").await;
    page.until_text("Browser ↗").await;
    assert_open_apart(page, 3).await;
    let view = follow(page, "Browser", "Watching").await;
    view.until("document.title.endsWith(' - browser of the sandbox')")
        .await;
    // The key has become a cookie.
    assert_eq!(
        view.run("location.href.includes('session_api_key')").await,
        false
    );

    let application = follow(page, "Port 12000", "note.txt").await;
    // A relative link of the application.
    application.click("note.txt").await;
    application.until_text(NOTE).await;
    page.assert_clean(&[fixture.api()]).await;
}

async fn vscode(fixture: &Fixture, page: &Page) {
    let options = ["--plugins", "vscode"];
    sandbox(fixture, "editor", IMAGE, &options).await;
    page.click("editor").await;
    page.until_text("VS Code ↗").await;
    assert_open_apart(page, 3).await;
    // The stand-in shows this if the token is right.
    follow(page, "VS Code", "\"directory\": \"/workspace\"").await;
    page.assert_clean(&[fixture.api()]).await;
}

async fn sandbox(fixture: &Fixture, session: &str, image: &str, options: &[&str]) -> Session {
    let mut body = start_body(session);
    body["image"] = image.into();
    let command = body["command"].as_array_mut().unwrap();
    command.extend(options.iter().copied().map(Value::from));
    Session::start(fixture.api(), fixture.key(), &body).await
}

/// Asserts that there are this many links, each for a tab of its own.
async fn assert_open_apart(page: &Page, count: usize) {
    let links = "[...document.querySelectorAll('.links a')].map(link => [link.target, link.rel])";
    let apart = json!(["_blank", "noopener noreferrer"]);
    assert_eq!(page.run(links).await, Value::from(vec![apart; count]));
}

/// Clicks a link, and waits until its tab shows this text.
async fn follow(page: &Page, link: &str, text: &str) -> Page {
    let tab = page.click_into_tab(link).await;
    tab.reload_until_text(text).await;
    let origin = tab.run("[window.opener, document.referrer]").await;
    assert_eq!(origin, json!([null, ""]), "{link}");
    tab
}
