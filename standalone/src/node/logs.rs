//! Container logs: one bounded file per run, kept until the Pod is removed.
//!
//! The node copies the output itself, because only the copier can bound a file that an untrusted
//! program writes. Each stored line begins with its time and a tag, as in the CRI log format.

mod follow;
mod record;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use futures::stream::StreamExt as _;
use tokio::io::AsyncReadExt as _;
use tokio::net::unix::pipe;

use self::follow::Follower;
use self::record::{END, Renderer, encode, texts};
use super::paths::Paths;
use crate::api::{ContainerPath, LogQuery, LogStream};

const MAX_READ_BYTES: u64 = 16 << 20;

/// Reads the log of a container; with `follow`, until it terminates. Fails with
/// [`io::ErrorKind::NotFound`] if the node knows no such Pod, container or run.
pub fn log_stream(
    state_dir: &Path,
    container: &ContainerPath,
    query: &LogQuery,
) -> io::Result<LogStream> {
    let is_path = |name: &String| name.contains('/') || name.starts_with('.');
    if container.iter().any(is_path) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let [namespace, pod, container] = container;
    let pod = Paths::new(state_dir).log_link(namespace, pod);
    let path = run_file(&pod.join(container), query.previous)?;
    let mut renderer = Renderer::new(query);
    if !query.follow {
        let log = renderer.render(&stored(&path)?);
        return Ok(futures::stream::once(async { Ok(log.into()) }).boxed());
    }
    let mut follower = Follower::open(path.clone())?;
    let mut bytes = tail_of(&rotated(&path), MAX_READ_BYTES)?;
    bytes.extend(follower.read()?);
    let first = renderer.render(&bytes);
    let first = futures::stream::once(async { Ok(first.into()) });
    Ok(first.chain(follower.stream(renderer)).boxed())
}

/// Both halves of a log, as stored.
fn stored(file: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = tail_of(&rotated(file), MAX_READ_BYTES)?;
    bytes.extend(tail_of(file, MAX_READ_BYTES)?);
    Ok(bytes)
}

/// The last line of a log, without its time.
pub(crate) fn last_line(file: &Path) -> Option<String> {
    let stored = stored(file).ok()?;
    let last = texts(&stored).pop()?;
    Some(String::from_utf8_lossy(&last).trim_end().to_owned())
}

/// Numbers of the runs with a log, and their files.
fn runs(directory: &Path) -> io::Result<impl Iterator<Item = (i32, PathBuf)>> {
    let number = |path: &Path| path.file_name()?.to_str()?.split('.').next()?.parse().ok();
    let paths = fs::read_dir(directory)?.flatten().map(|entry| entry.path());
    Ok(paths.filter_map(move |path| Some((number(&path)?, path))))
}

/// File of the last run, or of the one before.
fn run_file(directory: &Path, previous: bool) -> io::Result<PathBuf> {
    let runs: BTreeSet<i32> = runs(directory)?.map(|(run, _)| run).collect();
    let run = runs.iter().nth_back(usize::from(previous));
    let run = run.ok_or(io::ErrorKind::NotFound)?;
    Ok(directory.join(format!("{run}.log")))
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

fn appended(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Writer of the log of one run; the older half is dropped at the limit.
#[derive(Debug)]
pub(crate) struct LogWriter {
    path: PathBuf,
    file: File,
    written: u64,
    limit: u64,
}

impl LogWriter {
    /// Opens the log of run `number`. `limit` bounds both halves together.
    pub(crate) fn create(directory: &Path, number: i32, limit: u64) -> io::Result<Self> {
        fs::create_dir_all(directory)?;
        // All but the last two runs go.
        for (_, path) in runs(directory)?.filter(|(run, _)| *run < number - 1) {
            let _ = fs::remove_file(path);
        }
        let path = directory.join(format!("{number}.log"));
        let file = appended(&path)?;
        let written = file.metadata()?.len();
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

    /// Copies until the container closes its output.
    pub(crate) async fn copy(mut self, mut from: pipe::Receiver) -> io::Result<()> {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let length = from.read(&mut buffer).await?;
            if length == 0 {
                return self.store(&encode(b"", END));
            }
            // On a full disk the output is dropped, so that the container does not block.
            if let Err(error) = self.append(&buffer[..length]) {
                tracing::debug!(%error, path = %self.path.display(), "output lost");
            }
        }
    }

    fn append(&mut self, output: &[u8]) -> io::Result<()> {
        let lines = output.split_inclusive(|byte| *byte == b'\n');
        self.store(&lines.flat_map(record::encode_line).collect::<Vec<_>>())
    }

    fn store(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.written + bytes.len() as u64 > self.limit / 2 {
            fs::rename(&self.path, rotated(&self.path))?;
            self.file = appended(&self.path)?;
            self.written = 0;
        }
        self.written += bytes.len() as u64;
        self.file.write_all(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_is_bounded_and_read_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut log = LogWriter::create(directory.path(), 0, 100).unwrap();
        for line in ["1234567\n", "2345678\n", "3456789\n"] {
            log.append(line.as_bytes()).unwrap();
        }
        let file = run_file(directory.path(), false).unwrap();
        let lines = |file: &Path| texts(&tail_of(file, 99).unwrap()).concat();
        assert_eq!(lines(&rotated(&file)), b"2345678\n");
        assert_eq!(lines(&file), b"3456789\n");
    }

    #[test]
    fn log_keeps_two_runs() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..4 {
            let mut log = LogWriter::create(directory.path(), number, 1 << 20).unwrap();
            log.append(number.to_string().as_bytes()).unwrap();
        }
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        let previous = run_file(directory.path(), true).unwrap();
        assert_eq!(last_line(&previous).unwrap(), "2");
    }

    #[test]
    fn logs_reject_names_with_path_separators() {
        let state = tempfile::tempdir().unwrap();
        let container = ["..", "pod", "main"].map(str::to_owned);
        let read = log_stream(state.path(), &container, &LogQuery::default());
        assert_eq!(read.err().unwrap().kind(), io::ErrorKind::NotFound);
    }
}
