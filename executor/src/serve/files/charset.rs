//! Encoding of a text file, so that it can be written back in the same one.
//!
//! A guess is accepted only if it encodes back to the same bytes. So text that an edit does not
//! touch stays as it was, even if the guess was wrong.

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// Bytes from which an encoding is guessed.
const SAMPLE: usize = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Charset {
    encoding: &'static Encoding,
    /// True if the file starts with a byte order mark, which is not part of the text.
    marked: bool,
}

/// A character that the file's encoding does not have.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error(
    "'{codec}' codec can't encode character {character:?} in position {position}: character maps to <undefined>"
)]
pub(crate) struct EncodeError {
    codec: String,
    character: char,
    position: usize,
}

impl Charset {
    pub(crate) const UTF_8: Self = Self::of(UTF_8);

    pub(crate) fn decode(content: &[u8]) -> (Self, String) {
        if let Ok(text) = std::str::from_utf8(content)
            && Encoding::for_bom(content).is_none()
        {
            return (Self::UTF_8, text.to_owned());
        }
        let marked = Encoding::for_bom(content).map(|(encoding, _)| Self {
            encoding,
            marked: true,
        });
        let last = Self::of(WINDOWS_1252);
        let guesses = marked.into_iter().chain([guess(content), last]);
        let mut decoded = guesses.filter_map(|guess| Some((guess, guess.try_decode(content)?)));
        // The last guess decodes any bytes.
        let lossy = || (last, String::from_utf8_lossy(content).into_owned());
        decoded.next().unwrap_or_else(lossy)
    }

    const fn of(encoding: &'static Encoding) -> Self {
        Self {
            encoding,
            marked: false,
        }
    }

    /// Returns the text if encoding it gives the same bytes.
    fn try_decode(self, content: &[u8]) -> Option<String> {
        let mark = Encoding::for_bom(content).filter(|_| self.marked);
        let body = &content[mark.map_or(0, |(_, length)| length)..];
        let text = self
            .encoding
            .decode_without_bom_handling_and_without_replacement(body)?;
        let same = self.encode(&text).is_ok_and(|again| again == content);
        same.then(|| text.into_owned())
    }

    pub(crate) fn encode(self, text: &str) -> Result<Vec<u8>, EncodeError> {
        let mark = if self.marked { "\u{feff}" } else { "" };
        let units = || mark.encode_utf16().chain(text.encode_utf16());
        if self.encoding == UTF_16LE {
            return Ok(units().flat_map(u16::to_le_bytes).collect());
        }
        if self.encoding == UTF_16BE {
            return Ok(units().flat_map(u16::to_be_bytes).collect());
        }
        match self.encoding.encode(text) {
            (bytes, _, false) => Ok([mark.as_bytes(), &bytes].concat()),
            (_, _, true) => Err(self.encode_error(text)),
        }
    }

    /// Names the first character that cannot be encoded.
    fn encode_error(self, text: &str) -> EncodeError {
        let foreign = |(_, character): &(usize, char)| {
            let (_, _, lost) = self.encoding.encode(character.encode_utf8(&mut [0; 4]));
            lost
        };
        let found = text.chars().enumerate().find(foreign);
        let (position, character) = found.unwrap_or((0, char::REPLACEMENT_CHARACTER));
        EncodeError {
            codec: self.encoding.name().to_ascii_lowercase(),
            character,
            position,
        }
    }
}

fn guess(content: &[u8]) -> Charset {
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(&content[..content.len().min(SAMPLE)], true);
    Charset::of(detector.guess(None, Utf8Detection::Deny))
}

#[cfg(test)]
mod tests {
    use super::*;
    use encoding_rs::{GBK, SHIFT_JIS, WINDOWS_1251};

    fn back_and_forth(content: &[u8]) -> String {
        let (charset, text) = Charset::decode(content);
        assert_eq!(charset.encode(&text).unwrap(), content);
        text
    }

    #[test]
    fn files_round_trip_in_their_encoding() {
        assert_eq!(back_and_forth("zażółć".as_bytes()), "zażółć");
        assert_eq!(back_and_forth(b"\xef\xbb\xbfa"), "a");
        assert_eq!(back_and_forth(b"\xff\xfea\0\n\0"), "a\n");
        assert_eq!(back_and_forth(b"\xfe\xff\0a"), "a");
        assert_eq!(
            back_and_forth(b"d\xe9j\xe0 vu, tr\xe8s bien"),
            "déjà vu, très bien"
        );
        for encoding in [GBK, SHIFT_JIS, WINDOWS_1251] {
            let text = if encoding == WINDOWS_1251 {
                "Привет, мир. Это обычный текст."
            } else {
                "日本語中文的文字是一個很長的句子"
            };
            let (content, _, lost) = encoding.encode(text);
            if !lost {
                back_and_forth(&content);
            }
        }
    }

    #[test]
    fn random_bytes_round_trip() {
        let mut state = 1u32;
        for length in 0..400 {
            let mut random = |_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                state.to_be_bytes()[0]
            };
            let content: Vec<u8> = (0..length).map(&mut random).collect();
            back_and_forth(&content);
        }
    }
}
