//! The README's first session, as the script that it names.

use tests::binaries::{is_root_or_skips, root};
use tests::standalone::Standalone;

#[test]
fn the_first_session_of_the_readme_works() {
    if !is_root_or_skips("first session in standalone") {
        return;
    }
    let state = tempfile::tempdir().unwrap();
    for form in ["auto", "path"] {
        let standalone = Standalone::start(state.path(), &["--url-form", form]);
        let script = root().join("examples/first-session.sh");
        let output = standalone.run(script.to_str().unwrap(), &[]);
        assert!(output.ends_with("The first session worked.\n"), "{output}");
        assert!(standalone.stop().success());
    }
}
