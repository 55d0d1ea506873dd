//! Finds Chromium in an image.

use std::env::split_paths;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Names in the search path, the leanest first.
const NAMES: [&str; 5] = [
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];
/// Folder and program in a directory of Playwright's browsers, the leanest first.
const PLAYWRIGHT: [(&str, &[&str]); 2] = [
    (
        "chromium_headless_shell-",
        &[
            "chrome-linux/headless_shell",
            "chrome-headless-shell-linux64/chrome-headless-shell",
            "chrome-linux64/headless_shell",
        ],
    ),
    (
        "chromium-",
        &["chrome-linux/chrome", "chrome-linux64/chrome"],
    ),
];
/// Playwright's browsers in OpenHands' images.
const OPENHANDS_BROWSERS: &str = "/opt/playwright-browsers";

/// Searches in the order of section 4.3. `variable` reads the environment of the sandbox. Blocks.
pub fn find(variable: impl Fn(&str) -> Option<std::ffi::OsString>) -> Option<PathBuf> {
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".cache/ms-playwright"));
    let browsers = variable("PLAYWRIGHT_BROWSERS_PATH").map(PathBuf::from);
    let folders = [browsers, Some(OPENHANDS_BROWSERS.into()), home];
    let path = variable("PATH").unwrap_or_default();
    let mut folders = folders.into_iter().flatten();
    folders
        .find_map(|folder| in_playwright(&folder))
        .or_else(|| in_path(&path))
}

fn in_playwright(folder: &Path) -> Option<PathBuf> {
    PLAYWRIGHT.iter().find_map(|(prefix, programs)| {
        let entries = fs::read_dir(folder).ok()?;
        let revision =
            |name: &OsStr| -> Option<u64> { name.to_str()?.strip_prefix(prefix)?.parse().ok() };
        let mut found: Vec<_> = entries
            .flatten()
            .filter_map(|entry| Some((revision(&entry.file_name())?, entry.path())))
            .collect();
        found.sort();
        // The newest revision.
        let mut newest_first = found.into_iter().rev();
        newest_first.find_map(|(_, folder)| {
            let mut programs = programs.iter().map(|program| folder.join(program));
            programs.find(|program| is_executable(program))
        })
    })
}

fn in_path(path: &OsStr) -> Option<PathBuf> {
    NAMES.iter().find_map(|name| {
        let mut programs = split_paths(path).map(|folder| folder.join(name));
        programs.find(|program| program.is_absolute() && is_executable(program))
    })
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn program(folder: &Path, name: &str) -> PathBuf {
        let path = folder.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    #[test]
    fn find_prefers_playwright_then_headless_shell_then_newest_revision() {
        let root = tempfile::tempdir().unwrap();
        let (bin, browsers) = (root.path().join("bin"), root.path().join("browsers"));
        let mut variables = HashMap::from([("PATH", bin.as_os_str().to_owned())]);
        let found = |variables: &HashMap<_, std::ffi::OsString>| {
            find(|name| variables.get(name).cloned()).filter(|path| path.starts_with(root.path()))
        };
        assert_eq!(found(&variables), None);
        let chromium = program(&bin, "chromium");
        assert_eq!(found(&variables), Some(chromium));
        let shell = program(&bin, "chromium-headless-shell");
        assert_eq!(found(&variables), Some(shell));
        variables.insert("PLAYWRIGHT_BROWSERS_PATH", browsers.clone().into());
        let full = program(&browsers, "chromium-1187/chrome-linux/chrome");
        assert_eq!(found(&variables), Some(full));
        program(
            &browsers,
            "chromium_headless_shell-999/chrome-linux/headless_shell",
        );
        let newest = program(
            &browsers,
            "chromium_headless_shell-1187/chrome-linux/headless_shell",
        );
        assert_eq!(found(&variables), Some(newest));
    }
}
