//! Commands that make a new session tell what happens in it.

use serde_json::json;

use super::VIEWPORT;
use crate::cdp::Session;

/// Isolated world of all scripts that the page must not see.
pub(super) const ISOLATED_WORLD: &str = "sandbox";
/// Function in the isolated world that reports a sign of use.
pub(super) const USE_BINDING: &str = "sandboxReportUse";
/// Reports the signs of use of section 2.6.
const USE_SCRIPT: &str = include_str!("../page_scripts/report_use.js");

/// Attaches to all pages and, in a page, to frames of other sites, before their scripts run.
pub(super) fn auto_attach(session: &Session) {
    session.send(
        "Target.setAutoAttach",
        json!({"autoAttach": true, "waitForDebuggerOnStart": true, "flatten": true}),
    );
}

pub(super) fn page(session: &Session) {
    // Viewport and fonts are those of Playwright, so that pages look the same.
    let (width, height) = VIEWPORT;
    session.send(
        "Emulation.setDeviceMetricsOverride",
        json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}),
    );
    session.send(
        "Page.setFontFamilies",
        json!({"fontFamilies": {
            "standard": "Times New Roman", "serif": "Times New Roman", "sansSerif": "Arial",
            "fixed": "Monospace", "cursive": "Comic Sans MS", "fantasy": "Impact",
        }}),
    );
    session.send("Inspector.enable", json!({}));
    frame(session);
}

/// A session of a page, or of a frame of another site.
pub(super) fn frame(session: &Session) {
    session.send("Page.enable", json!({}));
    session.send("Page.setLifecycleEventsEnabled", json!({"enabled": true}));
    session.send(
        "Page.setInterceptFileChooserDialog",
        json!({"enabled": true}),
    );
    // An inactive tab acts as if it had the focus.
    session.send(
        "Emulation.setFocusEmulationEnabled",
        json!({"enabled": true}),
    );
    session.send("Runtime.enable", json!({}));
    session.send(
        "Runtime.addBinding",
        json!({"name": USE_BINDING, "executionContextName": ISOLATED_WORLD}),
    );
    session.send(
        "Page.addScriptToEvaluateOnNewDocument",
        json!({"source": USE_SCRIPT, "worldName": ISOLATED_WORLD, "runImmediately": true}),
    );
    auto_attach(session);
    resume(session);
}

/// Lets the scripts of a new target run.
pub(super) fn resume(session: &Session) {
    session.send("Runtime.runIfWaitingForDebugger", json!({}));
}
