//! Terminals of the console.

use serde_json::json;
use tests::page::Page;

use super::{HOSTILE, assert_unharmed, log_in};
use crate::fixture::fixture;

const INPUT: &str = ".xterm-helper-textarea";
const SCREEN: &str = "document.querySelector('.xterm-rows').innerText";
/// Keeps the connections that the page opens, so that a test can break them.
const KEEP_SOCKETS: &str = "(() => { window.sockets = []; const Original = WebSocket; \
    window.WebSocket = class extends Original { \
        constructor(...given) { super(...given); sockets.push(this); } }; })()";

pub(super) async fn wait_for_prompt(page: &Page) {
    page.focus(INPUT).await;
    page.until(&format!("{SCREEN}.trim() !== ''")).await;
}

pub(super) async fn enter(page: &Page, line: &str) {
    page.focus(INPUT).await;
    page.type_text(line).await;
    page.press("Enter", "\r").await;
}

pub(super) fn shows(text: &str) -> String {
    format!("{SCREEN}.includes({})", json!(text))
}

#[tokio::test]
async fn terminal_goes_on_while_the_page_is_away() {
    let Some(fixture) = fixture() else { return };
    let session = fixture.run("with-a-terminal").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("with-a-terminal").await;
    page.click("Terminal").await;
    wait_for_prompt(&page).await;
    let enter = async |line: &str| enter(&page, line).await;
    enter("echo $((40 + 2))-ran; export KEPT=kept").await;
    page.until(&shows("42-ran")).await;
    enter(&format!(
        "printf '%s\\n' '{HOSTILE}'; printf '\\033[38;2;9;9;200mcolored\\033[m\\n'"
    ))
    .await;
    page.until(&shows("colored")).await;
    // The size of the page is that of the terminal.
    enter("stty size").await;
    page.resize(700, 900).await;
    enter("clear; stty size | tr ' ' x").await;
    page.until("/^\\d+x\\d\\d$/m.test(document.querySelector('.xterm-rows').innerText)")
        .await;

    page.reload().await;
    page.focus(".xterm-helper-textarea").await;
    enter("echo $KEPT-$((1 + 1))").await;
    page.until(&shows("kept-2")).await;
    assert_unharmed(&page).await;

    page.click("Agent's shell").await;
    session.run("echo from-the-agent").await;
    page.until(&shows("from-the-agent")).await;
    page.assert_clean(&[fixture.api(), &fixture.api().replacen("http", "ws", 1)])
        .await;
}

/// Largest number of a line of the flood that the screen shows.
const FLOODED: &str = "Math.max(0, ...[...document.querySelector('.xterm-rows').innerText\
    .matchAll(/flood-(\\d+)/g)].map(found => Number(found[1])))";

#[tokio::test]
async fn terminal_and_page_stay_usable_while_a_program_floods_it() {
    let Some(fixture) = fixture() else { return };
    let session = fixture.run("flooded").await;
    session.write("/workspace/beside.txt", "x").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("flooded").await;
    page.click("Terminal").await;
    wait_for_prompt(&page).await;
    // Faster than any page can show. The number counts the lines that arrived or were skipped.
    enter(&page, "seq -f flood-%.0f inf").await;
    page.until(&format!("{FLOODED} > 100000")).await;
    let before = page.run(FLOODED).await;
    page.click("Files").await;
    page.until_text("beside.txt").await;
    // The program goes on, and so does its terminal.
    page.click("Terminal").await;
    page.focus(INPUT).await;
    page.until(&format!("{FLOODED} > {before}")).await;
    page.press_control("c").await;
    enter(&page, "echo $((40 + 2))-typed").await;
    page.until(&shows("42-typed")).await;
    assert!(page.run(FLOODED).await.as_u64() > before.as_u64());
    assert_unharmed(&page).await;
    page.assert_clean(&[fixture.api(), &fixture.api().replacen("http", "ws", 1)])
        .await;
}

#[tokio::test]
async fn terminal_misses_nothing_when_its_connection_breaks() {
    let Some(fixture) = fixture() else { return };
    let session = fixture.run("cut").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.run(KEEP_SOCKETS).await;
    page.click("cut").await;
    page.click("Terminal").await;
    wait_for_prompt(&page).await;
    // Half of it is written while the page is away.
    enter(
        &page,
        "clear; for i in 1 2 3; do echo part-$i; done; until [ -e cut ]; do sleep 0.01; done; \
         for i in 4 5 6; do echo part-$i; done; touch said",
    )
    .await;
    page.until(&shows("part-1\npart-2\npart-3")).await;
    page.run("sockets.forEach(socket => socket.close())").await;
    session
        .run("touch /workspace/cut; until [ -e /workspace/said ]; do sleep 0.01; done")
        .await;
    page.until(&shows("part-1\npart-2\npart-3\npart-4\npart-5\npart-6"))
        .await;
    enter(&page, "echo $((40 + 2))-typed").await;
    page.until(&shows("42-typed")).await;
    assert_ne!(page.run("sockets.length").await, 1);
}
