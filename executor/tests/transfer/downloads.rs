//! `GET /download_files`, case by case (spec 2.6).

use std::fs::{self, File, Permissions};
use std::io::{Cursor, Read as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::{Duration, SystemTime};

use serde_json::json;
use zip::{CompressionMethod, ZipArchive};

use super::detail;
use crate::world::everybody;

#[test]
fn directories_are_downloaded() {
    for world in everybody() {
        world.put("d/sub/b.txt", b"b");
        world.put("d/a.txt", b"aaa");
        world.put("d/.hidden", b"h");
        world.put("d/empty", b"");
        fs::create_dir(world.path("d/nothing")).unwrap();
        world.own(&world.path("d/nothing"));
        symlink("a.txt", world.path("d/file-link")).unwrap();
        symlink("sub", world.path("d/dir-link")).unwrap();
        symlink("gone", world.path("d/dangling")).unwrap();
        symlink(".", world.path("d/sub/loop")).unwrap();
        symlink("self", world.path("d/self")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            world.path("d/pipe"),
            rustix::fs::FileType::Fifo,
            0o666.into(),
            0,
        )
        .unwrap();
        fs::set_permissions(world.path("d/a.txt"), Permissions::from_mode(0o750)).unwrap();
        let ancient = SystemTime::UNIX_EPOCH - Duration::from_secs(1000);
        for (name, time) in [
            ("d/.hidden", ancient),
            (
                "d/empty",
                SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 33),
            ),
        ] {
            File::options()
                .write(true)
                .open(world.path(name))
                .unwrap()
                .set_modified(time)
                .unwrap();
        }
        let (status, headers, body) = world.download(&format!("?path={}/d", world.root.display()));
        assert_eq!(status, 200);
        assert!(
            headers.contains("content-type: application/zip\r\n"),
            "{headers}"
        );
        assert!(
            headers.contains("content-disposition: attachment; filename=\"d.zip\"\r\n"),
            "{headers}"
        );
        let mut zip = ZipArchive::new(Cursor::new(body)).unwrap();
        let mut found: Vec<(String, String)> = (0..zip.len())
            .map(|index| {
                let mut entry = zip.by_index(index).unwrap();
                let mut text = String::new();
                entry.read_to_string(&mut text).unwrap();
                assert_eq!(entry.compression(), CompressionMethod::Stored);
                (entry.name().unwrap().into_owned(), text)
            })
            .collect();
        found.sort();
        let expected = [
            (".hidden", "h"),
            ("a.txt", "aaa"),
            ("empty", ""),
            ("file-link", "aaa"),
            ("sub/b.txt", "b"),
        ];
        let expected = expected.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(found, expected);
        let mode =
            |zip: &mut ZipArchive<_>, name| zip.by_name(name).unwrap().unix_mode().unwrap() & 0o777;
        assert_eq!(mode(&mut zip, "a.txt"), 0o750);
    }
}

#[test]
fn what_cannot_be_downloaded_says_so() {
    for world in everybody() {
        world.put("f", b"text");
        let root = world.root.display().to_string();
        let missing =
            "{'type': 'missing', 'loc': ('query', 'path'), 'msg': 'Field required', 'input': None}";
        let invalid =
            json!({"detail": "Invalid request parameters", "errors": format!("[{missing}]")})
                .to_string();
        for (section, query, answer) in [
            (
                "2.6 relative",
                "?path=f".to_owned(),
                (500, detail("400: Path must be an absolute path")),
            ),
            (
                "2.6 empty",
                "?path=".to_owned(),
                (500, detail("400: Path must be an absolute path")),
            ),
            (
                "2.6 missing",
                format!("?path={root}/nope"),
                (500, detail("404: File not found")),
            ),
            (
                "2.6 null byte",
                format!("?path={root}/a%00b"),
                (500, detail("404: File not found")),
            ),
            ("2.6 no path", String::new(), (422, invalid)),
        ] {
            let (status, _, body) = world.download(&query);
            assert_eq!(
                (status, String::from_utf8(body).unwrap()),
                answer,
                "{section}"
            );
        }
        for (section, path, name) in [
            (
                "2.6 a file gives an empty archive",
                "f",
                "filename=\"f.zip\"",
            ),
            ("2.6 a trailing slash", "", "filename=\".zip\""),
        ] {
            let (status, headers, body) = world.download(&format!("?path={root}/{path}"));
            assert_eq!(status, 200, "{section}");
            assert!(headers.contains(name), "{section}: {headers}");
            assert!(path.is_empty() || body.len() == 22, "{section}");
        }
        fs::create_dir(world.path("ü x")).unwrap();
        let (_, headers, body) = world.download(&format!("?path={root}/%C3%BC%20x"));
        assert!(
            headers.contains("filename*=utf-8''%c3%bc%20x.zip"),
            "{headers}"
        );
        assert_eq!(body.len(), 22);
    }
}
