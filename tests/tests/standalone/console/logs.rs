//! The output of a sandbox, and the list of builds.

use serde_json::json;
use tests::page::Page;

use super::{HOSTILE, assert_unharmed, log_in};
use crate::fixture::fixture;

const TEXT: &str = "document.querySelector('.log-lines').innerText";

#[tokio::test]
async fn output_of_a_sandbox_is_followed_and_bounded() {
    let Some(fixture) = fixture() else { return };
    // More lines than the page keeps.
    let script =
        "i=0; while :; do for n in $(seq 100); do echo line-$((i+=1)); done; sleep 0.05; done";
    let start = json!({"session_id": "talks", "image": "host", "command": ["sh", "-c", script]});
    let (code, info) = fixture.post("start", &start).await;
    assert_eq!(code, 201, "{info}");
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("talks").await;
    page.until_text("Overview").await;
    page.press("l", "l").await;
    let count = "document.querySelectorAll('.log-lines > div').length";
    page.until(&format!("{count} === 5000")).await;
    let last = page.run(&format!("{TEXT}.trim().split('\\n').pop()")).await;
    page.until(&format!("!{TEXT}.includes({last})")).await;
    assert_eq!(page.run(count).await, 5000);
    let at_end = "(list => list.scrollHeight - list.scrollTop - list.clientHeight < 40)\
                  (document.querySelector('.log-lines'))";
    page.until(at_end).await;
    page.click("Pause").await;
    page.until_text("The sandbox is paused.").await;
    assert_eq!(page.run(count).await, 5000, "its lines stay");

    page.click("Builds").await;
    page.until_text("No builds").await;
    page.assert_clean(&[fixture.api()]).await;
}

#[tokio::test]
async fn output_is_text_without_control_characters() {
    let Some(fixture) = fixture() else { return };
    let script = format!("echo '{HOSTILE}'; printf '\\033[31mred\\033[m\\007\\n'; exec sleep 1000");
    let start = json!({"session_id": "hostile", "image": "host", "command": ["sh", "-c", script]});
    assert_eq!(fixture.post("start", &start).await.0, 201);
    let page = Page::open().await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("hostile").await;
    page.click("Logs").await;
    let hostile = json!(HOSTILE);
    page.until(&format!(
        "{TEXT}.includes({hostile}) && {TEXT}.includes('red\u{2407}')"
    ))
    .await;
    page.resize(390, 800).await;
    page.until("document.documentElement.scrollWidth <= innerWidth")
        .await;
    assert_unharmed(&page).await;
    page.assert_clean(&[fixture.api()]).await;
}
