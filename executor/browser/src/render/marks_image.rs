//! Screenshot in which each marked element has a frame and a label with its id (section 2.8).

use std::borrow::Cow;

use crate::snapshot::element::{ElementProperties, ElementTable};

use self::canvas::{Area, Canvas};
use super::bitmap_font::{self, Glyph};

mod canvas;

/// Elements of a smaller area get no mark.
const MIN_AREA: f64 = 20.0;
/// Elements that are marked, far more than a picture can show.
const MAX_MARKS: usize = 10_000;
/// Bound of coordinates. Far outside of every picture, and far from overflows.
const MAX_COORDINATE: f64 = 1e7;
const LINE_WIDTH: i64 = 2;
const DASH: i64 = 4;
const DASH_INTERVAL: i64 = 12;
const LABEL_PADDING: i64 = 3;
/// Distance of the middle of a label from the upper edge of its element.
const LABEL_OFFSET: i64 = 4;

#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    #[error("cannot read PNG: {0}")]
    Read(#[from] png::DecodingError),
    #[error("image of {width}x{height} pixels exceeds {max} pixels")]
    TooLarge { width: u32, height: u32, max: u64 },
    #[error("cannot write PNG: {0}")]
    Write(#[from] png::EncodingError),
}

/// Converts a PNG to 8-bit RGB, if it has another form. Transparency is dropped.
pub fn rgb(png: &[u8]) -> Result<Cow<'_, [u8]>, ImageError> {
    if canvas::is_rgb(png)? {
        return Ok(Cow::Borrowed(png));
    }
    Canvas::from_png(png)?.to_png().map(Cow::Owned)
}

/// Draws the marks of all marked elements, in the order of the table. Writes an 8-bit RGB PNG.
pub fn with_marks(png: &[u8], elements: &ElementTable) -> Result<Vec<u8>, ImageError> {
    let mut canvas = Canvas::from_png(png)?;
    let marks = elements
        .0
        .iter()
        .filter_map(|(bid, element)| Some((bid, marked_area(element)?)));
    let marks = marks.filter(|(_, area)| canvas.area().overlaps(area));
    let marks: Vec<_> = marks.take(MAX_MARKS).collect();
    for (bid, area) in marks {
        draw_frame(&mut canvas, &area);
        draw_label(&mut canvas, &area, bid);
    }
    canvas.to_png()
}

fn marked_area(element: &ElementProperties) -> Option<Area> {
    let is_marked = element.set_of_marks == Some(true);
    let bbox = element
        .bbox
        .filter(|bbox| is_marked && bbox.iter().all(|side| side.is_finite()));
    let [x, y, width, height] = bbox?;
    let (width, height) = (width.ceil(), height.ceil());
    let is_large = width > 0.0 && height > 0.0 && width * height >= MIN_AREA;
    is_large.then(|| Area {
        left: coordinate(x.floor()),
        top: coordinate(y.floor()),
        width: coordinate(width),
        height: coordinate(height),
    })
}

#[expect(clippy::cast_possible_truncation, reason = "bounded before")]
fn coordinate(number: f64) -> i64 {
    number.clamp(-MAX_COORDINATE, MAX_COORDINATE) as i64
}

/// Dashed lines along the four edges.
fn draw_frame(canvas: &mut Canvas, area: &Area) {
    let (left, top) = (area.left - 1, area.top - 1);
    for top in [top, top + area.height] {
        for dash in dashes(area.left, area.width, canvas.area().width) {
            canvas.fill(
                &Area {
                    left: dash.0,
                    top,
                    width: dash.1,
                    height: LINE_WIDTH,
                },
                canvas::BLACK,
            );
        }
    }
    for left in [left, left + area.width] {
        for dash in dashes(area.top, area.height, canvas.area().height) {
            canvas.fill(
                &Area {
                    left,
                    top: dash.0,
                    width: LINE_WIDTH,
                    height: dash.1,
                },
                canvas::BLACK,
            );
        }
    }
}

/// Starts and lengths of the dashes of a line, as far as they are inside of `0..limit`.
fn dashes(start: i64, length: i64, limit: i64) -> impl Iterator<Item = (i64, i64)> {
    let end = (start + length).min(limit);
    // Whole intervals before the picture are passed over.
    let first = start + (-start).max(0) / DASH_INTERVAL * DASH_INTERVAL;
    let starts = std::iter::successors(Some(first), |at| Some(at + DASH_INTERVAL));
    starts
        .take_while(move |at| *at < end)
        .map(move |at| (at, DASH.min(end - at)))
}

/// White text on black with a white border.
fn draw_label(canvas: &mut Canvas, area: &Area, bid: &str) {
    let glyphs: Vec<&Glyph> = bid.chars().filter_map(bitmap_font::glyph).collect();
    let gaps = bitmap_font::GAP * glyphs.len().saturating_sub(1);
    let width = glyphs.iter().map(|glyph| glyph.width).sum::<usize>() + gaps;
    let height = glyphs
        .iter()
        .map(|glyph| glyph.height)
        .max()
        .unwrap_or_default();
    let height = pixels(height) + 2 * LABEL_PADDING;
    let label = Area {
        left: area.left,
        top: area.top + LABEL_OFFSET - height / 2,
        width: pixels(width) + 2 * LABEL_PADDING,
        height,
    };
    canvas.fill(&label, canvas::WHITE);
    canvas.fill(&label.shrink(1), canvas::BLACK);
    let mut left = label.left + LABEL_PADDING;
    for glyph in glyphs {
        draw_glyph(canvas, glyph, left, label.top + LABEL_PADDING);
        left += pixels(glyph.width + bitmap_font::GAP);
    }
}

fn draw_glyph(canvas: &mut Canvas, glyph: &Glyph, left: i64, top: i64) {
    for (y, row) in glyph.rows.iter().enumerate() {
        for x in (0..glyph.width).filter(|x| row >> x & 1 == 1) {
            let pixel = Area {
                left: left + pixels(x),
                top: top + pixels(y),
                width: 1,
                height: 1,
            };
            canvas.fill(&pixel, canvas::WHITE);
        }
    }
}

fn pixels(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
