//! The README's first session, as the script that it names.

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
