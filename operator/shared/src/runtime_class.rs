//! Maps names of runtime classes that clients use to names in the cluster
//! (`docs/specs/runtime-api.md`, section 7, rule 21).

/// Returns the class in the cluster for a name. `gvisor` is the class that the installation uses for
/// gVisor, if it differs.
pub fn real_name<'a>(requested: &'a str, gvisor: Option<&'a str>) -> &'a str {
    match requested {
        "sysbox" => "sysbox-runc",
        "gvisor" => gvisor.unwrap_or(requested),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_resolved() {
        for (requested, gvisor, real) in [
            ("sysbox", None, "sysbox-runc"),
            ("gvisor", None, "gvisor"),
            ("gvisor", Some("runsc"), "runsc"),
            ("kata", Some("runsc"), "kata"),
        ] {
            assert_eq!(real_name(requested, gvisor), real);
        }
    }
}
