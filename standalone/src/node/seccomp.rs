//! Seccomp filter of containers: the system calls that Docker's default profile denies to a
//! container with the default capabilities, as a BPF program for bubblewrap.

use nix::libc;

/// Denied with EPERM to all containers: kernel modules, clocks, tracing of the kernel.
const DENIED: [i64; 40] = [
    libc::SYS_acct,
    libc::SYS_bpf,
    libc::SYS_clock_adjtime,
    libc::SYS_clock_settime,
    libc::SYS_delete_module,
    libc::SYS_fanotify_init,
    libc::SYS_finit_module,
    libc::SYS_get_mempolicy,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_file_load,
    libc::SYS_kexec_load,
    libc::SYS_lookup_dcookie,
    libc::SYS_mbind,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_nfsservctl,
    libc::SYS_open_by_handle_at,
    libc::SYS_perf_event_open,
    libc::SYS_pidfd_getfd,
    libc::SYS_process_madvise,
    libc::SYS_quotactl,
    libc::SYS_quotactl_fd,
    libc::SYS_reboot,
    libc::SYS_set_mempolicy,
    libc::SYS_set_mempolicy_home_node,
    libc::SYS_settimeofday,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_userfaultfd,
    libc::SYS_vhangup,
    // statmount, listmount and the three lsm_ calls.
    457,
    458,
    459,
    460,
    461,
];

/// Keys of the kernel. Programs do without them if they get ENOSYS, which runc needs.
const KEYS: [i64; 3] = [libc::SYS_add_key, libc::SYS_keyctl, libc::SYS_request_key];

/// Denied with EPERM except to image builds: mounts and namespaces.
const DENIED_TO_SANDBOXES: [i64; 14] = [
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_pivot_root,
    libc::SYS_setdomainname,
    libc::SYS_sethostname,
    libc::SYS_setns,
    libc::SYS_umount2,
    libc::SYS_unshare,
];

/// Denied as well, where they exist.
#[cfg(target_arch = "x86_64")]
const DENIED_ON_X86: &[i64] = &[
    libc::SYS_ioperm,
    libc::SYS_iopl,
    libc::SYS_sysfs,
    libc::SYS_uselib,
    libc::SYS_ustat,
    174, // create_module
];
#[cfg(not(target_arch = "x86_64"))]
const DENIED_ON_X86: &[i64] = &[];

/// The newest system call that the profile knows (`mseal`); programs get ENOSYS for later ones.
const LAST_KNOWN: u32 = 462;

/// `CLONE_NEW…` flags that an unprivileged process may not use.
const NAMESPACE_FLAGS: u32 = 0x7e02_0000;

/// Flags that image builds may not use: what makes a user or network namespace can reach far more of
/// the kernel in it.
const USER_OR_NETWORK: u32 = 0x5000_0000;

/// Execution domains: Linux, `UNAME26` of 32 bits, and the query.
const PERSONALITIES: [u32; 5] = [0, 8, 0x2_0000, 0x2_0008, u32::MAX];

/// Sockets to the hypervisor, which leave every network namespace.
const AF_VSOCK: u32 = 40;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Bit of the x32 interface, whose numbers would bypass the list.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const EQUAL: u16 = 0x15;
const AT_LEAST: u16 = 0x35;
const ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const KILL: u32 = 0x8000_0000;
const EPERM: u32 = 0x0005_0001;
const ENOSYS: u32 = 0x0005_0026;

/// Offsets in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCH: u32 = 4;
const FIRST_ARGUMENT: u32 = 16;

#[derive(Default)]
struct Program(Vec<u8>);

impl Program {
    fn push(&mut self, code: u16, skip_if: u8, skip_unless: u8, operand: u32) {
        self.0.extend(code.to_ne_bytes());
        self.0.extend([skip_if, skip_unless]);
        self.0.extend(operand.to_ne_bytes());
    }

    /// Ends with `result` if the loaded value compares as stated.
    fn end_if(&mut self, comparison: u16, value: u32, result: u32) {
        self.push(comparison, 0, 1, value);
        self.push(RETURN, 0, 0, result);
    }

    /// Checks the first argument of a call, with `checks`, which end with a result.
    fn on_call(&mut self, call: i64, checks: impl FnOnce(&mut Self)) {
        let mut body = Self::default();
        body.push(LOAD, 0, 0, FIRST_ARGUMENT);
        checks(&mut body);
        let length = u8::try_from(body.0.len() / 8).unwrap_or(u8::MAX);
        self.push(EQUAL, 0, length, number(call));
        self.0.extend(body.0);
    }
}

fn number(call: i64) -> u32 {
    u32::try_from(call).unwrap_or(u32::MAX)
}

/// Container that a filter is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FilterKind {
    Sandbox,
    /// Privileged in its user namespace.
    ImageBuild,
}

/// The program, as `struct sock_filter` entries.
pub(crate) fn program(kind: FilterKind) -> Vec<u8> {
    let mut program = Program::default();
    program.push(LOAD, 0, 0, ARCH);
    program.push(EQUAL, 1, 0, ARCHITECTURE);
    program.push(RETURN, 0, 0, KILL);
    program.push(LOAD, 0, 0, NUMBER);
    program.end_if(ANY_BIT, X32, ENOSYS);
    program.end_if(AT_LEAST, LAST_KNOWN + 1, ENOSYS);
    // Its flags are in memory, where a filter cannot read them: libraries fall back to `clone`.
    program.end_if(EQUAL, number(libc::SYS_clone3), ENOSYS);
    for call in DENIED.iter().chain(DENIED_ON_X86) {
        program.end_if(EQUAL, number(*call), EPERM);
    }
    let (denied, on_keys, flags) = match kind {
        FilterKind::Sandbox => (&DENIED_TO_SANDBOXES[..], EPERM, NAMESPACE_FLAGS),
        FilterKind::ImageBuild => (&[][..], ENOSYS, USER_OR_NETWORK),
    };
    for call in denied {
        program.end_if(EQUAL, number(*call), EPERM);
    }
    for call in KEYS {
        program.end_if(EQUAL, number(call), on_keys);
    }
    for call in [libc::SYS_clone, libc::SYS_unshare] {
        program.on_call(call, |body| {
            body.end_if(ANY_BIT, flags, EPERM);
            body.push(RETURN, 0, 0, ALLOW);
        });
    }
    program.on_call(libc::SYS_socket, |body| {
        body.end_if(EQUAL, AF_VSOCK, EPERM);
        body.push(RETURN, 0, 0, ALLOW);
    });
    program.on_call(libc::SYS_personality, |body| {
        for personality in PERSONALITIES {
            body.end_if(EQUAL, personality, ALLOW);
        }
        body.push(RETURN, 0, 0, EPERM);
    });
    program.push(RETURN, 0, 0, ALLOW);
    program.0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs the program on a call, as the kernel would.
    fn evaluate(kind: FilterKind, arch: u32, call: u32, argument: u32) -> u32 {
        let program = program(kind);
        let (mut at, mut value) = (0, 0);
        loop {
            let entry = &program[at * 8..][..8];
            let code = u16::from_ne_bytes([entry[0], entry[1]]);
            let operand = u32::from_ne_bytes([entry[4], entry[5], entry[6], entry[7]]);
            let holds = match code {
                LOAD => {
                    value = match operand {
                        NUMBER => call,
                        ARCH => arch,
                        _ => argument,
                    };
                    at += 1;
                    continue;
                }
                RETURN => return operand,
                EQUAL => value == operand,
                AT_LEAST => value >= operand,
                _ => value & operand != 0,
            };
            at += 1 + usize::from(entry[if holds { 2 } else { 3 }]);
        }
    }

    #[test]
    fn filter_denies_what_leaves_the_container() {
        for (name, call, argument, expected) in [
            ("mount", libc::SYS_mount, 0, EPERM),
            ("bpf", libc::SYS_bpf, 0, EPERM),
            ("unshare", libc::SYS_unshare, 0, EPERM),
            ("keyctl", libc::SYS_keyctl, 0, EPERM),
            ("read", libc::SYS_read, 0, ALLOW),
            ("execve", libc::SYS_execve, 0, ALLOW),
            ("ptrace", libc::SYS_ptrace, 0, ALLOW),
            ("setuid", libc::SYS_setuid, 0, ALLOW),
            ("user namespace", libc::SYS_clone, 0x1000_0011, EPERM),
            ("process", libc::SYS_clone, 0x11, ALLOW),
            ("clone3", libc::SYS_clone3, 0, ENOSYS),
            ("vsock", libc::SYS_socket, AF_VSOCK, EPERM),
            ("inet", libc::SYS_socket, 2, ALLOW),
            ("personality", libc::SYS_personality, 0x4_0000, EPERM),
            ("personality query", libc::SYS_personality, u32::MAX, ALLOW),
            ("unknown", 10_000, 0, ENOSYS),
            ("x32", i64::from(X32 | 1), 0, ENOSYS),
        ] {
            let result = evaluate(FilterKind::Sandbox, ARCHITECTURE, number(call), argument);
            assert_eq!(result, expected, "{name}");
        }
        let foreign = evaluate(FilterKind::Sandbox, ARCHITECTURE ^ 1, 0, 0);
        assert_eq!(foreign, KILL, "another architecture");
    }

    #[test]
    fn filter_of_image_builds_allows_mounts_and_namespaces_only() {
        for (name, call, argument, expected) in [
            ("mount", libc::SYS_mount, 0, ALLOW),
            ("mount namespace", libc::SYS_unshare, 0x0002_0000, ALLOW),
            ("process namespace", libc::SYS_clone, 0x2000_0011, ALLOW),
            ("user namespace", libc::SYS_unshare, 0x1000_0000, EPERM),
            ("network namespace", libc::SYS_clone, 0x4000_0011, EPERM),
            ("bpf", libc::SYS_bpf, 0, EPERM),
            ("keyctl", libc::SYS_keyctl, 0, ENOSYS),
            ("open by handle", libc::SYS_open_by_handle_at, 0, EPERM),
            ("vsock", libc::SYS_socket, AF_VSOCK, EPERM),
        ] {
            let result = evaluate(FilterKind::ImageBuild, ARCHITECTURE, number(call), argument);
            assert_eq!(result, expected, "{name}");
        }
    }
}
