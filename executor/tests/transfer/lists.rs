//! `POST /list_files`, case by case (spec 2.4).

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;

use serde_json::json;
use zip::ZipArchive;

use crate::world::{World, everybody};

const GENERIC: &str = "{\"detail\":\"An unexpected error occurred. Please try again later.\"}";

#[test]
fn lists_are_the_originals() {
    for world in everybody() {
        for name in ["sub/inner", "hello.sh", "U.JPG", "big.txt", ".hidden", "ü"] {
            world.put(name, b"");
        }
        world.put("Dir/x", b"");
        symlink("sub", world.path("link")).unwrap();
        symlink("gone", world.path("dangling")).unwrap();
        let all = r#"["Dir/","link/","sub/",".hidden","big.txt","hello.sh","U.JPG","ü"]"#;
        let root = world.root.display().to_string();
        world.process.run("cd /");
        let long = format!("{{\"path\":\"/{}\"}}", "x".repeat(5000));
        for (section, body, answer) in [
            ("2.4 no path: the initial directory", "{}", all),
            ("2.4 null", r#"{"path":null}"#, all),
            ("2.4 other keys", r#"{"zzz":1}"#, all),
            ("2.4 empty path", r#"{"path":""}"#, all),
            ("2.4 absolute", &format!("{{\"path\":\"{root}\"}}"), all),
            (
                "2.4 relative to the initial directory",
                r#"{"path":"sub"}"#,
                r#"["inner"]"#,
            ),
            ("2.4 through a link", r#"{"path":"link/"}"#, r#"["inner"]"#),
            ("2.4 missing", r#"{"path":"nope"}"#, "[]"),
            ("2.4 a file", r#"{"path":"U.JPG"}"#, "[]"),
            ("2.4 a null byte", r#"{"path":"a\u0000b"}"#, "[]"),
            ("2.4 a huge name", &long, "[]"),
        ] {
            assert_eq!(world.list(body), (200, answer.to_owned()), "{section}");
        }
        for (section, body) in [
            ("2.4 no object", "[1]"),
            ("2.4 no JSON", "{"),
            ("2.4 no body", ""),
            ("2.4 path no text", r#"{"path":5}"#),
        ] {
            assert_eq!(world.list(body), (500, GENERIC.to_owned()), "{section}");
        }
    }
}

#[test]
fn huge_directories_and_loops_are_answered() {
    let world = World::new("root");
    fs::create_dir(world.path("many")).unwrap();
    for index in 0..100_000 {
        fs::File::create(world.path("many").join(format!("file-{index}"))).unwrap();
    }
    let (status, body) = world.list("{\"path\":\"many\"}");
    let names: Vec<String> = serde_json::from_str(&body).unwrap();
    assert_eq!((status, names.len()), (200, 100_000));
    let args = json!({"path": world.fill("{}/many"), "impl_source": "oh_aci"});
    let shown = world.act("read", &args)["content"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(shown.contains("<response clipped><NOTE>Due to the max output limit, only part of this directory has been shown to you."), "{}", &shown[shown.len() - 300..]);
    assert!(shown.len() < 20_000);
    // Forty links to each other, and a chain of directories that ends in its own start.
    for index in 0..60 {
        symlink(
            format!("l{}", (index + 1) % 60),
            world.path(&format!("l{index}")),
        )
        .unwrap();
    }
    world.process.run("d=.; for i in $(seq 200); do d=$d/deep; done; mkdir -p $d; ln -s \"$PWD/deep\" $d/loop; echo x > $d/file");
    let deep = "/deep".repeat(200);
    for path in [
        world.path("l0").display().to_string(),
        world.fill("{}/l0/x"),
    ] {
        let read = |source: &str| {
            world.process.post(&json!({"action": {"action": "read", "args": {"path": path, "impl_source": source}}}).to_string()).status
        };
        assert!([200, 500].contains(&read("default")));
        assert_eq!(read("oh_aci"), 200);
        assert_eq!(world.list(&json!({"path": path}).to_string()).1, "[]");
    }
    assert_eq!(
        world
            .list(&json!({"path": format!("{}{deep}", world.root.display())}).to_string())
            .1,
        "[\"loop/\",\"file\"]"
    );
    let (_, _, body) = world.download(&format!("?path={}/deep", world.root.display()));
    assert_eq!(ZipArchive::new(Cursor::new(body)).unwrap().len(), 1);
    assert!(world.peak() < 96 << 10, "{} KiB", world.peak());
}
