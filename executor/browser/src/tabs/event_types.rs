//! Parameters of the events, reduced to what the state needs.

use serde::Deserialize;

macro_rules! events {
    ($($name:ident { $($field:ident: $type:ty),* $(,)? })*) => {$(
        #[derive(Debug, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct $name {
            $(pub(super) $field: $type,)*
        }
    )*};
}

events! {
    Attached { session_id: String, target_info: TargetInfo }
    TargetChanged { target_info: TargetInfo }
    TargetInfo { target_id: String, r#type: String, title: String, url: String }
    Detached { session_id: String }
    Destroyed { target_id: String }
    DownloadBegins { frame_id: Option<String>, guid: String, url: String, suggested_filename: String }
    DownloadProgress { guid: String, state: String }
    FrameAttached { frame_id: String, parent_frame_id: String }
    FrameDetached { frame_id: String, reason: String }
    FrameNavigated { frame: NavigatedFrame }
    NavigatedFrame { id: String, loader_id: String, url: String, url_fragment: Option<String> }
    NavigatedWithin { frame_id: String, url: String }
    Lifecycle { frame_id: String, loader_id: String, name: String }
    NavigationStep { frame_id: String, disposition: Option<String>, delay: Option<f64> }
    Dialog { r#type: String }
    ChooserOpened { backend_node_id: Option<i64>, mode: String }
    Dragged { data: serde_json::Value }
    ContextCreated { context: Context }
    Context { id: i64, name: String, aux_data: Option<ContextData> }
    ContextData { is_default: Option<bool>, frame_id: Option<String> }
    ContextDestroyed { execution_context_id: i64 }
    BindingCalled { name: String }
}
