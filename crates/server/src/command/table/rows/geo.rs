//! The rows of the commands on places on the earth.

use super::{
    super::super::{Handler, geo as g},
    Command, Group, KeyPlaces, ONE_KEY, READ, TWO_KEYS, WRITE, on_key, with_keys,
};

pub(super) fn geo() -> Vec<Command> {
    let row =
        |name, arity, flags, run: Handler, text| on_key(Group::Geo, name, arity, flags, run, text);
    let storing = KeyPlaces { more: g::STORE_KEY, ..ONE_KEY };
    let searched = "O(members in nine cells around)";
    vec![
        row("geoadd", -5, WRITE, g::geoadd, ("O(members)", "Adds members at places")),
        row("geodist", -4, READ, g::geodist, ("O(1)", "The distance of two members")),
        row("geohash", -2, READ, g::geohash, ("O(members)", "The geohashes of members")),
        row("geopos", -2, READ, g::geopos, ("O(members)", "The places of members")),
        with_keys(
            storing,
            row(
                "georadius",
                -6,
                WRITE,
                g::georadius,
                (searched, "The members around a place; may store them"),
            ),
        ),
        row("georadius_ro", -6, READ, g::georadius_ro, (searched, "The members around a place")),
        with_keys(
            storing,
            row(
                "georadiusbymember",
                -5,
                WRITE,
                g::georadiusbymember,
                (searched, "The members around a member; may store them"),
            ),
        ),
        row(
            "georadiusbymember_ro",
            -5,
            READ,
            g::georadiusbymember_ro,
            (searched, "The members around a member"),
        ),
        row(
            "geosearch",
            -7,
            READ,
            g::geosearch,
            (searched, "The members within a circle or a box"),
        ),
        with_keys(
            TWO_KEYS,
            row(
                "geosearchstore",
                -8,
                WRITE,
                g::geosearchstore,
                (searched, "Stores the members within a circle or a box"),
            ),
        ),
    ]
}
