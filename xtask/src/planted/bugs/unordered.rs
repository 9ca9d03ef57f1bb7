//! Bugs of the assemblies whose clients keep models, where these read without order.

use super::Bug;
use crate::verify::Suite::Regions;

const BINNED_PROOF: &str = "crates/remote/src/binned/proof.rs";
const CLIENT: &str = "crates/remote/src/two_stage/client.rs";
const PLACE: &str = "crates/remote/src/two_stage/place.rs";
const PROOF: &str = "crates/remote/src/two_stage/proof.rs";
const RECORDS: &str = "crates/remote/src/binned/records.rs";
const TWO_STAGE_LEAF: &str = "crates/remote/src/two_stage/leaf.rs";
const TWO_STAGE_WRITE: &str = "crates/remote/src/two_stage/write.rs";
const WINDOW: &str = "crates/remote/src/binned/window.rs";

/// All of them.
pub(super) static BUGS: [Bug; 11] = [
    Bug {
        name: "a head of another load is taken for one of this",
        file: PROOF,
        sound: "    checksum(covered.map(|(_, word)| *word), loads)",
        broken: "    checksum(covered.map(|(_, word)| *word), loads & 1 << 63)",
        suite: Regions,
        test: "scans_without_order_pass_over_nothing",
    },
    Bug {
        name: "a head that a device brought is not proven",
        file: CLIENT,
        sound: "        if fabric.is_unordered() && !self.load.is_some_and(|load| is_head_whole(words, load)) {",
        broken: "        if fabric.is_unordered() && !self.load.is_some_and(|load| is_head_whole(words, load) || load < u64::MAX) {",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a value slot that a device brought is not proven",
        file: CLIENT,
        sound: "            true if fabric.is_unordered() => whole_slot(words, number, index),",
        broken: "            true if fabric.is_unordered() && number == u32::MAX => whole_slot(words, number, index),",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a record that a device brought is not proven",
        file: TWO_STAGE_LEAF,
        sound: "        (record.kind == kind::FENCES || meaning == 0).then_some(",
        broken: "        (record.kind == kind::FENCES || meaning == 0 || place > 0).then_some(",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a record of two stages proves itself before it is published",
        file: PLACE,
        sound: "        write_record(words, pair, kind, value_len, check);\n",
        broken: "        write_record(words, pair, kind, value_len, check);\n        super::write::seal_record(words, place);\n",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "the sum of a record of fences stays in what it means",
        file: TWO_STAGE_LEAF,
        sound: "        let meaning = record.meaning ^ record_sum(all, place);",
        broken: "        let sum = if record.kind == kind::FENCES { 0 } else { record_sum(all, place) };\n        let meaning = record.meaning ^ sum;",
        suite: Regions,
        test: "regions_with_checksums_answer_as_those_without",
    },
    Bug {
        name: "the head's sum has the guard of before",
        file: TWO_STAGE_WRITE,
        sound: "        first[head::STATE] = unlatched(self.words);",
        broken: "        first[head::STATE] = u64::from_le(self.words[0].load(Ordering::Relaxed));",
        suite: Regions,
        test: "what_stands_still_is_found_as_in_mapped_memory",
    },
    Bug {
        name: "a block that a device brought is not proven",
        file: WINDOW,
        sound: "                true if is_block_whole(words, block_line(array, block)) => &words[1..],",
        broken: "                true if words.len() == BLOCK_WORDS || is_block_whole(words, block_line(array, block)) => &words[1..],",
        suite: Regions,
        test: "binned::tests::torn",
    },
    Bug {
        name: "a wide record that a device brought is not proven",
        file: WINDOW,
        sound: "            (rest[0] == wide_sum(covered, place.slot.line)).then_some(())?;",
        broken: "            (rest[0] == wide_sum(covered, place.slot.line) || guard > 0).then_some(())?;",
        suite: Regions,
        test: "binned::tests::torn",
    },
    Bug {
        name: "the guard is not in the sum of a wide record",
        file: BINNED_PROOF,
        sound: "    checksum(words, line.into())",
        broken: "    checksum(words.into_iter().skip(1), line.into())",
        suite: Regions,
        test: "a_wide_record_is_not_put_together_of_two_changes",
    },
    Bug {
        name: "a wide record that comes back has the sum of before",
        file: RECORDS,
        sound: "        self.seal(place.slot.line, head);\n        Ok(removed",
        broken: "        Ok(removed",
        suite: Regions,
        test: "what_stands_still_is_found_as_in_mapped_memory",
    },
];
