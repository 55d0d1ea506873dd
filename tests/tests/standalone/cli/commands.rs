//! Lists, snapshots, addresses and images, each by its command.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::Cli;
use super::scripted::Gateway;
use super::terminals::read_until;

#[test]
fn lists_have_all_forms_and_follow_changes() {
    let Some(cli) = Cli::with_sandbox("listed") else {
        return;
    };
    let mut watch = cli.command(&["list", "--watch", "-o", "json"]);
    let mut watch = watch.stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(watch.stdout.take().unwrap()).lines();
    let mut statuses = lines.map(|line| {
        let line: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(line["session_id"], "listed", "{line}");
        line["status"].as_str().unwrap().to_owned()
    });
    assert_eq!(statuses.next().as_deref(), Some("running"));

    let wide = cli.succeeds(&["list", "-o", "wide"]);
    assert!(
        wide.contains("RESTARTS") && wide.contains("http://"),
        "{wide}"
    );
    let yaml = cli.succeeds(&["list", "-o", "yaml"]);
    let yaml: Value = serde_yaml::from_str(&yaml).unwrap();
    assert_eq!(
        (&yaml["total"], &yaml["runtimes"][0]["status"]),
        (&1.into(), &"running".into())
    );
    let described = cli.succeeds(&["describe", "listed"]);
    for stage in [
        "Memory:",
        "created",
        "Pod scheduled",
        "container started",
        "ready",
        "now",
    ] {
        assert!(described.contains(stage), "{stage}: {described}");
    }

    let paused = cli.succeeds(&["pause", "listed"]);
    assert!(paused.starts_with("listed paused, kept "), "{paused}");
    assert!(statuses.any(|status| status == "paused"));
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "");
    let all = cli.succeeds(&["list", "--all"]);
    assert!(all.contains("listed") && all.contains("paused"), "{all}");
    cli.succeeds(&["stop", "listed"]);
    assert!(statuses.any(|status| status == "stopped"));
    watch.kill().unwrap();
    watch.wait().unwrap();
}

#[test]
fn fork_has_the_files_of_a_snapshot_or_of_a_running_sandbox() {
    let Some(cli) = Cli::with_sandbox("origin") else {
        return;
    };
    cli.succeeds(&[
        "exec",
        "origin",
        "--",
        "sh",
        "-c",
        "echo kept > /workspace/notes",
    ]);
    let id = cli.succeeds(&["snapshot", "create", "origin", "--delete-after", "1h"]);
    let id = id.trim_end();
    let list = cli.succeeds(&["snapshot", "list", "origin"]);
    assert!(list.contains(id) && list.contains("ready"), "{list}");
    assert_eq!(cli.succeeds(&["fork", id, "--name", "copy"]), "copy\n");
    let forks = cli.succeeds(&["fork", "origin", "--name", "a", "--name", "b"]);
    assert_eq!(forks, "a\nb\n");
    for fork in ["copy", "a", "b"] {
        let notes = cli.succeeds(&["exec", fork, "--", "cat", "/workspace/notes"]);
        assert_eq!(notes, "kept\n", "{fork}");
    }
    assert_eq!(
        cli.succeeds(&["snapshot", "delete", id]),
        format!("{id} deleted\n")
    );
    assert!(cli.fails(&["fork", id]).contains("no sandbox is called"));
}

#[tokio::test]
async fn open_prints_the_addresses_of_pages() {
    let gateway = Gateway::start(true).await;
    for (page, expected) in [("work-1", "work-1/"), ("vscode", "vscode/?tkn=t")] {
        let (mut pty, mut child) = gateway.run(&["open", "--print", "demo", page]);
        read_until(&mut pty, &gateway.url(expected)).await;
        assert!(child.wait().await.unwrap().success());
    }
    // Relative links of an application need the slash.
    let (mut pty, mut child) = gateway.run(&["open", "demo"]);
    read_until(&mut pty, &gateway.url("work-1/")).await;
    assert!(child.wait().await.unwrap().success());
}

#[test]
fn pages_of_plugins_have_an_address_and_missing_ones_an_explanation() {
    let Some(cli) = Cli::new() else { return };
    cli.succeeds(&[
        "run",
        "--name",
        "viewed",
        "--plugin",
        "browser:view",
        "host",
    ]);
    let work = cli.succeeds(&["open", "--print", "viewed", "work-2"]);
    assert!(
        work.starts_with("http://") && work.contains("work-2"),
        "{work}"
    );
    let view = cli.succeeds(&["open", "--print", "viewed", "browser"]);
    assert!(
        view.contains("browser") && view.contains("session_api_key="),
        "{view}"
    );
    assert!(
        cli.fails(&["open", "viewed", "vscode"])
            .contains("no VS Code")
    );
    let error = cli.fails(&["open", "viewed", "other"]);
    assert!(
        error.contains("no page other") && error.contains("browser"),
        "{error}"
    );
}

#[test]
fn pools_images_and_builds_answer_without_a_registry() {
    let Some(cli) = Cli::new() else { return };
    assert!(cli.succeeds(&["pools"]).starts_with("NAME "));
    let pools: Value = serde_json::from_str(&cli.succeeds(&["pools", "-o", "json"])).unwrap();
    assert!(pools["pools"].is_array(), "{pools}");
    let context = tempfile::tempdir().unwrap();
    std::fs::write(context.path().join("Dockerfile"), "FROM scratch\n").unwrap();
    let context = context.path().to_str().unwrap();
    for (args, code, expected) in [
        (&["images", "prefix"][..], 0, "ghcr.io/openhands\n"),
        // Every image is the machine's own programs here.
        (
            &["images", "exists", "registry.invalid/app:1"],
            0,
            "exists\n",
        ),
        (
            &["builds", "create", context, "app:1"],
            125,
            "is not in the repository",
        ),
        (
            &["builds", "create", context, "ghcr.io/openhands/runtime:app"],
            1,
            "FAILURE: the Dockerfile is not",
        ),
        (&["builds", "status", "none"], 125, "there is no build none"),
        (&["builds", "logs", "none"], 125, "there is no build none"),
    ] {
        let output = cli.run(args);
        let text = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
        assert_eq!(output.status.code(), Some(code), "{args:?}: {text:?}");
        assert!(text.concat().contains(expected), "{args:?}: {text:?}");
    }
}
