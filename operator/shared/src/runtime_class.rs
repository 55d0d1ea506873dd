//! Maps names of runtime classes that clients use to names in the cluster
//! (`docs/specs/runtime-api.md`, section 7, rule 21).

/// Classes whose containers share the kernel and the mounts of the node, by convention. The handler
/// of any other name may be a virtual machine or gVisor.
pub const SHARED_KERNEL: [&str; 2] = ["runc", "crun"];

/// Returns whether containers of this class are known to share the kernel of the node.
pub fn shares_kernel(class: &str) -> bool {
    SHARED_KERNEL.contains(&class)
}

/// The cluster's class for a name. `gvisor` is the installation's class for gVisor, if it differs.
pub fn real_name<'a>(requested: &'a str, gvisor: Option<&'a str>) -> &'a str {
    match requested {
        "sysbox" => "sysbox-runc",
        "gvisor" => gvisor.unwrap_or(requested),
        other => other,
    }
}
