//! The device whose use a container's cgroup limits: that of the state directory, with the private
//! files of all containers.

use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Bytes per second that a container reads from a device, and writes to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DiskRate {
    pub device: Device,
    pub bytes: u64,
}

/// Numbers of a whole disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Device(pub u32, pub u32);

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.0, self.1)
    }
}

impl Device {
    /// The disk with the file system of `path`.
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        let number = fs::metadata(path)?.dev();
        let (major, minor) = (rustix::fs::major(number), rustix::fs::minor(number));
        let device = Path::new("/sys/dev/block").join(Self(major, minor).to_string());
        let unknown = || {
            let path = path.display();
            io::Error::other(format!(
                "the file system of {path} is not on one block device"
            ))
        };
        // File systems without a device of their own, such as overlays, have no entry.
        let device = device.canonicalize().map_err(|_| unknown())?;
        // The kernel takes no partitions.
        let is_partition = device.join("partition").exists();
        let whole = if is_partition {
            device.parent()
        } else {
            Some(&*device)
        };
        let text = fs::read_to_string(whole.unwrap_or(&device).join("dev"))?;
        let numbers = text.trim().split_once(':');
        let numbers = numbers.and_then(|(a, b)| Some(Self(a.parse().ok()?, b.parse().ok()?)));
        numbers.ok_or_else(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_system_in_memory_has_no_disk() {
        let error = Device::of(Path::new("/dev/shm")).unwrap_err().to_string();
        let expected = "the file system of /dev/shm is not on one block device";
        assert_eq!(error, expected);
    }
}
