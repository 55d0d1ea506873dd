//! Log on standard error, as text or as JSON. An init message can change the format of a dormant
//! server.

use std::sync::OnceLock;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer, Registry, fmt};

type Format = Box<dyn Layer<Registry> + Send + Sync>;

static FORMAT: OnceLock<Handle<Format, Registry>> = OnceLock::new();

/// Begins the log, or changes its format.
pub(crate) fn to_stderr(as_json: bool) {
    if let Some(handle) = FORMAT.get() {
        // Fails only without a log.
        let _ = handle.reload(format(as_json));
        return;
    }
    let (layer, handle) = reload::Layer::new(format(as_json));
    let _ = FORMAT.set(handle);
    let log = tracing_subscriber::registry().with(layer);
    log.with(LevelFilter::INFO).init();
}

fn format(as_json: bool) -> Format {
    let layer = fmt::layer().with_writer(std::io::stderr).with_ansi(false);
    let layer = layer.with_target(false);
    if as_json {
        layer.json().flatten_event(true).boxed()
    } else {
        layer.boxed()
    }
}
