//! `/mcp` as its users have it: the official SDK calls every tool, in both eras of the protocol,
//! and cancels calls. Another key reads nothing, and a wrong one gets 401.

use std::process::Command;

use tests::binaries::{binary, root};
use tests::cli_tools::until;
use tests::plugin_session::IMAGE;

use crate::fixture::fixture_with;
use crate::plugins;

/// The machine's own programs, with its browser.
const HOST_IMAGE: &str = "debian:12";

/// Python with the SDK. If it cannot be installed, prints SKIPPED.
fn sdk_or_skip() -> Option<String> {
    let script = root().join("hack/mcp-client/install");
    let output = Command::new(script).output().unwrap();
    if output.status.code() == Some(3) {
        let reason = String::from_utf8_lossy(&output.stderr);
        eprintln!("SKIPPED, needs the MCP client: {reason}");
        return None;
    }
    assert!(output.status.success(), "{output:?}");
    Some(String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn official_client_calls_every_tool() {
    let images = tempfile::tempdir().unwrap();
    let Some(python) = sdk_or_skip() else { return };
    let Some(image) = plugins::image(images.path()) else {
        return;
    };
    let Some(fixture) = fixture_with(&["--url-form", "path", &image]) else {
        return;
    };
    let sandbox = binary("sandbox");
    let sandbox = sandbox.to_str().unwrap();
    let create = ["keys", "create", "other", "--operator-namespace", "default"];
    let other = fixture.standalone.run(sandbox, &create);
    until("the gateway knows the other key", || {
        let mut list = fixture.standalone.command(sandbox);
        let list = list.arg("list").env("SANDBOX_API_KEY", other.trim());
        list.output().unwrap().status.success()
    });
    let script = root().join("tests/src/clients/call_mcp_tools.py");
    for (mode, version) in [("auto", "2026-07-28"), ("legacy", "2025-11-25")] {
        let mut client = fixture.standalone.command(&python);
        client.arg(&script).arg(mode);
        client.args([&fixture.url("/mcp"), HOST_IMAGE, IMAGE]);
        client.env("OTHER_API_KEY", other.trim());
        let done = client.env("SANDBOX_API_KEY", fixture.key()).output();
        let done = done.unwrap();
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{mode}: {errors}");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(said.starts_with(version), "{mode}: {said}");
    }
}
