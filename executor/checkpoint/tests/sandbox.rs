//! A tree of processes that answers whether its memory is whole.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use checkpoint::{ArchiveKey, DumpOptions, Limits, Manifest, RestoreOptions};

/// Answers to a file `ask` with the number of answers so far and a checksum of its memory, of which
/// some is mapped from files that have neither a path nor a descriptor, beyond their end.
const SCRIPT: &str = r"
import ctypes, hashlib, mmap, os, sys, threading, time
folder, size = sys.argv[1], int(sys.argv[2])
memory = os.urandom(size)
map_file = ctypes.CDLL(None).mmap
map_file.restype = ctypes.c_void_p
map_file.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
def map_lost_file(flags):
    with open(folder + '/lost', 'w+b') as file:
        file.write(os.urandom(5000))
        file.flush()
        place = map_file(None, 1 << 16, mmap.PROT_READ, flags, file.fileno(), 0)
    os.remove(folder + '/lost')
    return place
lost = [map_lost_file(mmap.MAP_PRIVATE), map_lost_file(mmap.MAP_SHARED)]
threading.Thread(target=time.sleep, args=(10**6,), daemon=True).start()
answers = 0
while True:
    if os.path.exists(folder + '/ask'):
        os.remove(folder + '/ask')
        answers += 1
        checksum = hashlib.sha256(memory)
        for place in lost:
            checksum.update(ctypes.string_at(place, 5000))
        with open(folder + '/partial', 'w') as answer:
            answer.write(f'{answers} {checksum.hexdigest()}')
        os.rename(folder + '/partial', folder + '/answer')
        print('answer', answers, flush=True)
    time.sleep(0.005)
";

/// Starts a shell with Python as its child; output goes to pipes.
pub(crate) fn start_tree(folder: &Path, bytes: usize, prefix: &[&str]) -> Child {
    fs::write(folder.join("script.py"), SCRIPT).unwrap();
    let words = prefix.iter().copied().chain(["setsid", "bash", "-c"]);
    let words: Vec<&str> = words.collect();
    Command::new(words[0])
        .args(&words[1..])
        .arg(r#"mine=41; python3 "$0/script.py" "$0" "$1"; exit $mine"#)
        .arg(folder)
        .arg(bytes.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Number of the answer, and checksum of the memory.
pub(crate) fn ask(folder: &Path) -> (u32, String) {
    fs::write(folder.join("ask"), "").unwrap();
    for _ in 0..4000 {
        if let Ok(answer) = fs::read_to_string(folder.join("answer")) {
            fs::remove_file(folder.join("answer")).unwrap();
            let (number, checksum) = answer.split_once(' ').unwrap();
            return (number.parse().unwrap(), checksum.to_owned());
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("no answer from the tree");
}

pub(crate) fn read_line(pipe: impl Into<OwnedFd>) -> String {
    let mut line = String::new();
    BufReader::new(fs::File::from(pipe.into()))
        .read_line(&mut line)
        .unwrap();
    line
}

pub(crate) fn key() -> ArchiveKey {
    ArchiveKey::new([42; 32])
}

pub(crate) fn limits() -> Limits {
    Limits {
        time: Duration::from_secs(30),
        bytes: 1 << 30,
    }
}

#[expect(clippy::unnecessary_wraps, reason = "an approval that never refuses")]
pub(crate) fn agree(_: &Manifest) -> Result<(), String> {
    Ok(())
}

pub(crate) fn dump_options<'a>(
    key: &'a ArchiveKey,
    approve: &'a mut dyn FnMut(&Manifest) -> Result<(), String>,
) -> DumpOptions<'a> {
    DumpOptions {
        key,
        context: b"test",
        limits: limits(),
        leave_running: false,
        find_watched_files: false,
        sync: true,
        approve,
    }
}

pub(crate) fn restore_options<'a>(
    key: &'a ArchiveKey,
    descriptors: Vec<(String, OwnedFd)>,
    approve: &'a mut dyn FnMut(&Manifest) -> Result<(), String>,
) -> RestoreOptions<'a> {
    RestoreOptions {
        key,
        context: b"test",
        limits: limits(),
        descriptors,
        approve,
    }
}
