//! Cells of the earth: a rectangle of degrees is halved by turns, a bit for each half, the bits of
//! longitude above those of latitude.

/// The finest cells: 26 bits for longitude and for latitude each.
pub(super) const STEPS_MAX: u32 = 26;

/// The greatest latitude of the Mercator projection as Redis uses it (EPSG:900913).
const LATITUDE_MAX: f64 = 85.051_128_78;
const LONGITUDE_MAX: f64 = 180.0;

/// The earth's radius in meters, as Redis has it.
const EARTH_RADIUS: f64 = 6_372_797.560_856;

/// The even bits: latitude.
const EVEN: u64 = 0x5555_5555_5555_5555;

/// What text geohashes are written with.
const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";

/// The degree in radians. Redis divides and multiplies by this very number.
const DEGREE: f64 = std::f64::consts::PI / 180.0;

pub(super) fn radians(degrees: f64) -> f64 {
    degrees * DEGREE
}

/// The degrees that are this many meters along a great circle.
pub(super) fn degrees_of_meters(meters: f64) -> f64 {
    meters / EARTH_RADIUS / DEGREE
}

/// A place, in degrees.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Place {
    pub(super) longitude: f64,
    pub(super) latitude: f64,
}

impl Place {
    /// Returns true if a cell can be told for it.
    pub(super) fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// Meters between two latitudes.
    pub(super) fn latitude_distance(self, other: Self) -> f64 {
        EARTH_RADIUS * (radians(other.latitude) - radians(self.latitude)).abs()
    }

    /// Meters between two places, by the haversine formula.
    pub(super) fn distance(self, other: Self) -> f64 {
        let v = ((radians(other.longitude) - radians(self.longitude)) / 2.0).sin();
        if v == 0.0 {
            return self.latitude_distance(other);
        }
        let (one, two) = (radians(self.latitude), radians(other.latitude));
        let u = ((two - one) / 2.0).sin();
        let a = u * u + one.cos() * two.cos() * v * v;
        2.0 * EARTH_RADIUS * a.sqrt().asin()
    }
}

/// The rectangle that is halved: from these degrees to the same ones negated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Degrees {
    longitude: f64,
    latitude: f64,
}

impl Degrees {
    /// That of scores.
    pub(super) const MERCATOR: Self = Self { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
    /// That of geohashes as text.
    pub(super) const WHOLE: Self = Self { longitude: LONGITUDE_MAX, latitude: 90.0 };
}

/// A rectangle of degrees.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Area {
    pub(super) west: f64,
    pub(super) east: f64,
    pub(super) south: f64,
    pub(super) north: f64,
}

/// A cell: the bits that were decided, and how many times both ways were halved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cell {
    bits: u64,
    steps: u32,
}

/// Moves the bits of a number to the even places.
fn spread(number: u32) -> u64 {
    let mut x = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, EVEN),
    ] {
        x = (x | x << shift) & mask;
    }
    x
}

/// The number whose bits are at the even places.
fn gather(bits: u64) -> u32 {
    let mut x = bits & EVEN;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0F0F_0F0F_0F0F_0F0F),
        (4, 0x00FF_00FF_00FF_00FF),
        (8, 0x0000_FFFF_0000_FFFF),
        (16, 0x0000_0000_FFFF_FFFF),
    ] {
        x = (x | x >> shift) & mask;
    }
    x as u32
}

impl Cell {
    /// The cell of a place.
    pub(super) fn of(place: Place, degrees: Degrees, steps: u32) -> Self {
        let part = |at: f64, most: f64| {
            let offset = (at + most) / (most + most);
            (offset * (1_u64 << steps) as f64) as u32
        };
        let latitude = part(place.latitude, degrees.latitude);
        let longitude = part(place.longitude, degrees.longitude);
        Self { bits: spread(latitude) | spread(longitude) << 1, steps }
    }

    /// The finest cell that a score stands for. One that is no cell is read as Redis reads it: as
    /// an integer, the sign included.
    pub(super) fn of_score(score: f64) -> Self {
        Self { bits: score as i64 as u64, steps: STEPS_MAX }
    }

    /// The bits of the first finest cell in this one: the lowest score of a member there.
    pub(super) fn aligned(self) -> u64 {
        self.bits << (2 * (STEPS_MAX - self.steps))
    }

    /// The scores of the members in this cell: from the first up to the second.
    pub(super) fn scores(self) -> (f64, f64) {
        let after = Self { bits: self.bits + 1, ..self };
        (self.aligned() as f64, after.aligned() as f64)
    }

    /// The rectangle of the cell.
    pub(super) fn area(self, degrees: Degrees) -> Area {
        let scale = (1_u64 << self.steps) as f64;
        let edge = |number: f64, most: f64| -most + number / scale * (most + most);
        let (latitude, longitude) =
            (f64::from(gather(self.bits)), f64::from(gather(self.bits >> 1)));
        Area {
            west: edge(longitude, degrees.longitude),
            east: edge(longitude + 1.0, degrees.longitude),
            south: edge(latitude, degrees.latitude),
            north: edge(latitude + 1.0, degrees.latitude),
        }
    }

    /// The middle of the cell.
    pub(super) fn place(self, degrees: Degrees) -> Place {
        let area = self.area(degrees);
        let longitude = ((area.west + area.east) / 2.0).clamp(-LONGITUDE_MAX, LONGITUDE_MAX);
        let latitude = ((area.south + area.north) / 2.0).clamp(-LATITUDE_MAX, LATITUDE_MAX);
        Place { longitude, latitude }
    }

    /// The neighbour to the east and to the north, by -1, 0 or 1 each. The last cell of a row is
    /// a neighbour of the first. A number that does not change may be one past the last, that of
    /// the greatest degree, as in Redis.
    pub(super) fn neighbour(self, east: i64, north: i64) -> Self {
        let last = (1_u64 << self.steps) - 1;
        let moved = |bits: u64, by: i64| match by {
            0 => bits & EVEN,
            _ => spread((u64::from(gather(bits)).wrapping_add_signed(by) & last) as u32),
        };
        Self { bits: moved(self.bits, north) | moved(self.bits >> 1, east) << 1, ..self }
    }

    /// The geohash as text; its last letter stands for bits that there are none of.
    pub(super) fn text(self) -> [u8; 11] {
        let letter = |at: usize| match at {
            10 => LETTERS[0],
            _ => LETTERS[(self.bits >> (52 - (at + 1) * 5)) as usize & 31],
        };
        std::array::from_fn(letter)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_places_have_known_cells() {
        let palermo = Place { longitude: 13.361_389, latitude: 38.115_556 };
        let catania = Place { longitude: 15.087_269, latitude: 37.502_669 };
        let cells = [palermo, catania].map(|place| Cell::of(place, Degrees::MERCATOR, STEPS_MAX));
        assert_eq!(cells.map(Cell::aligned), [3_479_099_956_230_698, 3_479_447_370_796_909]);
        let texts = cells.map(|cell| {
            let place = cell.place(Degrees::MERCATOR);
            Cell::of(place, Degrees::WHOLE, STEPS_MAX).text()
        });
        assert_eq!(texts, [*b"sqc8b49rny0", *b"sqdtr74hyu0"]);
        let distance =
            cells[0].place(Degrees::MERCATOR).distance(cells[1].place(Degrees::MERCATOR));
        assert_eq!(format!("{distance:.4}"), "166274.1516");
    }

    proptest! {
        #[test]
        fn a_place_is_within_its_cell_at_every_step(
            longitude in -180.0..180.0_f64,
            latitude in -85.0..85.0_f64,
            steps in 1..=STEPS_MAX,
        ) {
            let place = Place { longitude, latitude };
            let cell = Cell::of(place, Degrees::MERCATOR, steps);
            let Area { west, east, south, north } = cell.area(Degrees::MERCATOR);
            let slack = 1e-9;
            prop_assert!(west - slack <= longitude && longitude <= east + slack);
            prop_assert!(south - slack <= latitude && latitude <= north + slack);
            let (from, to) = cell.scores();
            let finest = Cell::of(place, Degrees::MERCATOR, STEPS_MAX).aligned() as f64;
            prop_assert!(from <= finest && finest < to);
        }

        #[test]
        fn neighbours_are_beside_each_other(bits in 0..1_u64 << 20, east in -1..=1_i64, north in -1..=1_i64) {
            let cell = Cell { bits, steps: 10 };
            let other = cell.neighbour(east, north);
            prop_assert_eq!(other.neighbour(-east, -north), cell);
            let [here, there] = [cell, other].map(|cell| cell.area(Degrees::MERCATOR));
            let is_inside = there.west > -180.0 && there.east < 180.0;
            if east == 1 && is_inside {
                prop_assert_eq!(here.east, there.west);
            }
            if north == 1 && there.south > -LATITUDE_MAX {
                prop_assert_eq!(here.north, there.south);
            }
        }
    }
}
