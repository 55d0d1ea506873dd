//! Output of containers: one bounded file per start, kept until the Pod is removed.
//!
//! The node copies the output itself (the container dies with it anyway), because only the
//! copier can bound a file that an untrusted program writes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use super::paths::Paths;

/// Most bytes that one read of a log returns.
const LONGEST_READ: u64 = 16 << 20;

/// What to return of a log.
#[derive(Debug, Clone, Default)]
pub struct LogOptions {
    /// The container's previous start.
    pub previous: bool,
    /// At most this many lines, from the end.
    pub tail_lines: Option<usize>,
    /// At most this many bytes, from the start of what the other options leave.
    pub limit_bytes: Option<usize>,
}

/// Reads the log of a container of a Pod that this node runs or ran.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if the node knows no such Pod, container or start.
pub fn logs(
    state_dir: &Path,
    namespace: &str,
    pod: &str,
    container: &str,
    options: &LogOptions,
) -> io::Result<Vec<u8>> {
    let names = [namespace, pod, container];
    if names
        .iter()
        .any(|name| name.contains('/') || name.starts_with('.'))
    {
        return Err(io::ErrorKind::NotFound.into());
    }
    let directory = Paths::new(state_dir)
        .log_link(namespace, pod)
        .join(container);
    let file = start_file(&directory, options.previous)?;
    let mut bytes = tail_of(&rotated(&file), LONGEST_READ)?;
    bytes.extend(tail_of(&file, LONGEST_READ)?);
    let from = options
        .tail_lines
        .map_or(0, |lines| tail_start(&bytes, lines));
    let length = options
        .limit_bytes
        .unwrap_or(usize::MAX)
        .min(bytes.len() - from);
    Ok(bytes[from..from + length].to_vec())
}

/// The file of the last start, or of the one before.
fn start_file(directory: &Path, previous: bool) -> io::Result<PathBuf> {
    let entries = fs::read_dir(directory)?.flatten();
    let starts = entries.filter_map(|entry| {
        entry
            .file_name()
            .to_str()?
            .strip_suffix(".log")?
            .parse::<u32>()
            .ok()
    });
    let mut starts: Vec<u32> = starts.collect();
    starts.sort_unstable_by(|a, b| b.cmp(a));
    let start = starts
        .get(usize::from(previous))
        .ok_or(io::ErrorKind::NotFound)?;
    Ok(directory.join(format!("{start}.log")))
}

fn rotated(file: &Path) -> PathBuf {
    file.with_extension("log.1")
}

fn tail_of(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => {
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(limit)))?;
            file.take(limit).read_to_end(&mut bytes)?;
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    Ok(bytes)
}

/// Where the last `lines` lines begin.
fn tail_start(bytes: &[u8], lines: usize) -> usize {
    if lines == 0 {
        return bytes.len();
    }
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let ends = body
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, byte)| **byte == b'\n');
    ends.map(|(at, _)| at + 1).nth(lines - 1).unwrap_or(0)
}

/// Appends to the log of one start; the older half goes when the bound is reached.
#[derive(Debug)]
pub(crate) struct LogWriter {
    path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
}

impl LogWriter {
    /// Opens the log of start `number`. `limit` bounds what both halves hold.
    pub(crate) fn create(directory: &Path, number: i32, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        let path = directory.join(format!("{number}.log"));
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        let written = file.metadata()?.len();
        remove_older(directory, number);
        Ok(Self {
            path,
            file,
            written,
            limit,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Copies until the container has closed its output.
    pub(crate) async fn copy(mut self, mut from: pipe::Receiver) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return Ok(());
            }
            // A full disk must not stop the container at a full pipe: its output is dropped.
            if let Err(error) = self.append(&buffer[..length]) {
                tracing::debug!(%error, path = %self.path.display(), "output lost");
            }
        }
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > self.limit / 2 {
            fs::rename(&self.path, rotated(&self.path))?;
            self.file = OpenOptions::new()
                .create(true)
                .append(true)
                .open(&self.path)?;
            self.written = 0;
        }
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

/// Only the last start and the one before can be asked for.
fn remove_older(directory: &Path, number: i32) {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let start = name
            .to_str()
            .and_then(|name| name.split('.').next()?.parse::<i32>().ok());
        if start.is_some_and(|start| start < number - 1) {
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_count_lines() {
        let text = b"a\nb\nc\n";
        let tail = |lines| &text[tail_start(text, lines)..];
        assert_eq!(tail(0), b"");
        assert_eq!(tail(1), b"c\n");
        assert_eq!(tail(2), b"b\nc\n");
        assert_eq!(tail(9), text);
        assert_eq!(tail_start(b"x", 1), 0);
    }

    #[test]
    fn a_log_is_bounded_and_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(directory.path(), 0, 20).unwrap();
        for line in ["1234567\n", "2345678\n", "3456789\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        let file = start_file(directory.path(), false).unwrap();
        assert_eq!(tail_of(&rotated(&file), 99).unwrap(), b"2345678\n");
        assert_eq!(tail_of(&file, 99).unwrap(), b"3456789\n");
    }

    #[test]
    fn two_starts_are_kept() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..4 {
            let mut log = LogWriter::create(directory.path(), number, 1 << 20).unwrap();
            log.append(number.to_string().as_bytes()).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        let previous = start_file(directory.path(), true).unwrap();
        assert_eq!(fs::read(previous).unwrap(), b"2");
    }

    #[test]
    fn names_do_not_leave_the_directory() {
        let state = tempfile::tempdir().unwrap();
        let error = logs(state.path(), "..", "pod", "c", &LogOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
