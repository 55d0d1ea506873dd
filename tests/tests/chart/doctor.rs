//! `sandbox doctor` has nothing to say of an installation that works, but shows what the probes of the
//! cluster have found. That it finds faults is tested with the command.

use std::process::Command;

use serde_json::Value;
use tests::binaries::binary;
use tests::cli_tools::{get, try_kubectl, until};

use crate::release::{NAME, NAMESPACE, Release, api_key};

const PROBES: [&str; 2] = ["user_namespaces", "root_overlays"];
const RECORDS: [&str; 4] = [
    "configmap",
    "sandbox-operator-cluster-probes",
    "-n",
    NAMESPACE,
];

pub(crate) fn finds_nothing_wrong(release: &Release) {
    until("the probes have ended", || {
        let get = [&["get", "-o", "jsonpath={.data}"], &RECORDS[..]].concat();
        let found = try_kubectl(&get, "").unwrap_or_default();
        PROBES.iter().all(|probe| found.contains(probe))
    });
    let output = Command::new(binary("sandbox"))
        .args([
            "doctor",
            "-o",
            "json",
            "--operator-namespace",
            NAMESPACE,
            "--release",
            NAME,
        ])
        .env("SANDBOX_API_URL", &release.url)
        .env("SANDBOX_API_KEY", api_key())
        .output()
        .unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(output.status.success(), "{report}");
    let checks = report["checks"].as_array().unwrap();
    // The release has an address for a base URL, and neither TLS nor an Ingress nor an HTTPRoute.
    let skips = ["ingress", "http-route", "certificates", "dns"];
    for check in checks {
        if check["check"] == "probes" {
            assert_shows_records(check);
            continue;
        }
        let is_skipped = skips.iter().any(|name| check["check"] == *name);
        let state = if is_skipped { "skipped" } else { "ok" };
        assert_eq!(check["state"], state, "{check}");
    }
}

/// Nodes decide what works here; each reason why not is shown.
fn assert_shows_records(check: &Value) {
    let stored = get(&RECORDS);
    let record = |probe: &&str| -> Value {
        serde_json::from_str(stored["data"][probe].as_str().unwrap()).unwrap()
    };
    let records: Vec<_> = PROBES.iter().map(record).collect();
    let all_work = records.iter().all(|record| record["works"] == true);
    let state = if all_work { "ok" } else { "warning" };
    assert_eq!(check["state"], state, "{check}");
    let finding = check["finding"].as_str().unwrap();
    for record in &records {
        let reason = record["reason"].as_str().unwrap_or_default();
        assert!(finding.contains(reason), "{check}");
        assert!(finding.contains(record["probedAt"].as_str().unwrap()));
    }
}
