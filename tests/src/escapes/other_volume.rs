//! Attempts on the volume of another sandbox, which has a file and saved processes.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use nix::libc;

use super::attempts::OTHER_VOLUME;
use super::program::{ABSENT, END, names, program_of};

/// Prints the handle of a file, as `open_by_handle_at` takes it.
const HANDLE: &str = r#"
my ($call, $path, $handle, $id) = (@ARGV, pack('Ll', 128, 0) . "\0" x 128, "\0" x 8);
syscall($call + 0, -100, $path, $handle, $id, 0) == 0 or die $!;
print unpack('H*', substr($handle, 0, 8 + unpack('L', $handle)));
"#;

/// Directory of a volume on the node.
#[derive(Debug)]
pub struct OtherVolume {
    directory: PathBuf,
}

impl OtherVolume {
    /// The volume has the file `secret` in its workspace, with the text `secret`, and saved processes.
    pub fn new(directory: PathBuf) -> Self {
        let secret = std::fs::read_to_string(directory.join("workspace/secret")).unwrap();
        assert_eq!(secret.trim_end(), "secret");
        Self { directory }
    }

    /// Perl program and its arguments. `near` is a directory of the same file system.
    pub fn words(&self, near: &Path) -> Vec<String> {
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        let fixed = ["/tmp/other-volume", "/nowhere", "/proc/sys", "2", "", "1"];
        let mut words = vec![program_of(OTHER_VOLUME)];
        words.extend(fixed.map(str::to_owned));
        words.extend([path(&self.directory), path(near)]);
        for file in ["workspace/secret", "state/root/memory/archive"] {
            words.push(handle(&self.directory.join(file)));
        }
        words
    }

    /// Makes the attempts as root outside of any sandbox, where all of them work: a control that they
    /// would be seen.
    pub fn assert_outside_works(&self) {
        let near = self.directory.parent().unwrap();
        let output = Command::new("unshare")
            .args(["--mount", "--pid", "--fork", "--mount-proc", "--kill-child"])
            .args(["perl", "-e"])
            .args(self.words(near))
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let output = String::from_utf8(output.stdout).unwrap();
        assert_eq!(worked(&output), names(OTHER_VOLUME), "{output}");
    }
}

/// Attempts that have worked, by the output of the program.
pub fn worked(output: &str) -> Vec<&str> {
    assert!(output.lines().any(|line| line == END), "{output}");
    let all = names(OTHER_VOLUME);
    let lines = output.lines().filter(|line| !line.starts_with(ABSENT));
    lines.filter(|line| all.contains(line)).collect()
}

fn handle(path: &Path) -> String {
    let output = Command::new("perl")
        .args(["-e", HANDLE, &libc::SYS_name_to_handle_at.to_string()])
        .arg(path)
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", path.display());
    String::from_utf8(output.stdout).unwrap()
}
