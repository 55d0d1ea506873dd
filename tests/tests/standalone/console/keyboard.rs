//! The console without a pointer, by the keys of `docs/console.md`.

use serde_json::json;
use tests::page::Page;

use super::{log_in, read, terminal};
use crate::fixture::fixture;

/// More than a page has before what a test looks for.
const MAX_TABS: usize = 60;
const FOCUSED: &str = "document.activeElement";

/// Presses Tab until this is true of the page.
async fn tab_until(page: &Page, condition: &str) {
    for _ in 0..MAX_TABS {
        if page.run(condition).await == true {
            return;
        }
        page.press("Tab", "").await;
    }
    panic!("Tab does not lead to {condition}");
}

/// Presses Tab until a control with this text has the focus, and then Enter.
async fn enter(page: &Page, text: &str) {
    let text = json!(text);
    tab_until(page, &format!("{FOCUSED}.innerText?.trim() === {text}")).await;
    page.press("Enter", "\r").await;
}

async fn head_is(page: &Page, text: &str) {
    let text = json!(text);
    page.until(&format!(
        "document.querySelector('h1')?.innerText === {text}"
    ))
    .await;
}

#[tokio::test]
async fn console_is_used_by_keys_alone() {
    let Some(fixture) = fixture() else { return };
    let session = fixture.run("by-keys").await;
    session.write("/workspace/notes.txt", "hello").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;

    // The form of a start; Escape closes it and keeps the page.
    page.until_text("by-keys").await;
    page.press("n", "n").await;
    page.until(&format!("{FOCUSED}.id === 'start-image'")).await;
    page.press("Escape", "").await;
    page.until("!document.querySelector('dialog')").await;

    page.press("ArrowDown", "").await;
    page.until(&format!("{FOCUSED}.innerText === 'by-keys'"))
        .await;
    page.press("Enter", "\r").await;
    head_is(&page, "by-keys").await;

    page.press("t", "t").await;
    page.until(&format!("{FOCUSED}.className === 'xterm-helper-textarea'"))
        .await;
    page.type_text("echo $((40 + 2))-typed").await;
    page.press("Enter", "\r").await;
    page.until(&terminal::shows("42-typed")).await;
    // The program gets Tab and Escape.
    page.press_control_shift("L").await;
    page.press("f", "f").await;

    page.until("!!document.querySelector('.names')").await;
    enter(&page, "notes.txt").await;
    let editor = "document.querySelector('.code')?.shadowRoot?.querySelector('.cm-content')";
    page.until(&format!("{editor}?.textContent.includes('hello')"))
        .await;
    tab_until(&page, &format!("{FOCUSED}.className === 'code'")).await;
    page.type_text("edited ").await;
    let bar = "document.querySelector('.file-bar').innerText";
    page.until(&format!("{bar}.includes('changed')")).await;
    page.press_control("s").await;
    page.until(&format!("!{bar}.includes('changed')")).await;
    let text = read(&session, "/workspace/notes.txt").await;
    assert_eq!(text, "edited hello\n");
    // The first leaves the editor, the second the page.
    page.press("Escape", "").await;
    page.until(&format!("{FOCUSED} === document.body")).await;
    page.press("Escape", "").await;
    head_is(&page, "Sandboxes").await;

    page.press("ArrowDown", "").await;
    page.press("Enter", "\r").await;
    head_is(&page, "by-keys").await;
    enter(&page, "Stop").await;
    page.until("!!document.querySelector('dialog[open]')").await;
    enter(&page, "Stop and delete files").await;
    page.until_text("stopped").await;
    page.assert_clean(&[fixture.api(), &fixture.api().replacen("http", "ws", 1)])
        .await;
}
