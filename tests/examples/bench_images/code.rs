//! Program of a client, of the size of a released one, as the build context of an image.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use testing::image_build;

const FILES: usize = 560;
const FILES_PER_DIRECTORY: usize = 20;
const FILE_BYTES: usize = 7860;

/// Files below `code`, all others for each seed.
#[derive(Debug)]
pub(crate) struct Code {
    /// Path and content.
    files: Vec<(String, String)>,
}

impl Code {
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random(seed | 1);
        let file = |number: usize| {
            let directory = number / FILES_PER_DIRECTORY;
            let path = format!("./code/openhands/{directory}/{number}.py");
            (path, random.text())
        };
        Self {
            files: (0..FILES).map(file).collect(),
        }
    }

    /// Context with this Dockerfile: a compressed archive.
    pub(crate) fn context(&self, dockerfile: &str) -> Vec<u8> {
        let directories = (0..FILES.div_ceil(FILES_PER_DIRECTORY))
            .map(|directory| format!("./code/openhands/{directory}"));
        let directories: Vec<_> = directories.collect();
        let mut entries = vec![
            (".", None),
            ("./Dockerfile", Some(dockerfile)),
            ("./code", None),
            ("./code/openhands", None),
        ];
        entries.extend(directories.iter().map(|path| (path.as_str(), None)));
        let files = self.files.iter();
        entries.extend(files.map(|(path, text)| (&**path, Some(&**text))));
        let text = image_build::context_of(&entries, 1_764_288_000);
        BASE64_STANDARD.decode(text).unwrap()
    }

    /// Writes the context with this Dockerfile to a directory.
    pub(crate) fn write(&self, dockerfile: &str, directory: &Path) {
        fs::write(directory.join("Dockerfile"), dockerfile).unwrap();
        for (path, text) in &self.files {
            let path = directory.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
    }
}

/// Generator of Marsaglia's `xorshift64`, whose state is never 0.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        for (left, by) in [(true, 13), (false, 7), (true, 17)] {
            self.0 ^= if left { self.0 << by } else { self.0 >> by };
        }
        self.0
    }

    /// Text that can be compressed to a quarter, as programs can.
    fn text(&mut self) -> String {
        let mut text = String::with_capacity(FILE_BYTES + 64);
        while text.len() < FILE_BYTES {
            let (name, value) = (self.next() >> 48, self.next() >> 24);
            writeln!(text, "    name_{name} = call(value_{value})").unwrap();
        }
        text.truncate(FILE_BYTES);
        text
    }
}
