//! Environment that the Python server has in its images, where `micromamba run -n openhands poetry
//! run` starts it. Without it, `pip` in a command would belong to another Python than the kernel.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

const ENVIRONMENT: &str = "openhands/micromamba/envs/openhands";
const VIRTUAL_ENVIRONMENTS: &str = "openhands/poetry";
const CODE: &str = "openhands/code";

pub(super) type Variables = Vec<(&'static str, OsString)>;

/// Variables for shells, kernels and tool servers; none in other images. `path` is the current one.
pub(super) fn detect(root: &Path, path: Option<OsString>) -> Variables {
    let environment = Some(root.join(ENVIRONMENT)).filter(|prefix| has_python(prefix));
    let virtual_env = virtual_env(&root.join(VIRTUAL_ENVIRONMENTS));
    let prefixes = virtual_env.iter().chain(&environment);
    let mut entries: Vec<_> = prefixes.map(|prefix| prefix.join("bin")).collect();
    if entries.is_empty() {
        return Variables::new();
    }
    let path = path.unwrap_or_default();
    entries.extend(std::env::split_paths(&path).filter(|entry| !entry.as_os_str().is_empty()));
    let path = std::env::join_paths(entries).ok();
    let variables = [
        ("PATH", path),
        ("VIRTUAL_ENV", virtual_env.map(PathBuf::into_os_string)),
        ("CONDA_PREFIX", environment.map(PathBuf::into_os_string)),
    ];
    let present = variables
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    present.collect()
}

/// Directory with the code of the Python server, which its kernels can import.
pub(super) fn code_dir(root: &Path) -> Option<PathBuf> {
    Some(root.join(CODE)).filter(|directory| directory.is_dir())
}

/// The first of the virtual environments, in the order of their names.
fn virtual_env(directory: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let prefixes = entries.map(|entry| entry.path());
    prefixes.filter(|prefix| has_python(prefix)).min()
}

fn has_python(prefix: &Path) -> bool {
    prefix.join("bin/python").is_file()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_those_of_the_environments_that_exist() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        let detect = || detect(root, Some("/usr/bin".into()));
        assert_eq!(detect(), []);
        let prefixes = [root.join(ENVIRONMENT), root.join("openhands/poetry/venv")];
        let [environment, virtual_env] = &prefixes;
        for prefix in &prefixes {
            fs::create_dir_all(prefix.join("bin")).unwrap();
            assert_eq!(code_dir(root), None);
            fs::write(prefix.join("bin/python"), "").unwrap();
        }
        let (a, b) = (virtual_env.display(), environment.display());
        let expected = [
            ("PATH", format!("{a}/bin:{b}/bin:/usr/bin").into()),
            ("VIRTUAL_ENV", virtual_env.into()),
            ("CONDA_PREFIX", environment.into()),
        ];
        assert_eq!(detect(), expected);
        fs::remove_file(virtual_env.join("bin/python")).unwrap();
        assert_eq!(detect()[0].1, format!("{b}/bin:/usr/bin").as_str());
    }
}
