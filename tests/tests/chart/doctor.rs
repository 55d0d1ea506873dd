//! `sandbox doctor` has nothing to say of an installation that works. That it finds faults is tested
//! with the command.

use std::process::Command;

use serde_json::Value;
use tests::binaries::binary;

use crate::release::{NAME, NAMESPACE, Release, api_key};

pub(crate) fn finds_nothing_wrong(release: &Release) {
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
    // The release has an address for a base URL, and neither TLS nor an Ingress.
    let skips = ["ingress", "certificates", "dns"];
    for check in checks {
        let is_skipped = skips.iter().any(|name| check["check"] == *name);
        let state = if is_skipped { "skipped" } else { "ok" };
        assert_eq!(check["state"], state, "{check}");
    }
}
