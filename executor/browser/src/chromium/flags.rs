//! Command line of Chromium (section 4.3).

/// Features that are off: they change pages, ask the network, or delay paint.
const DISABLED_FEATURES: &str = "--disable-features=Translate,MediaRouter,PaintHolding,\
    HttpsUpgrades,LazyFrameLoading,DestroyProfileOnBrowserClose,OptimizationHints,\
    AutofillServerCommunication,CertificateTransparencyComponentUpdater,DialMediaRouteProvider";

pub(super) const FLAGS: &[&str] = &[
    "--remote-debugging-pipe",
    // Containers do not offer what Chromium's own sandbox needs; the Pod is the boundary.
    "--no-sandbox",
    "--no-startup-window",
    "--no-first-run",
    "--no-default-browser-check",
    // A Pod's /dev/shm has 64 MiB.
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--no-zygote",
    "--in-process-gpu",
    "--hide-scrollbars",
    "--mute-audio",
    "--force-color-profile=srgb",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-extensions",
    "--disable-sync",
    "--disable-breakpad",
    "--disable-hang-monitor",
    "--disable-ipc-flooding-protection",
    "--disable-popup-blocking",
    "--disable-prompt-on-repost",
    "--disable-background-timer-throttling",
    "--disable-renderer-backgrounding",
    "--disable-backgrounding-occluded-windows",
    "--disable-back-forward-cache",
    "--disable-field-trial-config",
    "--disable-quic",
    "--metrics-recording-only",
    "--password-store=basic",
    "--enable-automation",
    DISABLED_FEATURES,
];
