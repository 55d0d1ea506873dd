//! Attempts to leave a sandbox, as Perl expressions that are true if the attempt has worked.
//!
//! They run as root, in a sandbox and outside of any. Outside they must be harmless: files of the
//! kernel are opened but not written, and system calls that change the machine get arguments that
//! the kernel checks after the permission. A process there may be killed, `$victim`.

/// Text of an attempt, and an expression.
pub type Attempt = (&'static str, &'static str);

/// Attempts that work as root on every machine.
pub const EVERYWHERE: &[Attempt] = &[
    // Mounts.
    (
        "mount a tmpfs",
        "sys('mount', 'none', $tmp, 'tmpfs', 0, '') == 0",
    ),
    (
        "bind the root",
        "sys('mount', '/', $tmp, '', 0x1000, '') == 0",
    ),
    (
        "mount sysfs",
        "sys('mount', 'none', $tmp, 'sysfs', 0, '') == 0",
    ),
    (
        "mount proc",
        "sys('mount', 'none', $tmp, 'proc', 0, '') == 0",
    ),
    (
        "mount cgroups",
        "sys('mount', 'none', $tmp, 'cgroup2', 0, '') == 0",
    ),
    (
        "mount devices",
        "sys('mount', 'none', $tmp, 'devtmpfs', 0, '') == 0",
    ),
    (
        "make mounts shared",
        "sys('mount', 'none', '/', '', 0x100000 | 0x4000, '') == 0",
    ),
    ("open a file system", "sys('fsopen', 'tmpfs', 0) >= 0"),
    (
        "open a tree of mounts",
        "sys('open_tree', -100, '/', 1) >= 0",
    ),
    ("unmount a cover", "sys('umount2', $cover, 2) == 0"),
    (
        "remount a cover",
        "sys('mount', 'none', $cover, '', 0x1020, '') == 0",
    ),
    (
        "make a cover writable",
        "sys('mount_setattr', -100, $cover, 0, pack('Q4', 0, 1, 0, 0), 32) == 0",
    ),
    (
        "replace the root",
        "chdir('/dev/shm') && sys('pivot_root', '.', '.') == 0",
    ),
    // Namespaces.
    ("unshare mounts", "sys('unshare', 0x00020000) == 0"),
    (
        "unshare users and mounts",
        "sys('unshare', 0x10020000) == 0",
    ),
    ("unshare cgroups", "sys('unshare', 0x02000000) == 0"),
    ("unshare the network", "sys('unshare', 0x40000000) == 0"),
    ("clone into a user namespace", "clone(0x10000000 | 17) > 0"),
    (
        "clone into a network namespace",
        "clone(0x40000000 | 17) > 0",
    ),
    (
        "enter a namespace",
        "open($f, '<', '/proc/self/ns/mnt') && sys('setns', fileno($f), 0) == 0",
    ),
    // Keys.
    (
        "add a key",
        "sys('add_key', 'user', 'escape', 'x', 1, -2) > 0",
    ),
    (
        "find the keys of the user",
        "sys('keyctl', 0, -4, 1, 0, 0) > 0",
    ),
    ("join a session of keys", "sys('keyctl', 1, 0, 0, 0, 0) > 0"),
    ("list all keys", "text('/proc/keys') =~ /keyring/"),
    // Settings of the kernel.
    (
        "open core_pattern",
        "can('>>', '/proc/sys/kernel/core_pattern')",
    ),
    (
        "open overcommit_memory",
        "can('>>', '/proc/sys/vm/overcommit_memory')",
    ),
    (
        "open ip_forward",
        "can('>>', '/proc/sys/net/ipv4/ip_forward')",
    ),
    (
        "open protected_hardlinks",
        "can('>>', '/proc/sys/fs/protected_hardlinks')",
    ),
    (
        "open a setting of /sys",
        "can('>>', '/sys/kernel/mm/transparent_hugepage/enabled')",
    ),
    ("open the timers", "can('<', '/proc/timer_list')"),
    ("raise the priority", "sys('setpriority', 0, 0, -10) == 0"),
    // Cgroups.
    (
        "move to another cgroup",
        "can('>>', '/sys/fs/cgroup/cgroup.procs') || \
        grep { can('>>', \"/sys/fs/cgroup/$_/cgroup.procs\") } files('/sys/fs/cgroup')",
    ),
    (
        "move to another cgroup by a new mount",
        "sys('mount', 'none', $tmp, 'cgroup2', 0, '') == 0 && can('>>', \"$tmp/cgroup.procs\")",
    ),
    (
        "move by the root of init",
        "can('>>', '/proc/1/root/sys/fs/cgroup/cgroup.procs') || \
        grep { can('>>', \"/proc/1/root/sys/fs/cgroup/$_/cgroup.procs\") } files('/proc/1/root/sys/fs/cgroup')",
    ),
    // Devices.
    ("make the disk's device", "grep { node('b', $_) } @disks"),
    ("make the log's device", "node('c', 0x10b)"),
    (
        "open a block device",
        "grep { -b \"/dev/$_\" && can('<', \"/dev/$_\") } files('/dev')",
    ),
    ("open the log of the kernel", "can('<', '/dev/kmsg')"),
    ("change a device", "chmod(0666, '/dev/null')"),
    // Processes and files of the host.
    (
        "read the memory of a process",
        "can('<', \"/proc/$victim/mem\")",
    ),
    (
        "trace a process",
        "sys('ptrace', 0x4206, $victim, 0, 0) == 0",
    ),
    ("open a process", "sys('pidfd_open', $victim, 0) >= 0"),
    (
        "limit a process",
        "sys('prlimit64', $victim, 7, 0, $buffer) == 0",
    ),
    ("kill all processes of the group", "kill(0, -$victim)"),
    ("kill a process", "kill('KILL', $victim)"),
    ("read a file by its path", "text($secret) eq 'secret'"),
    (
        "read it by the root of init",
        "text(\"/proc/1/root$secret\") eq 'secret'",
    ),
    (
        "read it by any process",
        "grep { text(\"/proc/$_/root$secret\") eq 'secret' \
        || text(\"/proc/$_/cwd$secret\") eq 'secret' } grep { /^\\d+$/ } files('/proc')",
    ),
    (
        "read it outside of a new root",
        "mkdir(\"$tmp/jail\") && chroot(\"$tmp/jail\") \
        && chdir('../' x 40) && chroot('.') && text($secret) eq 'secret'",
    ),
    ("open by handle", "handle() >= 0"),
    // System calls for administrators.
    (
        "load a program into the kernel",
        "sys('bpf', 0, pack('L4', 2, 4, 8, 1) . \"\\0\" x 100, 116) >= 0",
    ),
    (
        "watch the machine's events",
        "sys('perf_event_open', pack('LLQ', 1, 112, 0) . \"\\0\" x 96, -1, 0, -1, 0) >= 0",
    ),
    (
        "use io_uring",
        "sys('io_uring_setup', 8, \"\\0\" x 120) >= 0",
    ),
    ("handle page faults", "sys('userfaultfd', 0) >= 0"),
    ("watch all files", "sys('fanotify_init', 0, 0) >= 0"),
    ("read the log of the kernel", "sys('syslog', 10, 0, 0) > 0"),
    (
        "set the host name",
        "sys('sethostname', $host, length($host)) == 0",
    ),
    ("reboot", "reach('reboot', 0, 0, 0, 0)"),
    ("swap", "reach('swapon', '/nonexistent', 0)"),
    ("account processes", "reach('acct', '/nonexistent')"),
    (
        "set the clock",
        "reach('clock_settime', 0, pack('qq', 0, -1))",
    ),
    (
        "attribute of the kernel",
        "put($own, '') && sys('setxattr', $own, 'trusted.escape', 'x', 1, 0) == 0",
    ),
    // Networks.
    ("raw packets", "sys('socket', 17, 3, 0) >= 0"),
    ("raw addresses", "sys('socket', 2, 3, 1) >= 0"),
];

/// Attempts that work where the kernel has the feature and root has all capabilities.
pub const ON_SOME_MACHINES: &[Attempt] = &[
    (
        "forbid the end by lack of memory",
        "put('/proc/self/oom_score_adj', '-1000')",
    ),
    (
        "raise a limit",
        "sys('prlimit64', 0, 8, pack('QQ', 1 << 40, 1 << 40), 0) == 0",
    ),
    ("ports of the machine", "sys('iopl', 3) == 0"),
    (
        "open the system requests",
        "can('>>', '/proc/sysrq-trigger')",
    ),
    ("open the memory", "can('<', '/dev/mem')"),
    ("open the kernel's memory", "can('<', '/proc/kcore')"),
    (
        "open the helper of events",
        "can('>>', '/sys/kernel/uevent_helper')",
    ),
    (
        "open the program for modules",
        "can('>>', '/proc/sys/kernel/modprobe')",
    ),
    (
        "open the formats of programs",
        "can('>>', '/proc/sys/fs/binfmt_misc/register')",
    ),
    ("make the memory's device", "node('c', 0x101)"),
    ("open virtual machines", "can('<', '/dev/kvm')"),
    ("open file systems of programs", "can('<', '/dev/fuse')"),
    ("open loop devices", "can('<', '/dev/loop-control')"),
    (
        "open a release_agent",
        "grep { can('>>', \"/sys/fs/cgroup/$_/release_agent\") } files('/sys/fs/cgroup')",
    ),
    (
        "mount old cgroups",
        "sys('mount', 'none', $tmp, 'cgroup', 0, 'pids') == 0",
    ),
    (
        "move to another old cgroup",
        "sys('mount', 'none', $tmp, 'cgroup', 0, 'pids') == 0 && can('>>', \"$tmp/cgroup.procs\")",
    ),
    ("load a module", "reach('init_module', '', 0, '')"),
    ("load a module by file", "reach('finit_module', -1, '', 0)"),
    (
        "remove a module",
        "reach('delete_module', 'nonexistent', 0)",
    ),
    ("load a kernel", "reach('kexec_load', 0, 99, 0, 0)"),
    ("reach the hypervisor", "sys('socket', 40, 1, 0) >= 0"),
    (
        "real time",
        "sys('sched_setscheduler', 0, 1, pack('l', 1)) == 0",
    ),
];

/// Attempts on the volume of another sandbox, `$volume`, that work as root on every machine. The handles
/// are those of its files, `$near` is a directory of the same file system. Files are opened, and not
/// changed.
pub const OTHER_VOLUME: &[Attempt] = &[
    (
        "list the state of another sandbox",
        "grep { $_ eq 'root' } files(\"$volume/state\")",
    ),
    (
        "read another workspace by its path",
        "text(\"$volume/workspace/secret\") eq 'secret'",
    ),
    (
        "read another workspace by the root of init",
        "text(\"/proc/1/root$volume/workspace/secret\") eq 'secret'",
    ),
    (
        "read another workspace by any process",
        "grep { text(\"/proc/$_/root$volume/workspace/secret\") eq 'secret' \
        || text(\"/proc/$_/cwd$volume/workspace/secret\") eq 'secret' } grep { /^\\d+$/ } files('/proc')",
    ),
    (
        "read another workspace by a handle",
        "by_handle($handles[0]) eq 'secret'",
    ),
    (
        "read another workspace above the own one",
        "chdir($near) && text('../' x 40 . \"$volume/workspace/secret\") eq 'secret'",
    ),
    (
        "read another workspace outside of a new root",
        "mkdir(\"$tmp/jail\") && chroot(\"$tmp/jail\") \
        && chdir('../' x 40) && chroot('.') && text(\"$volume/workspace/secret\") eq 'secret'",
    ),
    (
        "bind another workspace",
        "sys('mount', \"$volume/workspace\", $tmp, '', 0x1000, '') == 0 && text(\"$tmp/secret\") eq 'secret'",
    ),
    ("open other saved processes", "can('<', $archive)"),
    ("open other saved processes to write", "can('+<', $archive)"),
    (
        "open other saved processes by the root of init",
        "can('<', \"/proc/1/root$archive\")",
    ),
    (
        "open other saved processes by a handle",
        "length(by_handle($handles[1])) > 0",
    ),
];
