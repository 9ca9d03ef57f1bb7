//! Bugs of reads without order: of the assemblies whose clients keep models, and of hints where
//! records of leaves lie.

use super::Bug;
use crate::verify::Suite::Regions;

const BINNED_PROOF: &str = "crates/remote/src/binned/proof.rs";
const CLIENT: &str = "crates/remote/src/two_stage/client.rs";
const HINTS: &str = "crates/remote/src/client/unordered/hints.rs";
const PLACE: &str = "crates/remote/src/two_stage/place.rs";
const PROOF: &str = "crates/remote/src/two_stage/proof.rs";
const RECORDS: &str = "crates/remote/src/binned/records.rs";
const TWO_STAGE_LEAF: &str = "crates/remote/src/two_stage/leaf.rs";
const TWO_STAGE_WRITE: &str = "crates/remote/src/two_stage/write.rs";
const UNORDERED: &str = "crates/remote/src/client/unordered/mod.rs";
const WHOLE: &str = "crates/remote/src/leaf/whole.rs";
const WINDOW: &str = "crates/remote/src/binned/window.rs";
const WRITE: &str = "crates/remote/src/leaf/write.rs";

/// All of them.
pub(super) static BUGS: [Bug; 19] = [
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
        broken: "        (record.kind == kind::FENCES || meaning == 0 || first_line > 0).then_some(",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a record of two stages proves itself before it is published",
        file: PLACE,
        sound: "        write_record(words, pair, kind, value_len, check);\n",
        broken: "        write_record(words, pair, kind, value_len, check);\n        super::write::seal_record(words, first_line);\n",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "the sum of a record of fences stays in what it means",
        file: TWO_STAGE_LEAF,
        sound: "        let meaning = record.meaning ^ record_sum(all, first_line);",
        broken: "        let sum = if record.kind == kind::FENCES { 0 } else { record_sum(all, first_line) };\n        let meaning = record.meaning ^ sum;",
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
        sound: "            (rest[0] == wide_sum(covered, extent.slot.line)).then_some(())?;",
        broken: "            (rest[0] == wide_sum(covered, extent.slot.line) || guard > 0).then_some(())?;",
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
        sound: "        self.seal(wide.slot.line, head);\n        Ok(removed",
        broken: "        Ok(removed",
        suite: Regions,
        test: "what_stands_still_is_found_as_in_mapped_memory",
    },
    Bug {
        name: "a leaf that is stored anew keeps bytes of before",
        file: WRITE,
        sound: "            self.store(index, *word);\n",
        broken: "            if index * 8 < usize::from(image.words()[head::SHAPE] as u16) {\n                self.store(index, *word);\n            }\n",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a leaf that ends keeps its incarnation",
        file: WRITE,
        sound: "        self.raise_incarnation();\n        self.store(head::SHAPE, 0);",
        broken: "        self.store(head::SHAPE, 0);",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "what is not published gets a sum as its leaf ends",
        file: WRITE,
        sound: "            self.store(head::CHECKSUM, 0);\n        }\n    }\n\n    fn raise",
        broken: "        }\n    }\n\n    fn raise",
        suite: Regions,
        test: "what_is_not_published_proves_nothing_in_a_leaf_that_ends",
    },
    Bug {
        name: "the bytes of a record that was replaced stay",
        file: WRITE,
        sound: "        for index in 0..self.record_bytes_at(offset) / 8 {",
        broken: "        for index in 0..0 {",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a hint is followed whatever incarnation its leaf has",
        file: HINTS,
        sound: "!= self.incarnation {",
        broken: "!= self.incarnation && words.is_empty() {",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a record that a hint names is not proven",
        file: WHOLE,
        sound: "prefix_seed(prefix)).then_some(())?;",
        broken: "prefix_seed(prefix)).then_some(()).or(Some(()))?;",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a record that a hint names may have any key",
        file: HINTS,
        sound: "if !record.key.equals(rest) || ",
        broken: "if !record.key.equals(rest) && rest.len() > 9_999 || ",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "hints of a host are followed in the region of the next one",
        file: UNORDERED,
        sound: "        if is_ours && hint.read",
        broken: "        if (is_ours || true) && hint.read",
        suite: Regions,
        test: "hints_of_a_host_say_nothing_of_the_next_one",
    },
];
