//! Image builds of a V0 client, against a gateway that makes aliases.

use std::collections::HashSet;

use axum::body::Body;
use http::Request;
use operator::gateway::ApiSettings;
use operator::image_builds::ImageBuilds;
use operator::kubernetes::watch::WatchSink;
use serde_json::{Value, json};
use testing::FakeApi;
use testing::image_build::{FORM_TYPE, form};

use super::gateway_fixture::{GatewayFixture, KEY, read};

/// Repository of the runtime images of all tenants.
pub(crate) const REPOSITORY: &str = "registry.example.com/agents/runtime";

/// A gateway with image builds, whose index is complete.
pub(crate) fn fixture(api: &FakeApi) -> GatewayFixture {
    let settings = ApiSettings {
        registry_prefix: "registry.example.com/agents/".into(),
        image_builds: Some(ImageBuilds::Alias),
        ..ApiSettings::default()
    };
    let fixture = GatewayFixture::of(api, settings);
    fixture.gateway.image_builds().retain(&HashSet::new());
    fixture
}

/// Reference of a tag.
pub(crate) fn image(tag: &str) -> String {
    format!("{REPOSITORY}:{tag}")
}

impl GatewayFixture {
    /// `POST /build` with any body.
    pub(crate) async fn upload(&self, key: &str, body: impl Into<Body>) -> (u16, Value) {
        let request = Request::post("/build")
            .header("host", "api.example.com")
            .header("content-type", FORM_TYPE)
            .header("x-api-key", key);
        read(self.send(request.body(body.into()).unwrap()).await).await
    }

    /// Builds an image, and returns the id of the build.
    pub(crate) async fn build(&self, context: &str, target: &str, tags: &[&str]) -> String {
        let (code, answer) = self.upload(KEY, form(context, target, tags)).await;
        assert_eq!(code, 202, "{answer}");
        answer["build_id"].as_str().unwrap().to_owned()
    }

    /// Progress of a build.
    pub(crate) async fn progress(&self, id: &str) -> Value {
        self.found(&format!("/build_status?build_id={id}")).await
    }

    /// Returns whether an image exists for a tenant.
    pub(crate) async fn exists(&self, key: &str, image: &str) -> bool {
        let image = image.replace('/', "%2F").replace(':', "%3A");
        let path = format!("/image_exists?image={image}");
        let (code, answer) = self.call_as(key, "GET", &path, "").await;
        assert_eq!(code, 200, "{answer}");
        let exists = answer["exists"].as_bool().unwrap();
        // Clients read both fields of an existing image.
        assert_eq!(answer["image"]["image_size_bytes"].is_number(), exists);
        exists
    }

    /// Image that the Sandbox of a started session runs.
    pub(crate) async fn image_of_start(&self, key: &str, session: &str, image: &str) -> String {
        let body = json!({"image": image, "session_id": session, "command": ["a"]});
        let (code, info) = self.call_as(key, "POST", "/start", &body.to_string()).await;
        assert_eq!(code, 201, "{info}");
        let id = info["runtime_id"].as_str().unwrap();
        self.stored(id).spec.image.unwrap()
    }
}
