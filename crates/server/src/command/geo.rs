//! Places on the earth: sorted sets whose scores are cells of 52 bits, as in Redis.

mod cell;
mod search;
mod shape;
mod wanted;

use self::cell::{Cell, Degrees, Place};
use super::{
    Context, Done, NOT_A_FLOAT, SYNTAX, is_word,
    zsets::{score_of, zadd},
};
use crate::{
    encode::{Kind, Meta},
    fault::Fault,
    resp::{Args, Reply, Span, number::parse_f64, number::push_u64},
};

pub(super) use search::{
    STORE_KEY, georadius, georadius_ro, georadiusbymember, georadiusbymember_ro, geosearch,
    geosearchstore,
};

/// The units of distances, in meters.
const UNITS: [(&str, f64); 4] = [("m", 1.0), ("km", 1000.0), ("ft", 0.3048), ("mi", 1609.34)];

/// Reads a unit: how many meters it is.
fn unit(text: &[u8]) -> Result<f64, Fault> {
    let found = UNITS.into_iter().find(|(name, _)| is_word(text, name));
    let meters = found.map(|(_, meters)| meters);
    meters.ok_or_else(|| "ERR unsupported unit provided. please use M, KM, FT, MI".into())
}

/// Reads a place: longitude, then latitude.
fn place(longitude: &[u8], latitude: &[u8]) -> Result<Place, Fault> {
    let longitude = parse_f64(longitude).ok_or(NOT_A_FLOAT)?;
    let latitude = parse_f64(latitude).ok_or(NOT_A_FLOAT)?;
    let place = Place { longitude, latitude };
    if !place.is_valid() {
        let text = format!("ERR invalid longitude,latitude pair {longitude:.6},{latitude:.6}");
        return Err(text.into());
    }
    Ok(place)
}

/// The place that a score stands for.
fn place_of_score(score: f64) -> Place {
    Cell::of_score(score).place(Degrees::MERCATOR)
}

/// The place of a member; none if it is absent.
fn place_of(
    context: &Context<'_, '_>,
    meta: Option<&Meta>,
    name: &[u8],
) -> Result<Option<Place>, Fault> {
    let Some(meta) = meta else { return Ok(None) };
    Ok(score_of(context, meta, name)?.map(place_of_score))
}

fn write_place(out: &mut Reply, place: Place) {
    out.array(2);
    out.decimal(&human(place.longitude));
    out.decimal(&human(place.latitude));
}

/// A coordinate with at most 17 places, as Redis writes it.
fn human(number: f64) -> String {
    let text = format!("{number:.17}");
    match text.trim_end_matches('0').trim_end_matches('.') {
        "-0" => "0".to_owned(),
        text => text.to_owned(),
    }
}

/// A distance with four places.
fn write_distance(out: &mut Reply, distance: f64) {
    out.bulk(format!("{distance:.4}").as_bytes());
}

/// `GEOADD`: `ZADD` with the scores of the places.
pub(super) fn geoadd(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let is_option = |at: &usize| {
        let is = |word| args.get(*at).is_some_and(|option| is_word(option, word));
        is("nx") || is("xx") || is("ch")
    };
    let from = (2..args.len()).find(|at| !is_option(at)).unwrap_or(args.len());
    let has = |word| (2..from).any(|at| is_word(args.at(at), word));
    if !(args.len() - from).is_multiple_of(3) || has("nx") && has("xx") {
        return Err(SYNTAX.into());
    }
    let (mut bytes, mut spans) = (Vec::new(), Vec::new());
    let mut push = |word: &[u8]| {
        let start = bytes.len();
        bytes.extend_from_slice(word);
        spans.push(Span::new(start, bytes.len()));
    };
    args.iter_from(0).take(from).for_each(&mut push);
    for at in (from..args.len()).step_by(3) {
        let place = place(args.at(at), args.at(at + 1))?;
        let mut score = Vec::with_capacity(16);
        push_u64(&mut score, Cell::of(place, Degrees::MERCATOR, cell::STEPS_MAX).aligned());
        push(&score);
        push(args.at(at + 2));
    }
    zadd(context, Args::new(&bytes, &spans))
}

/// `GEOPOS`.
pub(super) fn geopos(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Zset)?;
    context.check_length(args.len() as u64)?;
    context.out.array(args.len() - 2);
    for name in args.iter_from(2) {
        match place_of(context, meta.as_ref(), name)? {
            Some(place) => write_place(context.out, place),
            None => context.out.null_array(),
        }
    }
    Ok(())
}

/// `GEODIST`.
pub(super) fn geodist(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    if args.len() > 5 {
        return Err(SYNTAX.into());
    }
    let meters = args.get(4).map_or(Ok(1.0), unit)?;
    let meta = context.collection(args.at(1), Kind::Zset)?;
    let [one, other] = [2, 3].map(|at| place_of(context, meta.as_ref(), args.at(at)));
    match (one?, other?) {
        (Some(one), Some(other)) => write_distance(context.out, one.distance(other) / meters),
        _ => context.out.null(),
    }
    Ok(())
}

/// `GEOHASH`.
pub(super) fn geohash(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let meta = context.collection(args.at(1), Kind::Zset)?;
    context.check_length(args.len() as u64)?;
    context.out.array(args.len() - 2);
    for name in args.iter_from(2) {
        let place = place_of(context, meta.as_ref(), name)?;
        let text = place.map(|place| Cell::of(place, Degrees::WHOLE, cell::STEPS_MAX).text());
        context.out.bulk_or_null(text.as_ref().map(|text| text.as_slice()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::human;

    #[test]
    fn coordinates_have_at_most_17_places() {
        assert_eq!(human(13.361389338970184), "13.36138933897018433");
        assert_eq!(human(-122.5), "-122.5");
        assert_eq!(human(10.0), "10");
        assert_eq!(human(-1e-30), "0");
    }
}
