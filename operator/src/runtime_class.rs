//! Names of runtime classes, as clients say them and as clusters know them (runtime API spec 7.21).

/// The class of the cluster that a name stands for. `gvisor` is the class that an installation has
/// for gVisor, if it has another name there.
pub fn real_name<'a>(asked: &'a str, gvisor: Option<&'a str>) -> &'a str {
    match asked {
        "sysbox" => "sysbox-runc",
        "gvisor" => gvisor.unwrap_or(asked),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn aliases_are_resolved() {
        for (asked, gvisor, real) in [
            ("sysbox", None, "sysbox-runc"),
            ("gvisor", None, "gvisor"),
            ("gvisor", Some("runsc"), "runsc"),
            ("kata", Some("runsc"), "kata"),
        ] {
            assert_eq!(real_name(asked, gvisor), real);
        }
    }
}
