//! Bugs of the remote tier, and of what the engine gives it.

use super::Bug;
use crate::verify::Suite::{Processes, Proofs, Regions, Remote, Share, Taps};

const ARRAYS: &str = "crates/remote/src/binned/host.rs";
const ARRAYS_LOAD: &str = "crates/remote/src/binned/load.rs";
const ATOMIC: &str = "crates/remote/src/client/atomic.rs";
const BARRIER: &str = "crates/remote/src/binned/barrier.rs";
const CACHE: &str = "crates/remote/src/two_stage/cache.rs";
const CARE: &str = "crates/remote/src/host/table/care.rs";
const CLUSTER_RANGE: &str = "crates/remote/src/client/cluster/range.rs";
const CONSULT: &str = "crates/remote/src/host/consult.rs";
const DIRECTORY: &str = "crates/remote/src/host/directory.rs";
const FOLLOW: &str = "crates/share/src/follow.rs";
const GROUP: &str = "crates/remote/src/host/group.rs";
const MAPPED: &str = "crates/remote/src/client/keyspace/mapped.rs";
const LEAF: &str = "crates/remote/src/leaf/mod.rs";
const MODELS_OF_CLIENT: &str = "crates/remote/src/client/models.rs";
const PIECES: &str = "crates/remote/src/client/tcp/pieces.rs";
const PLACE: &str = "crates/remote/src/two_stage/place.rs";
const PUBLISHER: &str = "crates/remote/src/host/publisher.rs";
const PUBLISHER_CARE: &str = "crates/remote/src/host/publisher_care.rs";
const READER: &str = "crates/remote/src/client/reader.rs";
const REBUILD: &str = "crates/remote/src/host/table/rebuild.rs";
const SEARCH: &str = "crates/remote/src/two_stage/search.rs";
const SERVED_BY_HOST: &str = "crates/remote/src/host/served.rs";
const SERVED_TO_CLIENT: &str = "crates/remote/src/client/served.rs";
const SERVER: &str = "crates/remote/src/host/server.rs";
const SESSION: &str = "crates/remote/src/host/session.rs";
const SHARE: &str = "crates/remote/src/host/share.rs";
const SLAB: &str = "crates/remote/src/binned/slab.rs";
const SPLIT: &str = "crates/remote/src/host/table/split.rs";
const STRINGS: &str = "crates/remote/src/client/strings.rs";
const SWAP: &str = "crates/store/src/db/swap.rs";
const TABLE: &str = "crates/remote/src/host/table/mod.rs";
const TAP: &str = "crates/store/src/db/tap.rs";
const TWO_STAGE_LOAD: &str = "crates/remote/src/two_stage/load.rs";
const UNORDERED: &str = "crates/remote/src/client/unordered/mod.rs";
const WALK: &str = "crates/remote/src/binned/walk.rs";
const WRITE: &str = "crates/remote/src/leaf/write.rs";

/// All of them, those of a suite together.
pub(super) static BUGS: [Bug; 63] = [
    Bug {
        name: "a leaf is not looked at again after it was read",
        file: LEAF,
        sound: "    (state.load(Ordering::Relaxed) == before).then_some((seen, before))",
        broken: "    Some((seen, before))",
        suite: Remote,
        test: "a_value_is_the_old_one_or_the_new_one",
    },
    Bug {
        name: "the second look at a leaf's state is not fenced",
        file: LEAF,
        sound: "    fence(Ordering::Acquire);\n    (state.load",
        broken: "    (state.load",
        suite: Remote,
        test: "a_value_is_the_old_one_or_the_new_one",
    },
    Bug {
        name: "a latch is not fenced",
        file: WRITE,
        sound: "        // A reader that sees what is stored from here on sees the latch when it looks again.\n        fence(Ordering::Release);\n",
        broken: "",
        suite: Remote,
        test: "a_value_is_the_old_one_or_the_new_one",
    },
    Bug {
        name: "a leaf keeps its version when it changes",
        file: WRITE,
        sound: "        let state = (self.state() & !LATCHED).wrapping_add(VERSION_STEP);",
        broken: "        let state = self.state() & !LATCHED;",
        suite: Remote,
        test: "a_value_is_the_old_one_or_the_new_one",
    },
    Bug {
        name: "a leaf is latched after it was written",
        file: TABLE,
        sound: "        self.latch(at.slot);\n        let writer = self.writer(at.slot);\n        let has_room =\n            if found.is_some() { writer.update(index, entry) } else { writer.insert(index, entry) };\n",
        broken: "        let writer = self.writer(at.slot);\n        let has_room =\n            if found.is_some() { writer.update(index, entry) } else { writer.insert(index, entry) };\n        self.latch(at.slot);\n        let writer = self.writer(at.slot);\n",
        suite: Remote,
        test: "a_value_is_the_old_one_or_the_new_one",
    },
    Bug {
        name: "a leaf is unlatched before its group is published",
        file: TABLE,
        sound: "        if has_room {\n            writer.set_seq(seq);\n",
        broken: "        if has_room {\n            writer.set_seq(seq);\n            writer.unlatch();\n",
        suite: Remote,
        test: "a_group_is_read_whole_at_one_moment",
    },
    Bug {
        name: "the states of leaves are not compared",
        file: READER,
        sound: "words[0].load(Ordering::Relaxed) == *state)",
        broken: "words[0].load(Ordering::Relaxed) | *state != 0)",
        suite: Remote,
        test: "a_group_is_read_whole_at_one_moment",
    },
    Bug {
        name: "a leaf is retired without a change of its version",
        file: TABLE,
        sound: "        writer.latch();\n        writer.retire();\n        writer.unlatch();\n",
        broken: "        writer.retire();\n",
        suite: Remote,
        test: "a_run_that_is_built_anew_loses_no_key",
    },
    Bug {
        name: "a scan goes on at the wrong next server",
        file: CLUSTER_RANGE,
        sound: "            (false, Bound::Included(key) | Bound::Excluded(key), _) => view.table.range_of(key),",
        broken: "            (false, Bound::Included(key) | Bound::Excluded(key), _) => (view.table.range_of(key) + usize::from(end.next.is_some())).min(view.table.len() - 1),",
        suite: Regions,
        test: "scans_cross_all_borders_both_ways",
    },
    Bug {
        name: "a reader does not look if its key has left the host",
        file: SERVED_TO_CLIENT,
        sound: "            Some(known) => generation == known.generation && is_served(&known.ranges),",
        broken: "            Some(known) => generation == known.generation || is_served(&known.ranges),",
        suite: Regions,
        test: "a_client_of_one_host_never_answers_for_keys_of_another",
    },
    Bug {
        name: "a reader does not look if its key left the host while it read",
        file: SERVED_TO_CLIENT,
        sound: "            Some(known) => generation == known.generation && is_served(&known.ranges),",
        broken: "            Some(known) => generation != known.generation || is_served(&known.ranges),",
        suite: Regions,
        test: "a_read_counts_by_what_was_known_before_it",
    },
    Bug {
        name: "a reader by models does not look if its key has left the host",
        file: MODELS_OF_CLIENT,
        sound: "                if seen.is_some_and(|generation| claim.serves(generation, key)) {",
        broken: "                if seen.is_some() || claim.serves(0, key) {",
        suite: Regions,
        test: "models_tell_nothing_of_keys_that_have_left",
    },
    Bug {
        name: "a page by models goes beyond the range that the host serves",
        file: MODELS_OF_CLIENT,
        sound: "            return claim.clip(&mut page, from, false).then_some(page);",
        broken: "            return Some(page);",
        suite: Regions,
        test: "models_tell_nothing_of_keys_that_have_left",
    },
    Bug {
        name: "a reader of pieces takes every host for one that serves all keys",
        file: MODELS_OF_CLIENT,
        sound: "            Self::Messages(fabric) => fabric.generation(),",
        broken: "            Self::Messages(fabric) => fabric.generation().map(|_| 0),",
        suite: Regions,
        test: "models_tell_nothing_of_keys_that_have_left",
    },
    Bug {
        name: "the generation is the first piece of a message and not the last",
        file: PIECES,
        sound: "            let extents = extents.iter().chain([&GENERATION]).copied().collect();
            Request::Pieces { keyspace: opened.number, extents }
        };
        let seen = self.link.call(self.keyspace, true, request, |reply| match reply {
            Reply::Pieces { guards, bytes } => split_last(&guards, bytes)
",
        broken: "            let extents = [&GENERATION].into_iter().chain(extents).copied().collect();
            Request::Pieces { keyspace: opened.number, extents }
        };
        let seen = self.link.call(self.keyspace, true, request, |reply| match reply {
            Reply::Pieces { guards, bytes } => (guards.split_first().zip(bytes.split_first_chunk()))
                .map(|((_, guards), (word, bytes))| (guards, bytes, Some(u64::from_le_bytes(*word))))
",
        suite: Regions,
        test: "a_range_that_leaves_amid_a_message_is_not_read",
    },
    Bug {
        name: "a question is answered of keys that the host does not serve",
        file: SHARE,
        sound: "                self.serving.answer_range(keys, || self.ask(name, &question, joined))",
        broken: "                let _ = keys;
                self.ask(name, &question, joined)",
        suite: Regions,
        test: "every_request_of_a_key_that_is_not_served_is_answered_by_moved",
    },
    Bug {
        name: "an operation writes a key that the host does not serve",
        file: SHARE,
        sound: "                self.serving.check_write(key)?;
",
        broken: "                let _ = key;
",
        suite: Regions,
        test: "every_request_of_a_key_that_is_not_served_is_answered_by_moved",
    },
    Bug {
        name: "a write with a hint passes the gate",
        file: SESSION,
        sound: "        opened.share.serving().check_write(key)?;
        opened.share.write(",
        broken: "        if hint.is_none() {
            opened.share.serving().check_write(key)?;
        }
        opened.share.write(",
        suite: Regions,
        test: "every_request_of_a_key_that_is_not_served_is_answered_by_moved",
    },
    Bug {
        name: "a key that came while it was looked for is called absent",
        file: SERVED_BY_HOST,
        sound: "                (Some(before), Some(after)) if Arc::ptr_eq(before, after) => {",
        broken: "                (_, Some(after)) => {",
        suite: Regions,
        test: "an_answer_is_of_what_is_served_while_it_is_made",
    },
    Bug {
        name: "a host writes keys that it does not serve",
        file: SERVED_BY_HOST,
        sound: "        served.check(served.writes.of(key).is_some())",
        broken: "        served.check(served.writes.of(key).is_some() || !key.is_empty())",
        suite: Regions,
        test: "a_client_of_one_host_never_answers_for_keys_of_another",
    },
    Bug {
        name: "a range that was copied is mixed with what was there before",
        file: SERVED_BY_HOST,
        sound: "        self.remove(range)?;\n        let mut copied = 0;",
        broken: "        let mut copied = 0;",
        suite: Regions,
        test: "what_moves_is_not_served_meanwhile",
    },
    Bug {
        name: "a key above a leaf's high fence is taken for its own",
        file: LEAF,
        sound: "            if code > high {\n                return Some(Side::Right);\n            }\n",
        broken: "",
        suite: Regions,
        test: "sides_are_those_of_the_fences",
    },
    Bug {
        name: "a split leaf's sibling has no link to the next one",
        file: SPLIT,
        sound: "        right.set_links(next, at.slot);",
        broken: "        right.set_links(NO_SLOT, at.slot);",
        suite: Regions,
        test: "host::tests::a_table_is_a_sorted_map",
    },
    Bug {
        name: "a slot is given back before its leaf was retired",
        file: REBUILD,
        sound: "        slots.iter().for_each(|slot| self.retire(*slot));\n",
        broken: "",
        suite: Regions,
        test: "host::tests::a_table_is_a_sorted_map",
    },
    Bug {
        name: "the directory keeps the old place of a block",
        file: DIRECTORY,
        sound: "                word.store(u64::from(unit).to_le(), Ordering::Release);",
        broken: "                let _ = (word, unit, Ordering::Release);",
        suite: Regions,
        test: "host::tests::a_table_is_a_sorted_map",
    },
    Bug {
        name: "a renewal does not note which of its keys change",
        file: CARE,
        sound: "            keys.insert(key.to_vec());",
        broken: "            let _ = (keys, key);",
        suite: Regions,
        test: "runs_are_built_anew_beside_their_writer",
    },
    Bug {
        name: "what changed beside a renewal is not made again",
        file: CARE,
        sound: "self.change_again(&changes, seq)",
        broken: "self.change_again(&changes[changes.len()..], seq)",
        suite: Regions,
        test: "runs_are_built_anew_beside_their_writer",
    },
    Bug {
        name: "what stands for long keys is taken for an absent key",
        file: READER,
        sound: "            Some((_, record)) => LeafAnswer::Is(Outcome::Ask(record.value_len)),",
        broken: "            Some((_, record)) if record.kind == crate::layout::format::KIND_LONG_KEYS => LeafAnswer::Is(Outcome::Absent),\n            Some((_, record)) => LeafAnswer::Is(Outcome::Ask(record.value_len)),",
        suite: Regions,
        test: "a_region_that_is_live_is_the_store",
    },
    Bug {
        name: "what changes while a region is loaded is dropped",
        file: PUBLISHER,
        sound: "            (Phase::Loading, _) => keep(&mut state.kept),",
        broken: "            (Phase::Loading, _) => drop(keep),",
        suite: Regions,
        test: "a_region_that_is_live_is_the_store",
    },
    Bug {
        name: "a region is live after a load that a reset overtook",
        file: PUBLISHER,
        sound: "            if state.phase != Phase::Loading {\n                return Ok(false);",
        broken: "            if state.phase == Phase::Closed {\n                return Ok(false);",
        suite: Regions,
        test: "a_region_that_is_live_is_the_store",
    },
    Bug {
        name: "a suspended region keeps its heartbeat",
        file: PUBLISHER,
        sound: "        control::set_heartbeat(self.inner.region.control.words(), 0);\n        if state.phase != Phase::Closed {",
        broken: "        if state.phase != Phase::Closed {",
        suite: Regions,
        test: "a_region_that_is_live_is_the_store",
    },
    Bug {
        name: "what has expired is read as if it had not",
        file: STRINGS,
        sound: "        Ok(if expires_ms != 0 && expires_ms <= now_ms {",
        broken: "        Ok(if expires_ms == u64::MAX && expires_ms <= now_ms {",
        suite: Regions,
        test: "entries_are_read_as_the_server_writes_them",
    },
    Bug {
        name: "a split leaf keeps its incarnation",
        file: PLACE,
        sound: "        let incarnation = leaf.incarnation.wrapping_add(1) & 0xff_ffff;",
        broken: "        let incarnation = leaf.incarnation;",
        suite: Regions,
        test: "inserts_cost_calls_until_models_are_trained",
    },
    Bug {
        name: "the entry of a stale leaf stays valid",
        file: CACHE,
        sound: "            *entry &= !VALID;",
        broken: "            *entry |= VALID;",
        suite: Regions,
        test: "inserts_cost_calls_until_models_are_trained",
    },
    Bug {
        name: "a leaf is not looked at again after its records",
        file: SEARCH,
        sound: "            if !self.is_unchanged(fabric, leaves.iter().map(|at| &heads[*at]))? {\n                return Ok(LeafLook::Again);\n            }\n",
        broken: "",
        suite: Regions,
        test: "answers_were_right_while_they_were_made",
    },
    Bug {
        name: "a slot's value is taken whatever key it has by then",
        file: SEARCH,
        sound: "        if word != rhumb_model::code::code_at(key, 0) {\n            return Ok(None);\n        }\n",
        broken: "        let _ = word;\n",
        suite: Regions,
        test: "answers_were_right_while_they_were_made",
    },
    Bug {
        name: "a bin is read whatever incarnation it has by then",
        file: WALK,
        sound: "incarnation_of(*guard) == slot.incarnation)",
        broken: "incarnation_of(*guard) | slot.incarnation != 0)",
        suite: Regions,
        test: "keys_that_stay_are_found_whatever_happens_meanwhile",
    },
    Bug {
        name: "a host takes the address that a client sends for right",
        file: ARRAYS,
        sound: "            let found = array.check(&self.records, index, key)?;\n",
        broken: "            let found = Err::<usize, usize>(index.min(array.len()));\n",
        suite: Regions,
        test: "wrong_addresses_change_no_other_key",
    },
    Bug {
        name: "a piece is used again before it has another incarnation",
        file: SLAB,
        sound: "        self.end(line, size, next.max(1));\n",
        broken: "            let _ = next;\n",
        suite: Regions,
        test: "a_piece_that_comes_back_has_another_incarnation",
    },
    Bug {
        name: "a copy shows what its store does not show yet",
        file: PUBLISHER,
        sound: "                let is_applied = apply(&mut **replica, seq);\n",
        broken: "                let is_applied = apply(&mut **replica, seq);\n                replica.publish(state.seq);\n",
        suite: Regions,
        test: "readers_beside_loads_and_writes",
    },
    Bug {
        name: "a copy goes live without what changed beside its load",
        file: PUBLISHER,
        sound: "let (kept, seq) = (std::mem::take(&mut state.kept), state.seq);",
        broken: "let (kept, seq) = (Kept::default(), state.seq);",
        suite: Regions,
        test: "a_region_that_is_live_is_the_store",
    },
    Bug {
        name: "a copy's bins are searched amid a group of changes",
        file: CONSULT,
        sound: "let reply = (!is_pending).then(|| host.operate(operation));",
        broken: "let _ = is_pending;\n                let reply = Some(host.operate(operation));",
        suite: Regions,
        test: "readers_beside_loads_and_writes",
    },
    Bug {
        name: "training shows a group of changes before its time",
        file: PUBLISHER_CARE,
        sound: "            if !moment.is_pending {\n",
        broken: "            {\n",
        suite: Regions,
        test: "readers_beside_loads_and_writes",
    },
    Bug {
        name: "arrays that are loaded anew have epochs of before",
        file: ARRAYS_LOAD,
        sound: "        self.model += 1;\n",
        broken: "        self.model += 1;\n        self.next_epoch = 1;\n",
        suite: Regions,
        test: "what_stays_is_found_whatever_is_loaded",
    },
    Bug {
        name: "a scan does not notice that all was loaded anew",
        file: TWO_STAGE_LOAD,
        sound: "        control::raise_loads(self.control.words());\n",
        broken: "        let _ = control::raise_loads;\n",
        suite: Regions,
        test: "a_scan_passes_over_nothing_that_stays",
    },
    Bug {
        name: "what was replaced is freed before all sessions know of it",
        file: BARRIER,
        sound: "take_while(|(model, _)| *model <= known)",
        broken: "take_while(|(model, _)| *model <= known || known > 0)",
        suite: Regions,
        test: "what_a_live_session_may_know_waits_and_nothing_else_does",
    },
    Bug {
        name: "a host begins before the lease of one that was killed is over",
        file: SERVER,
        sound: "                thread::sleep(LEASE + CLOCK_STEP);\n",
        broken: "                thread::sleep(CLOCK_STEP);\n",
        suite: Regions,
        test: "hosts_die_between_any_two_steps",
    },
    Bug {
        name: "a record proves itself before it is published",
        file: WRITE,
        sound: "            self.store(value_at / 8 + to_words(entry.value.len()), 0);
            self.unseal(offset);
",
        broken: "            let end = value_at / 8 + to_words(entry.value.len());
            let seed = record_seed(self.words, self.geometry);
            self.store(end, record_sum(self.words, offset / 8..end, seed));
            self.add_to_sum(self.words.load(end));
",
        suite: Regions,
        test: "gets_are_right_at_some_moment_of_their_time",
    },
    Bug {
        name: "absence by records that were read without order is not confirmed",
        file: UNORDERED,
        sound: "Some(Outcome::Absent) if !key.is_whole => {",
        broken: "Some(Outcome::Absent) if !key.is_whole && false => {",
        suite: Regions,
        test: "gets_are_right_at_some_moment_of_their_time",
    },
    Bug {
        name: "a whole leaf is proven by its head alone",
        file: UNORDERED,
        sound: "            is_leaf_whole(words, self.geometry)
        } else {",
        broken: "            state & LATCHED == 0 && is_head_whole(words, self.geometry)
        } else {",
        suite: Regions,
        test: "gets_are_right_at_some_moment_of_their_time",
    },
    Bug {
        name: "a record that is read without order is not proven",
        file: UNORDERED,
        sound: "if !is_record_whole(&leaf[..], begin * 8, seed) {",
        broken: "if false && !is_record_whole(&leaf[..], begin * 8, seed) {",
        suite: Regions,
        test: "gets_are_right_at_some_moment_of_their_time",
    },
    Bug {
        name: "a head that is read without order is not proven",
        file: UNORDERED,
        sound: "            state & LATCHED == 0 && is_head_whole(words, self.geometry)\n",
        broken: "            state & LATCHED == 0\n",
        suite: Regions,
        test: "gets_are_right_at_some_moment_of_their_time",
    },
    Bug {
        name: "the states of leaves without order are not compared",
        file: UNORDERED,
        sound: "u64::from_le(word.load(Ordering::Relaxed)) == *state",
        broken: "u64::from_le(word.load(Ordering::Relaxed)) == *state || true",
        suite: Regions,
        test: "what_is_unchanged_was_there_at_one_moment",
    },
    Bug {
        name: "a lease has no end",
        file: MAPPED,
        sound: "        let is_fresh = clock::now_ms().abs_diff(beat) <= self.lease_ms;",
        broken: "        let is_fresh = beat != 0;",
        suite: Processes,
        test: "a_host_that_is_killed_is_not_read",
    },
    Bug {
        name: "a swap makes its change whatever it has found",
        file: GROUP,
        sound: "    if swaps {\n",
        broken: "    if swaps || expected.is_some() {\n",
        suite: Proofs,
        test: "histories_of_clients_are_linearizable",
    },
    Bug {
        name: "the changes of a batch are made one by one",
        file: SESSION,
        sound: "            share.authority().commit(&changes)?;\n",
        broken: "            for change in &changes {\n                share.authority().commit(std::slice::from_ref(change))?;\n            }\n",
        suite: Proofs,
        test: "readers_beside_writers_of_a_volatile_keyspace",
    },
    Bug {
        name: "what is to be of one moment is read leaf by leaf over TCP",
        file: SESSION,
        sound: "if self.is_apart && !is_atomic {",
        broken: "if self.is_apart | is_atomic && self.is_apart {",
        suite: Proofs,
        test: "readers_beside_writers_of_a_volatile_keyspace",
    },
    Bug {
        name: "a reader does not look at the heartbeat",
        file: MAPPED,
        sound: "        let is_fresh = clock::now_ms().abs_diff(beat) <= self.lease_ms;",
        broken: "        let is_fresh = beat < u64::MAX;",
        suite: Share,
        test: "clients_read_what_is_there",
    },
    Bug {
        name: "states are not compared in an atomic read",
        file: ATOMIC,
        sound: "            if is_whole && reading.reader.are_unchanged(&states) {",
        broken: "            if is_whole {",
        suite: Share,
        test: "batches_are_read_whole",
    },
    Bug {
        name: "a share goes on after its keyspace was reset",
        file: FOLLOW,
        sound: "    fn reset(&self) {\n        self.0.reset();\n    }",
        broken: "    fn reset(&self) {}",
        suite: Share,
        test: "clients_read_what_is_there",
    },
    Bug {
        name: "a keyspace is chosen before its load begins",
        file: FOLLOW,
        sound: "        let Some(load) = self.publisher.begin_load() else { return Ok(None) };
        let keyspace = (self.source.keyspace)().map_err(|error| told(&error))?;
",
        broken: "        let keyspace = (self.source.keyspace)().map_err(|error| told(&error))?;
        let Some(load) = self.publisher.begin_load() else { return Ok(None) };
",
        suite: Share,
        test: "a_choice_that_is_out_of_date_is_not_loaded",
    },
    Bug {
        name: "a tap is not told that its keyspace was cleared",
        file: TAP,
        sound: "            registered.tap.reset();\n",
        broken: "",
        suite: Taps,
        test: "a_tap_sees_every_change",
    },
    Bug {
        name: "a swap does not look at its key again under the lock",
        file: SWAP,
        sound: "    Ok(if has_expected()? { Answer::Swapped } else { Answer::Kept })",
        broken: "    drop(has_expected);\n    Ok(Answer::Swapped)",
        suite: Taps,
        test: "one_swap_of_several_at_a_time_succeeds",
    },
];
