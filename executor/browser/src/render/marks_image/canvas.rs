//! Picture in memory: read from a PNG, painted with rectangles, written as a PNG.

use std::io::Cursor;

use png::{BitDepth, ColorType, Compression, Decoder, Encoder, Reader, Transformations};

use super::ImageError;

/// Largest picture, in pixels: a screenshot has one million.
const MAX_PIXELS: u64 = 64 << 20;
const CHANNELS: usize = 3;

pub(super) type Color = [u8; CHANNELS];
pub(super) const BLACK: Color = [0; CHANNELS];
pub(super) const WHITE: Color = [255; CHANNELS];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Area {
    pub(super) left: i64,
    pub(super) top: i64,
    pub(super) width: i64,
    pub(super) height: i64,
}

impl Area {
    pub(super) fn shrink(&self, by: i64) -> Self {
        Self {
            left: self.left + by,
            top: self.top + by,
            width: self.width - 2 * by,
            height: self.height - 2 * by,
        }
    }

    pub(super) fn overlaps(&self, other: &Self) -> bool {
        let apart = |a: i64, a_size: i64, b: i64, b_size: i64| a + a_size <= b || b + b_size <= a;
        !apart(self.left, self.width, other.left, other.width)
            && !apart(self.top, self.height, other.top, other.height)
    }
}

/// Pixels as 8-bit RGB.
pub(super) struct Canvas {
    width: u32,
    height: u32,
    pixels: Vec<u8>,
}

impl Canvas {
    pub(super) fn from_png(png: &[u8]) -> Result<Self, ImageError> {
        let mut reader = open(png)?;
        let (width, height) = reader.info().size();
        let size = reader.output_buffer_size();
        let size = size.ok_or(too_large(width, height))?;
        let mut pixels = vec![0; size];
        let (color, _) = reader.output_color_type();
        reader.next_frame(&mut pixels)?;
        let pixels = match color {
            ColorType::Rgb => pixels,
            ColorType::Rgba => to_rgb::<4>(&pixels, |[r, g, b, _]| [r, g, b]),
            ColorType::Grayscale => to_rgb::<1>(&pixels, |[gray]| [gray; CHANNELS]),
            ColorType::GrayscaleAlpha => to_rgb::<2>(&pixels, |[gray, _]| [gray; CHANNELS]),
            // The decoder replaces palettes.
            ColorType::Indexed => return Err(too_large(width, height)),
        };
        Ok(Self {
            width,
            height,
            pixels,
        })
    }

    pub(super) fn to_png(&self) -> Result<Vec<u8>, ImageError> {
        let mut png = Vec::with_capacity(self.pixels.len() / 16);
        let mut encoder = Encoder::new(&mut png, self.width, self.height);
        encoder.set_color(ColorType::Rgb);
        encoder.set_depth(BitDepth::Eight);
        encoder.set_compression(Compression::Fast);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.pixels)?;
        writer.finish()?;
        Ok(png)
    }

    #[cfg(test)]
    pub(super) fn pixels(&self) -> &[u8] {
        &self.pixels
    }

    pub(super) fn area(&self) -> Area {
        Area {
            left: 0,
            top: 0,
            width: self.width.into(),
            height: self.height.into(),
        }
    }

    /// Paints the part of a rectangle that is inside the picture.
    pub(super) fn fill(&mut self, area: &Area, color: Color) {
        let columns = clip(area.left, area.width, self.width);
        let line_size = self.width as usize * CHANNELS;
        for line in clip(area.top, area.height, self.height) {
            let start = line * line_size;
            let bytes = start + columns.start * CHANNELS..start + columns.end * CHANNELS;
            for pixel in self.pixels[bytes].as_chunks_mut().0 {
                *pixel = color;
            }
        }
    }
}

/// True for an 8-bit RGB picture without transparency.
pub(super) fn is_rgb(png: &[u8]) -> Result<bool, ImageError> {
    let reader = open(png)?;
    let info = reader.info();
    let is_opaque = info.trns.is_none();
    Ok(info.color_type == ColorType::Rgb && info.bit_depth == BitDepth::Eight && is_opaque)
}

/// Reads the head of a picture of bounded size.
fn open(png: &[u8]) -> Result<Reader<Cursor<&[u8]>>, ImageError> {
    let mut decoder = Decoder::new(Cursor::new(png));
    decoder.set_transformations(Transformations::normalize_to_color8());
    let (width, height) = decoder.read_header_info()?.size();
    if u64::from(width) * u64::from(height) > MAX_PIXELS {
        return Err(too_large(width, height));
    }
    Ok(decoder.read_info()?)
}

fn too_large(width: u32, height: u32) -> ImageError {
    ImageError::TooLarge {
        width,
        height,
        max: MAX_PIXELS,
    }
}

fn to_rgb<const N: usize>(pixels: &[u8], convert: impl Fn([u8; N]) -> Color) -> Vec<u8> {
    let pixels = pixels.as_chunks::<N>().0.iter();
    pixels.flat_map(|pixel| convert(*pixel)).collect()
}

/// Part of `start..start + length` inside of `0..limit`.
fn clip(start: i64, length: i64, limit: u32) -> std::ops::Range<usize> {
    let bound = |at: i64| usize::try_from(at.clamp(0, limit.into())).unwrap_or_default();
    bound(start)..bound(start + length).max(bound(start))
}
