//! Maps names of runtime classes that clients use to names in the cluster
//! (`docs/specs/runtime-api.md`, section 7, rule 21).

/// The cluster's class for a name. `gvisor` is the installation's class for gVisor, if it differs.
pub fn real_name<'a>(requested: &'a str, gvisor: Option<&'a str>) -> &'a str {
    match requested {
        "sysbox" => "sysbox-runc",
        "gvisor" => gvisor.unwrap_or(requested),
        other => other,
    }
}
