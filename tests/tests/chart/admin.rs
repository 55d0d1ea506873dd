//! Warm runtime configs through the chart's gateway: a login, a config, and its end.

use serde_json::json;
use tests::http::Json;

use crate::release::{PASSWORD, Release, client};

/// What an administrator's client computes.
const ANSWER: &str = "import hashlib, sys; p, s, n = sys.argv[1:]; \
    print(hashlib.pbkdf2_hmac('sha256', p.encode(), s.encode(), int(n)).hex(), end='')";

pub(crate) async fn configs(release: &Release) {
    let api = |path: &str| format!("{}{path}", release.url);
    let anybody = client();
    let challenge = anybody.get(&api("/api/admin/challenge")).await.body;
    let text = challenge["challenge"].as_str().unwrap();
    let salt = format!("{}{text}", challenge["salt"].as_str().unwrap());
    let hash = python(&[PASSWORD, &salt, &challenge["iterations"].to_string()]);
    let answer = json!({"challenge": text, "hash": hash});
    let login = anybody.post(&api("/api/admin/login"), &answer).await.body;
    let token = format!("Bearer {}", login["token"].as_str().unwrap());

    let administrator = Json::with_header("Authorization", &token);
    let (path, image) = (api("/api/admin/warm-runtime-configs/v1"), "a:1");
    for image in [image, "a:2"] {
        let body = json!({"image": image}).to_string().into();
        let put = administrator.send(http::Method::PUT, &path, body).await;
        assert!(put.status.is_success(), "{put:?}");
    }
    let listed = anybody.get(&api("/api/warm-runtime-configs")).await.body;
    assert!(listed.to_string().contains("a:2"), "{listed}");
    let gone = administrator.send(http::Method::DELETE, &path, "".into());
    let gone = gone.await;
    assert!(gone.status.is_success(), "{gone:?}");
}

fn python(args: &[&str]) -> String {
    let args = [&["-c", ANSWER], args].concat();
    let output = tests::tools::run("python3", &args);
    String::from_utf8(output.stdout).unwrap()
}
