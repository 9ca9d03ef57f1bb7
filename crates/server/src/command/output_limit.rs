//! `client-output-buffer-limit`: how much may wait for a client that does not take it.

use super::is_word;
use crate::{
    config::Limits,
    outbox::{ClassLimit, MessageLimits},
    resp::number::parse_i64,
};

/// What the setting is at present: for each class the hard limit, the soft one, and its seconds.
pub(super) fn format(limits: &Limits, messages: &MessageLimits) -> String {
    let (hard, soft) = (limits.output_bytes, limits.output_soft_bytes());
    let normal = format!("normal {hard} {soft} {}", limits.stall().as_secs());
    let ClassLimit { hard, soft, soft_seconds } = messages.subscribers();
    format!("{normal} slave 268435456 67108864 60 pubsub {hard} {soft} {soft_seconds}")
}

/// The limit of subscribers that a new value asks for, if it names them; those of other classes
/// are read and stay as they are.
pub(super) fn parse(value: &[u8]) -> Result<Option<ClassLimit>, &'static str> {
    let words: Vec<&[u8]> =
        value.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).collect();
    if !words.len().is_multiple_of(4) {
        return Err("Wrong number of arguments in buffer limit configuration.");
    }
    let mut subscribers = None;
    for class in words.chunks_exact(4) {
        let is = |word| is_word(class[0], word);
        if !["normal", "slave", "replica", "pubsub"].into_iter().any(is) {
            return Err("Invalid client class specified in buffer limit configuration.");
        }
        let seconds = parse_i64(class[3]).and_then(|seconds| u64::try_from(seconds).ok());
        let (Some(hard), Some(soft), Some(soft_seconds)) =
            (bytes(class[1]), bytes(class[2]), seconds)
        else {
            return Err("Error in hard, soft or soft_seconds setting in buffer limit \
                        configuration.");
        };
        if is("pubsub") {
            subscribers = Some(ClassLimit { hard, soft, soft_seconds });
        }
    }
    Ok(subscribers)
}

/// A number of bytes as Redis reads it: `1k` is 1000, `1kb` is 1024.
fn bytes(text: &[u8]) -> Option<usize> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, unit) = text.split_at(digits);
    let unit = match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1_000_000,
        b"mb" => 1 << 20,
        b"g" => 1_000_000_000,
        b"gb" => 1 << 30,
        _ => return None,
    };
    usize::try_from(parse_i64(number)?).ok()?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_read_as_redis_does() {
        let limit = |hard, soft, soft_seconds| Ok(Some(ClassLimit { hard, soft, soft_seconds }));
        assert_eq!(parse(b"PUBSUB 1k 2KB 3"), limit(1000, 2048, 3));
        assert_eq!(parse(b"normal 0 0 0  pubsub 32mb 8mb 60"), limit(32 << 20, 8 << 20, 60));
        assert_eq!(parse(b""), Ok(None));
        for wrong in ["pubsub 1 2", "foo 1 2 3", "pubsub x 1 1", "pubsub -1 1 1", "pubsub 1 1 -1"] {
            assert!(parse(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }
}
