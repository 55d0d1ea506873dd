//! A page in a real Chromium, driven over the `DevTools` protocol: input as from a person, and a record
//! of the requests and faults of the page.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use browser::cdp::{Connection, Event, EventSink, Session, SessionId, attach_pipe};
use browser::chromium::{self, LaunchOptions};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Child;
use tokio::time::{Instant, sleep};

/// Longer than a page takes on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Interval at which a condition is checked.
const POLL: Duration = Duration::from_millis(50);
/// Tries of a load: Chromium breaks its requests when a network interface of the machine comes or goes.
const MAX_LOADS: u32 = 3;
/// Runs in each page before its own scripts, and collects what the page must not do.
const RECORDER: &str = "window.faults = []; \
    document.addEventListener('securitypolicyviolation', event => \
        faults.push(`${event.violatedDirective} ${event.blockedURI} ${event.sample}`)); \
    addEventListener('error', event => faults.push( \
        event.message ?? `cannot load ${event.target.src ?? event.target.href}`), true); \
    addEventListener('unhandledrejection', event => faults.push(String(event.reason)));";

/// One tab. Chromium ends with its last one.
#[derive(Debug)]
pub struct Page {
    session: Session,
    connection: Connection,
    requests: Arc<Requests>,
    browser: Arc<Browser>,
}

/// The process and its profile.
#[derive(Debug)]
struct Browser {
    _process: Child,
    _directory: TempDir,
}

/// URLs of all requests so far.
#[derive(Debug, Default)]
struct Requests(Mutex<Vec<String>>);

impl EventSink for Requests {
    fn event(&self, event: &Event<'_>) {
        let url = match event.method {
            "Network.requestWillBeSent" => "/request/url",
            "Network.webSocketCreated" => "/url",
            _ => return,
        };
        let params = serde_json::from_str::<Value>(event.params.get()).unwrap_or_default();
        let url = params.pointer(url).and_then(Value::as_str);
        self.0.lock().extend(url.map(str::to_owned));
    }

    fn raw_answer(&self, _: u64, _: &[u8]) {}
}

impl Page {
    /// Starts Chromium with an empty tab.
    pub async fn open() -> Self {
        let program = chromium::find(|name| std::env::var_os(name));
        let directory = tempfile::tempdir().expect("a directory");
        let options = LaunchOptions {
            program: program.expect("Chromium is missing: hack/install browser"),
            profile: directory.path().join("profile"),
            isolates_sites: false,
        };
        let mut command = options.command();
        let pipe = attach_pipe(&mut command).expect("pipes");
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(Stdio::null()).kill_on_drop(true);
        let process = command.spawn().expect("Chromium starts");
        let requests = Arc::<Requests>::default();
        let connection = Connection::open(pipe, requests.clone()).expect("a connection");
        let root = connection.root();
        let target = json!({"url": "about:blank"});
        let target: Value = root
            .call("Target.createTarget", target)
            .await
            .expect("a tab");
        let session = attach(&connection, &target["targetId"]).await;
        let browser = Browser {
            _process: process,
            _directory: directory,
        };
        let page = Self {
            session,
            connection,
            requests,
            browser: Arc::new(browser),
        };
        for domain in ["Page.enable", "Network.enable", "Runtime.enable"] {
            page.call(domain, json!({})).await;
        }
        let recorder = json!({"source": RECORDER});
        page.call("Page.addScriptToEvaluateOnNewDocument", recorder)
            .await;
        page
    }

    async fn call(&self, method: &'static str, params: Value) -> Value {
        let answer = self.session.call(method, params).await;
        answer.unwrap_or_else(|error| panic!("{method}: {error}"))
    }

    /// Loads a page with all it consists of.
    pub async fn goto(&self, url: &str) {
        for _ in 0..MAX_LOADS {
            let answer = self.call("Page.navigate", json!({"url": url})).await;
            self.until("document.readyState === 'complete'").await;
            let failed = "!window.faults || faults.some(fault => fault.startsWith('cannot load'))";
            if answer["errorText"] == Value::Null && self.run(failed).await == false {
                return;
            }
        }
        panic!("{url} cannot be loaded");
    }

    /// Loads the page again.
    pub async fn reload(&self) {
        self.run("window.before = true").await;
        self.call("Page.reload", json!({})).await;
        self.until("!window.before && document.readyState === 'complete'")
            .await;
    }

    /// Value of an expression, which may be a promise.
    pub async fn run(&self, expression: &str) -> Value {
        let (value, exception) = self.try_run(expression).await;
        assert_eq!(exception, Value::Null, "{expression}");
        value
    }

    async fn try_run(&self, expression: &str) -> (Value, Value) {
        let params = json!({
            "expression": expression, "awaitPromise": true, "returnByValue": true,
            "userGesture": true,
        });
        let answer = self.call("Runtime.evaluate", params).await;
        let exception = &answer["exceptionDetails"]["exception"]["description"];
        (answer["result"]["value"].clone(), exception.clone())
    }

    /// Waits until an expression is true.
    pub async fn until(&self, condition: &str) {
        let start = Instant::now();
        loop {
            let (value, exception) = self.try_run(condition).await;
            if value == true {
                return;
            }
            if start.elapsed() > TIMEOUT {
                let text = self.run("document.body.innerText").await;
                let faults = self.run("window.faults").await;
                panic!("not so in time: {condition} ({exception}); {faults}; the page: {text}");
            }
            sleep(POLL).await;
        }
    }

    /// Waits until the page shows this text.
    pub async fn until_text(&self, text: &str) {
        let text = json!(text);
        self.until(&format!("document.body.innerText.includes({text})"))
            .await;
    }

    /// Clicks the first control with this text, as soon as it can be clicked.
    pub async fn click(&self, text: &str) {
        let find = format!(
            "[...document.querySelectorAll('button, a, summary')].find(one => \
             !one.disabled && one.innerText.trim().startsWith({}))",
            json!(text)
        );
        self.until(&format!("!!{find}")).await;
        self.run(&format!("{find}.click()")).await;
    }

    /// Clicks a link that opens a tab of its own, and returns that tab.
    pub async fn click_into_tab(&self, text: &str) -> Self {
        let before = self.tabs().await;
        self.click(text).await;
        let start = Instant::now();
        loop {
            let mut tabs = self.tabs().await;
            tabs.retain(|id| !before.contains(id));
            if let [id] = &tabs[..] {
                return Self {
                    session: attach(&self.connection, id).await,
                    connection: self.connection.clone(),
                    requests: self.requests.clone(),
                    browser: self.browser.clone(),
                };
            }
            assert!(start.elapsed() < TIMEOUT, "{text} opens no tab: {tabs:?}");
            sleep(POLL).await;
        }
    }

    /// Ids of all tabs of the browser.
    async fn tabs(&self) -> Vec<Value> {
        let root = self.connection.root();
        let found: Value = root
            .call("Target.getTargets", json!({}))
            .await
            .expect("tabs");
        let targets = found["targetInfos"].as_array().cloned();
        let targets = targets.into_iter().flatten();
        targets
            .filter(|target| target["type"] == "page")
            .map(|target| target["targetId"].clone())
            .collect()
    }

    /// Loads the page again until it shows this text, because its server may only begin to listen.
    pub async fn reload_until_text(&self, text: &str) {
        let shows = format!(
            "document.readyState === 'complete' && document.body.innerText.includes({})",
            json!(text)
        );
        let start = Instant::now();
        while self.try_run(&shows).await.0 != true {
            if start.elapsed() > TIMEOUT {
                return self.until(&shows).await;
            }
            sleep(POLL).await;
            self.reload().await;
        }
    }

    /// Types into the element that has the focus.
    pub async fn type_text(&self, text: &str) {
        self.call("Input.insertText", json!({"text": text})).await;
    }

    /// Gives an element the focus as soon as it can have it.
    pub async fn focus(&self, selector: &str) {
        let element = format!("document.querySelector({})", json!(selector));
        self.until(&format!(
            "({element}?.focus(), !!{element} && document.activeElement === {element})"
        ))
        .await;
    }

    /// Moves the pointer over an element.
    pub async fn hover(&self, selector: &str) {
        let middle = format!(
            "(box => [box.x + box.width / 2, box.y + box.height / 2])\
             (document.querySelector({}).getBoundingClientRect())",
            json!(selector)
        );
        let middle = self.run(&middle).await;
        let event = json!({"type": "mouseMoved", "x": middle[0], "y": middle[1]});
        self.call("Input.dispatchMouseEvent", event).await;
    }

    /// Chooses a file of this machine in an input, as a person does in the dialog that it opens.
    pub async fn choose_file(&self, selector: &str, path: &Path) {
        let input = json!({"expression": format!("document.querySelector({})", json!(selector))});
        let input = self.call("Runtime.evaluate", input).await;
        let id = &input["result"]["objectId"];
        let choice = json!({"files": [path], "objectId": id});
        self.call("DOM.setFileInputFiles", choice).await;
    }

    /// Presses a key that has this text, if any.
    pub async fn press(&self, key: &str, text: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "Backspace" => 8,
            "Tab" => 9,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            _ => key
                .bytes()
                .next()
                .map_or(0, |byte| byte.to_ascii_uppercase()),
        };
        let down = json!({
            "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code,
        });
        let up = json!({"type": "keyUp", "key": key, "windowsVirtualKeyCode": code});
        self.call("Input.dispatchKeyEvent", down).await;
        self.call("Input.dispatchKeyEvent", up).await;
    }

    /// Presses a letter with the control key.
    pub async fn press_control(&self, letter: &str) {
        self.press_with(letter, 2).await;
    }

    /// Presses a letter with the control and the shift key.
    pub async fn press_control_shift(&self, letter: &str) {
        self.press_with(letter, 2 | 8).await;
    }

    async fn press_with(&self, letter: &str, modifiers: u8) {
        let upper = letter.to_ascii_uppercase();
        let key = |kind| {
            json!({
                "type": kind, "key": letter, "code": format!("Key{upper}"),
                "windowsVirtualKeyCode": upper.as_bytes()[0], "modifiers": modifiers,
            })
        };
        self.call("Input.dispatchKeyEvent", key("rawKeyDown")).await;
        self.call("Input.dispatchKeyEvent", key("keyUp")).await;
    }

    /// Changes the size of the window in CSS pixels.
    pub async fn resize(&self, width: u32, height: u32) {
        let size = json!({
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false,
        });
        self.call("Emulation.setDeviceMetricsOverride", size).await;
    }

    /// Chooses the color scheme that the user prefers: `light` or `dark`.
    pub async fn prefer_scheme(&self, scheme: &str) {
        let feature = json!({"name": "prefers-color-scheme", "value": scheme});
        let media = json!({"features": [feature]});
        self.call("Emulation.setEmulatedMedia", media).await;
    }

    /// Picture of the window as PNG.
    pub async fn screenshot(&self) -> Vec<u8> {
        let answer = self.call("Page.captureScreenshot", json!({})).await;
        let picture = answer["data"].as_str().unwrap_or_default();
        BASE64_STANDARD.decode(picture).expect("a picture")
    }

    /// Asserts that every request so far went to one of these origins, and that no policy was violated
    /// and no script failed since the page was loaded.
    pub async fn assert_clean(&self, origins: &[&str]) {
        assert_eq!(self.run("window.faults").await, json!([]));
        let requests = self.requests.0.lock().clone();
        let is_allowed = |url: &str| {
            let is_local = url.starts_with("data:") || url.starts_with("blob:");
            is_local || origins.iter().any(|origin| url.starts_with(origin))
        };
        let others: Vec<_> = requests.iter().filter(|url| !is_allowed(url)).collect();
        assert!(others.is_empty(), "{others:?}");
        assert!(!requests.is_empty());
    }
}

/// A session with a tab.
async fn attach(connection: &Connection, target: &Value) -> Session {
    let params = json!({"targetId": target, "flatten": true});
    let root = connection.root();
    let attached: Value = root
        .call("Target.attachToTarget", params)
        .await
        .expect("a session");
    let id = attached["sessionId"].as_str().unwrap_or_default();
    connection.session(SessionId::from(id))
}
