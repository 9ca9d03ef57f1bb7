//! The bytes of [`Partitioning`] in the manifest; `docs/format/manifest.md` describes them. No I/O
//! here. The golden bytes are in `options/format.rs`.

use super::Partitioning;

impl Partitioning {
    /// Appends the bytes that the manifest stores; nothing for [`Partitioning::None`].
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        let put = |out: &mut Vec<u8>, bytes: &[u8]| {
            out.extend((bytes.len() as u32).to_le_bytes());
            out.extend(bytes);
        };
        match self {
            Self::None => {}
            Self::PrefixLength(len) => out.extend([1, *len]),
            Self::Delimiter(byte) => out.extend([2, *byte]),
            Self::SplitPoints(points) => {
                out.push(3);
                out.extend((points.len() as u32).to_le_bytes());
                points.iter().for_each(|point| put(out, point));
            }
            Self::Function(name) => {
                out.push(4);
                put(out, name.as_bytes());
            }
        }
    }

    /// Reads the output of [`Partitioning::encode`]. The error says what was found. Allocates no
    /// more than about 25 times the bytes given.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, String> {
        let short = || "partitions that are cut off".to_owned();
        let take = |rest: &mut &[u8], len: usize| -> Result<Vec<u8>, String> {
            let (taken, left) = rest.split_at_checked(len).ok_or_else(short)?;
            *rest = left;
            Ok(taken.to_vec())
        };
        let word = |rest: &mut &[u8]| -> Result<usize, String> {
            let (word, left) = rest.split_first_chunk::<4>().ok_or_else(short)?;
            *rest = left;
            Ok(u32::from_le_bytes(*word) as usize)
        };
        let (kind, mut rest) = bytes.split_first().ok_or_else(short)?;
        let rest = &mut rest;
        let partitioning = match kind {
            1 => Self::PrefixLength(take(rest, 1)?[0]),
            2 => Self::Delimiter(take(rest, 1)?[0]),
            3 => {
                let mut points = Vec::new();
                for _ in 0..word(rest)? {
                    let len = word(rest)?;
                    points.push(take(rest, len)?);
                }
                Self::SplitPoints(points)
            }
            4 => {
                let len = word(rest)?;
                let name = String::from_utf8(take(rest, len)?);
                Self::Function(name.map_err(|_| "a function's name that is not UTF-8")?)
            }
            other => return Err(format!("partitions of kind {other}")),
        };
        if !rest.is_empty() {
            return Err(format!("{} bytes behind the partitions", rest.len()));
        }
        partitioning.check()?;
        Ok(partitioning)
    }
}
