//! Warm runtime configs through the chart's gateway: a login, a config, and its end.

use serde_json::json;
use tests::json_client::JsonClient;

use crate::release::{PASSWORD, Release, client};

/// Computes the response to a challenge, as an administrator's client does.
const ANSWER: &str = "import hashlib, sys; p, s, n = sys.argv[1:]; \
    print(hashlib.pbkdf2_hmac('sha256', p.encode(), s.encode(), int(n)).hex(), end='')";

pub(crate) async fn configs(release: &Release) {
    let api = |path: &str| format!("{}{path}", release.url);
    let anonymous = client();
    let challenge = anonymous.get(&api("/api/admin/challenge")).await.body;
    let text = challenge["challenge"].as_str().unwrap();
    let salt = format!("{}{text}", challenge["salt"].as_str().unwrap());
    let hash = python(&[PASSWORD, &salt, &challenge["iterations"].to_string()]);
    let answer = json!({"challenge": text, "hash": hash});
    let login = anonymous.post(&api("/api/admin/login"), &answer).await.body;
    let token = format!("Bearer {}", login["token"].as_str().unwrap());

    let administrator = JsonClient::with_header("Authorization", &token);
    let (path, image) = (api("/api/admin/warm-runtime-configs/v1"), "a:1");
    for image in [image, "a:2"] {
        let body = json!({"image": image}).to_string().into();
        let put = administrator.send(http::Method::PUT, &path, body).await;
        assert!(put.status.is_success(), "{put:?}");
    }
    let listed = anonymous.get(&api("/api/warm-runtime-configs")).await.body;
    assert!(listed.to_string().contains("a:2"), "{listed}");
    let gone = administrator.send(http::Method::DELETE, &path, "".into());
    let gone = gone.await;
    assert!(gone.status.is_success(), "{gone:?}");
}

fn python(args: &[&str]) -> String {
    let args = [&["-c", ANSWER], args].concat();
    let output = tests::cli_tools::run("python3", &args);
    String::from_utf8(output.stdout).unwrap()
}
