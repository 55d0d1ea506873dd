//! Requests to CRIU and its responses. Numbers of fields are those of its `rpc.proto`.

use super::protobuf::{FieldValue, MessageReader, MessageWriter};

const DUMP: u64 = 1;
const RESTORE: u64 = 2;
const NOTIFY: u64 = 6;
/// Errors and warnings.
const LOG_LEVEL: u64 = 2;
const CGROUPS_IGNORE: u64 = 0;
/// The tree stands still, so that nothing is sent within its network.
const NETWORK_LOCK_SKIP: u64 = 3;
/// Largest file without a name that is saved with the tree, in bytes; CRIU's default is 1 MiB.
const GHOST_FILE_BYTES: u64 = 64 << 20;

/// Options of both requests.
#[derive(Debug)]
pub(super) struct CommonOptions {
    /// Folder of the streamer's socket, as a descriptor of this process.
    pub(super) folder: i32,
    /// CRIU's own limit, in seconds, beside that of the caller.
    pub(super) timeout: u64,
}

impl CommonOptions {
    fn writer(&self) -> MessageWriter {
        MessageWriter::default()
            .number(1, u64::from(self.folder.unsigned_abs()))
            .flag(5, true) // tcp_established: with tcp_close, those of the loopback network
            .flag(7, true) // shell_job: a terminal may have its master outside
            .flag(8, true) // file_locks
            .number(9, LOG_LEVEL)
            .flag(12, true) // notify_scripts
            .number(34, CGROUPS_IGNORE)
            .number(35, GHOST_FILE_BYTES)
            .number(45, self.timeout)
            .flag(46, true) // tcp_skip_in_flight: connections that wait to be accepted are closed
            .flag(50, true) // orphan_pts_master
            .flag(52, true) // tcp_close
            .number(64, NETWORK_LOCK_SKIP)
            .flag(67, true) // unprivileged
            .flag(71, true) // log_to_stderr
    }
}

pub(super) fn dump_request(
    common: &CommonOptions,
    root: i32,
    leave_running: bool,
    find_watched_files: bool,
) -> Vec<u8> {
    let mut options = common
        .writer()
        .number(2, u64::from(root.unsigned_abs()))
        .flag(3, leave_running);
    if find_watched_files {
        options = options.flag(21, true).bytes(36, b"/");
    }
    request(DUMP, options)
}

/// Keys and descriptors are those that CRIU inherits.
pub(super) fn restore_request(common: &CommonOptions, inherited: &[(String, i32)]) -> Vec<u8> {
    let mut options = common.writer().flag(26, true); // rst_sibling
    for (key, descriptor) in inherited {
        let entry = MessageWriter::default()
            .bytes(1, key.as_bytes())
            .number(2, u64::from(descriptor.unsigned_abs()));
        options = options.bytes(27, &entry.finish());
    }
    request(RESTORE, options)
}

pub(super) fn notify_reply(success: bool) -> Vec<u8> {
    MessageWriter::default()
        .number(1, NOTIFY)
        .flag(3, success)
        .finish()
}

fn request(kind: u64, options: MessageWriter) -> Vec<u8> {
    MessageWriter::default()
        .number(1, kind)
        .bytes(2, &options.finish())
        .finish()
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Response {
    /// A step was reached; CRIU waits for the reply.
    Notify(String),
    /// The end, with the root's number after a restore, and the first error of CRIU.
    Done {
        success: bool,
        pid: Option<i32>,
        error: String,
    },
}

pub(super) fn parse_response(message: &[u8]) -> Option<Response> {
    let (mut kind, mut success, mut pid) = (None, false, None);
    let (mut step, mut error) = (String::new(), String::new());
    for field in MessageReader(message) {
        match field {
            (1, FieldValue::Number(value)) => kind = Some(value),
            (2, FieldValue::Number(value)) => success = value != 0,
            (4, FieldValue::Bytes(restore)) => {
                pid = number_field(restore, 1).and_then(|pid| i32::try_from(pid).ok());
            }
            (5, FieldValue::Bytes(notify)) => step = text_field(notify, 1),
            (9, FieldValue::Bytes(text)) => error = String::from_utf8_lossy(text).into_owned(),
            _ => {}
        }
    }
    if kind? == NOTIFY {
        return Some(Response::Notify(step));
    }
    Some(Response::Done {
        success,
        pid,
        error,
    })
}

fn number_field(message: &[u8], field: u64) -> Option<u64> {
    MessageReader(message).find_map(|found| match found {
        (number, FieldValue::Number(value)) if number == field => Some(value),
        _ => None,
    })
}

pub(super) fn text_field(message: &[u8], field: u64) -> String {
    let text = MessageReader(message).find_map(|found| match found {
        (number, FieldValue::Bytes(value)) if number == field => Some(value),
        _ => None,
    });
    String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn step_and_result_are_told_apart() {
        let step = MessageWriter::default().bytes(1, b"post-dump").finish();
        let notify = MessageWriter::default()
            .number(1, NOTIFY)
            .flag(2, true)
            .bytes(5, &step)
            .finish();
        let expected = Response::Notify("post-dump".into());
        assert_eq!(parse_response(&notify), Some(expected));

        let restored = MessageWriter::default().number(1, 1000).finish();
        let done = MessageWriter::default()
            .number(1, RESTORE)
            .flag(2, true)
            .bytes(4, &restored)
            .finish();
        let expected = Response::Done {
            success: true,
            pid: Some(1000),
            error: String::new(),
        };
        assert_eq!(parse_response(&done), Some(expected));
        assert_eq!(parse_response(&[]), None);
    }
}
