//! Kubernetes quantities as whole bytes.

/// Bytes of a memory quantity such as `512Mi`, `1.5G` or `128974848`.
pub(crate) fn bytes(text: &str) -> Option<u64> {
    const UNITS: [(&str, f64); 12] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("m", 1e-3),
        ("k", 1e3),
        ("K", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let unit = UNITS
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let value = number.trim().parse::<f64>().ok()? * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked"
    )]
    let whole = (value.is_finite() && (1.0..=1e18).contains(&value)).then_some(value as u64);
    whole
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read() {
        for (text, value) in [
            ("512Mi", Some(536_870_912)),
            ("1.5G", Some(1_500_000_000)),
            ("128974848", Some(128_974_848)),
            ("1e3", Some(1000)),
            ("1000k", Some(1_000_000)),
            ("0", None),
            ("x", None),
            ("", None),
        ] {
            assert_eq!(bytes(text), value, "{text}");
        }
    }
}
