//! The streaming piecewise-linear fitter: the longest run of points that one line passes within
//! epsilon of, in one pass and exact integer arithmetic.
//!
//! Each point `(x, y)` asks of a line that at `x` it runs between the *floor* `y - epsilon` and
//! the *ceiling* `y + epsilon`. The lines that satisfy all points so far form a convex set, held
//! by its steepest and its flattest member and by the two hulls on which the next such members
//! turn (O'Rourke, "An on-line algorithm for fitting straight lines between data ranges", 1981).
//! A point is refused only if no line fits, so that closing a segment at each refusal yields the
//! fewest segments possible.
//!
//! The fitter knows nothing of keys, files or blocks. Its hulls are reused from run to run.

use std::cmp::Ordering;

use crate::segment::{Line, Segment};

#[derive(Clone, Copy, Debug, Default)]
struct Point {
    x: u64,
    /// Relative to the first point of the run.
    y: i64,
}

/// A line through two points, `left.x < right.x`.
#[derive(Clone, Copy, Debug, Default)]
struct Ray {
    left: Point,
    right: Point,
}

/// Rise and run from one point to a later one.
type Slope = (i64, u64);

#[inline]
fn slope(from: Point, to: Point) -> Slope {
    (to.y - from.y, to.x - from.x)
}

/// Compares two slopes. Rises are below 2^51 and runs below 2^64: the products fit.
#[inline]
fn compare(a: Slope, b: Slope) -> Ordering {
    (i128::from(a.0) * i128::from(b.1)).cmp(&(i128::from(b.0) * i128::from(a.1)))
}

impl Ray {
    /// Returns whether `point`, at or right of `right`, lies above the ray, on it, or below.
    #[inline]
    fn side(&self, point: Point) -> Ordering {
        compare(slope(self.left, point), slope(self.left, self.right))
    }

    fn slope(&self) -> Slope {
        slope(self.left, self.right)
    }
}

/// One chain of a hull: its live points are those from `start` on.
#[derive(Clone, Debug, Default)]
struct Hull {
    points: Vec<Point>,
    start: usize,
}

impl Hull {
    fn reset(&mut self, point: Point) {
        self.points.clear();
        self.points.push(point);
        self.start = 0;
    }

    fn live(&self) -> &[Point] {
        &self.points[self.start..]
    }

    /// The index of the live point left of `target` from which the slope to `target` is most
    /// `wanted` (`Greater`: steepest, `Less`: flattest).
    #[inline]
    fn tangent(&self, target: Point, wanted: Ordering) -> usize {
        let mut best = self.start;
        let mut best_slope = slope(self.points[best], target);
        for (i, point) in self.points.iter().enumerate().skip(best + 1) {
            if point.x >= target.x {
                break;
            }
            let next = slope(*point, target);
            if compare(next, best_slope) == wanted.reverse() {
                break;
            }
            (best, best_slope) = (i, next);
        }
        best
    }

    /// Appends `point`, first dropping what it hides. `bend` is how each slope of the chain
    /// compares to the one before it.
    #[inline]
    fn push(&mut self, point: Point, bend: Ordering) {
        if self.points.len() > self.start + 1
            && self.points.last().is_some_and(|last| last.x == point.x)
        {
            self.points.pop();
        }
        while let [.., before, last] = *self.live() {
            if compare(slope(last, point), slope(before, last)) == bend {
                break;
            }
            self.points.pop();
        }
        self.points.push(point);
    }
}

/// The streaming fitter. Feed it points until it refuses one, take the [`Segment`], [`clear`],
/// and go on with the refused point.
///
/// Amortised constant time a point. Memory: the two hulls, at worst one entry a point each, in
/// practice a few dozen; kept across [`clear`].
///
/// [`clear`]: Fitter::clear
#[derive(Clone, Debug)]
pub struct Fitter {
    epsilon: i64,
    points: u64,
    first_x: u64,
    first_y: u64,
    last: Point,
    /// The largest rise between neighbouring points.
    step: i64,
    /// The ceilings that can still bind, a chain that bends upwards.
    ceilings: Hull,
    /// The floors that can still bind, a chain that bends downwards.
    floors: Hull,
    /// The flattest fitting line, from a ceiling to a floor; `None` before a second `x`.
    flattest: Option<Ray>,
    /// The steepest fitting line, from a floor to a ceiling.
    steepest: Ray,
}

impl Fitter {
    /// The largest error bound; larger ones read as this.
    pub const EPSILON_MAX: u64 = 1 << 48;
    /// The largest rise of `y` within one run; a point that rises further is refused.
    pub const RISE_MAX: u64 = 1 << 48;
    /// The largest `y` allowed; greater ones are refused, also as the first of a run.
    pub const Y_MAX: u64 = 1 << 62;

    /// A fitter whose lines pass within `epsilon` of every point.
    #[must_use]
    pub fn new(epsilon: u64) -> Self {
        Self {
            epsilon: epsilon.min(Self::EPSILON_MAX) as i64,
            points: 0,
            first_x: 0,
            first_y: 0,
            last: Point::default(),
            step: 0,
            ceilings: Hull::default(),
            floors: Hull::default(),
            flattest: None,
            steepest: Ray::default(),
        }
    }

    /// Forgets all points, keeps the buffers.
    pub fn clear(&mut self) {
        self.points = 0;
    }

    /// The number of points taken since the last [`Fitter::clear`].
    #[must_use]
    pub fn points(&self) -> u64 {
        self.points
    }

    /// Takes a point, or refuses it and stays as it was: `false` means that no line passes within
    /// epsilon of this point and all taken so far.
    ///
    /// Neither `x` nor `y` may fall from one point to the next: such a point is refused too, as is
    /// one beyond [`Fitter::RISE_MAX`] or [`Fitter::Y_MAX`], or one that needs a slope over 2^32.
    /// Several points may share an `x`.
    #[inline]
    pub fn add_point(&mut self, x: u64, y: u64) -> bool {
        if y > Self::Y_MAX {
            return false;
        }
        if self.points == 0 {
            self.start(x, y);
            return true;
        }
        let Some(rise) = y.checked_sub(self.first_y).filter(|rise| *rise <= Self::RISE_MAX) else {
            return false;
        };
        let point = Point { x, y: rise as i64 };
        if x < self.last.x || point.y < self.last.y {
            return false;
        }
        let taken = if x == self.last.x { self.raise_floor(point) } else { self.take_point(point) };
        if taken {
            self.step = self.step.max(point.y - self.last.y);
            self.last = point;
            self.points += 1;
        }
        taken
    }

    fn start(&mut self, x: u64, y: u64) {
        self.first_x = x;
        self.first_y = y;
        self.last = Point { x, y: 0 };
        self.step = 1;
        self.points = 1;
        self.flattest = None;
        self.ceilings.reset(Point { x, y: self.epsilon });
        self.floors.reset(Point { x, y: -self.epsilon });
    }

    /// Takes a point right of all others.
    #[inline]
    fn take_point(&mut self, point: Point) -> bool {
        let ceiling = Point { x: point.x, y: point.y + self.epsilon };
        let floor = Point { x: point.x, y: point.y - self.epsilon };
        let Some(flattest) = self.flattest else {
            let flattest = Ray { left: self.ceilings.points[0], right: floor };
            if !is_representable(flattest) {
                return false;
            }
            self.flattest = Some(flattest);
            self.steepest = Ray { left: self.floors.points[0], right: ceiling };
            self.ceilings.push(ceiling, Ordering::Greater);
            self.floors.push(floor, Ordering::Less);
            return true;
        };
        if flattest.side(ceiling) == Ordering::Less {
            return false;
        }
        if !self.apply_floor(flattest, floor) {
            return false;
        }
        self.apply_ceiling(ceiling);
        true
    }

    /// Takes a point at the `x` of the last one. Its ceiling narrows nothing; its floor may.
    fn raise_floor(&mut self, point: Point) -> bool {
        let floor = Point { x: point.x, y: point.y - self.epsilon };
        match self.flattest {
            Some(flattest) => self.apply_floor(flattest, floor),
            None if floor.y > self.ceilings.points[0].y => false,
            None => {
                self.floors.reset(floor);
                true
            }
        }
    }

    /// Narrows the fitting lines to those that pass over `floor`; refuses if there are none.
    #[inline]
    fn apply_floor(&mut self, flattest: Ray, floor: Point) -> bool {
        if self.steepest.side(floor) == Ordering::Greater {
            return false;
        }
        if flattest.side(floor) == Ordering::Greater {
            let at = self.ceilings.tangent(floor, Ordering::Greater);
            let flattest = Ray { left: self.ceilings.points[at], right: floor };
            if !is_representable(flattest) {
                return false;
            }
            self.flattest = Some(flattest);
            self.ceilings.start = at;
            self.floors.push(floor, Ordering::Less);
        }
        true
    }

    /// Narrows the fitting lines to those that pass under `ceiling`, of which there are some.
    #[inline]
    fn apply_ceiling(&mut self, ceiling: Point) {
        if self.steepest.side(ceiling) == Ordering::Less {
            let at = self.floors.tangent(ceiling, Ordering::Less);
            self.steepest = Ray { left: self.floors.points[at], right: ceiling };
            self.floors.start = at;
            self.ceilings.push(ceiling, Ordering::Greater);
        }
    }

    /// The segment through the points taken so far, its slope amid the fitting ones, or `None`
    /// before the first point. Linear in the hulls.
    ///
    /// Its windows reach epsilon to each side of the prediction, plus what rounding the slope to
    /// 32 digits costs (2 for runs that rise less than 2^32), plus, upwards, the largest rise
    /// between neighbouring points, which covers the keys that were not trained.
    #[must_use]
    pub fn segment(&self) -> Option<Segment> {
        if self.points == 0 {
            return None;
        }
        let (mantissa, shift) = self.middle_slope();
        let rise =
            |p: &Point| ((u128::from(p.x - self.first_x) * u128::from(mantissa)) >> shift) as i128;
        let clearance = |p: &Point| i128::from(p.y) - rise(p);
        // `start` guards the hulls; before a second `x` each holds one point.
        let highest = self.ceilings.live().iter().map(clearance).min().unwrap_or(0);
        let lowest = self.floors.live().iter().map(clearance).max().unwrap_or(0);
        let middle = (highest + lowest).div_euclid(2);
        // The slope is at most one unit of 2^-shift outside the fitting ones.
        let slack = 2 + (u128::from(self.last.x - self.first_x) >> shift) as i128;
        let epsilon = i128::from(self.epsilon);
        let reach = |error: i128| u64::try_from(error + epsilon + slack).unwrap_or(0);
        Some(Segment {
            line: Line {
                x0: self.first_x,
                y0: (i128::from(self.first_y) + middle) as i64,
                mantissa,
                shift,
            },
            below: reach(middle - highest),
            above: reach(lowest - middle).saturating_add(self.step as u64),
            start: self.first_y,
            end: self.first_y + self.last.y as u64 + 1,
        })
    }

    /// A slope between the flattest and the steepest, as digits and shift.
    fn middle_slope(&self) -> (u32, u8) {
        let Some(flattest) = self.flattest else { return (0, 0) };
        let (rise_max, run_max) = self.steepest.slope();
        let (rise_min, run_min) = flattest.slope();
        if rise_max <= 0 {
            return (0, 0);
        }
        // Since y never falls, a line that falls can be replaced by a level one.
        let rise_min = rise_min.max(0) as u128;
        let (rise_max, run_max) = (rise_max as u128, u128::from(run_max));
        // The most digits that stay within 32 bits; a slope over 2^32 keeps what it can.
        let digits = |shift: u8| (rise_max << shift) / run_max;
        let mut shift =
            (run_max.ilog2() + 32).saturating_sub(rise_max.ilog2()).min(u32::from(Line::SHIFT_MAX));
        while shift > 0 && digits(shift as u8) > u128::from(u32::MAX) {
            shift -= 1;
        }
        let shift = shift as u8;
        let most = digits(shift);
        let least = (rise_min << shift).div_ceil(u128::from(run_min));
        let middle = if least <= most { least + (most - least) / 2 } else { most };
        (middle.min(u128::from(u32::MAX)) as u32, shift)
    }
}

/// Returns true if a line no flatter than `flattest` has a slope that 32 bits can hold.
#[inline]
fn is_representable(flattest: Ray) -> bool {
    let (rise, run) = flattest.slope();
    i128::from(rise) <= i128::from(run) * i128::from(u32::MAX)
}

#[cfg(test)]
mod tests;
