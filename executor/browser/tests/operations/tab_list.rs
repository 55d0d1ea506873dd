//! The list of tabs, and a tab that is not in front.

use std::time::Duration;

use browser::operations::{Operations, UploadFiles};
use browser::tabs::{ScriptWorld, Tabs, TargetId};

use super::run_program;
use crate::fixture::{Chromium, serve};

#[tokio::test]
async fn tabs_are_chosen_as_in_a_python_list() {
    let base = serve(&[(
        "/",
        "<title>0</title><button bid=1 onclick='document.title++'>Go</button>",
    )])
    .await;
    let chromium = Chromium::start().await;
    let tabs = &chromium.tabs;
    let first = tabs.open("about:blank").await.unwrap().id;
    let mut operations = Operations::new(tabs.clone(), first.clone(), UploadFiles::of_process("/"));
    let run = async |operations: &mut Operations, program: &str| {
        let result = run_program(operations, program).await;
        assert_eq!(
            tabs.active().map(|tab| tab.id).as_ref(),
            Some(operations.current())
        );
        result.map_err(|error| error.to_string())
    };
    let program = format!("goto('{base}') new_tab() new_tab()");
    run(&mut operations, &program).await.unwrap();
    let ids: Vec<_> = tabs.list().into_iter().map(|tab| tab.id).collect();
    assert_eq!(ids.len(), 3);
    for (program, current) in [
        ("tab_focus(1)", 1),
        ("tab_focus(-1)", 2),
        ("tab_focus(-3)", 0),
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
    // A tab behind others acts as if it were in front.
    let mut behind = Operations::new(tabs.clone(), first.clone(), UploadFiles::of_process("/"));
    run(&mut behind, "click('1') press('1', 'Enter')")
        .await
        .unwrap();
    assert_eq!(title(tabs, &first).await, "2");
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

async fn title(tabs: &Tabs, tab: &TargetId) -> String {
    let main = tabs.frames(tab).remove(0);
    let script = tabs.script_frame(&main, ScriptWorld::Main).await.unwrap();
    let limit = Duration::from_secs(5);
    script
        .call(limit, "() => document.title", &[])
        .await
        .unwrap()
}
