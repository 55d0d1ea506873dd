//! User and working directory of the sandbox (`docs/specs/executor.md`, section 1.9).
//!
//! The user database is written here and not by `useradd`: minimal images lack it, and it takes
//! longer than the rest of the start.

use std::fmt::Write as _;
use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, Mode, OFlags};

use super::owner::change_owner;
use super::users::{self, UserError};
use crate::cli::ServeOptions;
use crate::open_path::{create_directory, open_path};

const SUDOERS: &str = "/etc/sudoers";
const SUDO_RULE: &str = "%sudo ALL=(ALL) NOPASSWD:ALL";
const SKELETON: &str = "/etc/skel";

#[derive(Debug, thiserror::Error)]
pub(super) enum SandboxSetupError {
    #[error(transparent)]
    User(#[from] UserError),
    #[error("Failed to add sudoer: {0}")]
    Sudoer(#[source] io::Error),
    #[error("Failed to create user {name} with UID {uid}. Output: useradd: {cause}")]
    Create {
        name: String,
        uid: u32,
        cause: String,
    },
}

/// Creates the user and the directory, unless the server runs as that user for local development.
pub(super) fn set_up(options: &ServeOptions) -> Result<(), SandboxSetupError> {
    if options.is_local_development() {
        return Ok(());
    }
    if options.username != "root" {
        make_user(&options.username, options.user_id)?;
    }
    let made = make_working_dir(options);
    let is_usable = rustix::fs::access(&options.working_dir, Access::WRITE_OK).is_ok();
    // A volume of another owner that the group may write to needs no change.
    if let Err(error) = made
        && !is_usable
    {
        // Not fatal, as in the Python server: the agent may work in another directory.
        let directory = options.working_dir.display();
        tracing::warn!(%error, %directory, "cannot prepare the working directory");
    }
    Ok(())
}

fn make_user(name: &str, uid: u32) -> Result<(), SandboxSetupError> {
    match users::find(|user| user.name == name)? {
        Some(user) => {
            if user.uid != uid {
                let uid = user.uid;
                tracing::warn!(
                    name,
                    uid,
                    "the user exists with another uid; keeping that uid"
                );
            }
            Ok(())
        }
        None if rustix::process::geteuid().is_root() => {
            let failed = |cause| SandboxSetupError::Create {
                name: name.to_owned(),
                uid,
                cause,
            };
            let passwd = fs::read_to_string(users::PASSWD).unwrap_or_default();
            if !is_valid(name) {
                return Err(failed(format!("invalid user name '{name}'")));
            }
            if users::has_uid(&passwd, uid) {
                return Err(failed(format!("UID {uid} is not unique")));
            }
            // An image of one program may have no `/etc`.
            let _ = fs::create_dir("/etc");
            allow_sudo().map_err(SandboxSetupError::Sudoer)?;
            create(name, uid, &passwd).map_err(failed)
        }
        None => {
            // On clusters that assign arbitrary uids, the current uid serves as well.
            tracing::warn!(
                name,
                "cannot create the user without root; running as the current user"
            );
            Ok(())
        }
    }
}

fn allow_sudo() -> io::Result<()> {
    let known = fs::read_to_string(SUDOERS).unwrap_or_default();
    if known.lines().any(|line| line == SUDO_RULE) {
        return Ok(());
    }
    append(SUDOERS, &known, SUDO_RULE, 0o440)
}

/// Equivalent of `useradd -rm -d /home/NAME -s /bin/bash -g root -G sudo -u UID NAME`.
fn create(name: &str, uid: u32, passwd: &str) -> Result<(), String> {
    const SHADOW: &str = "/etc/shadow";
    let home = PathBuf::from(format!("/home/{name}"));
    let failed = |path| move |error| format!("cannot write {path}: {error}");
    let line = format!("{name}:x:{uid}:0::{}:{}", home.display(), login_shell());
    append(users::PASSWD, passwd, &line, 0o644).map_err(failed(users::PASSWD))?;
    if let Ok(known) = fs::read_to_string(SHADOW) {
        let line = format!("{name}:!:1::::::");
        append(SHADOW, &known, &line, 0o640).map_err(failed(SHADOW))?;
    }
    join_group("sudo", name).map_err(failed(users::GROUP))?;
    if let Err(error) = make_home(&home, uid) {
        tracing::warn!(%error, home = %home.display(), "cannot create the home directory");
    }
    Ok(())
}

/// `/bin/sh` in images that have it without bash.
fn login_shell() -> &'static str {
    match ["/bin/bash", "/bin/sh"].map(|shell| Path::new(shell).exists()) {
        [false, true] => "/bin/sh",
        _ => "/bin/bash",
    }
}

fn is_valid(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.len() <= 32 && name.bytes().all(valid)
}

/// Adds a member to a group. Does nothing if the image has no group database.
fn join_group(group: &str, member: &str) -> io::Result<()> {
    let Ok(known) = fs::read_to_string(users::GROUP) else {
        return Ok(());
    };
    let mut text = String::new();
    for line in known.lines() {
        text.push_str(line);
        if line.split(':').next() == Some(group) {
            let separator = if line.ends_with(':') { "" } else { "," };
            let _ = write!(text, "{separator}{member}");
        }
        text.push('\n');
    }
    fs::write(users::GROUP, text)
}

fn append(path: &str, known: &str, line: &str, mode: u32) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(mode)
        .open(path)?;
    let newline = if known.is_empty() || known.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    file.write_all(format!("{newline}{line}\n").as_bytes())
}

fn make_home(home: &Path, uid: u32) -> io::Result<()> {
    if home.exists() {
        return Ok(());
    }
    fs::create_dir_all(home)?;
    copy_tree(Path::new(SKELETON), home);
    change_owner(home, (uid, 0), false)
}

/// Copies files and directories, and skips entries that cannot be copied.
fn copy_tree(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).into_iter().flatten().flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => {
                let _ = fs::create_dir(&target);
                copy_tree(&entry.path(), &target);
            }
            Ok(kind) if kind.is_file() => drop(fs::copy(entry.path(), target)),
            _ => {}
        }
    }
}

/// `umask 002; mkdir -p; chown -R USER:GROUP; chmod g+rw`
fn make_working_dir(options: &ServeOptions) -> io::Result<()> {
    let directory = &options.working_dir;
    let usual = rustix::process::umask(Mode::from_raw_mode(0o002));
    let outcome = create_directory(directory);
    rustix::process::umask(usual);
    outcome?;
    let group = users::group_id(&options.sandbox_group_id);
    let user = users::find(|user| user.name == options.username);
    if let Some((user, gid)) = user.ok().flatten().zip(group) {
        change_owner(directory, (user.uid, gid), false)?;
    }
    allow_group(directory)
}

/// Adds `g+rw`. A symbolic link is not followed: its target may be any directory of the system.
fn allow_group(directory: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // A link is no directory, so that its "." does not exist.
    let directory = rustix::fs::openat(open_path(directory)?, ".", flags, Mode::empty())?;
    let mode = Mode::from_raw_mode(rustix::fs::fstat(&directory)?.st_mode);
    Ok(rustix::fs::fchmod(
        directory,
        mode | Mode::RGRP | Mode::WGRP,
    )?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, symlink};

    #[test]
    fn allow_group_does_not_follow_a_link() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (
            directory.path().join("target"),
            directory.path().join("link"),
        );
        DirBuilder::new().mode(0o700).create(&target).unwrap();
        symlink(&target, &link).unwrap();
        let mode = || fs::metadata(&target).unwrap().permissions().mode() & 0o777;
        assert!(allow_group(&link).is_err());
        assert_eq!(mode(), 0o700);
        allow_group(&target).unwrap();
        assert_eq!(mode(), 0o760);
    }
}
