//! The scripts that the README names.

use tests::binaries::root;
use tests::standalone::Standalone;

use crate::fixture::{Fixture, fixture_with};

#[test]
fn first_session_of_the_readme_works() {
    let path = ["--url-form", "path"];
    let Some(Fixture { standalone, state }) = fixture_with(&[]) else {
        return;
    };
    let run = |standalone: Standalone| {
        let script = root().join("examples/first-session.sh");
        let output = standalone.run(script.to_str().unwrap(), &[]);
        assert!(output.ends_with("The first session worked.\n"), "{output}");
        assert!(standalone.stop().success());
    };
    run(standalone);
    run(Standalone::start(state.path(), &path));
}

#[test]
fn forks_of_the_readme_work() {
    let Some(fixture) = fixture_with(&[]) else {
        return;
    };
    let script = root().join("examples/forks.sh");
    let output = fixture.standalone.run(script.to_str().unwrap(), &[]);
    assert_eq!(
        output
            .matches("began at level Root: prepared a file")
            .count(),
        3,
        "{output}"
    );
    assert!(output.ends_with("\na file\n"), "{output}");
}
