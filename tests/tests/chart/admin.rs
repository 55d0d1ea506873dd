//! Warm runtime configs through the chart's gateway: a login, a config, and its end.

use serde_json::json;
use tests::clients::Admin;

use crate::release::{PASSWORD, Release};

pub(crate) async fn configs(release: &Release) {
    let mut administrator = Admin::new(&release.url);
    administrator.log_in(PASSWORD).await.unwrap();
    for image in ["a:1", "a:2"] {
        let config = json!({"image": image});
        administrator.put("v1", &config).await.unwrap();
    }
    let listed = release.client().pools().await.unwrap();
    assert!(listed.iter().any(|pool| pool.image == "a:2"), "{listed:?}");
    administrator.delete("v1").await.unwrap();
}
