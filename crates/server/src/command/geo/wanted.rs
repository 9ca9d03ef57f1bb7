//! What a search is asked for: its arguments.

use super::{
    super::{Context, Fault, SYNTAX, integer, is_word},
    cell::Place,
    place, place_of,
    shape::{Extent, Shape},
    unit,
};
use crate::{
    encode::Meta,
    resp::{Args, number::parse_f64},
};

/// The commands that search, by what their arguments are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `GEOSEARCH`.
    Search,
    /// `GEOSEARCHSTORE`.
    SearchStore,
    /// `GEORADIUS`: the place and the radius come first. `may_store` is false for `GEORADIUS_RO`.
    Radius { may_store: bool },
    /// `GEORADIUSBYMEMBER`: a member and the radius come first.
    RadiusByMember { may_store: bool },
}

impl Form {
    fn is_search(self) -> bool {
        matches!(self, Self::Search | Self::SearchStore)
    }

    fn may_store(self) -> bool {
        matches!(self, Self::Radius { may_store: true } | Self::RadiusByMember { may_store: true })
    }

    /// Where the key of the sorted set stands.
    pub(super) fn source(self) -> usize {
        if self == Self::SearchStore { 2 } else { 1 }
    }
}

/// A search.
#[derive(Default)]
pub(super) struct Wanted {
    center: Option<Place>,
    extent: Option<Extent>,
    /// The unit of distances, in meters.
    pub(super) unit: f64,
    pub(super) with_distance: bool,
    pub(super) with_hash: bool,
    pub(super) with_place: bool,
    /// True for the nearest ones first, false for the farthest.
    pub(super) ascending: Option<bool>,
    /// At most this many.
    pub(super) count: Option<usize>,
    /// Any of them, not the nearest.
    pub(super) any: bool,
    /// The place of the key that the result goes to.
    pub(super) store: Option<usize>,
    pub(super) store_distances: bool,
}

/// Reads a distance and its unit. A wrong number is answered `refused`.
fn distance(number: &[u8], refused: &'static str) -> Result<f64, Fault> {
    parse_f64(number).ok_or_else(|| refused.into())
}

impl Wanted {
    /// What is searched for. The sorted set is there.
    pub(super) fn shape(&self) -> Result<Shape, Fault> {
        match (self.center, self.extent) {
            (Some(center), Some(extent)) => Ok(Shape { center, extent }),
            _ => Err(SYNTAX.into()),
        }
    }

    fn set_radius(&mut self, number: &[u8], unit_name: &[u8]) -> Result<(), Fault> {
        let radius = distance(number, "ERR need numeric radius")?;
        if radius < 0.0 {
            return Err("ERR radius cannot be negative".into());
        }
        self.unit = unit(unit_name)?;
        self.extent = Some(Extent::Radius(radius * self.unit));
        Ok(())
    }

    fn set_box(&mut self, [width, height, unit_name]: [&[u8]; 3]) -> Result<(), Fault> {
        let width = distance(width, "ERR need numeric width")?;
        let height = distance(height, "ERR need numeric height")?;
        if width < 0.0 || height < 0.0 {
            return Err("ERR height or width cannot be negative".into());
        }
        self.unit = unit(unit_name)?;
        self.extent = Some(Extent::Box { width: width * self.unit, height: height * self.unit });
        Ok(())
    }

    /// Searches around a member. If there is no sorted set the place does not matter.
    fn set_member(
        &mut self,
        context: &Context<'_, '_>,
        meta: Option<&Meta>,
        name: &[u8],
    ) -> Result<(), Fault> {
        self.center = match meta {
            None => Some(Place::default()),
            Some(meta) => Some(
                place_of(context, Some(meta), name)?
                    .ok_or("ERR could not decode requested zset member")?,
            ),
        };
        Ok(())
    }

    /// Reads one of the options that are words alone; returns false if it is none.
    fn set_flag(&mut self, word: &[u8], form: Form) -> bool {
        let is = |name| is_word(word, name);
        if is("withdist") {
            self.with_distance = true;
        } else if is("withhash") {
            self.with_hash = true;
        } else if is("withcoord") {
            self.with_place = true;
        } else if is("any") {
            self.any = true;
        } else if is("asc") {
            self.ascending = Some(true);
        } else if is("desc") {
            self.ascending = Some(false);
        } else if is("storedist") && form == Form::SearchStore {
            self.store_distances = true;
        } else {
            return false;
        }
        true
    }

    fn set_count(&mut self, text: &[u8]) -> Result<(), Fault> {
        let count = usize::try_from(integer(text)?).ok().filter(|count| *count > 0);
        self.count = Some(count.ok_or("ERR COUNT must be > 0")?);
        Ok(())
    }

    /// Reads the option at `at`; returns where the next one is.
    fn set_option(
        &mut self,
        (context, meta): (&Context<'_, '_>, Option<&Meta>),
        args: Args<'_>,
        (form, at): (Form, usize),
        is_around: &mut [bool; 2],
    ) -> Result<usize, Fault> {
        let word = args.at(at);
        if self.set_flag(word, form) {
            return Ok(at + 1);
        }
        let left = args.len() - at - 1;
        let is = |name| is_word(word, name);
        let [of_member, of_place] = is_around;
        if is("count") && left >= 1 {
            self.set_count(args.at(at + 1))?;
        } else if (is("store") || is("storedist")) && left >= 1 && form.may_store() {
            (self.store, self.store_distances) = (Some(at + 1), is("storedist"));
        } else if is("frommember") && left >= 1 && form.is_search() && !*of_place {
            *of_member = true;
            self.set_member(context, meta, args.at(at + 1))?;
        } else if is("fromlonlat") && left >= 2 && form.is_search() && !*of_member {
            *of_place = true;
            self.center = Some(place(args.at(at + 1), args.at(at + 2))?);
            return Ok(at + 3);
        } else if is("byradius")
            && left >= 2
            && form.is_search()
            && !matches!(self.extent, Some(Extent::Box { .. }))
        {
            self.set_radius(args.at(at + 1), args.at(at + 2))?;
            return Ok(at + 3);
        } else if is("bybox")
            && left >= 3
            && form.is_search()
            && !matches!(self.extent, Some(Extent::Radius(_)))
        {
            self.set_box([1, 2, 3].map(|n| args.at(at + n)))?;
            return Ok(at + 4);
        } else {
            return Err(SYNTAX.into());
        }
        Ok(at + 2)
    }

    /// Reads the arguments of a search in this sorted set.
    pub(super) fn parse(
        context: &Context<'_, '_>,
        meta: Option<&Meta>,
        args: Args<'_>,
        form: Form,
    ) -> Result<Self, Fault> {
        let mut wanted = Self::default();
        let mut at = match form {
            Form::Search => 2,
            Form::SearchStore => 3,
            Form::Radius { .. } => {
                wanted.center = Some(place(args.at(2), args.at(3))?);
                wanted.set_radius(args.at(4), args.at(5))?;
                6
            }
            Form::RadiusByMember { .. } => {
                // As Redis, which looks at the radius only if there is something to search in.
                if meta.is_some() {
                    wanted.set_member(context, meta, args.at(2))?;
                    wanted.set_radius(args.at(3), args.at(4))?;
                }
                5
            }
        };
        wanted.store = (form == Form::SearchStore).then_some(1);
        let mut is_around = [false; 2];
        while at < args.len() {
            at = wanted.set_option((context, meta), args, (form, at), &mut is_around)?;
        }
        wanted.check(args, form)?;
        Ok(wanted)
    }

    fn check(&self, args: Args<'_>, form: Form) -> Result<(), Fault> {
        let shows = self.with_distance || self.with_hash || self.with_place;
        if self.store.is_some() && shows {
            let what = match form.is_search() {
                true => "GEOSEARCHSTORE",
                false => "STORE option in GEORADIUS",
            };
            let text = "is not compatible with WITHDIST, WITHHASH and WITHCOORD options";
            return Err(format!("ERR {what} {text}").into());
        }
        let name = || String::from_utf8_lossy(args.at(0)).into_owned();
        if form.is_search() && self.center.is_none() {
            let text = "exactly one of FROMMEMBER or FROMLONLAT can be specified for";
            return Err(format!("ERR {text} {}", name()).into());
        }
        if form.is_search() && self.extent.is_none() {
            let text = "exactly one of BYRADIUS and BYBOX can be specified for";
            return Err(format!("ERR {text} {}", name()).into());
        }
        if self.any && self.count.is_none() {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        Ok(())
    }
}
