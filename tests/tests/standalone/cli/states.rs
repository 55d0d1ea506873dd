//! Names, lists and changes of state.

use serde_json::Value;

use super::Cli;

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn sandboxes_are_listed_found_by_prefix_and_change_their_state() {
    let Some(cli) = Cli::with_sandbox("demo-one") else {
        return;
    };
    cli.succeeds(&["run", "--name", "demo-two", "host"]);
    let list = json(&cli.succeeds(&["list", "-o", "json"]));
    assert_eq!(list["total"], 2);
    assert_eq!(list["runtimes"][0]["session_id"], "demo-one");
    assert!(!list.to_string().contains("session_api_key"), "{list}");
    assert_eq!(
        cli.succeeds(&["list", "-o", "name"]),
        "demo-one\ndemo-two\n"
    );
    let table = cli.succeeds(&["list"]);
    assert!(table.starts_with("NAME "), "{table}");

    let id = list["runtimes"][0]["runtime_id"].as_str().unwrap();
    for name in ["demo-o", &id[..8], id] {
        let shown = json(&cli.succeeds(&["describe", name, "-o", "json"]));
        assert_eq!(shown["session_id"], "demo-one");
    }
    let error = cli.fails(&["describe", "demo"]);
    assert!(
        error.contains("demo-one (") && error.contains("demo-two ("),
        "{error}"
    );
    assert!(
        cli.fails(&["stop", "demo-one", "nothing-like-it"])
            .contains("nothing-like-it")
    );
    let text = cli.succeeds(&["describe", "demo-one"]);
    assert!(
        text.contains("created") && text.contains("server started"),
        "{text}"
    );
    assert!(
        cli.fails(&["run", "--name", "demo-one", "host"])
            .contains("is in use")
    );

    let paused = cli.succeeds(&["pause", "demo-one"]);
    assert!(paused.starts_with("demo-one paused, kept "), "{paused}");
    assert_eq!(cli.succeeds(&["list", "-o", "name"]), "demo-two\n");
    assert_eq!(cli.succeeds(&["resume", "demo-one"]), "demo-one running\n");
    let top = json(&cli.succeeds(&["top", "-o", "json"]));
    assert!(top["sandboxes"][1]["server"]["uptime"].is_number(), "{top}");
    assert!(cli.succeeds(&["open", "demo-one"]).contains("port 12000"));
    assert_eq!(
        cli.succeeds(&["stop", "demo-one", "demo-t"]),
        "demo-one stopped\ndemo-two stopped\n"
    );
    assert_eq!(json(&cli.succeeds(&["list", "-o", "json"]))["total"], 0);
}

#[test]
fn failures_of_the_tool_have_their_own_exit_code() {
    let Some(cli) = Cli::new() else {
        return;
    };
    assert!(
        cli.fails(&["no-such-command"])
            .contains("unrecognized subcommand")
    );
    assert!(
        cli.fails(&["exec", "nothing", "--", "true"])
            .contains("no sandbox is called nothing")
    );
    assert!(
        cli.fails(&["--api-url", "http://127.0.0.1:1", "pools"])
            .contains("cannot reach")
    );
    let mut keyless = cli.command(&["list"]);
    let output = keyless.env_remove("SANDBOX_API_KEY").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let mut wrong = cli.command(&["list"]);
    let output = wrong.env("SANDBOX_API_KEY", "another").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("does not accept the API key"), "{error}");
}

#[test]
fn output_that_is_closed_ends_the_tool_quietly() {
    let Some(cli) = Cli::new() else {
        return;
    };
    let mut command = cli.command(&["completion", "bash"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = command
        .stdout(writer)
        .stderr(std::process::Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty(), "{output:?}");
}
