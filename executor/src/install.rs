//! Copies this binary to a volume that the other containers of the Pod share. The image of the
//! init container is empty (`FROM scratch`) and has no `cp`.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use anyhow::Context as _;

const NAME: &str = "sandbox-executor";

/// Program for level `Memory` of a sandbox's persistence, which an image may have beside this binary.
const CRIU: &str = "criu";

/// Copies the running binary, and CRIU if it is beside it, to `directory` atomically, with mode 0755.
pub(crate) fn install(directory: &Path) -> anyhow::Result<()> {
    let source = File::open("/proc/self/exe").context("cannot read the running binary")?;
    install_program(source, directory, NAME)?;
    let own = std::env::current_exe().ok();
    match own.map(|own| File::open(own.with_file_name(CRIU))) {
        Some(Ok(criu)) => install_program(criu, directory, CRIU),
        _ => Ok(()),
    }
}

fn install_program(source: File, directory: &Path, name: &str) -> anyhow::Result<()> {
    let target = directory.join(name);
    let temporary = directory.join(format!(".{name}.{}", std::process::id()));
    copy(source, &temporary)
        .and_then(|()| fs::rename(&temporary, &target))
        .inspect_err(|_| drop(fs::remove_file(&temporary)))
        .with_context(|| format!("cannot write {}", target.display()))
}

/// Creates the working directory of an image's entrypoint. A failure is logged only, so that the
/// sandbox starts (`docs/specs/runtime-api.md`, section 7, rule 20).
pub(crate) fn make_directory(directory: &Path) {
    if let Err(error) = fs::create_dir_all(directory) {
        eprintln!(
            "sandbox-executor: cannot create {}: {error}",
            directory.display()
        );
    }
}

fn copy(mut source: File, target: &Path) -> io::Result<()> {
    let mut file = File::create(target)?;
    io::copy(&mut source, &mut file)?;
    file.set_permissions(fs::Permissions::from_mode(0o755))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn install_writes_one_complete_executable() {
        let directory = tempfile::tempdir().unwrap();
        install(directory.path()).unwrap();
        install(directory.path()).unwrap();
        let names: Vec<_> = fs::read_dir(&directory).unwrap().collect();
        assert_eq!(names.len(), 1);
        let copy = directory.path().join(NAME);
        assert_eq!(
            fs::metadata(&copy).unwrap().permissions().mode() & 0o777,
            0o755
        );
        assert_eq!(fs::read(copy).unwrap(), fs::read("/proc/self/exe").unwrap());
    }

    #[test]
    fn make_directory_tolerates_failure() {
        let directory = tempfile::tempdir().unwrap();
        let wanted = directory.path().join("a/b");
        make_directory(&wanted);
        make_directory(&wanted);
        assert!(wanted.is_dir());
        fs::write(directory.path().join("file"), "").unwrap();
        make_directory(&directory.path().join("file/a"));
    }
}
