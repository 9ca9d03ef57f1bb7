//! `XREAD`, and the arguments that `XREADGROUP` shares with it.

use std::time::Duration;

use super::{Range, edge, find, ids, is_word, last_entry, write_entries};
use crate::{
    command::{Context, Done, SYNTAX, arguments::timeout_ms, integer},
    encode::Kind,
    encode::StreamId,
    fault::{Fault, Wait},
    resp::{Args, Reply},
};

/// The arguments of a command that reads from several streams.
pub(super) struct Reading<'a> {
    args: Args<'a>,
    /// The most entries of each stream.
    pub(super) most: u64,
    /// How long the client is willing to wait, at most; the inner `None` is without end.
    block: Option<Option<Duration>>,
    /// The group and the consumer.
    pub(super) group: Option<(&'a [u8], &'a [u8])>,
    pub(super) no_ack: bool,
    /// Where the keys begin, and how many there are.
    first: usize,
    count: usize,
}

/// The error for an option that is only for groups.
fn only_for_groups(option: &str) -> Fault {
    let text = "option is only supported by XREADGROUP. You called XREAD instead.";
    format!("ERR The {option} {text}").into()
}

impl<'a> Reading<'a> {
    /// Reads the arguments.
    pub(super) fn parse(args: Args<'a>, is_group: bool) -> Result<Self, Fault> {
        let mut reading = Self {
            args,
            most: u64::MAX,
            block: None,
            group: None,
            no_ack: false,
            first: 0,
            count: 0,
        };
        let mut at = 1;
        while let Some(option) = args.get(at) {
            let next = args.get(at + 1);
            match next {
                Some(text) if is_word(option, "block") => {
                    reading.block = Some(timeout_ms(text)?);
                    at += 1;
                }
                Some(text) if is_word(option, "count") => {
                    let most = integer(text)?;
                    reading.most = if most > 0 { most as u64 } else { u64::MAX };
                    at += 1;
                }
                Some(_) if is_word(option, "streams") => {
                    reading.first = at + 1;
                    break;
                }
                Some(group) if is_word(option, "group") && args.get(at + 2).is_some() => {
                    if !is_group {
                        return Err(only_for_groups("GROUP"));
                    }
                    reading.group = Some((group, args.at(at + 2)));
                    at += 2;
                }
                _ if is_word(option, "noack") => {
                    if !is_group {
                        return Err(only_for_groups("NOACK"));
                    }
                    reading.no_ack = true;
                }
                _ => return Err(SYNTAX.into()),
            }
            at += 1;
        }
        if reading.first == 0 {
            return Err(SYNTAX.into());
        }
        reading.count = (args.len() - reading.first) / 2;
        if !(args.len() - reading.first).is_multiple_of(2) {
            let (name, symbol) = if is_group { ("xreadgroup", '>') } else { ("xread", '$') };
            return Err(format!(
                "ERR Unbalanced '{name}' list of streams: for each stream key an ID or '{symbol}' \
                 must be specified."
            )
            .into());
        }
        if is_group && reading.group.is_none() {
            return Err("ERR Missing GROUP option for XREADGROUP".into());
        }
        Ok(reading)
    }

    /// The keys, each with the text of its identifier.
    pub(super) fn streams(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + use<'a> {
        let (args, count) = (self.args, self.count);
        (self.first..self.first + count).map(move |at| (args.at(at), args.at(at + count)))
    }

    /// The outcome where nothing is there: the client waits if it said so and may.
    pub(super) fn nothing(
        &self,
        context: &mut Context<'_, '_>,
        again: Option<Vec<Vec<u8>>>,
    ) -> Done {
        let Some(timeout) = self.block.filter(|_| !context.in_exec) else {
            context.out.null_array();
            return Ok(());
        };
        Err(Fault::Wait(Box::new(Wait {
            keys: self.streams().map(|(key, _)| key.to_vec()).collect(),
            timeout,
            on_timeout: Reply::null_array,
            // A group may be gone; to XREAD a key of another type is absent.
            kind: Kind::Stream,
            group: self.group.map(|(group, _)| group.to_vec()),
            again,
        })))
    }

    /// Returns true if the command may wait.
    pub(super) fn may_wait(&self, context: &Context<'_, '_>) -> bool {
        self.block.is_some() && !context.in_exec
    }

    /// The arguments with identifiers in the place of texts that depend on the moment; none if
    /// there are no such texts.
    fn again(&self, after: &[StreamId]) -> Option<Vec<Vec<u8>>> {
        let is_relative = |text: &[u8]| matches!(text, b"$" | b"+");
        if !self.streams().any(|(_, text)| is_relative(text)) {
            return None;
        }
        let mut all: Vec<Vec<u8>> = self.args.iter_from(0).map(<[u8]>::to_vec).collect();
        let texts = all.iter_mut().skip(self.first + self.count);
        for (text, id) in texts.zip(after).filter(|(text, _)| is_relative(text)) {
            *text = format!("{}-{}", id.ms, id.seq).into_bytes();
        }
        Some(all)
    }
}

/// The identifier after which a stream is to be read.
fn after(context: &mut Context<'_, '_>, key: &[u8], text: &[u8]) -> Result<StreamId, Fault> {
    let found = find(context, key)?;
    match text {
        b"$" => Ok(found.map_or(StreamId::MIN, |(meta, _)| meta.last)),
        // Its last entry is wanted.
        b"+" => {
            let last = match found {
                Some((meta, _)) => last_entry(&context.txn, &meta)?,
                None => None,
            };
            Ok(last.and_then(StreamId::previous).unwrap_or(StreamId::MIN))
        }
        b">" => Err("ERR The > ID can be specified only when calling XREADGROUP using the GROUP \
                     <group> <consumer> option."
            .into()),
        _ => ids::strict(text, 0),
    }
}

/// Replies with what was read of one stream, under its key.
pub(super) fn open_stream(out: &mut Reply, key: &[u8]) {
    if !out.resp3 {
        out.array(2);
    }
    out.bulk(key);
}

/// Writes the head before what was read of this number of streams.
pub(super) fn close(out: &mut Reply, start: usize, streams: usize) {
    if !out.resp3 {
        return out.array_before(start, streams);
    }
    let written = out.split_off(start);
    out.map(streams);
    out.raw(&written);
}

/// `XREAD`.
pub(in crate::command) fn xread(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let reading = Reading::parse(args, false)?;
    let mut ids = Vec::with_capacity(reading.count);
    for (key, text) in reading.streams() {
        ids.push(after(context, key, text)?);
    }
    let (start, mut served) = (context.out.len(), 0);
    for ((key, _), id) in reading.streams().zip(&ids) {
        let Some((meta, _)) = find(context, key)? else { continue };
        let Some(range) = Range::after(*id) else { continue };
        if edge(&context.txn, &meta, range)?.is_none() {
            continue;
        }
        open_stream(context.out, key);
        write_entries(context, &meta, range, reading.most)?;
        served += 1;
    }
    if served == 0 {
        return reading.nothing(context, reading.again(&ids));
    }
    close(context.out, start, served);
    Ok(())
}
