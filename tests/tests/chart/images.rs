//! Images without a container builder: the same bytes each time, one file for one user, and as the
//! Dockerfile has it.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use tests::cli_tools::{file, text};

#[test]
fn images_contain_only_their_program() {
    let folder = tempfile::tempdir().unwrap();
    let dockerfile = text("Dockerfile");
    for kind in ["operator", "executor"] {
        let (one, other) = (
            folder.path().join("one.tar"),
            folder.path().join("other.tar"),
        );
        make(kind, &one);
        make(kind, &other);
        assert!(std::fs::read(&one).unwrap() == std::fs::read(&other).unwrap());

        let config: Value = serde_json::from_str(&tar(&one, &["-xOf", "config.json"])).unwrap();
        let program = format!("/sandbox-{kind}");
        assert_eq!(config["config"]["User"], "65532:65532");
        assert_eq!(config["config"]["Entrypoint"], serde_json::json!([program]));
        let labels = config["config"]["Labels"].as_object().unwrap();
        assert_eq!(labels.len(), 4);
        for (name, value) in labels {
            let line = format!("{name}={value}");
            assert!(dockerfile.contains(&line), "Dockerfile lacks {line}");
        }
        assert!(dockerfile.contains(&format!("ENTRYPOINT [\"{program}\"]")));
        tar(
            &one,
            &["-xf", "-C", folder.path().to_str().unwrap(), "layer.tar"],
        );
        let layer = tar(&folder.path().join("layer.tar"), &["-tvf"]);
        let files = layer.lines().collect::<Vec<_>>();
        assert_eq!(files.len(), 2, "the root and the program");
        assert!(files[1].starts_with("-rwxr-xr-x 0/0") && files[1].ends_with(&program[1..]));
    }
}

/// Any program will do.
fn make(kind: &str, out: &Path) {
    let made = Command::new(file("hack/image"))
        .arg(kind)
        .arg("/bin/sh")
        .arg(out)
        .status();
    assert!(made.unwrap().success());
}

fn tar(archive: &Path, args: &[&str]) -> String {
    let [what, rest @ ..] = args else {
        return String::new();
    };
    let output = Command::new("tar")
        .arg(what)
        .arg(archive)
        .args(rest)
        .output();
    let output = output.unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap()
}
