//! Trees that go on in another container.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::Path;

use checkpoint::{Manifest, PipeDirection, read_manifest, reserve_pids};
use rustix::process::{Pid, Signal, kill_process};

use super::namespaces::{Privileges, criu, run_phases};
use super::sandbox::{agree, ask, dump_options, key, read_line, restore_options, start_tree};

const BYTES: usize = 30 << 20;

fn dump_tree(folder: &Path, prefix: &[&str]) {
    let start = std::time::SystemTime::now();
    assert!(reserve_pids(1000).unwrap() >= 1000);
    println!("1000 process numbers: {:?}", start.elapsed().unwrap());
    let mut tree = start_tree(folder, BYTES, prefix);
    let (number, checksum) = ask(folder);
    assert_eq!(number, 1);
    fs::write(folder.join("checksum"), checksum).unwrap();
    let root = tree.id().cast_signed();
    let report = criu(folder)
        .dump(
            root,
            &folder.join("archive"),
            dump_options(&key(), &mut agree),
        )
        .unwrap_or_else(|error| panic!("{error}\n{}", error.log));
    println!("dump: {report:?}");
    assert!(!tree.wait().unwrap().success());
    assert!(report.manifest.image_bytes > BYTES as u64);
    assert_eq!(report.manifest.root_pid, root);
    assert!(report.manifest.lowest_pid > 1000);
    assert_eq!(report.manifest.outside_pipes.len(), 2);
    let names: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.to_str().unwrap().starts_with("checkpoint-"))
    );
}

type Named<Name> = Vec<(Name, OwnedFd)>;

/// Ends of new pipes for the tree, and those that the test reads.
fn new_pipes(manifest: &Manifest) -> (Named<String>, Named<u32>) {
    let made = manifest.outside_pipes.iter().map(|pipe| {
        assert_eq!(pipe.direction, PipeDirection::Out);
        let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).unwrap();
        ((pipe.name.clone(), writer), (pipe.descriptor, reader))
    });
    made.unzip()
}

fn restore_tree(folder: &Path) {
    let archive = folder.join("archive");
    let manifest = read_manifest(&archive, &key(), b"test").unwrap();
    let (descriptors, outputs) = new_pipes(&manifest);
    let mut was_asked = false;
    let mut approve = |_: &Manifest| {
        was_asked = true;
        Ok(())
    };
    let restored = criu(folder)
        .restore(&archive, restore_options(&key(), descriptors, &mut approve))
        .unwrap_or_else(|error| panic!("{error}\n{}", error.log));
    println!("restore: {restored:?}");
    assert!(was_asked);
    assert_eq!(restored.pid, manifest.root_pid);
    let (number, checksum) = ask(folder);
    assert_eq!(number, 2);
    assert_eq!(
        checksum,
        fs::read_to_string(folder.join("checksum")).unwrap()
    );
    let (_, output) = outputs
        .iter()
        .find(|(descriptor, _)| *descriptor == 1)
        .unwrap();
    assert_eq!(read_line(output.try_clone().unwrap()), "answer 2\n");
    assert!(
        reserve_pids(manifest.highest_pid.unsigned_abs()).unwrap()
            > manifest.highest_pid.unsigned_abs()
    );

    // The root is a child, and goes on after its own child: the shell has its variable.
    let children =
        fs::read_to_string(format!("/proc/{0}/task/{0}/children", restored.pid)).unwrap();
    let python = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    kill_process(python, Signal::KILL).unwrap();
    let root = Pid::from_raw(restored.pid);
    let (_, status) = rustix::process::waitpid(root, rustix::process::WaitOptions::empty())
        .unwrap()
        .unwrap();
    assert_eq!(status.exit_status(), Some(41));
}

/// The tree has none of the capabilities that CRIU needs, as the supervisor takes them from it.
fn dump_without_privileges(folder: &Path) {
    let words = [
        "setpriv",
        "--bounding-set=-all",
        "--inh-caps=-all",
        "--no-new-privs",
    ];
    dump_tree(folder, &words);
}

#[test]
fn tree_goes_on_in_another_container_with_user_namespace() {
    run_phases(
        "round_trip::tree_goes_on_in_another_container_with_user_namespace",
        Privileges::UserNamespace,
        &[("dump", dump_without_privileges), ("restore", restore_tree)],
    );
}

#[test]
fn tree_of_another_user_goes_on_in_another_container() {
    fn dump_as_user(folder: &Path) {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(folder, fs::Permissions::from_mode(0o777)).unwrap();
        dump_tree(
            folder,
            &["setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"],
        );
    }
    run_phases(
        "round_trip::tree_of_another_user_goes_on_in_another_container",
        Privileges::HostUsers,
        &[("dump", dump_as_user), ("restore", restore_tree)],
    );
}
