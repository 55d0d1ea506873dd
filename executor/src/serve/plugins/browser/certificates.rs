//! Certificate authorities of the sandbox (`$SSL_CERT_FILE`). Chromium reads those of a user from an
//! NSS database below its home directory, which only NSS' own `certutil` writes. Bundles mostly have one
//! of their own and all those that Chromium trusts anyway, whose import would take a second.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use tokio::process::Command;

use crate::serve::shell::LaunchContext;

const BUNDLE_VARIABLE: &str = "SSL_CERT_FILE";
/// Home directory of a browser that trusts them, in the directory of its profile.
const HOME: &str = "home";
const DATABASE: &str = ".pki/nssdb";
const DATABASE_HERE: &str = "sql:.";
/// Commands of `certutil`, a line each.
const BATCH: &str = "batch";
const END: &str = "-----END CERTIFICATE-----";
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
/// The roots of Mozilla are 220 KiB.
const MAX_BUNDLE_BYTES: u64 = 4 << 20;
const IMPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Home directory for a browser that trusts the certificates of `$SSL_CERT_FILE`; `None` if there are
/// none but well-known ones. Replaces the certificates of an earlier browser.
pub(super) async fn home(start: &LaunchContext, profile: &Path) -> io::Result<Option<PathBuf>> {
    let Some(bundle) = start
        .variable(BUNDLE_VARIABLE)
        .filter(|path| !path.is_empty())
    else {
        return Ok(None);
    };
    let home = profile.join(HOME);
    let database = home.join(DATABASE);
    let (bundle, folder) = (PathBuf::from(bundle), database.clone());
    let writing = start.identity.run(move || write_files(&bundle, &folder));
    if !writing.await?? {
        return Ok(None);
    }
    certutil(start, &database, &["-N", "--empty-password"]).await?;
    certutil(start, &database, &["-B", "-i", BATCH]).await?;
    Ok(Some(home))
}

/// Writes a file for each certificate, and the commands that import them. False without certificates.
fn write_files(bundle: &Path, database: &Path) -> io::Result<bool> {
    if fs::metadata(bundle)?.len() > MAX_BUNDLE_BYTES {
        return Err(io::Error::other(format!(
            "more than {MAX_BUNDLE_BYTES} bytes"
        )));
    }
    let text = String::from_utf8_lossy(&fs::read(bundle)?).into_owned();
    match fs::remove_dir_all(database) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut own = certificates(&text)
        .filter(|pem| !is_well_known(pem))
        .peekable();
    if own.peek().is_none() {
        return Ok(false);
    }
    fs::create_dir_all(database)?;
    let mut batch = File::create(database.join(BATCH))?;
    for (number, certificate) in own.enumerate() {
        let name = format!("{number}.pem");
        fs::write(database.join(&name), certificate)?;
        writeln!(
            batch,
            "-A -d {DATABASE_HERE} -n {name} -t CP,, -a -i {name}"
        )?;
    }
    Ok(true)
}

fn certificates(bundle: &str) -> impl Iterator<Item = &str> {
    let blocks = bundle
        .split_inclusive(END)
        .filter(|block| block.ends_with(END));
    blocks.filter_map(|block| block.rfind(BEGIN).map(|start| &block[start..]))
}

/// True for the certificates of Mozilla's list.
fn is_well_known(pem: &str) -> bool {
    let body = pem.trim_start_matches(BEGIN).trim_end_matches(END);
    let body: String = body.split_whitespace().collect();
    let known = webpki_root_certs::TLS_SERVER_ROOT_CERTS;
    let der = BASE64_STANDARD.decode(body);
    der.is_ok_and(|der| known.iter().any(|known| **known == *der))
}

async fn certutil(start: &LaunchContext, directory: &Path, args: &[&str]) -> io::Result<()> {
    let mut command = Command::new("certutil");
    start.apply_to(&mut command);
    command
        .args(args)
        .args(["-d", DATABASE_HERE])
        .current_dir(directory)
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let running = tokio::time::timeout(IMPORT_TIMEOUT, command.output());
    let output = running.await.map_err(|_| io::ErrorKind::TimedOut)??;
    if output.status.success() {
        return Ok(());
    }
    let reason = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(format!("certutil: {}", reason.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_found_between_comments_and_keys() {
        let a = "-----BEGIN CERTIFICATE-----\nYQ==\n-----END CERTIFICATE-----";
        let b = "-----BEGIN CERTIFICATE-----\r\nYg==\r\n-----END CERTIFICATE-----";
        let key = "-----BEGIN PRIVATE KEY-----\nYw==\n-----END PRIVATE KEY-----";
        let bundle = format!("# a\n{a}\n{key}\n-----BEGIN CERTIFICATE-----\nhalf\n{b}\n{BROKEN}");
        assert_eq!(certificates(&bundle).collect::<Vec<_>>(), [a, b]);
    }

    #[test]
    fn certificates_of_mozilla_are_well_known() {
        let der = &webpki_root_certs::TLS_SERVER_ROOT_CERTS[3];
        let body = BASE64_STANDARD.encode(der);
        assert!(is_well_known(&format!("{BEGIN}\n{body}\n{END}")));
        assert!(!is_well_known(&format!("{BEGIN}\nYQ==\n{END}")));
    }

    const BROKEN: &str = "-----BEGIN CERTIFICATE-----\n";
}
