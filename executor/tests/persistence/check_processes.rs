//! The check of a probe Pod, whether processes can be saved.

use std::path::Path;

use super::containers::{CAPABILITIES, HOST_CAPABILITIES, Volumes, namespaces};
use crate::client::{BINARY, copy_program};

/// Runs the rest without files of the caller: they lie on mounts of other namespaces.
const CLOSE_FILES: &str = r#"for path in /proc/self/fd/*; do
    number=${path##*/}
    [ "$number" -le 2 ] || eval "exec $number>&-"
done
exec "$@""#;

/// Standard error of a check with these capabilities, or `None` if it succeeds.
fn check(
    volumes: &Volumes,
    program: &Path,
    has_user_namespace: bool,
    capabilities: &str,
) -> Option<String> {
    let mut command = namespaces(has_user_namespace);
    command.args(["bash", "-c", CLOSE_FILES, "bash"]);
    command.args(["setpriv", "--bounding-set", capabilities]);
    command.arg(program).arg("check-processes");
    let output = command.arg(volumes.store()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    (!output.status.success()).then_some(error)
}

#[test]
fn check_tells_whether_processes_can_be_saved() {
    let Some(volumes) = Volumes::new("check_tells_whether_processes_can_be_saved") else {
        return;
    };
    let image = tempfile::tempdir().unwrap();
    let program = image.path().join("sandbox-executor");
    copy_program(BINARY.as_ref(), &program);
    let check = |has_user_namespace, capabilities| {
        check(&volumes, &program, has_user_namespace, capabilities)
    };

    let error = check(true, CAPABILITIES).unwrap();
    assert!(error.contains("criu does not exist"), "{error}");
    copy_program(&volumes.criu, &image.path().join("criu"));
    assert_eq!(check(true, CAPABILITIES), None);
    assert_eq!(check(false, HOST_CAPABILITIES), None);
    let error = check(false, "-all").unwrap();
    assert!(error.contains("processes cannot be saved: "), "{error}");
}
