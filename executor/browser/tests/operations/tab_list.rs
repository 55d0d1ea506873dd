//! The list of tabs.

use browser::operations::Operations;

use super::run_program;
use crate::fixture::{Chromium, serve};

#[tokio::test]
async fn tabs_are_chosen_as_in_a_python_list() {
    let base = serve(&[(
        "/",
        "<button bid=1 onclick='document.title = 1'>Go</button>",
    )])
    .await;
    let chromium = Chromium::start().await;
    let tabs = &chromium.tabs;
    let first = tabs.open("about:blank").await.unwrap().id;
    let mut operations = Operations::new(tabs.clone(), first.clone(), "/".into());
    let run = async |operations: &mut Operations, program: &str| {
        let result = run_program(operations, program).await;
        assert_eq!(
            tabs.active().map(|tab| tab.id).as_ref(),
            Some(operations.current())
        );
        result.map_err(|error| error.to_string())
    };
    let program = format!("goto(\"{base}\") new_tab() new_tab()");
    run(&mut operations, &program).await.unwrap();
    let ids: Vec<_> = tabs.list().into_iter().map(|tab| tab.id).collect();
    assert_eq!(ids.len(), 3);
    for (program, current) in [
        ("tab_focus(1)", 1),
        ("tab_focus(-1)", 2),
        ("tab_focus(-3)", 0),
        // Another tab is in front, and this one acts as if it were.
        ("tab_focus(1) tab_focus(0) click(\"1\")", 0),
    ] {
        run(&mut operations, program).await.unwrap();
        assert_eq!(*operations.current(), ids[current], "{program}");
    }
    for program in [
        "tab_focus(3)",
        "tab_focus(-4)",
        "tab_focus(-9223372036854775808)",
    ] {
        let error = run(&mut operations, program).await.unwrap_err();
        assert_eq!(error, "IndexError: list index out of range");
    }
    run(&mut operations, "tab_focus(1) tab_close()")
        .await
        .unwrap();
    assert_eq!(*operations.current(), ids[2]);
    run(&mut operations, "tab_close() tab_close()")
        .await
        .unwrap();
    let list = tabs.list();
    assert_eq!((list.len(), list[0].url.as_str()), (1, "about:blank"));
    assert!(!ids.contains(operations.current()));
}
