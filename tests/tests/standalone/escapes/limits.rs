//! Sandboxes that use up the machine: processes, memory, shared memory and disk. Their neighbour
//! and the API do not notice.

use serde_json::{Value, json};
use tests::escapes::outside::outside;

use super::setting::{Setting, setting};

/// Processes of a container in this test.
const PROCESSES: usize = 100;

/// Starts as many processes as it can, and prints their number.
const BOMB: &str = "$| = 1; my $n = 0; for (1..400) { my $child = fork; last if !defined $child; \
    if (!$child) { sleep 1000; exit } $n++ } print \"$n processes\\n\"; ";

/// A neighbour that runs, and must not be started again.
struct Neighbour<'a>(&'a Setting);

impl<'a> Neighbour<'a> {
    fn of(setting: &'a Setting) -> Self {
        let container = json!({"command": ["sleep", "infinity"]});
        setting.run("neighbour", "host", &container);
        Self(setting)
    }

    /// Fails unless the neighbour can do what it did before, and another Pod can start.
    fn works(&self, new: &str) {
        let script = "for i in 1 2 3 4 5; do sh -c true || exit; done; \
            dd if=/dev/zero of=/dev/shm/x bs=1M count=8 status=none && \
            dd if=/dev/zero of=/tmp/x bs=1M count=8 status=none && echo works";
        assert_eq!(self.0.exec("neighbour", script), "works\n");
        let restarts = "get pod neighbour -o jsonpath={.status.containerStatuses[0].restartCount}";
        assert_eq!(self.0.fixture.kubectl(restarts), "0");
        let container = json!({"command": ["echo", "starts"]});
        assert_eq!(self.0.once(new, "host", &container), "starts\n");
    }
}

#[test]
fn fork_bomb_ends_at_the_limit_of_its_container() {
    let Some(setting) = setting(&["--process-limit", &PROCESSES.to_string()]) else {
        return;
    };
    let neighbour = Neighbour::of(&setting);
    let explode = format!("{BOMB} while (1) {{ fork // sleep 1 }}");
    setting.run("bomb", "host", &json!({"command": ["perl", "-e", explode]}));
    tests::cli_tools::until("the bomb has come to its limit", || {
        setting
            .fixture
            .kubectl("logs bomb")
            .ends_with("processes\n")
    });
    let made = setting.fixture.kubectl("logs bomb");
    let made: usize = made.split(' ').next().unwrap().parse().unwrap();
    assert!((PROCESSES / 2..=PROCESSES).contains(&made), "{made}");
    neighbour.works("after-bomb");
    setting.fixture.kubectl("delete pod bomb --timeout=60s");
    assert_eq!(outside("exec perl -e \"$0\"", &[BOMB]), "400 processes\n");
}

fn with_memory(script: &str, limit: &str) -> Value {
    json!({"command": ["perl", "-e", script], "resources": {"limits": {"memory": limit}}})
}

#[test]
fn lack_of_memory_ends_only_the_sandbox_that_uses_it() {
    let Some(setting) = setting(&[]) else { return };
    let neighbour = Neighbour::of(&setting);
    let allocate = "my $x = 'x' x (256 << 20); print 'alive'";
    let fill = "open($f, '>', '/dev/shm/x') or die; open($g, '>', '/dev/x') or die; \
        for (1..256) { syswrite($_ < 60 ? $f : $g, 'x' x (1 << 20)) or die } print 'alive'";
    for (name, script) in [("allocates", allocate), ("fills", fill)] {
        let limited = with_memory(script, "100Mi");
        setting.fixture.pod(name, "host", &limited);
        let reason = "jsonpath={.status.containerStatuses[0].state.terminated.reason}";
        let ended = format!("wait --for={reason}=OOMKilled pod/{name} --timeout=60s");
        setting.fixture.kubectl(&ended);
        neighbour.works(&format!("after-{name}"));
        let (control, more) = (format!("{name}-more"), with_memory(script, "1Gi"));
        assert_eq!(setting.once(&control, "host", &more), "alive");
    }
}

#[test]
fn shared_memory_has_an_end() {
    let Some(setting) = setting(&[]) else { return };
    let neighbour = Neighbour::of(&setting);
    let script = "dd if=/dev/zero of=$F/x bs=1M count=70 status=none && echo written; true";
    let written = |place: &str| {
        let pod = format!("fills{}", place.replace('/', "-"));
        let container = json!({"command": ["sh", "-c", script],
            "env": [{"name": "F", "value": place}]});
        setting.once(&pod, "host", &container)
    };
    let full = written("/dev/shm");
    assert!(full.contains("No space left on device"), "{full}");
    assert_eq!(written("/tmp"), "written\n");
    // The root of the image `host` is on disk too, where it is counted.
    let root = setting.exec("neighbour", "stat -fc %T /; stat -fc %T /dev/shm");
    assert!(
        !root.starts_with("tmpfs") && root.ends_with("tmpfs\n"),
        "{root}"
    );
    neighbour.works("after-shared-memory");
}

#[test]
fn sandbox_that_fills_the_disk_is_evicted_alone() {
    let Some(setting) = setting(&["--pod-disk-limit", "40Mi"]) else {
        return;
    };
    let neighbour = Neighbour::of(&setting);
    let fill = |megabytes: u32| {
        let script = format!("fallocate -l {megabytes}M /f; exec sleep 1000");
        json!({"command": ["sh", "-c", script]})
    };
    setting.run("fits", "host", &fill(1));
    setting.fixture.pod("fills", "host", &fill(60));
    let evicted = "wait --for=jsonpath={.status.reason}=Evicted pod/fills --timeout=60s";
    setting.fixture.kubectl(evicted);
    neighbour.works("after-disk");
    let phase = "get pod fits -o jsonpath={.status.phase}";
    assert_eq!(setting.fixture.kubectl(phase), "Running");
}
