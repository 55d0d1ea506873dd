//! Hexadecimal digits of hashes and of what clients prove, in one place.

/// Encodes bytes as lower-case hexadecimal digits.
pub fn encode(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits
        .filter_map(|digit| char::from_digit(digit.into(), 16))
        .collect()
}

/// Decodes exactly `N` bytes, from digits of either case.
pub fn decode<const N: usize>(text: &str) -> Option<[u8; N]> {
    let text = text.as_bytes();
    if text.len() != 2 * N {
        return None;
    }
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(text.chunks_exact(2)) {
        let digit = |c: u8| char::from(c).to_digit(16);
        *byte = u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok()?;
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decode_accepts_exactly_the_encoded_length() {
        assert_eq!(encode(&[0, 0xaf, 16]), "00af10");
        assert_eq!(decode("00aF10"), Some([0, 0xaf, 16]));
        for wrong in ["", "00af1", "00af1g", "00af1000", "\u{e9}0af1"] {
            assert_eq!(decode::<3>(wrong), None, "{wrong}");
        }
    }
}
