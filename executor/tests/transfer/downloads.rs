//! `GET /download_files` (`docs/specs/executor.md`, section 2.6).

use std::fs::{self, File};
use std::io::{Cursor, Read as _};
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use serde_json::json;
use zip::{CompressionMethod, ZipArchive};

use super::{detail, fields};
use crate::client::set_mode;
use crate::fixture::all_users;

#[test]
fn directories_are_downloaded() {
    for fixture in all_users() {
        fixture.put("d/sub/b.txt", b"b");
        fixture.put("d/a.txt", b"aaa");
        fixture.put("d/.hidden", b"h");
        fixture.put("d/empty", b"");
        fs::create_dir(fixture.path("d/nothing")).unwrap();
        fixture.own(&fixture.path("d/nothing"));
        symlink("a.txt", fixture.path("d/file-link")).unwrap();
        symlink("sub", fixture.path("d/dir-link")).unwrap();
        symlink("gone", fixture.path("d/dangling")).unwrap();
        symlink(".", fixture.path("d/sub/loop")).unwrap();
        symlink("self", fixture.path("d/self")).unwrap();
        fixture.run("mkfifo d/pipe");
        set_mode(fixture.path("d/a.txt"), 0o750);
        let ancient = SystemTime::UNIX_EPOCH - Duration::from_secs(1000);
        let far = SystemTime::UNIX_EPOCH + Duration::from_secs(1 << 33);
        for (name, time) in [("d/.hidden", ancient), ("d/empty", far)] {
            let file = File::options().write(true).open(fixture.path(name));
            file.unwrap().set_modified(time).unwrap();
        }
        let (status, headers, body) =
            fixture.download(&format!("?path={}/d", fixture.root.display()));
        assert_eq!(status, 200);
        for header in [
            "content-type: application/zip\r\n",
            "content-disposition: attachment; filename=\"d.zip\"\r\n",
        ] {
            assert!(headers.contains(header), "{headers}");
        }
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
fn invalid_downloads_are_rejected() {
    for fixture in all_users() {
        fixture.put("f", b"text");
        let root = fixture.root.display().to_string();
        let missing =
            "{'type': 'missing', 'loc': ('query', 'path'), 'msg': 'Field required', 'input': None}";
        let invalid =
            json!({"detail": "Invalid request parameters", "errors": format!("[{missing}]")})
                .to_string();
        for case in [
            "2.6 relative | ?path=f | 400: Path must be an absolute path",
            "2.6 empty | ?path= | 400: Path must be an absolute path",
            "2.6 missing | ?path={}/nope | 404: File not found",
            "2.6 null byte | ?path={}/a%00b | 404: File not found",
        ] {
            let case = fixture.fill(case);
            let [section, query, text] = fields(&case);
            let (status, _, body) = fixture.download(query);
            let body = String::from_utf8(body).unwrap();
            assert_eq!((status, body), (500, detail(text)), "{section}");
        }
        let (status, _, body) = fixture.download("");
        assert_eq!((status, body), (422, invalid.into_bytes()), "2.6 no path");
        for (section, path, name) in [
            ("2.6 a file", "/f", "filename=\"f.zip\""),
            ("2.6 a trailing slash", "/", "filename=\".zip\""),
        ] {
            let (status, headers, body) = fixture.download(&format!("?path={root}{path}"));
            assert_eq!(status, 200, "{section}");
            assert!(headers.contains(name), "{section}: {headers}");
            let mut zip = ZipArchive::new(Cursor::new(body)).unwrap();
            let mut text = String::new();
            zip.by_name("f").unwrap().read_to_string(&mut text).unwrap();
            assert_eq!((zip.len(), text.as_str()), (1, "text"), "{section}");
        }
        fs::create_dir(fixture.path("ü\"\r\n x")).unwrap();
        let (_, headers, body) = fixture.download(&format!("?path={root}/%C3%BC%22%0D%0A%20x"));
        let name = "filename*=utf-8''%c3%bc%22%0d%0a%20x.zip\r\n";
        assert!(headers.contains(name), "{headers}");
        assert_eq!(body.len(), 22);
    }
}
