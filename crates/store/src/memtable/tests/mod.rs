//! Memtables of either kind against a map.

mod measure;

use super::*;
use crate::{
    db::insert_record,
    log::batch::{BatchBuilder, set_first_seq},
};
