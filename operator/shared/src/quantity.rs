//! Parses Kubernetes quantities such as `250m` and `2Gi`.

/// The value of a quantity; `None` if it is invalid or negative.
pub fn value(text: &str) -> Option<f64> {
    const UNITS: [(&str, f64); 15] = [
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("n", 1e-9),
        ("u", 1e-6),
        ("m", 1e-3),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let (digits, factor) = UNITS
        .iter()
        .find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)))
        .unwrap_or((text, 1.0));
    let number: f64 = digits.parse().ok()?;
    (number.is_finite() && number >= 0.0).then_some(number * factor)
}

/// A quantity in units of `1 / parts`, rounded up; `None` if it is invalid or too large.
pub fn whole(text: &str, parts: f64) -> Option<u64> {
    let number = (value(text)? * parts).ceil();
    // Both types represent smaller integers exactly.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is checked to be in range"
    )]
    (number < 9.0e15).then_some(number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_quantities() {
        for (text, number) in [
            ("1", 1.0),
            ("250m", 0.25),
            ("2Gi", 2_147_483_648.0),
            ("1e3", 1e3),
        ] {
            assert_eq!(value(text), Some(number), "{text}");
        }
        for text in ["", "Gi", "-1", "1Qi", "inf"] {
            assert_eq!(value(text), None, "{text}");
        }
    }

    #[test]
    fn whole_rounds_up() {
        assert_eq!(whole("1500m", 1000.0), Some(1500));
        assert_eq!(whole("1Gi", 1.0), Some(1 << 30));
        assert_eq!(whole("1u", 1000.0), Some(1));
        assert_eq!(whole("1e300", 1.0), None);
        assert_eq!(whole("much", 1.0), None);
    }
}
