//! `POST /list_files` (`docs/specs/executor.md`, section 2.4).

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::symlink;

use serde_json::json;
use zip::ZipArchive;

use crate::fixture::{ServerFixture, all_users};

const GENERIC: &str = "{\"detail\":\"An unexpected error occurred. Please try again later.\"}";

#[test]
fn lists_match_the_python_server() {
    for fixture in all_users() {
        for name in ["sub/inner", "hello.sh", "U.JPG", "big.txt", ".hidden", "ü"] {
            fixture.put(name, b"");
        }
        fixture.put("Dir/x", b"");
        symlink("sub", fixture.path("link")).unwrap();
        symlink("gone", fixture.path("dangling")).unwrap();
        let all = r#"["Dir/","link/","sub/",".hidden","big.txt","hello.sh","U.JPG","ü"]"#;
        let root = fixture.root.display().to_string();
        fixture.run("cd /");
        let long = format!("{{\"path\":\"/{}\"}}", "x".repeat(5000));
        let (sub, inner) = (r#"{"path":"sub"}"#, r#"["inner"]"#);
        for (section, body, answer) in [
            ("2.4 no path: the initial directory", "{}", all),
            ("2.4 null", r#"{"path":null}"#, all),
            ("2.4 other keys", r#"{"zzz":1}"#, all),
            ("2.4 empty path", r#"{"path":""}"#, all),
            ("2.4 absolute", &format!("{{\"path\":\"{root}\"}}"), all),
            ("2.4 relative to the initial directory", sub, inner),
            ("2.4 through a link", r#"{"path":"link/"}"#, inner),
            ("2.4 missing", r#"{"path":"nope"}"#, "[]"),
            ("2.4 a file", r#"{"path":"U.JPG"}"#, "[]"),
            ("2.4 a null byte", r#"{"path":"a\u0000b"}"#, "[]"),
            ("2.4 a huge name", &long, "[]"),
        ] {
            assert_eq!(fixture.list(body), (200, answer.to_owned()), "{section}");
        }
        for (section, body) in [
            ("2.4 no object", "[1]"),
            ("2.4 no JSON", "{"),
            ("2.4 no body", ""),
            ("2.4 path no text", r#"{"path":5}"#),
        ] {
            assert_eq!(fixture.list(body), (500, GENERIC.to_owned()), "{section}");
        }
    }
}

#[test]
fn huge_directories_and_link_loops_are_listed() {
    let fixture = ServerFixture::new("root");
    fs::create_dir(fixture.path("many")).unwrap();
    for index in 0..100_000 {
        fs::File::create(fixture.path("many").join(format!("file-{index}"))).unwrap();
    }
    let (status, body) = fixture.list("{\"path\":\"many\"}");
    let names: Vec<String> = serde_json::from_str(&body).unwrap();
    assert_eq!((status, names.len()), (200, 100_000));
    let args = json!({"path": fixture.fill("{}/many"), "impl_source": "oh_aci"});
    let answer = fixture.act("read", &args);
    let shown = answer["content"].as_str().unwrap();
    assert!(shown.contains("<response clipped><NOTE>Due to the max output limit, only part of this directory has been shown to you."), "{}", &shown[shown.len() - 300..]);
    assert!(shown.len() < 20_000);
    // A cycle of 60 links, and a chain of directories with a link to its start.
    for index in 0..60 {
        let next = format!("l{}", (index + 1) % 60);
        symlink(next, fixture.path(&format!("l{index}"))).unwrap();
    }
    fixture.run("d=.; for i in $(seq 200); do d=$d/deep; done; mkdir -p $d; ln -s \"$PWD/deep\" $d/loop; echo x > $d/file");
    let deep = "/deep".repeat(200);
    for path in [fixture.fill("{}/l0"), fixture.fill("{}/l0/x")] {
        let read = |source: &str| {
            let args = json!({"path": path, "impl_source": source});
            let action = json!({"action": {"action": "read", "args": args}});
            fixture.post(&action.to_string()).status
        };
        assert!([200, 500].contains(&read("default")));
        assert_eq!(read("oh_aci"), 200);
        assert_eq!(fixture.list(&json!({"path": path}).to_string()).1, "[]");
    }
    let deepest = json!({"path": fixture.fill(&format!("{{}}{deep}"))});
    let (_, names) = fixture.list(&deepest.to_string());
    assert_eq!(names, r#"["loop/","file"]"#);
    let (_, _, body) = fixture.download(&format!("?path={}/deep", fixture.root.display()));
    assert_eq!(ZipArchive::new(Cursor::new(body)).unwrap().len(), 1);
    assert!(fixture.peak() < 96 << 10, "{} KiB", fixture.peak());
}
