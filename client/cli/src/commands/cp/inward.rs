//! From this machine into a sandbox.

use std::path::{Path, PathBuf};

use client::{Sandbox, Session, SessionInput, TerminalEvent};
use tokio::sync::mpsc;
use tokio::task::JoinError;

use super::remote::{self, Kept};
use crate::copy::location::{Existing, Place, place, split_source};
use crate::copy::pack;
use crate::copy::pipe::{self, QUEUE};
use crate::failure::Failure;
use crate::output::note;
use crate::progress;
use crate::text::escape;

/// Unpacks into a directory. `-o`: files belong to the user of the sandbox. GNU tar reads 64 KiB at a time.
const UNPACK: &str = r#"mkdir -p -- "$1" && export TAR_OPTIONS=--blocking-factor=128 && exec tar -x -o -f - -C "$1""#;

pub(super) async fn copy(sandbox: &Sandbox, source: &Path, target: &str) -> Result<(), Failure> {
    let unreadable = |error| Failure::Local(format!("{}: {error}", source.display()));
    let is_tree = std::fs::metadata(source).map_err(unreadable)?.is_dir();
    let name = name(source)?;
    let size = pack::size(source).map_err(unreadable)?;
    let existing = remote::probe(sandbox, target).await?;
    let line = progress::Line::bytes("copying", Some(size));
    let Some(existing) = existing else {
        return upload(sandbox, source, target, name.as_deref(), &line).await;
    };
    let place = place(target, existing, name.as_deref(), is_tree)?;
    let mut session = sandbox
        .exec(&remote::program(UNPACK, &[&place.directory]))
        .await?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let (path, name) = (source.to_owned(), place.name);
    let packing = tokio::task::spawn_blocking(move || {
        pack::pack(pipe::writer(sender), &path, name.as_deref())
    });
    let unpacked = transfer(&mut session, receiver, packing, line).await;
    let _ = session.close().await;
    unpacked
}

/// Last part of the source. `None` for `dir/.`, whose content is copied.
fn name(source: &Path) -> Result<Option<String>, Failure> {
    let text = source
        .to_str()
        .ok_or_else(|| Failure::Usage(format!("{} is not UTF-8", source.display())))?;
    match split_source(text).1 {
        None if matches!(text, "." | "..") => {
            let whole = source.canonicalize()?;
            Ok(whole
                .file_name()
                .map(|name| name.to_string_lossy().into_owned()))
        }
        name => Ok(name),
    }
}

type Packing = tokio::task::JoinHandle<std::io::Result<Vec<PathBuf>>>;

async fn transfer(
    session: &mut Session,
    chunks: mpsc::Receiver<bytes::Bytes>,
    packing: Packing,
    line: progress::Line,
) -> Result<(), Failure> {
    let mut sending = tokio::spawn(send(session.input(), chunks, packing, line));
    let mut sent = None;
    let mut errors = Kept::default();
    let status = loop {
        let event = tokio::select! {
            event = session.next() => event,
            done = &mut sending, if sent.is_none() => {
                sent = Some(joined(done)?);
                continue;
            }
        };
        match event {
            Ok(Some(TerminalEvent::ErrorOutput(data))) => errors.add(&data),
            Ok(Some(TerminalEvent::Exit(status))) => break remote::check(&status, &errors),
            Ok(Some(_)) => {}
            Ok(None) => break Err(Failure::Local("tar ended without a status".into())),
            Err(error) => break Err(error.into()),
        }
    };
    status.inspect_err(|_| sending.abort())?;
    let skipped = match sent {
        Some(skipped) => skipped,
        None => joined(sending.await)?,
    };
    for path in skipped {
        let path = escape(&path.display().to_string());
        note(&format!(
            "left out, neither file, directory nor link: {path}"
        ));
    }
    Ok(())
}

async fn send(
    input: SessionInput,
    mut chunks: mpsc::Receiver<bytes::Bytes>,
    packing: Packing,
    line: progress::Line,
) -> Result<Vec<PathBuf>, Failure> {
    let mut is_open = true;
    while let Some(chunk) = chunks.recv().await {
        // tar ends at the end of the archive, before its padding was sent; if earlier, its status says why.
        is_open = is_open && input.write(&chunk).await.is_ok();
        line.advance(chunk.len() as u64);
    }
    // An archive that is cut off must not look like a whole one: its input does not end in order.
    let packed = joined(packing.await.map(|packed| packed.map_err(Failure::from)))?;
    if is_open {
        // tar may have ended by now.
        let _ = input.end().await;
    }
    Ok(packed)
}

fn joined<T>(done: Result<Result<T, Failure>, JoinError>) -> Result<T, Failure> {
    done.map_err(|error| Failure::Local(error.to_string()))?
}

/// Without `tar` in the sandbox.
async fn upload(
    sandbox: &Sandbox,
    source: &Path,
    target: &str,
    name: Option<&str>,
    line: &progress::Line,
) -> Result<(), Failure> {
    let target = remote_path(sandbox, target);
    let name = name.ok_or_else(|| {
        Failure::Usage("the content of a directory needs tar in the sandbox".into())
    })?;
    // A directory shows in the list of its parent.
    let (parent, last) = split_source(&target);
    let is_directory = match &last {
        Some(last) => sandbox
            .list_files(&parent)
            .await?
            .contains(&format!("{last}/")),
        None => true,
    };
    let existing = if is_directory {
        Existing::Directory
    } else {
        Existing::Nothing
    };
    let Place {
        directory,
        name: Some(name),
    } = place(&target, existing, Some(name), source.is_dir())?
    else {
        return Err(Failure::Usage(format!("{target} names no file")));
    };
    sandbox
        .upload(source, &directory, &name, line.reporter())
        .await?;
    Ok(())
}

/// An absolute path: the transfers of the server need one.
pub(super) fn remote_path(sandbox: &Sandbox, path: &str) -> String {
    if path.starts_with('/') {
        return path.into();
    }
    let base = sandbox
        .info()
        .working_dir
        .as_deref()
        .unwrap_or("/workspace");
    format!("{}/{path}", base.trim_end_matches('/'))
}
