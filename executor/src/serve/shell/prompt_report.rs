//! State of the shell that it reports at every prompt.

use std::path::Path;

use crate::system;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::serve) struct PromptReport {
    pub(in crate::serve) exit_code: i32,
    /// Pid of the last background process, -1 if there was none.
    pub(in crate::serve) background_pid: i32,
    /// Number of the last command that this shell loaded.
    pub(super) command_id: u64,
    /// Random number of the shell: nested shells report as well.
    pub(super) shell: i32,
    pub(in crate::serve) username: String,
    pub(in crate::serve) hostname: String,
    pub(super) path: String,
    pub(in crate::serve) working_dir: String,
}

impl PromptReport {
    /// Reads the fields in the order of the prompt. The last, the directory, may contain anything.
    pub(super) fn parse(bytes: &[u8], separator: u8) -> Option<Self> {
        // The terminal turns a newline in a value into two characters.
        let text = String::from_utf8_lossy(bytes).replace("\r\n", "\n");
        let mut fields = text.splitn(8, char::from(separator));
        Some(Self {
            exit_code: fields.next()?.parse().ok()?,
            background_pid: fields.next()?.parse().unwrap_or(-1),
            command_id: fields.next()?.parse().ok()?,
            shell: fields.next()?.parse().ok()?,
            username: fields.next()?.to_owned(),
            hostname: fields.next()?.to_owned(),
            path: fields.next()?.to_owned(),
            working_dir: fields.next()?.to_owned(),
        })
    }

    /// Path that `which python` prints in that shell, empty if there is none.
    pub(in crate::serve) fn python(&self) -> String {
        let found = std::env::split_paths(&self.path)
            .map(|entry| Path::new(&self.working_dir).join(entry).join("python"))
            .find(|candidate| system::is_executable(candidate));
        found.map_or_else(String::new, |path| path.to_string_lossy().into_owned())
    }
}
