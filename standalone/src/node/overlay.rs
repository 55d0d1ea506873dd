//! Root of a pulled image: an overlay mount of its unpacked layers and a directory for changes.
//!
//! Layers are shared by all containers and never change. A start costs one mount for an
//! image of any size. Changes end with the container, or are kept for the next one.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use rustix::mount::{MountFlags, mount};
use rustix::process::fchdir;

use super::mount::OverlayRoot;

/// Directories in the directory of the changes.
pub(crate) const UPPER: &str = "upper";
const WORK: &str = "work";

/// Bytes of the options of a mount: one page.
const MAX_OPTIONS: usize = 4095;

/// Mounts the root at the directory `target`. `layers` is the directory of all layers, with the
/// owners that the container is to see. Runs on the launcher thread, whose working directory is its own: names
/// relative to it leave room for all layers in the options.
pub(crate) fn mount_overlay(root: &OverlayRoot, layers: &Path, target: &Path) -> io::Result<()> {
    let options = options(root)?;
    match fs::create_dir(root.changes.join(WORK)) {
        Err(error) if root.is_kept && error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    let flags = if root.is_kept {
        MountFlags::NODEV | MountFlags::NOSUID
    } else {
        MountFlags::empty()
    };
    let before = File::open(".")?;
    std::env::set_current_dir(layers)?;
    let mounted = mount(
        "overlay",
        target,
        "overlay",
        flags,
        Some(options.as_c_str()),
    );
    fchdir(&before)?;
    mounted.map_err(|error| {
        let hint = "the state directory must not be on an overlay or a network file system";
        let hint = (error == rustix::io::Errno::INVAL).then_some(hint);
        let hint = hint.map(|hint| format!(" ({hint})")).unwrap_or_default();
        io::Error::other(format!("mounting the image failed: {error}{hint}"))
    })
}

/// Options of the mount. `volatile` leaves out flushes to disk, if changes end with the container.
/// Kept changes have whole files, so that they do not depend on defaults of a kernel.
fn options(root: &OverlayRoot) -> io::Result<std::ffi::CString> {
    let durability = if root.is_kept {
        "metacopy=off"
    } else {
        "volatile"
    };
    let mut options = format!("{durability},index=off,lowerdir=").into_bytes();
    for (number, layer) in root.layers.iter().enumerate() {
        if number > 0 {
            options.push(b':');
        }
        escape(layer, &mut options);
    }
    for (name, directory) in [("upperdir", UPPER), ("workdir", WORK)] {
        options.extend(format!(",{name}=").into_bytes());
        escape(&root.changes.join(directory), &mut options);
    }
    if options.len() > MAX_OPTIONS {
        let message = format!("options of the image's mount exceed {MAX_OPTIONS} bytes");
        return Err(io::Error::other(message));
    }
    Ok(std::ffi::CString::new(options)?)
}

/// Appends a path; the kernel takes the separators of its options literally after a backslash.
fn escape(path: &Path, options: &mut Vec<u8>) {
    for byte in path.as_os_str().as_bytes() {
        if matches!(byte, b'\\' | b':' | b',') {
            options.push(b'\\');
        }
        options.push(*byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(layers: usize, scratch: &str) -> OverlayRoot {
        OverlayRoot {
            store: "/store".into(),
            layers: (0..layers).map(|n| format!("{n:0>26}").into()).collect(),
            changes: scratch.into(),
            scratch: scratch.into(),
            is_kept: false,
        }
    }

    #[test]
    fn options_escape_separators() {
        let mut two = root(2, "/a,b:c");
        two.layers = vec!["top".into(), "base".into()];
        let expected = "volatile,index=off,lowerdir=top:base,upperdir=/a\\,b\\:c/upper,\
            workdir=/a\\,b\\:c/work";
        assert_eq!(options(&two).unwrap().to_str().unwrap(), expected);
        two.is_kept = true;
        let kept = expected.replace("volatile", "metacopy=off");
        assert_eq!(options(&two).unwrap().to_str().unwrap(), kept);
    }

    #[test]
    fn options_have_room_for_all_layers_of_an_image() {
        let scratch = format!("/{}", "x".repeat(240));
        assert!(options(&root(127, &scratch)).is_ok());
        let scratch = format!("/{}", "x".repeat(900));
        assert!(options(&root(127, &scratch)).is_err());
    }
}
