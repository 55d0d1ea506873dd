//! Pushes of images from the command line, to a registry with tokens.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::json;
use tests::binaries::{binary, is_root_or_skips};
use tests::registry::{LocalRegistry, PASSWORD, USER, image_of, small_root};

const WRONG_PASSWORD: &str = "wrong-horse-battery";

/// Success and output of `sandbox-standalone`; after a failure, its errors.
fn standalone(state: &Path, args: &[&str]) -> (bool, String) {
    let mut command = Command::new(binary("sandbox-standalone"));
    let output = command.arg("--state-dir").arg(state).args(args).output();
    let output = output.unwrap();
    let is_success = output.status.success();
    let text = if is_success {
        output.stdout
    } else {
        output.stderr
    };
    (is_success, String::from_utf8(text).unwrap())
}

#[test]
fn image_is_pushed_with_credentials_that_allow_it() {
    if !is_root_or_skips() {
        return;
    }
    let (plain, private) = (LocalRegistry::start(), LocalRegistry::with_tokens());
    let state = tempfile::tempdir().unwrap();
    let layout = image_of(small_root().path(), &json!({}));
    let image = plain.push(layout.path(), "app:1");
    let config = |password: &str| {
        let path = state.path().join(password);
        let login = json!({"username": USER, "password": password});
        let auths = json!({"auths": {private.host(): login}});
        fs::write(&path, auths.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (right, wrong) = (config(PASSWORD), config(WRONG_PASSWORD));
    let hosts = format!("{},{}", plain.host(), private.host());
    let target = format!("{}/team/copy:2", private.host());
    let images = |args: &[&str]| {
        let flags = ["--insecure-registries", &hosts];
        standalone(state.path(), &[&flags, args].concat())
    };
    assert!(images(&["images", "pull", &image]).0);
    let push = ["images", "push", &image, "--to", &target];
    let push_with = |config| images(&[&["--registry-config", config], &push[..]].concat());

    let (_, refusal) = push_with(&wrong);
    assert!(
        refusal.contains("access denied: incorrect user or password"),
        "{refusal}"
    );
    assert!(!refusal.contains(WRONG_PASSWORD), "{refusal}");
    let (_, refusal) = images(&push);
    assert!(
        refusal.contains("access denied: authentication required"),
        "{refusal}"
    );
    let (is_pushed, pushed) = push_with(&right);
    assert!(is_pushed, "{pushed}");
    assert_eq!(push_with(&right), (true, pushed.clone()));
    let (is_pulled, found) = images(&["--registry-config", &right, "images", "pull", &target]);
    assert!(is_pulled, "{found}");
    let digest_of = |output: &str| output.trim_end().rsplit(' ').next().unwrap().to_owned();
    assert_eq!(digest_of(&found), digest_of(&pushed));
    assert!(!images(&["images", "push", "127.0.0.1:1/absent:1"]).0);
}
