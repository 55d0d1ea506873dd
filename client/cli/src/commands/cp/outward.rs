//! From a sandbox to this machine.

use std::path::Path;

use client::{Sandbox, Session, TerminalEvent};
use tokio::sync::mpsc;

use super::inward::remote_path;
use super::remote::{self, Kept};
use crate::copy::location::{Existing, Place, existing, place, split_source};
use crate::copy::pipe::{ChunkReader, QUEUE};
use crate::copy::unpack::{Skipped, unpack};
use crate::failure::Failure;
use crate::output::note;
use crate::progress;
use crate::text::escape;

/// Packs a member of a directory. GNU tar writes 64 KiB at a time; others do not read the variable.
const PACK: &str = r#"export TAR_OPTIONS=--blocking-factor=128; exec tar -c -f - -C "$1" "./$2""#;

pub(super) async fn copy(sandbox: &Sandbox, source: &str, target: &Path) -> Result<(), Failure> {
    let (found, size) = remote::probe_source(sandbox, source).await?;
    let line = progress::Line::bytes("copying", size);
    let (parent, name) = split_source(source);
    let text = target
        .to_str()
        .ok_or_else(|| Failure::Usage(format!("{} is not UTF-8", target.display())))?;
    let is_tree = found.is_none_or(|found| found == Existing::Directory);
    match found {
        None => return download(sandbox, source, text, name.as_deref(), &line).await,
        Some(Existing::Nothing) => {
            return Err(Failure::Usage(format!(
                "{source} does not exist in the sandbox"
            )));
        }
        Some(_) => {}
    }
    let place = place(text, existing(target), name.as_deref(), is_tree)?;
    let member = name.as_deref().unwrap_or(".");
    let mut session = sandbox
        .exec(&remote::program(PACK, &[&parent, member]))
        .await?;
    let unpacked = transfer(&mut session, place, name, line).await;
    let _ = session.close().await;
    let skipped = unpacked?;
    for path in &skipped.first {
        let path = escape(&path.display().to_string());
        note(&format!(
            "left out, a device or a link that leads out of the copy: {path}"
        ));
    }
    if skipped.count > skipped.first.len() {
        note(&format!(
            "{} more were left out",
            skipped.count - skipped.first.len()
        ));
    }
    Ok(())
}

async fn transfer(
    session: &mut Session,
    place: Place,
    source: Option<String>,
    line: progress::Line,
) -> Result<Skipped, Failure> {
    session.input().end().await?;
    let (sender, receiver) = mpsc::channel(QUEUE);
    let unpacking = tokio::task::spawn_blocking(move || {
        let stream = ChunkReader::new(receiver);
        unpack(
            stream,
            Path::new(&place.directory),
            source.as_deref(),
            place.name.as_deref(),
        )
    });
    let mut errors = Kept::default();
    let mut sender = Some(sender);
    let status = loop {
        match session.next().await? {
            Some(TerminalEvent::Output(data)) => {
                line.advance(data.len() as u64);
                // The archive ends before its padding, and early if it is not accepted.
                if let Some(open) = &sender
                    && open.send(data).await.is_err()
                {
                    sender = None;
                    if unpacking.is_finished() {
                        // Its error says more than that of a tar that was cut off.
                        break None;
                    }
                }
            }
            Some(TerminalEvent::ErrorOutput(data)) => errors.add(&data),
            Some(TerminalEvent::Exit(status)) => break Some(status),
            Some(_) => {}
            None => return Err(Failure::Local("tar ended without a status".into())),
        }
    };
    drop(sender);
    let unpacked = unpacking
        .await
        .map_err(|error| Failure::Local(error.to_string()))?;
    if let (Ok(_), Some(status)) = (&unpacked, &status) {
        remote::check(status, &errors)?;
    }
    Ok(unpacked?)
}

/// Without `tar` in the sandbox.
async fn download(
    sandbox: &Sandbox,
    source: &str,
    target: &str,
    name: Option<&str>,
    line: &progress::Line,
) -> Result<(), Failure> {
    let source = remote_path(sandbox, source);
    let (parent, last) = split_source(&source);
    let names = sandbox.list_files(&parent).await?;
    let is_directory = last
        .as_ref()
        .is_none_or(|last| names.contains(&format!("{last}/")));
    let place = place(target, existing(Path::new(target)), name, is_directory)?;
    let directory = Path::new(&place.directory);
    let report = |bytes| line.position(bytes);
    if is_directory {
        let directory = place
            .name
            .map_or(directory.to_owned(), |name| directory.join(name));
        sandbox.download(&source, &directory, &report).await?;
        return Ok(());
    }
    // The archive has the file under the name that it has in the sandbox.
    let scratch = directory.join(format!(".sandbox-copy-{:016x}", fastrand::u64(..)));
    let copied = async {
        sandbox.download(&source, &scratch, &report).await?;
        let (Some(from), Some(to)) = (last, place.name) else {
            return Err(Failure::Usage(format!("{source} names no file")));
        };
        Ok(std::fs::rename(scratch.join(from), directory.join(to))?)
    };
    let copied = copied.await;
    // It does not exist if the download failed at once.
    let _ = std::fs::remove_dir_all(&scratch);
    copied
}
