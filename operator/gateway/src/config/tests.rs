use clap::Parser;

use super::*;

#[derive(Debug, Parser)]
struct TestArgs {
    #[command(flatten)]
    gateway: GatewayConfig,
}

#[test]
fn invalid_limits_and_incomplete_flags_are_rejected() {
    for flag in [
        "--max-connections",
        "--max-requests-per-sandbox",
        "--max-held-requests",
    ] {
        for odd in ["0", "-1", "16777217", "many"] {
            let line = format!("{flag}={odd}");
            assert!(TestArgs::try_parse_from(["x", &line]).is_err(), "{line}");
        }
    }
    for line in [
        &["--tls-certificate=a"][..],
        &["--tls-key=a"],
        &["--proxy-protocol"],
    ] {
        assert!(
            TestArgs::try_parse_from([&["x"], line].concat()).is_err(),
            "{line:?}"
        );
    }
    let line = ["x", "--proxy-protocol", "--trusted-proxies=10.0.0.0/8"];
    assert!(TestArgs::parse_from(line).gateway.proxy_protocol);
    let default = GatewayConfig::default().max_connections_per_address;
    assert_eq!(default, 4096);
}
