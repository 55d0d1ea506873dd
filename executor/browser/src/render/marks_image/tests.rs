use png::{BitDepth, ColorType, Encoder};
use proptest::prelude::*;

use super::canvas::{BLACK, Color, WHITE};
use super::*;

const GRAY: Color = [128; 3];

fn png(width: u32, height: u32, color: ColorType, pixel: &[u8]) -> Vec<u8> {
    let mut png = Vec::new();
    let mut encoder = Encoder::new(&mut png, width, height);
    encoder.set_color(color);
    encoder.set_depth(BitDepth::Eight);
    let mut writer = encoder.write_header().unwrap();
    let pixels = pixel.repeat(width as usize * height as usize);
    writer.write_image_data(&pixels).unwrap();
    writer.finish().unwrap();
    png
}

fn gray_png() -> Vec<u8> {
    png(80, 60, ColorType::Rgb, &GRAY)
}

fn marked(bid: &str, bbox: [f64; 4]) -> ElementTable {
    let element = ElementProperties {
        bbox: Some(bbox),
        set_of_marks: Some(true),
        ..ElementProperties::default()
    };
    ElementTable([(bid.to_owned(), element)].into())
}

/// Lines of a picture: `#` black, `o` white, `.` gray.
fn lines(png: &[u8]) -> Vec<String> {
    let canvas = Canvas::from_png(png).unwrap();
    let width = usize::try_from(canvas.area().width).unwrap();
    let signs = canvas
        .pixels()
        .as_chunks()
        .0
        .iter()
        .map(|pixel| match *pixel {
            BLACK => '#',
            WHITE => 'o',
            GRAY => '.',
            other => panic!("{other:?}"),
        });
    let signs: Vec<char> = signs.collect();
    signs
        .chunks(width)
        .map(|line| line.iter().collect())
        .collect()
}

#[test]
fn marked_element_gets_a_dashed_frame_and_a_label() {
    let picture = with_marks(&gray_png(), &marked("a7", [10.4, 20.6, 39.1, 24.0])).unwrap();
    let lines = lines(&picture);
    // Upper edge at 20: two lines, four dark pixels of twelve, beside the label.
    assert_eq!(lines[19][29..55], *".....####........####.....");
    assert_eq!(lines[20][29..55], *".....####........#####....");
    assert_eq!(lines[18][29..], *".".repeat(51));
    for y in [43, 44] {
        assert_eq!(
            lines[y][8..54],
            *"..####........####........####........####...."
        );
    }
    let column: String = lines
        .iter()
        .filter_map(|line| line.chars().nth(9))
        .collect();
    assert_eq!(column[18..46], *"..####........####..........");
    let label = [
        "ooooooooooooooooooo",
        "o#################o",
        "o#################o",
        "o#########oooooo##o",
        "o##############o##o",
        "o#############o###o",
        "o###oooo######o###o",
        "o#######o####o####o",
        "o###ooooo####o####o",
        "o##o####o###o#####o",
        "o##o###oo###o#####o",
        "o###ooo#o###o#####o",
        "o#################o",
        "o#################o",
        "ooooooooooooooooooo",
    ];
    for (line, expected) in lines[17..].iter().zip(label) {
        assert_eq!(line[10..29], *expected);
    }
}

#[test]
fn elements_without_flag_box_or_area_stay_unmarked() {
    let mut unflagged = marked("1", [0.0, 0.0, 50.0, 50.0]);
    unflagged.0[0].set_of_marks = Some(false);
    let mut boxless = marked("1", [0.0; 4]);
    boxless.0[0].bbox = None;
    let tables = [
        unflagged,
        boxless,
        marked("1", [5.0, 5.0, 4.0, 4.0]),
        marked("1", [5.0, 5.0, -40.0, -40.0]),
        marked("1", [f64::NAN, 5.0, 40.0, 40.0]),
        marked("1", [80.0, 5.0, 40.0, 40.0]),
    ];
    for table in tables {
        let lines = lines(&with_marks(&gray_png(), &table).unwrap());
        assert!(
            lines
                .iter()
                .all(|line| line.chars().all(|sign| sign == '.')),
            "{table:?}"
        );
    }
}

#[test]
fn every_character_of_an_id_has_a_glyph_of_its_own() {
    let ids = ('0'..='9').chain('A'..='Z').chain('a'..='z');
    let glyphs: Vec<_> = ids.map(|id| bitmap_font::glyph(id).unwrap().rows).collect();
    assert!(glyphs.iter().all(|rows| rows.iter().any(|row| *row > 0)));
    let distinct: std::collections::HashSet<_> = glyphs.iter().collect();
    assert_eq!(distinct.len(), 62);
}

#[test]
fn other_forms_become_rgb_and_rgb_is_left_alone() {
    let original = gray_png();
    assert!(matches!(rgb(&original).unwrap(), Cow::Borrowed(_)));
    for (color, pixel) in [
        (ColorType::Rgba, &[128, 128, 128, 9][..]),
        (ColorType::Grayscale, &[128]),
        (ColorType::GrayscaleAlpha, &[128, 0]),
    ] {
        let converted = rgb(&png(3, 2, color, pixel)).unwrap().into_owned();
        assert!(canvas::is_rgb(&converted).unwrap());
        assert_eq!(lines(&converted), ["...", "..."]);
    }
}

#[test]
fn huge_and_broken_pictures_are_refused() {
    // The size is in the head, and the bytes behind it are never read.
    let mut huge = gray_png();
    huge[16..24].copy_from_slice(&[0, 0, 0x40, 0, 0, 0, 0x20, 0]);
    let crc = 0xad1c_cb36_u32;
    huge[29..33].copy_from_slice(&crc.to_be_bytes());
    let error = rgb(&huge).unwrap_err().to_string();
    assert_eq!(error, "image of 16384x8192 pixels exceeds 67108864 pixels");
    let whole = gray_png();
    for end in 0..whole.len() - 12 {
        assert!(
            with_marks(&whole[..end], &ElementTable::default()).is_err(),
            "{end}"
        );
    }
}

proptest! {
    #[test]
    fn no_box_causes_a_panic(
        bbox in prop::array::uniform4(prop_oneof![any::<f64>(), -20.0..20.0]),
    ) {
        let picture = png(8, 8, ColorType::Rgb, &GRAY);
        prop_assert!(with_marks(&picture, &marked("zZ9", bbox)).is_ok());
    }
}
