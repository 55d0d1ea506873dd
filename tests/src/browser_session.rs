//! A session with a browser, the same wherever its sandbox runs: actions of the agent, and Playwright
//! outside, over the gateway.

use std::process::Output;

use serde_json::{Value, json};
use tokio::process::Command;

use crate::binaries::root;
use crate::clients::http_client::text;
use crate::clients::v0::v0_command;
use crate::plugin_session::python;
use crate::session::Session;

/// The image, see `hack/image`.
pub const IMAGE: &str = "localhost/sandbox-browser:1";
/// Plugin that lets programs outside in.
pub const PLUGIN: &str = "browser:cdp,view";

const PAGE: &str = "<title>Form</title><input><p></p><button onclick=\"document.querySelector('p')\
    .textContent = document.querySelector('input').value\">press</button>";

/// Command of a V0 client with a browser that others may drive.
pub fn command(username: &str) -> Vec<String> {
    let mut command = v0_command("", username);
    command.extend(["--enable-browser", "--plugins", PLUGIN].map(Into::into));
    command
}

/// Body of a `/start`.
pub fn start_body(session: &str) -> Value {
    json!({
        "session_id": session, "image": IMAGE, "working_dir": "/openhands/code/",
        "resource_factor": 4, "environment": {}, "command": command("openhands"),
    })
}

/// Runs Playwright against the sandbox, with this session key or without.
async fn playwright(session: &Session, key: Option<&str>) -> Output {
    let mut client = Command::new(python());
    client.arg(root().join("tests/src/clients/drive_browser.py"));
    client.arg(format!("{}/{}/browser", session.base, session.id));
    client.args(key);
    client.output().await.expect("a client")
}

/// The agent opens a page, Playwright fills its form, and the agent sees that. Without the key Playwright
/// is refused.
pub async fn agent_and_playwright_share_tabs(session: &Session) {
    let act = async |program: &str| {
        let args = json!({"browser_actions": program});
        let answer = session.act("browse_interactive", args).await;
        assert_eq!(answer["extras"]["last_browser_action_error"], "");
        answer
    };
    session.write("/workspace/page.html", PAGE).await;
    let answer = act("goto(\"file:///workspace/page.html\")").await;
    let content = text(&answer, "content");
    assert!(content.contains("button 'press'"), "{content}");

    let refused = playwright(session, None).await;
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert!(
        !refused.status.success() && errors.contains("403"),
        "{errors}"
    );
    let driven = playwright(session, Some(&session.key)).await;
    let shown = String::from_utf8_lossy(&driven.stdout);
    assert_eq!(shown, "Form from outside\n", "{driven:?}");

    let answer = act("tab_focus(0)").await;
    let pages = answer["extras"]["open_pages_urls"].as_array();
    assert_eq!(pages.map(Vec::len), Some(2), "{answer}");
    let content = text(&answer, "content");
    assert!(content.contains("StaticText 'from outside'"), "{content}");
}
