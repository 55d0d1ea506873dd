//! Points and quadrilaterals in the viewport of a page and in those of its frames. Elements and
//! frames may be transformed, so that rectangles do not suffice.

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Point {
    pub(super) x: f64,
    pub(super) y: f64,
}

impl Point {
    /// Cut to hundredths of a pixel, as Playwright does.
    pub(super) fn cut(self) -> Self {
        let cut = |number: f64| (number * 100.0).trunc() / 100.0;
        Self {
            x: cut(self.x),
            y: cut(self.y),
        }
    }
}

/// Four corners, clockwise from that of the upper left, as the protocol has them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Quad(pub(super) [Point; 4]);

impl From<[f64; 8]> for Quad {
    fn from(numbers: [f64; 8]) -> Self {
        let corner = |at: usize| Point {
            x: numbers[2 * at],
            y: numbers[2 * at + 1],
        };
        Self([0, 1, 2, 3].map(corner))
    }
}

impl Quad {
    pub(super) fn map(self, change: impl FnMut(Point) -> Point) -> Self {
        Self(self.0.map(change))
    }

    /// The part inside a viewport of this size, as far as four corners can tell.
    pub(super) fn clip(self, width: f64, height: f64) -> Self {
        self.map(|point| Point {
            x: point.x.clamp(0.0, width),
            y: point.y.clamp(0.0, height),
        })
    }

    pub(super) fn area(self) -> f64 {
        let [a, b, c, d] = self.0;
        let sides = [(a, b), (b, c), (c, d), (d, a)];
        let twice: f64 = sides.iter().map(|(p, q)| p.x * q.y - q.x * p.y).sum();
        twice.abs() / 2.0
    }

    pub(super) fn middle(self) -> Point {
        let sum = |part: fn(&Point) -> f64| self.0.iter().map(part).sum::<f64>() / 4.0;
        Point {
            x: sum(|point| point.x),
            y: sum(|point| point.y),
        }
    }
}

/// Place of a frame's viewport in another one, which may be moved, scaled and rotated.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placement {
    origin: Point,
    /// Steps to the right and down.
    right: Point,
    down: Point,
}

impl Placement {
    /// Place of a viewport of a size that fills `quad`; `None` if one of them has no area.
    pub(super) fn new(quad: Quad, width: f64, height: f64) -> Option<Self> {
        let [origin, right, _, down] = quad.0;
        let step = |to: Point, length: f64| Point {
            x: (to.x - origin.x) / length,
            y: (to.y - origin.y) / length,
        };
        let placement = Self {
            origin,
            right: step(right, width),
            down: step(down, height),
        };
        let determinant = placement.determinant();
        (determinant.is_finite() && determinant != 0.0).then_some(placement)
    }

    fn determinant(self) -> f64 {
        self.right.x * self.down.y - self.right.y * self.down.x
    }

    pub(super) fn outward(self, point: Point) -> Point {
        Point {
            x: self.origin.x + point.x * self.right.x + point.y * self.down.x,
            y: self.origin.y + point.x * self.right.y + point.y * self.down.y,
        }
    }

    pub(super) fn inward(self, point: Point) -> Point {
        let (x, y) = (point.x - self.origin.x, point.y - self.origin.y);
        let determinant = self.determinant();
        Point {
            x: (x * self.down.y - y * self.down.x) / determinant,
            y: (y * self.right.x - x * self.right.y) / determinant,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements_lead_out_and_back() {
        let moved = Quad::from([10.0, 20.0, 30.0, 20.0, 30.0, 60.0, 10.0, 60.0]);
        let rotated = Quad::from([0.0, 0.0, 30.0, 40.0, -10.0, 70.0, -40.0, 30.0]);
        for (quad, width, height) in [(moved, 10.0, 20.0), (rotated, 50.0, 50.0)] {
            let placement = Placement::new(quad, width, height).unwrap();
            let corner = Point {
                x: width,
                y: height,
            };
            assert_eq!(placement.outward(corner), quad.0[2]);
            let back = placement.inward(placement.outward(Point { x: 3.0, y: 7.0 }));
            assert!((back.x - 3.0).abs() < 1e-9 && (back.y - 7.0).abs() < 1e-9);
        }
        assert!(Placement::new(moved, 0.0, 20.0).is_none());
        assert!(Placement::new(Quad::from([1.0; 8]), 10.0, 20.0).is_none());
    }

    #[test]
    fn quads_are_clipped_to_the_viewport() {
        let quad = Quad::from([-50.0, 10.0, 50.0, 10.0, 50.0, 30.0, -50.0, 30.0]);
        let clipped = quad.clip(1280.0, 720.0);
        assert_eq!(clipped.middle(), Point { x: 25.0, y: 20.0 });
        assert!((clipped.area() - 1000.0).abs() < 1e-9);
        assert!(
            quad.map(|point| Point {
                x: point.x - 60.0,
                ..point
            })
            .clip(1280.0, 720.0)
            .area()
                < 1e-9
        );
    }
}
