//! The Perl program that carries out attempts, each in a process of its own. It needs no modules.

use std::fmt::Write as _;

use nix::libc;

use super::attempts::{Attempt, EVERYWHERE, ON_SOME_MACHINES};

/// Last line of a complete run.
pub const END: &str = "all attempts made";
/// Prefix of attempts for which the kernel lacks the feature, or root the right.
pub const ABSENT: &str = "absent: ";

const CALLS: &[(&str, libc::c_long)] = &[
    ("acct", libc::SYS_acct),
    ("add_key", libc::SYS_add_key),
    ("bpf", libc::SYS_bpf),
    ("clock_settime", libc::SYS_clock_settime),
    ("clone", libc::SYS_clone),
    ("delete_module", libc::SYS_delete_module),
    ("exit_group", libc::SYS_exit_group),
    ("fanotify_init", libc::SYS_fanotify_init),
    ("finit_module", libc::SYS_finit_module),
    ("fsopen", libc::SYS_fsopen),
    ("init_module", libc::SYS_init_module),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("iopl", libc::SYS_iopl),
    ("kexec_load", libc::SYS_kexec_load),
    ("keyctl", libc::SYS_keyctl),
    ("mknodat", libc::SYS_mknodat),
    ("mount", libc::SYS_mount),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("open_tree", libc::SYS_open_tree),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("pidfd_open", libc::SYS_pidfd_open),
    ("pivot_root", libc::SYS_pivot_root),
    ("prlimit64", libc::SYS_prlimit64),
    ("ptrace", libc::SYS_ptrace),
    ("reboot", libc::SYS_reboot),
    ("sched_setscheduler", libc::SYS_sched_setscheduler),
    ("sethostname", libc::SYS_sethostname),
    ("setns", libc::SYS_setns),
    ("setpriority", libc::SYS_setpriority),
    ("setxattr", libc::SYS_setxattr),
    ("socket", libc::SYS_socket),
    ("swapon", libc::SYS_swapon),
    ("syslog", libc::SYS_syslog),
    ("umount2", libc::SYS_umount2),
    ("unshare", libc::SYS_unshare),
    ("userfaultfd", libc::SYS_userfaultfd),
];

/// Functions of the expressions. `reach` is true if a call gets past the check of permissions.
const FUNCTIONS: &str = r#"
my ($tmp, $secret, $cover, $victim, $disks, $outside, $volume, $near, @handles) = @ARGV;
my $archive = ($volume // '') . '/state/root/memory/archive';
my @disks = map { $_ + 0 } split(/,/, $disks);
$victim += 0;
die if $victim < 2;
my ($own, $buffer) = ("$tmp/own", "\0" x 64);
mkdir $tmp;
my $host = text('/proc/sys/kernel/hostname');
sub sys { my ($name, @a) = @_; $call{$name} or die $name; syscall($call{$name}, @a) }
sub reach { sys(@_) >= 0 || $! != 1 && $! != 38 }
sub can { open(my $f, $_[0], $_[1]) }
sub put { my $f; open($f, '>', $_[0]) && syswrite($f, $_[1]) == length($_[1]) }
sub text { open(my $f, '<', $_[0]) or return ''; my $t = join('', <$f>); chomp($t); $t }
sub files { opendir(my $d, $_[0]) or return (); grep { !/^\.\.?$/ } readdir($d) }
sub node {
    my $type = $_[0] eq 'b' ? 0060600 : 0020600;
    sys('mknodat', -100, $own, $type, $_[1]) == 0 && can('<', $own)
}
sub clone { my $r = sys('clone', $_[0], 0, 0, 0, 0); sys('exit_group', 0) if $r == 0; $r }
sub handle {
    my ($handle, $id) = (pack('Ll', 128, 0) . "\0" x 128, "\0" x 8);
    my @call = ($call{name_to_handle_at}, -100, '/', $handle, $id, 0);
    syscall($call[0], $call[1], $call[2], $call[3], $call[4], $call[5]);
    my $d;
    opendir($d, '/') && sys('open_by_handle_at', fileno($d), $call[3], 0)
}
sub by_handle {
    my ($d, $f);
    opendir($d, $near) or return '';
    my $number = sys('open_by_handle_at', fileno($d), pack('H*', $_[0]), 0);
    $number >= 0 && open($f, '<&=', $number) or return '';
    my $text = join('', <$f>);
    chomp($text);
    $text
}
sub attempt {
    my $child = fork;
    if (!$child) {
        alarm 20;
        # Mounts of this attempt end with it.
        if ($outside) { sys('unshare', 0x20000); sys('mount', 'none', '/', '', 0x44000, '') }
        $! = 0;
        my $worked = eval { $_[1]->() };
        # Not allowed to this root, or no such file, device or system call.
        my $absent = grep { $! == $_ } (1, 2, 6, 13, 19, 38);
        warn $@ if $@;
        sys('exit_group', 3) if $@;
        exit($worked ? 0 : $absent ? 2 : 1);
    }
    waitpid $child, 0;
    print "$_[0]\n" if $? == 0;
    print "absent: $_[0]\n" if $? == 512;
    system('rm', '-rf', $own, "$tmp/jail");
}
"#;

/// Program with the arguments: a directory for its files, a file of the host, a mount that covers
/// something, a process of the host, the numbers of its disks, and whether it runs outside. Prints a
/// line for each attempt that has worked. It contains neither `$$` nor `$(`, which a Pod expands.
pub fn program() -> String {
    program_of(&[EVERYWHERE, ON_SOME_MACHINES].concat())
}

/// As [`program`], of other attempts. More arguments are those of [`super::other_volume`].
pub fn program_of(attempts: &[Attempt]) -> String {
    let mut text = String::from("$| = 1; my %call = (");
    for (name, number) in CALLS {
        let _ = write!(text, "{name} => {number}, ");
    }
    text += ");";
    text += FUNCTIONS;
    for (name, expression) in attempts {
        let _ = writeln!(text, "attempt(\"{name}\", sub {{ {expression} }});");
    }
    let _ = write!(text, "rmdir $tmp; print \"{END}\\n\";");
    text
}

/// Names of attempts.
pub fn names(attempts: &[Attempt]) -> Vec<&'static str> {
    attempts.iter().map(|(name, _)| *name).collect()
}
