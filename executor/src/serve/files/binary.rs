//! Recognizes binary files by their first bytes, as the Python server does
//! (`docs/specs/executor.md`, section 6.1, rule 3).

use std::io::{self, Read as _};
use std::path::Path;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{DecoderResult, Encoding};

use super::open;

/// Bytes that decide whether a file is binary.
const SAMPLE: u64 = 1024;

/// Returns whether a file is binary. One that cannot be opened is text: reading reports the error.
pub(crate) fn is_binary(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.ends_with(".pyc"))
        || sample(path).is_ok_and(|sample| is_binary_sample(&sample))
}

/// Reads the first bytes of a regular file.
fn sample(path: &Path) -> io::Result<Vec<u8>> {
    let file = open(path)?;
    let mut content = Vec::new();
    if file.metadata()?.is_file() {
        file.take(SAMPLE).read_to_end(&mut content)?;
    }
    Ok(content)
}

fn is_binary_sample(sample: &[u8]) -> bool {
    if sample.is_empty() || is_unicode(sample) {
        return false;
    }
    let share = |is: fn(u8) -> bool| {
        let count = sample.iter().filter(|byte| is(**byte)).count();
        // In percent, rounded down: the thresholds are integers.
        count * 100 / sample.len()
    };
    let (odd, low) = (share(is_odd), share(|byte| byte < 0x7f));
    let likely = (odd > 30 && low < 5) || (odd > 80 && low > 80);
    if likely {
        !is_legacy_text(sample)
    } else {
        sample.contains(&0) || sample.contains(&0xff)
    }
}

fn is_odd(byte: u8) -> bool {
    !matches!(byte, b'\n' | b'\r' | b'\t' | 0x0c | 0x08 | 0x20..=0x7e)
}

/// True for Unicode beyond ASCII, possibly cut in the middle of a character.
fn is_unicode(sample: &[u8]) -> bool {
    if let Some((encoding, length)) = Encoding::for_bom(sample) {
        return decodes(encoding, &sample[length..]);
    }
    let valid = match std::str::from_utf8(sample) {
        Ok(_) => true,
        Err(error) => error.error_len().is_none(),
    };
    valid && !sample.is_ascii()
}

/// True for East Asian encodings, which have few bytes below 0x7f but no control characters.
fn is_legacy_text(sample: &[u8]) -> bool {
    let control = |byte: &u8| *byte == 0xff || *byte < 0x80 && is_odd(*byte);
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, false);
    !sample.iter().any(control) && decodes(detector.guess(None, Utf8Detection::Deny), sample)
}

fn decodes(encoding: &'static Encoding, sample: &[u8]) -> bool {
    let mut decoder = encoding.new_decoder_without_bom_handling();
    let mut text = String::with_capacity(sample.len() * 3 + 16);
    let (result, _) = decoder.decode_to_string_without_replacement(sample, &mut text, false);
    let whole = matches!(result, DecoderResult::InputEmpty);
    whole && !text.contains('\0')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_binary_samples_are_recognized() {
        let text: [&[u8]; 9] = [
            b"",
            b"plain\ttext\r\n",
            "zażółć gęślą jaźń".as_bytes(),
            &"é".as_bytes()[..1],
            b"d\xe9j\xe0 vu",
            b"\xff\xfea\0b\0",
            b"\xfe\xff\0a\0b",
            b"\x1b[31mred\x1b[0m",
            &[0x82, 0xb1, 0x82, 0xf1, 0x82, 0xc9, 0x82, 0xbf, 0x82, 0xcd],
        ];
        for sample in text {
            assert!(!is_binary_sample(sample), "{sample:?}");
        }
        let binary: [&[u8]; 5] = [
            b"\0",
            b"abc\0def",
            b"\x7fELF\x02\x01\x01\0\0\0\xff",
            b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\xff",
            &[0xff; 100],
        ];
        for sample in binary {
            assert!(is_binary_sample(sample), "{sample:?}");
        }
    }
}
