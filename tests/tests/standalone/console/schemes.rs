//! The light and the dark scheme: every text has the contrast that WCAG 2 wants at level AA.

use serde_json::json;
use tests::page::Page;

use super::list::{KEY, ListFixture};
use super::recovery::Cable;
use super::{log_in, open_place};
use crate::fixture::fixture;

const CONTRAST: &str = include_str!("contrast.js");
const SCHEMES: [&str; 2] = ["light", "dark"];

/// Asserts that a place is readable, also in a window of a phone, which it fits.
async fn assert_readable(page: &Page, scheme: &str, place: &str) {
    assert_contrast(page, scheme, place).await;
    page.resize(390, 844).await;
    let fits = "innerWidth === 390 && \
        [document.documentElement, ...document.querySelectorAll('dialog[open]')].every( \
        one => one.scrollWidth <= 390 && one.getBoundingClientRect().right <= 390)";
    page.until(fits).await;
    assert_contrast(page, scheme, place).await;
    page.resize(1280, 800).await;
    page.until("innerWidth === 1280").await;
}

/// Asserts that the page has texts, that all of them are readable, and that it is light or dark.
async fn assert_contrast(page: &Page, scheme: &str, place: &str) {
    let found = page.run(CONTRAST).await;
    assert_eq!(found["low"], json!([]), "{place}, {scheme}");
    assert!(found["checked"].as_u64() > Some(2), "{place}: {found}");
    let (luminance, is_dark) = (found["page"].as_f64().unwrap(), scheme == "dark");
    assert!(
        if is_dark {
            luminance < 0.05
        } else {
            luminance > 0.9
        },
        "{place}, {scheme}: {luminance}"
    );
}

/// A text with too little contrast is found, as is one in a shadow root.
async fn assert_finds_pale_text(page: &Page) {
    let add = "(() => { const box = document.createElement('div'); box.id = 'pale'; \
        const inner = document.createElement('p'); inner.textContent = 'pale inside'; \
        box.attachShadow({mode: 'open'}).append(inner); \
        const outer = document.createElement('p'); outer.textContent = 'pale outside'; \
        for (const one of [inner, outer]) { one.style.color = '#777'; one.style.background = '#888'; } \
        document.body.append(box, outer); outer.id = 'pale-too'; })()";
    page.run(add).await;
    let found = page.run(CONTRAST).await;
    let low = found["low"].as_array().unwrap();
    assert_eq!(low.len(), 2, "{found}");
    page.run("document.querySelectorAll('#pale, #pale-too').forEach(one => one.remove())")
        .await;
}

#[tokio::test]
async fn text_of_all_pages_is_readable_in_both_schemes() {
    let fixture = ListFixture::new().await;
    let running = json!({
        "phase": "Running", "podIP": "10.0.0.9", "startedAt": "2026-01-01T00:00:00Z",
        "readyAt": "2026-01-01T00:00:10Z", "restarts": {"count": 2, "reasons": ["OOMKilled"]},
    });
    for (session, status) in [
        (
            "one-starts",
            json!({"phase": "Starting", "reason": "CreatingPod"}),
        ),
        ("one-runs", running),
        (
            "one-failed",
            json!({"phase": "Failed", "message": "no space left"}),
        ),
        (
            "one-rests",
            json!({"phase": "Paused", "pauseReason": "Idle", "pausedAt": "2026-01-01T00:00:00Z"}),
        ),
        ("one-ended", json!({"phase": "Stopped"})),
    ] {
        fixture.deliver(session, &status);
    }
    let page = Page::open().await;
    page.resize(1280, 800).await;
    let cable = Cable::to(&fixture).await;
    page.goto(&format!("{}/console/", cable.base)).await;
    page.until_text("API key").await;
    assert_finds_pale_text(&page).await;
    for scheme in SCHEMES {
        page.prefer_scheme(scheme).await;
        login(&page, &cable, scheme).await;
        list(&page, scheme).await;
        details(&page, scheme).await;
        cable.cut();
        page.until_text("The list is not current").await;
        assert_readable(&page, scheme, "list that is not current").await;
        cable.lead_to(&fixture);
        page.until("document.querySelector('.connection').innerText === 'live'")
            .await;
        page.click("Log out").await;
    }
    page.assert_clean(&[&cable.base]).await;
}

async fn login(page: &Page, cable: &Cable, scheme: &str) {
    page.until_text("API key").await;
    page.focus("#api-key").await;
    page.type_text("no-such-key").await;
    page.press("Enter", "\r").await;
    page.until_text("The gateway does not know this API key.")
        .await;
    assert_readable(page, scheme, "login").await;
    log_in(page, &cable.base, KEY).await;
}

async fn list(page: &Page, scheme: &str) {
    page.until_text("one-runs").await;
    assert_readable(page, scheme, "list").await;
    for session in ["one-runs", "one-starts", "one-failed"] {
        page.hover(&format!(".list a[title={session}]")).await;
        assert_readable(page, scheme, "list below the pointer").await;
    }
    page.click("stopped").await;
    page.until_text("one-ended").await;
    assert_readable(page, scheme, "stopped").await;
    page.click("current").await;
    page.click("Start a sandbox").await;
    page.until("!!document.querySelector('dialog[open] #start-image')")
        .await;
    assert_readable(page, scheme, "start").await;
    page.press("Escape", "").await;
    page.until("!document.querySelector('dialog[open]')").await;
    for name in ["Snapshots", "Pools", "Builds", "Usage"] {
        open_place(page, name).await;
        assert_readable(page, scheme, name).await;
    }
    page.click("Sandboxes").await;
}

async fn details(page: &Page, scheme: &str) {
    for (session, text) in [
        ("one-failed", "The start has failed"),
        ("one-rests", "Resume"),
        ("one-starts", "Pause"),
    ] {
        page.click(session).await;
        page.until_text(text).await;
        assert_readable(page, scheme, session).await;
        page.click("Stop").await;
        page.until_text("Stop and delete files").await;
        assert_readable(page, scheme, "confirmation").await;
        page.press("Escape", "").await;
        page.until("!document.querySelector('dialog[open]')").await;
        page.click("Terminal").await;
        page.until_text("The sandbox is").await;
        assert_readable(page, scheme, "no terminal").await;
        page.click("Sandboxes").await;
        page.until_text(session).await;
    }
}

#[tokio::test]
async fn tools_of_a_sandbox_are_readable_in_both_schemes() {
    let Some(fixture) = fixture() else { return };
    let session = fixture.run("colors").await;
    let code = "# A comment\nclass Name:\n    def method(self, value=1.5):\n        return f'{value}' or None\n";
    session.write("/workspace/code.py", code).await;
    session.run("mkdir /workspace/folder").await;
    let page = Page::open().await;
    page.resize(1280, 800).await;
    log_in(&page, fixture.api(), fixture.key()).await;
    page.click("colors").await;
    for scheme in SCHEMES {
        page.prefer_scheme(scheme).await;
        page.until_text("Server up").await;
        assert_readable(&page, scheme, "overview").await;
        page.click("Terminal").await;
        page.until("!!document.querySelector('.xterm-rows')?.innerText.trim()")
            .await;
        assert_readable(&page, scheme, "terminal").await;
        page.click("Files").await;
        page.until_text("folder").await;
        page.click("code.py").await;
        let editor = "document.querySelector('.code')?.shadowRoot.querySelector('.cm-content')";
        page.until(&format!("{editor}?.textContent.includes('method')"))
            .await;
        assert_readable(&page, scheme, "editor").await;
        page.click("Logs").await;
        page.until("!!document.querySelector('.log-lines')").await;
        assert_readable(&page, scheme, "logs").await;
        page.click("Overview").await;
    }
    let origin = fixture.api();
    let sockets = origin.replacen("http", "ws", 1);
    page.assert_clean(&[origin, &sockets]).await;
}
