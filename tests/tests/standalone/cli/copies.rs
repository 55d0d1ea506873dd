//! Copies of trees in both directions.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use super::Cli;

const FILES: usize = 10_000;

/// Content of a tree by path: of files, and targets of links.
fn content(root: &Path) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut left = vec![root.to_owned()];
    while let Some(path) = left.pop() {
        let metadata = fs::symlink_metadata(&path).unwrap();
        let text = if metadata.is_symlink() {
            format!("-> {}", fs::read_link(&path).unwrap().display())
        } else if metadata.is_dir() {
            left.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
            "directory".into()
        } else {
            fs::read_to_string(&path).unwrap()
        };
        found.insert(path.strip_prefix(root).unwrap().to_owned(), text);
    }
    found
}

fn tree(root: &Path) {
    for n in 0..FILES {
        let directory = root.join(format!("d{}", n % 100));
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(format!("f{n}")), n.to_string()).unwrap();
    }
    for name in [
        "-rf",
        "a b",
        "new\nline",
        "quote\"'`$(x)",
        "ümlaut",
        "\u{1b}[31m",
        "back\\slash",
        &"l".repeat(200),
    ] {
        fs::write(root.join(name), name).unwrap();
    }
    fs::create_dir(root.join("empty")).unwrap();
    symlink("d1/f1", root.join("link")).unwrap();
}

#[test]
fn tree_is_the_same_after_a_copy_in_and_out() {
    let Some(cli) = Cli::with_sandbox("copies") else {
        return;
    };
    let local = tempfile::tempdir().unwrap();
    let path = |name: &str| local.path().join(name).to_str().unwrap().to_owned();
    tree(&local.path().join("tree"));
    cli.succeeds(&["cp", &path("tree"), "copies:/workspace"]);
    cli.succeeds(&["cp", "copies:/workspace/tree", &path("back")]);
    let (before, after) = (
        content(&local.path().join("tree")),
        content(&local.path().join("back")),
    );
    assert_eq!(before.len(), after.len());
    assert!(before == after);

    cli.succeeds(&["cp", &path("tree/a b"), "copies:renamed"]);
    assert_eq!(
        cli.succeeds(&["exec", "copies", "--", "cat", "/workspace/renamed"]),
        "a b"
    );
    cli.succeeds(&["cp", "copies:/workspace/tree/empty/.", &path("contents")]);
    assert_eq!(fs::read_dir(path("contents")).unwrap().count(), 0);
    assert!(
        cli.fails(&["cp", "copies:/workspace/none", &path("none")])
            .contains("does not exist")
    );
    assert!(
        cli.fails(&["cp", &path("tree"), "copies:/workspace/renamed"])
            .contains("is a file")
    );
    assert!(
        cli.fails(&["cp", &path("tree"), &path("elsewhere")])
            .contains("NAME:PATH")
    );
}

#[test]
fn links_out_of_the_copy_are_left_out() {
    let Some(cli) = Cli::with_sandbox("links") else {
        return;
    };
    let script = "mkdir evil && cd evil && ln -s /etc/passwd absolute && ln -s ../../.. up && echo x > f && ln -s f l";
    cli.succeeds(&["exec", "links", "--", "sh", "-c", script]);
    let local = tempfile::tempdir().unwrap();
    let target = local.path().join("copy");
    let output = cli.run(&["cp", "links:evil", target.to_str().unwrap()]);
    assert!(output.status.success(), "{output:?}");
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(
        notes.contains("evil/absolute") && notes.contains("evil/up"),
        "{notes}"
    );
    let names: Vec<_> = content(&target).into_keys().collect();
    assert_eq!(names, ["", "f", "l"].map(PathBuf::from));
}
