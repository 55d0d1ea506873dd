//! Layers with everything that archives of images may hold.

use tar::{Builder, EntryType, Header};

/// Layer under construction.
struct Layer(Builder<Vec<u8>>);

impl Layer {
    fn new() -> Self {
        Self(Builder::new(Vec::new()))
    }

    fn add(self, kind: EntryType, path: &str, mode: u32, content: &str) -> Self {
        self.add_as(kind, path, (mode, 0, 0), content, &[])
    }

    fn add_as(
        mut self,
        kind: EntryType,
        path: &str,
        (mode, uid, gid): (u32, u64, u64),
        content: &str,
        records: &[(&str, &str)],
    ) -> Self {
        let records = records.iter().map(|(key, value)| (*key, value.as_bytes()));
        self.0.append_pax_extensions(records).unwrap();
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(uid);
        header.set_gid(gid);
        header.set_mtime(1_700_000_000);
        let is_link = matches!(kind, EntryType::Symlink | EntryType::Link);
        header.set_size(if is_link { 0 } else { content.len() as u64 });
        if is_link {
            self.0.append_link(&mut header, path, content).unwrap();
        } else {
            self.0
                .append_data(&mut header, path, content.as_bytes())
                .unwrap();
        }
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.add(EntryType::Regular, path, 0o644, content)
    }

    fn directory(self, path: &str, mode: u32) -> Self {
        self.add(EntryType::Directory, path, mode, "")
    }

    fn end(self) -> Vec<u8> {
        self.0.into_inner().unwrap()
    }
}

/// Two layers with every oddity.
pub fn odd_layers() -> Vec<Vec<u8>> {
    let long = format!("long/{}/{}", "n".repeat(120), "m".repeat(200));
    let attributes = [
        ("SCHILY.xattr.user.a", "b"),
        ("mtime", "1600000000.123456789"),
    ];
    let capability = (
        "SCHILY.xattr.security.capability",
        "\u{1}\0\0\u{2}\0\u{4}\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    );
    let base = Layer::new()
        .directory("./", 0o755)
        .directory("tmp", 0o1777)
        .directory("shared", 0o2775)
        .add_as(EntryType::Regular, "bin/setuid", (0o4755, 0, 0), "x", &[])
        .add_as(
            EntryType::Regular,
            "bin/capable",
            (0o755, 0, 0),
            "x",
            &[capability],
        )
        .add_as(
            EntryType::Regular,
            "home/user/file",
            (0o600, 1000, 1001),
            "own",
            &attributes,
        )
        .add_as(
            EntryType::Directory,
            "home/user",
            (0o700, 1000, 1001),
            "",
            &attributes,
        )
        .add_as(
            EntryType::Regular,
            "high",
            (0o644, 3_000_000, 4_000_000),
            "id",
            &[],
        )
        .add(EntryType::Symlink, "absolute", 0o777, "/bin/setuid")
        .add(EntryType::Symlink, "relative", 0o777, "../../outside")
        .add(EntryType::Link, "hard", 0o644, "home/user/file")
        .add(EntryType::Fifo, "fifo", 0o640, "")
        .file(&long, "long name")
        .file("unicode/\u{fc}\u{4e2d}", "text")
        .file("twice", "first")
        .file("twice", "second")
        .file("gone/a", "hidden")
        .file("opaque/old", "hidden")
        .file("opaque/kept", "hidden too")
        .file("replaced/by-file", "x")
        .file("becomes-directory", "x")
        .file("deep/er/file", "x");
    let top = Layer::new()
        .file("gone/.wh.a", "")
        .file(".wh.fifo", "")
        .directory("opaque", 0o755)
        .file("opaque/.wh..wh..opq", "")
        .file("opaque/new", "new")
        .file("replaced", "now a file")
        .directory("becomes-directory", 0o711)
        .file("becomes-directory/x", "y")
        .file("home/user/second", "parent is of the layer below")
        .file("deep/er/.wh.file", "");
    vec![base.end(), top.end()]
}
