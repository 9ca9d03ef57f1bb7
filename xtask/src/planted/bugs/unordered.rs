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
        anchor: Some("head-another-load-taken"),
        sound: "), loads",
        broken: "), loads & 1 << 63",
        suite: Regions,
        test: "scans_without_order_pass_over_nothing",
    },
    Bug {
        name: "a head that a device brought is not proven",
        file: CLIENT,
        anchor: Some("head-device-brought-not-proven"),
        sound: "))",
        broken: ") || load < u64::MAX)",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a value slot that a device brought is not proven",
        file: CLIENT,
        anchor: Some("value-slot-device-brought-not"),
        sound: ") =",
        broken: ") && number == u32::MAX =",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a record that a device brought is not proven",
        file: TWO_STAGE_LEAF,
        anchor: Some("record-device-brought-not-proven"),
        sound: ").",
        broken: " || first_line > 0).",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "a record of two stages proves itself before it is published",
        file: PLACE,
        anchor: Some("record-two-stages-proves-itself"),
        sound: "check);",
        broken: "check);\n        super::write::seal_record(words, first_line);",
        suite: Regions,
        test: "two_stage::tests::torn",
    },
    Bug {
        name: "the sum of a record of fences stays in what it means",
        file: TWO_STAGE_LEAF,
        anchor: Some("sum-record-fences-stays-means"),
        sound: "meaning = record.meaning ^ record_sum(all, first_line)",
        broken: "sum = if record.kind == kind::FENCES { 0 } else { record_sum(all, first_line) };\n        let meaning = record.meaning ^ sum",
        suite: Regions,
        test: "regions_with_checksums_answer_as_those_without",
    },
    Bug {
        name: "the head's sum has the guard of before",
        file: TWO_STAGE_WRITE,
        anchor: Some("head-sum-guard-before"),
        sound: "unlatched(self.words",
        broken: "u64::from_le(self.words[0].load(Ordering::Relaxed)",
        suite: Regions,
        test: "what_stands_still_is_found_as_in_mapped_memory",
    },
    Bug {
        name: "a block that a device brought is not proven",
        file: WINDOW,
        anchor: Some("block-device-brought-not-proven"),
        sound: "is_block_whole",
        broken: "words.len() == BLOCK_WORDS || is_block_whole",
        suite: Regions,
        test: "binned::tests::torn",
    },
    Bug {
        name: "a wide record that a device brought is not proven",
        file: WINDOW,
        anchor: Some("wide-record-device-brought-not"),
        sound: ").",
        broken: " || guard > 0).",
        suite: Regions,
        test: "binned::tests::torn",
    },
    Bug {
        name: "the guard is not in the sum of a wide record",
        file: BINNED_PROOF,
        anchor: Some("guard-not-sum-wide-record"),
        sound: ",",
        broken: ".into_iter().skip(1),",
        suite: Regions,
        test: "a_wide_record_is_not_put_together_of_two_changes",
    },
    Bug {
        name: "a wide record that comes back has the sum of before",
        file: RECORDS,
        anchor: Some("wide-record-comes-back-sum"),
        sound: "self.seal(wide.slot.line, head);",
        broken: "",
        suite: Regions,
        test: "what_stands_still_is_found_as_in_mapped_memory",
    },
    Bug {
        name: "a leaf that is stored anew keeps bytes of before",
        file: WRITE,
        anchor: Some("leaf-stored-anew-keeps-bytes"),
        sound: "self.store(index, *word);",
        broken: "if index * 8 < usize::from(image.words()[head::SHAPE] as u16) {\n                self.store(index, *word);\n            }",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a leaf that ends keeps its incarnation",
        file: WRITE,
        anchor: Some("leaf-ends-keeps-incarnation"),
        sound: "raise_incarnation();\n        self.",
        broken: "",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "what is not published gets a sum as its leaf ends",
        file: WRITE,
        anchor: Some("not-published-gets-sum-leaf"),
        sound: "self.store(head::CHECKSUM, 0);",
        broken: "",
        suite: Regions,
        test: "what_is_not_published_proves_nothing_in_a_leaf_that_ends",
    },
    Bug {
        name: "the bytes of a record that was replaced stay",
        file: WRITE,
        anchor: Some("bytes-record-replaced-stay"),
        sound: "self.record_bytes_at(offset) / 8",
        broken: "0",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a hint is followed whatever incarnation its leaf has",
        file: HINTS,
        anchor: Some("hint-followed-whatever-incarnation-leaf"),
        sound: "incarnation ",
        broken: "incarnation && words.is_empty() ",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a record that a hint names is not proven",
        file: WHOLE,
        anchor: Some("record-hint-names-not-proven"),
        sound: "?;",
        broken: ".or(Some(()))?;",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "a record that a hint names may have any key",
        file: HINTS,
        anchor: Some("record-hint-names-may-any"),
        sound: "||",
        broken: "&& rest.len() > 9_999 ||",
        suite: Regions,
        test: "records_that_hints_name_are_right_at_some_moment_of_their_gets",
    },
    Bug {
        name: "hints of a host are followed in the region of the next one",
        file: UNORDERED,
        anchor: Some("hints-host-followed-region-next"),
        sound: "is_ours",
        broken: "(is_ours || true)",
        suite: Regions,
        test: "hints_of_a_host_say_nothing_of_the_next_one",
    },
];
