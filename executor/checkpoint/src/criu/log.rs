//! The end of CRIU's log, and the reason for a failure that it tells.

use std::collections::VecDeque;

use crate::error::FailureReason;

const MAX_LOG_BYTES: usize = 4096;
/// Limit of an error in a reason.
const MAX_ERROR_BYTES: usize = 200;

/// Keeps the last 4 KiB.
#[derive(Debug, Default)]
pub(super) struct LogTail(VecDeque<u8>);

impl LogTail {
    pub(super) fn append(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
        let surplus = self.0.len().saturating_sub(MAX_LOG_BYTES);
        self.0.drain(..surplus);
    }

    pub(super) fn to_text(&self) -> String {
        let bytes: Vec<u8> = self.0.iter().copied().collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

type KnownMessage = (&'static [&'static str], fn() -> FailureReason);

/// Parts of CRIU's messages, in lower case, and the reason that each tells. The first match of
/// this order counts: a general message often follows the one that tells why.
const REASONS: &[KnownMessage] = &[
    (&["seccomp"], || FailureReason::SeccompFilter),
    (&["io_uring"], || FailureReason::IoUring),
    // Only these files cannot be passed on: "invalid argument".
    (&["send_fds failed (-22)"], || FailureReason::IoUring),
    (&["can't dump that handle"], || FailureReason::WatchedFiles),
    (&["inotify"], || FailureReason::WatchedFiles),
    (&["fanotify"], || FailureReason::WatchedFiles),
    (&["irmap"], || FailureReason::WatchedFiles),
    (&["ptraced by"], || FailureReason::Traced),
    (&["no such process"], || FailureReason::ProcessMissing),
    (&["nested", "namespace"], || FailureReason::NestedNamespaces),
    (&["namespace", "not supported"], || {
        FailureReason::NestedNamespaces
    }),
    (&["namespaces", "target user namespace"], || {
        FailureReason::NestedNamespaces
    }),
    (&["can't setns"], || FailureReason::NestedNamespaces),
    (&["external socket"], || FailureReason::OutsideSocket),
    (&["without peer"], || FailureReason::OutsideSocket),
    (&["unreachable peer"], || FailureReason::OutsideSocket),
    (&["bad size"], || FailureReason::FileChanged),
    (&["bad mode"], || FailureReason::FileChanged),
    (&["build-id"], || FailureReason::FileChanged),
    (&["can't fork for", "file exists"], || {
        FailureReason::PidInUse
    }),
    (&["pid", "do not match"], || FailureReason::PidInUse),
    (&["cannot assign requested address"], || {
        FailureReason::AddressMissing
    }),
    (&["cpu", "not supported"], || FailureReason::CpuMismatch),
    (&["cpu", "mismatch"], || FailureReason::CpuMismatch),
    (&["unsupported file type"], || {
        FailureReason::UnsupportedObject
    }),
    (&["can't dump file"], || FailureReason::UnsupportedObject),
    (&["sysvipc"], || FailureReason::UnsupportedObject),
    (&["unknown shit"], || FailureReason::UnsupportedObject),
    (&["can't open file", "no such file"], || {
        FailureReason::MissingFile
    }),
    (&["can't open", "no such file"], || {
        FailureReason::MissingFile
    }),
    (&["can't create link remap"], || FailureReason::MissingFile),
    (&["operation not permitted"], || FailureReason::NotPermitted),
    (&["permission denied"], || FailureReason::NotPermitted),
    (&["unseizable"], || FailureReason::NotPermitted),
];

/// Reason by the log; the first error for a message that is not known.
pub(super) fn reason_of(log: &str) -> FailureReason {
    let lines: Vec<String> = log
        .lines()
        .filter(|line| line.contains("Error") || !line.contains("Warn"))
        .map(str::to_lowercase)
        .collect();
    let told = REASONS.iter().find(|(parts, _)| {
        let mut all = lines.iter();
        all.any(|line| parts.iter().all(|part| line.contains(part)))
    });
    match told {
        Some((_, reason)) => reason(),
        None => first_error(log).map_or(FailureReason::Criu, FailureReason::Unknown),
    }
}

/// The first error without the time before it.
fn first_error(log: &str) -> Option<String> {
    let error = log
        .lines()
        .find_map(|line| line.find("Error").map(|at| &line[at..]))?;
    let end = error.floor_char_boundary(MAX_ERROR_BYTES);
    Some(error[..end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_is_that_of_the_specific_message() {
        let log = "(00.01) Error (criu/fsnotify.c:288): fsnotify: \tCan't dump that handle\n\
                   (00.02) Error (criu/cr-dump.c:2107): Dump files (pid: 1) failed with -1\n";
        assert!(matches!(reason_of(log), FailureReason::WatchedFiles));
        let log = "Error (criu/files-reg.c:1): Can't open file root/x on restore: No such file or directory";
        assert!(matches!(reason_of(log), FailureReason::MissingFile));
        let log = "Error (criu/files-reg.c:2200): File a has bad size 64 (expect 51)";
        assert!(matches!(reason_of(log), FailureReason::FileChanged));
        let log = "Error (criu/cr-restore.c:1): Can't fork for 1029: File exists";
        assert!(matches!(reason_of(log), FailureReason::PidInUse));
        let log = "pie: 2: Error (criu/pie/parasite.c:588): send_fds failed (-22)\n\
                   Error (criu/parasite-syscall.c:280): Can't retrieve FDs from socket\n";
        assert!(matches!(reason_of(log), FailureReason::IoUring));
        for log in [
            "Error (criu/namespaces.c:258): Can't setns 8/net: Operation not permitted",
            "Error (criu/namespaces.c:460): Can't dump nested user namespace for 4",
            "Error (criu/namespaces.c:997): One or more namespaces doesn't belong to the target \
             user namespace",
        ] {
            assert!(matches!(reason_of(log), FailureReason::NestedNamespaces));
        }
        let log = "Warn  seccomp\n(00.01) Error: x\n(00.02) Error: y\n";
        assert!(matches!(reason_of(log), FailureReason::Unknown(error) if error == "Error: x"));
        assert!(matches!(reason_of("Warn  x\n"), FailureReason::Criu));
    }

    #[test]
    fn log_keeps_its_end() {
        let mut tail = LogTail::default();
        tail.append(&[b'a'; 5000]);
        tail.append(b"end");
        let text = tail.to_text();
        assert_eq!(text.len(), MAX_LOG_BYTES);
        assert!(text.ends_with("aend"));
    }
}
