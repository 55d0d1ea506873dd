//! Ids of elements (section 2.5): letters name the frames on the way, digits the element.

/// An id that is split into its frames.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Bid<'a> {
    /// Ids of the elements that hold the frames, from the outermost.
    pub(super) frames: Vec<&'a str>,
    pub(super) element: &'a str,
}

impl<'a> Bid<'a> {
    pub(super) fn split(text: &'a str) -> Self {
        let mut frames = Vec::new();
        let mut end = 0;
        while let Some(first) = text[end..].chars().next() {
            if text[end..].chars().all(char::is_numeric) {
                break;
            }
            // One character, and the upper-case letters that follow.
            let more = &text[end + first.len_utf8()..];
            let next = more.find(|letter: char| !letter.is_uppercase());
            end = text.len() - more.len() + next.unwrap_or(more.len());
            frames.push(&text[..end]);
        }
        Self {
            frames,
            element: text,
        }
    }

    /// The element in the words of error texts.
    pub(super) fn locator(&self) -> String {
        let element = format!("get_by_test_id(\"{}\")", self.element);
        let frames = self.frames.iter().map(|frame| frame_locator(frame));
        let frames = frames.map(|frame| frame + ".content_frame.");
        frames.chain([element]).collect()
    }
}

pub(super) fn frame_locator(bid: &str) -> String {
    format!("get_by_test_id(\"{bid}\").locator(\":scope\")")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_split_at_lower_case_letters() {
        for (text, frames) in [
            ("12", &[][..]),
            ("", &[]),
            ("a12", &["a"]),
            ("abDb12", &["a", "abD", "abDb"]),
            ("aA", &["aA"]),
            ("zABc7", &["zAB", "zABc"]),
            ("1a2", &["1", "1a"]),
            ("\"]", &["\"", "\"]"]),
            ("ü1", &["ü"]),
        ] {
            assert_eq!(Bid::split(text).frames, frames, "{text}");
        }
    }

    #[test]
    fn locators_name_all_frames() {
        let locator = Bid::split("abA3").locator();
        let frames = [frame_locator("a"), frame_locator("abA")];
        let [outer, inner] = frames;
        let expected =
            format!("{outer}.content_frame.{inner}.content_frame.get_by_test_id(\"abA3\")");
        assert_eq!(locator, expected);
    }
}
