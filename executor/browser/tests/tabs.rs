//! Tabs, frames and scripts.

use std::time::Duration;

use browser::tabs::ScriptWorld;
use serde_json::json;

use crate::fixture::{Chromium, serve};

const LIMIT: Duration = Duration::from_secs(5);

#[tokio::test]
async fn frames_of_other_sites_have_contexts_in_both_worlds() {
    let chromium = Chromium::start().await;
    let base = serve(&[("/in", "<title>in</title><p id=x>inner")]).await;
    let other = base.replace("127.0.0.1", "localhost");
    let text = format!(
        "<title>out</title><iframe src='{base}/in'></iframe><iframe src='{other}/in'></iframe>"
    );
    let outer = serve(&[("/", text.leak())]).await;
    let tab = chromium.tabs.open("about:blank").await.unwrap();
    let answer: serde_json::Value = tab
        .session
        .call("Page.navigate", json!({"url": outer}))
        .await
        .unwrap();
    let loader = answer["loaderId"].as_str().unwrap();
    let main = tab.main_frame();
    assert!(chromium.tabs.loaded(&main, loader, LIMIT).await);
    let frames = chromium.tabs.frames(&tab.id);
    assert_eq!(frames.len(), 3);
    assert_eq!(frames.iter().filter(|frame| frame.is_remote).count(), 1);
    for frame in &frames {
        for world in [ScriptWorld::Main, ScriptWorld::Isolated] {
            let script = chromium.tabs.script_frame(frame, world).await.unwrap();
            let title: String = script
                .call(LIMIT, "() => document.title", &[])
                .await
                .unwrap();
            assert_eq!(title, if frame.parent.is_none() { "out" } else { "in" });
        }
    }
    assert_eq!(chromium.tabs.active().unwrap().url, format!("{outer}/"));
}
