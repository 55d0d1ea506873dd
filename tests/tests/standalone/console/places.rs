//! Snapshots, pools and usage, each with something to show.

use serde_json::json;
use tests::cli_tools::manifest;
use tests::page::Page;
use tests::session::Session;

use super::{log_in, open_place};
use crate::fixture::{fixture, start_body};

/// Text of the table row, or of the card, with this word.
fn text_of(selector: &str, word: &str) -> String {
    format!(
        "[...document.querySelectorAll('{selector}')].map(it => it.innerText.replace(/\\s+/g, ' '))\
         .find(text => text.includes({}))",
        json!(word)
    )
}

#[tokio::test]
async fn snapshots_pools_and_usage_are_shown_with_what_they_offer() {
    let Some(fixture) = fixture() else { return };
    let session = Session::start(fixture.api(), fixture.key(), &start_body("origin")).await;
    session.write("/workspace/notes", "kept").await;
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("origin").await;
    let make =
        "[...document.querySelectorAll('.actions button')].find(it => it.innerText === 'Snapshot')";
    page.until(&format!("!!{make}")).await;
    page.run(&format!("{make}.click()")).await;
    page.until_text("has begun.").await;
    open_place(&page, "Snapshots").await;
    let row = text_of("tbody tr", "of origin");
    page.until(&format!("{row}?.includes('ready')")).await;
    page.click("Start from it").await;
    page.focus("#fork-session").await;
    page.type_text("copy").await;
    page.press("Enter", "\r").await;
    page.until_text("Server up").await;
    page.click("Files").await;
    page.until_text("notes").await;
    open_place(&page, "Snapshots").await;
    page.click("Delete").await;
    page.run("document.querySelector('dialog button.danger').click()")
        .await;
    page.until_text("No snapshots").await;

    let template = json!({"image": "host", "command": ["sleep", "infinity"]});
    let pool = json!({"replicas": 1, "claimedBy": "Matching", "template": template});
    let file = fixture.state.path().join("pool.json");
    std::fs::write(&file, manifest("SandboxPool", "quick", &pool).to_string()).unwrap();
    fixture.kubectl(&format!("apply -f {}", file.display()));
    open_place(&page, "Pools").await;
    let row = text_of("tbody tr", "quick");
    page.until(&format!("{row}?.includes('host sleep infinity cluster')"))
        .await;

    open_place(&page, "Usage").await;
    for (amount, value) in [
        ("Sandboxes with compute", "2 no limit"),
        ("Sandboxes, paused ones included", "2 of 10000"),
    ] {
        let card = text_of(".usage .card", amount);
        page.until(&format!("{card}?.includes({})", json!(value)))
            .await;
    }
    page.assert_clean(&[fixture.api()]).await;
}
