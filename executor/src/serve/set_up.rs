//! What must be there before the shell starts: the sandbox's user and its working directory
//! (spec 1.9). The user database is written here, not by `useradd`, which minimal images lack and
//! which would take longer than all the rest of the start.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::os::unix::fs::{PermissionsExt as _, lchown};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;

use super::settings::Settings;
use super::users::{self, User, UserError};

const SUDOERS: &str = "/etc/sudoers";
const SUDO_RULE: &str = "%sudo ALL=(ALL) NOPASSWD:ALL";
const SKELETON: &str = "/etc/skel";

#[derive(Debug, thiserror::Error)]
pub(super) enum SetUpError {
    #[error(transparent)]
    User(#[from] UserError),
    #[error("Failed to add sudoer: {0}")]
    Sudoer(#[source] io::Error),
    #[error("Failed to create user {name} with UID {uid}. Output: useradd: {cause}")]
    Create {
        name: String,
        uid: u32,
        cause: CreateError,
    },
}

#[derive(Debug, thiserror::Error)]
pub(super) enum CreateError {
    #[error("UID {0} is not unique")]
    TakenUid(u32),
    #[error("invalid user name '{0}'")]
    Name(String),
    #[error("cannot write {path}: {source}")]
    Write { path: PathBuf, source: io::Error },
}

/// Makes the user and the directory, unless the server runs as that user on a developer's machine.
pub(super) fn prepare(settings: &Settings) -> Result<(), SetUpError> {
    if settings.is_developers_own() {
        return Ok(());
    }
    if settings.username != "root" {
        make_user(&settings.username, settings.user_id)?;
    }
    if let Err(error) = make_working_dir(settings) {
        // As the original, which ignores it: the agent may have all it needs elsewhere.
        let directory = settings.working_dir.display();
        tracing::warn!(%error, %directory, "cannot prepare the working directory");
    }
    Ok(())
}

fn make_user(name: &str, uid: u32) -> Result<(), SetUpError> {
    match users::find_by_name(name)? {
        Some(user) if user.uid != uid => {
            tracing::warn!(
                name,
                uid = user.uid,
                "the user exists with another uid, which counts"
            );
            Ok(())
        }
        Some(_) => Ok(()),
        None if rustix::process::geteuid().is_root() => {
            let failed = |cause| SetUpError::Create {
                name: name.to_owned(),
                uid,
                cause,
            };
            check(name, uid).map_err(failed)?;
            allow_sudo().map_err(SetUpError::Sudoer)?;
            create(name, uid).map_err(failed)
        }
        None => {
            // Where any uid may be given to a container, this one is as good as the one asked for.
            tracing::warn!(
                name,
                "cannot create the user without root; going on as the own user"
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
    append(Path::new(SUDOERS), &known, SUDO_RULE, 0o440)
}

fn check(name: &str, uid: u32) -> Result<(), CreateError> {
    if !is_valid(name) {
        return Err(CreateError::Name(name.to_owned()));
    }
    let passwd = fs::read_to_string(users::PASSWD).unwrap_or_default();
    if users::has_uid(&passwd, uid) {
        return Err(CreateError::TakenUid(uid));
    }
    Ok(())
}

/// As `useradd -rm -d /home/NAME -s /bin/bash -g root -G sudo -u UID NAME`.
fn create(name: &str, uid: u32) -> Result<(), CreateError> {
    let home = PathBuf::from(format!("/home/{name}"));
    let passwd = fs::read_to_string(users::PASSWD).unwrap_or_default();
    let written = |path: &str, outcome: io::Result<()>| {
        outcome.map_err(|source| CreateError::Write {
            path: path.into(),
            source,
        })
    };
    let line = format!("{name}:x:{uid}:0::{}:/bin/bash", home.display());
    written(
        users::PASSWD,
        append(Path::new(users::PASSWD), &passwd, &line, 0o644),
    )?;
    let shadow = Path::new("/etc/shadow");
    if let Ok(known) = fs::read_to_string(shadow) {
        written(
            "/etc/shadow",
            append(shadow, &known, &format!("{name}:!:1::::::"), 0o640),
        )?;
    }
    written(users::GROUP, join_group("sudo", name))?;
    if let Err(error) = make_home(&home, uid) {
        tracing::warn!(%error, home = %home.display(), "cannot make the home directory");
    }
    Ok(())
}

fn is_valid(name: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    !name.is_empty() && !name.starts_with('-') && name.len() <= 32 && name.bytes().all(valid)
}

/// A group that the image does not have is no reason not to start.
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

fn append(path: &Path, known: &str, line: &str, mode: u32) -> io::Result<()> {
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
    hand_over(home, uid, 0)
}

/// What cannot be copied is missing then, as a skeleton may be altogether.
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
fn make_working_dir(settings: &Settings) -> io::Result<()> {
    let directory = &settings.working_dir;
    let usual = rustix::process::umask(Mode::from_raw_mode(0o002));
    let outcome = DirBuilder::new()
        .recursive(true)
        .mode(0o777)
        .create(directory);
    rustix::process::umask(usual);
    outcome?;
    let group = users::group_id(&settings.group);
    if let (Some(User { uid, .. }), Some(gid)) = (
        users::find_by_name(&settings.username).ok().flatten(),
        group,
    ) {
        hand_over(directory, uid, gid)?;
    }
    let mode = fs::metadata(directory)?.permissions().mode();
    fs::set_permissions(directory, fs::Permissions::from_mode(mode | 0o060))
}

/// Changes the owner of a whole tree, links themselves included; nothing that is right already.
pub(super) fn hand_over(path: &Path, uid: u32, gid: u32) -> io::Result<()> {
    let found = fs::symlink_metadata(path)?;
    if (found.uid(), found.gid()) != (uid, gid) {
        lchown(path, Some(uid), Some(gid))?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path)?.flatten() {
            // Of many files one that cannot be had is no reason to leave out the others.
            let _ = hand_over(&entry.path(), uid, gid);
        }
    }
    Ok(())
}
