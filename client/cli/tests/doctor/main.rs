//! `sandbox doctor` on a real API server, whose kubeconfig is in `KUBECONFIG`: faults are made one at
//! a time. `hack/test-cluster doctor` runs it in a cluster without controllers of Deployments or
//! endpoints, so no program runs: the test writes what they and the operator would write.

#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod faults;
mod installation;

use std::process::Command;
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::faults::{FAULTS, break_it, restore};
use crate::installation::{install, write_lease};

#[test]
#[ignore = "needs a real cluster: make test-cluster"]
fn each_fault_fails_its_check_alone() {
    install();
    wait_healthy();
    let mut wrong = Vec::new();
    for (check, fault) in FAULTS {
        let saved = break_it(fault);
        // Controllers of the cluster follow a change within seconds.
        let found = wait_for(|| failed_checks(&doctor(&[])) == [check]);
        if !found {
            wrong.push((check, doctor(&[])["checks"].clone()));
        }
        restore(&saved);
        write_lease();
        assert!(
            wait_for(|| failed_checks(&doctor(&[])).is_empty()),
            "after {check}: {}",
            doctor(&[])
        );
    }
    assert!(wrong.is_empty(), "{wrong:?}");
    let unreachable = doctor(&["--kubeconfig", "/nonexistent"]);
    assert_eq!(failed_checks(&unreachable), ["api-server"]);
}

fn wait_healthy() {
    write_lease();
    assert!(
        wait_for(|| failed_checks(&doctor(&[])).is_empty()),
        "{}",
        doctor(&[])
    );
}

fn wait_for(is_so: impl Fn() -> bool) -> bool {
    (0..60).any(|_| {
        let done = is_so();
        if !done {
            sleep(Duration::from_millis(250));
        }
        done
    })
}

fn doctor(more: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sandbox"));
    command.args(["doctor", "-o", "json"]).args(more);
    let output = command.env_remove("SANDBOX_API_URL").output().unwrap();
    let report: Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"));
    let is_healthy = report["healthy"] == true;
    assert_eq!(output.status.code(), Some(i32::from(!is_healthy)));
    report
}

fn failed_checks(report: &Value) -> Vec<&str> {
    let checks = report["checks"].as_array().unwrap().iter();
    checks
        .filter(|check| check["state"] == "failed")
        .map(|check| check["check"].as_str().unwrap())
        .collect()
}
