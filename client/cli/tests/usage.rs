//! The program without a gateway.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};

const PROGRAM: &str = env!("CARGO_BIN_EXE_sandbox");

fn run(program: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(program);
    command.args(args);
    command
        .env_remove("SANDBOX_API_URL")
        .env_remove("SANDBOX_API_KEY")
        .env("KUBECONFIG", "/nonexistent");
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn missing_settings_and_wrong_arguments_are_failures_of_the_tool() {
    let program = Path::new(PROGRAM);
    let output = run(program, &["list"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(
        text(&output.stderr).contains("SANDBOX_API_URL"),
        "{output:?}"
    );
    let output = run(program, &["keys", "list", "--kubeconfig", "/none"]);
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).contains("/none"), "{output:?}");
    for args in [&["lsit"][..], &["exec"], &["stop"]] {
        let output = run(program, args);
        assert_eq!(output.status.code(), Some(125), "{output:?}");
        assert!(text(&output.stderr).contains("Usage: "), "{output:?}");
    }
}

#[test]
fn completions_name_the_commands_and_the_plugin_has_its_own_name() {
    let folder = tempfile::tempdir().unwrap();
    let plugin = folder.path().join("kubectl-sandbox");
    symlink(PROGRAM, &plugin).unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let output = run(Path::new(PROGRAM), &["completion", shell]);
        assert!(output.status.success() && text(&output.stdout).contains("describe"));
    }
    let help = text(&run(&plugin, &["--help"]).stdout);
    assert!(help.contains("Usage: kubectl sandbox "), "{help}");
}

/// Calls the script as kubectl does: with the words after `kubectl sandbox`, the last one
/// unfinished.
#[test]
fn kubectl_completes_the_words_of_the_plugin() {
    let folder = tempfile::tempdir().unwrap();
    symlink(PROGRAM, folder.path().join("kubectl-sandbox")).unwrap();
    let path = std::env::var("PATH").unwrap();
    let path = format!("{}:{path}", folder.path().display());
    let complete = |words: &[&str]| {
        let mut script = Command::new(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/kubectl_complete-sandbox"
        ));
        let output = script.args(words).env("PATH", &path).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        text(&output.stdout)
    };
    assert_eq!(complete(&["desc"]), "describe\n");
    assert_eq!(complete(&["snapshot", "cre"]), "create\n");
    assert_eq!(complete(&["list", "-o", "js"]), "json\n");
}

/// Loads the script and asks for what follows `sandbox de`, in each shell that this machine has.
#[test]
fn completion_scripts_load_in_their_shells() {
    const BASH: &str = r#"bash -n "$1" && source "$1" && COMP_WORDS=(sandbox de) COMP_CWORD=1
        _sandbox sandbox de sandbox && echo "${COMPREPLY[@]}""#;
    const ZSH: &str = r#"zsh -n "$1" && autoload -U compinit && compinit -u && source "$1" && echo $_comps[sandbox]"#;
    const FISH: &str =
        r#"fish --no-execute $argv[1]; and source $argv[1]; and complete -C "sandbox de""#;
    for (shell, script, expected) in [
        ("bash", BASH, "describe"),
        ("zsh", ZSH, "_sandbox"),
        ("fish", FISH, "describe"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("completion");
        let completion = run(Path::new(PROGRAM), &["completion", shell]);
        std::fs::write(&path, completion.stdout).unwrap();
        let mut command = Command::new(shell);
        let command = command.args(["-c", script]);
        if shell != "fish" {
            command.arg(shell);
        }
        match command.arg(&path).env("HOME", folder.path()).output() {
            Ok(output) => assert!(
                text(&output.stdout).contains(expected),
                "{shell}: {output:?}"
            ),
            Err(_) => eprintln!("SKIPPED, needs {shell}: its completion script"),
        }
    }
}
