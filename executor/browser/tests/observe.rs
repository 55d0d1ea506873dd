//! Steps on a real page: program, marks, readings and texts together.

use std::time::Duration;

use browser::operations::UploadFiles;
use browser::render::content::TreeBlock;
use browser::step::{self, Step, StepContext};
use browser::tabs::ScriptWorld;

use crate::fixture::{Chromium, serve};

const LIMIT: Duration = Duration::from_secs(5);

fn context() -> StepContext {
    StepContext {
        files: UploadFiles::of_process("/"),
        raw_tree: false,
        max_tree_chars: None,
    }
}

fn tree(step: &Step) -> &str {
    let TreeBlock::Complete(text) = &step.page.tree else {
        panic!("{:?}", step.page.tree);
    };
    text
}

async fn run(chromium: &Chromium, program: &str) -> Step {
    let step = step::run(&chromium.tabs, program, &context()).await;
    step.unwrap()
}

#[tokio::test]
async fn frames_of_all_sites_are_in_the_tree_and_can_be_used() {
    let chromium = Chromium::start().await;
    let inner = "<title>in</title><p><button onclick='this.textContent=\"done\"'>press</button>";
    let base = serve(&[("/in", inner)]).await;
    let other = base.replace("127.0.0.1", "localhost");
    let page = format!(
        "<title>out</title><h1>Hello</h1><p style='height:40px'>text<p>\
         <iframe src='{base}/in'></iframe><iframe src='{other}/in'></iframe>"
    );
    let outer = serve(&[("/", page.leak())]).await;
    let step = run(&chromium, &format!("goto(\"{outer}\")")).await;
    assert_eq!(step.error, None);
    let text = tree(&step);
    for bid in ["a", "b"] {
        let row = format!("[{bid}5] button 'press', clickable");
        assert!(text.contains(&row), "{row}:\n{text}");
    }
    let step = run(&chromium, "click(\"a5\")\nclick(\"b5\")").await;
    assert_eq!(step.error, None);
    assert_eq!(
        tree(&step).matches("button 'done'").count(),
        2,
        "{}",
        tree(&step)
    );
    assert_eq!(step.page.focused_bid.as_deref(), Some("b5"));
    assert!(
        step.page.markdown.contains("# Hello"),
        "{}",
        step.page.markdown
    );
}

#[tokio::test]
async fn observation_leaves_no_marks_and_ids_stay() {
    let chromium = Chromium::start().await;
    let page = "<title>t</title><p aria-description=own>a</p><ol><li>b</ol><input value=c>";
    let base = serve(&[("/", page)]).await;
    let first = run(&chromium, &format!("goto(\"{base}\")")).await;
    let second = run(&chromium, "noop(1)").await;
    assert_eq!(tree(&first), tree(&second));
    let tab = chromium.tabs.active().unwrap();
    let frame = &chromium.tabs.frames(&tab.id)[0];
    let script = chromium
        .tabs
        .script_frame(frame, ScriptWorld::Isolated)
        .await;
    let html = "() => document.body.innerHTML";
    let html: String = script.unwrap().call(LIMIT, html, &[]).await.unwrap();
    assert!(
        html.contains("aria-description=\"own\"") && !html.contains("browsergym_id"),
        "{html}"
    );
    assert!(!html.contains("<li bid=\"6\" value"), "{html}");
}

#[tokio::test]
async fn page_with_bid_attributes_of_its_own_keeps_them() {
    let chromium = Chromium::start().await;
    let page =
        "<title>t</title><button bid=mine onclick='document.title=this.getAttribute(\"bid\")'>b";
    let base = serve(&[("/", page)]).await;
    run(&chromium, &format!("goto(\"{base}\")")).await;
    let step = run(&chromium, "click(\"4\")").await;
    assert_eq!(step.error, None);
    assert!(
        tree(&step).contains("RootWebArea 'mine'"),
        "{}",
        tree(&step)
    );
}

#[tokio::test]
async fn hung_page_is_closed_and_said_so() {
    let chromium = Chromium::start().await;
    let page = "<title>t</title><button onclick='setTimeout(() => {for(;;);})'>b";
    let base = serve(&[("/", page), ("/fine", "<title>fine")]).await;
    run(&chromium, &format!("goto(\"{base}/fine\")\nnew_tab()")).await;
    run(&chromium, &format!("goto(\"{base}\")")).await;
    let step = run(&chromium, "click(\"4\")").await;
    assert_eq!(step.notices.len(), 1, "{:?}", step.notices);
    assert_eq!(step.open_pages_urls, [format!("{base}/fine")]);
    assert_eq!(step.page.url, format!("{base}/fine"));
}
