//! What is searched for around a place: a circle or a rectangle, and the cells that cover it.

use super::cell::{Area, Cell, Degrees, Place, STEPS_MAX, degrees_of_meters, radians};

/// Half the width of the Mercator projection, in meters, as Redis has it.
const MERCATOR_MAX: f64 = 20_037_726.37;

/// A circle or a rectangle, in meters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Extent {
    Radius(f64),
    Box { width: f64, height: f64 },
}

/// What is searched for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) center: Place,
    pub(super) extent: Extent,
}

impl Shape {
    /// Meters from the center to a place; none if it lies outside.
    pub(super) fn distance(&self, place: Place) -> Option<f64> {
        match self.extent {
            Extent::Radius(radius) => {
                Some(self.center.distance(place)).filter(|distance| *distance <= radius)
            }
            Extent::Box { width, height } => {
                if place.latitude_distance(self.center) > height / 2.0 {
                    return None;
                }
                let beside = Place { latitude: place.latitude, ..self.center };
                let is_inside = place.distance(beside) <= width / 2.0;
                is_inside.then(|| self.center.distance(place))
            }
        }
    }

    /// Degrees around the shape. Towards a pole the circles of latitude are shorter.
    fn bounds(&self) -> Area {
        let (width, height) = match self.extent {
            Extent::Radius(radius) => (radius, radius),
            Extent::Box { width, height } => (width / 2.0, height / 2.0),
        };
        let Place { longitude, latitude } = self.center;
        let north = degrees_of_meters(height);
        let to_pole = if latitude < 0.0 { -north } else { north };
        let east = degrees_of_meters(width) / radians(latitude + to_pole).cos();
        Area {
            west: longitude - east,
            east: longitude + east,
            south: latitude - north,
            north: latitude + north,
        }
    }

    /// Meters from the center to what is farthest from it.
    fn reach(&self) -> f64 {
        match self.extent {
            Extent::Radius(radius) => radius,
            Extent::Box { width, height } => {
                ((width / 2.0) * (width / 2.0) + (height / 2.0) * (height / 2.0)).sqrt()
            }
        }
    }

    /// How fine cells may be of which nine cover most shapes of this reach.
    fn steps(&self) -> u32 {
        let mut meters = self.reach();
        if meters == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1_i32;
        while meters < MERCATOR_MAX {
            meters *= 2.0;
            steps += 1;
        }
        steps -= 2;
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }

    /// The cells that cover the shape, in the order in which Redis goes through them: its own, then
    /// those to the north, south, east and west, then those at the corners.
    pub(super) fn cells(&self) -> Vec<Cell> {
        let bounds = self.bounds();
        let cell = |steps| Cell::of(self.center, Degrees::MERCATOR, steps);
        let mut steps = self.steps();
        let side = |east, north| cell(steps).neighbour(east, north).area(Degrees::MERCATOR);
        let is_small = side(0, 1).north < bounds.north
            || side(0, -1).south > bounds.south
            || side(1, 0).east < bounds.east
            || side(-1, 0).west > bounds.west;
        if steps > 1 && is_small {
            steps -= 1;
        }
        let own = cell(steps);
        let area = own.area(Degrees::MERCATOR);
        // A side that the shape does not reach. Of the largest cells the sides are the same.
        let is_reached = |(east, north): (i64, i64)| {
            let is_beyond = east > 0 && area.east > bounds.east
                || east < 0 && area.west < bounds.west
                || north > 0 && area.north > bounds.north
                || north < 0 && area.south < bounds.south;
            steps < 2 || !is_beyond
        };
        let all = [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)];
        let reached = all.into_iter().filter(|side| is_reached(*side));
        let mut cells: Vec<Cell> =
            reached.map(|(east, north)| own.neighbour(east, north)).collect();
        cells.dedup();
        cells
    }
}
