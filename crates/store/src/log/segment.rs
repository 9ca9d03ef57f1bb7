//! The names of log segments.

use std::path::{Path, PathBuf};

pub(crate) use super::format::segment::{HeaderFault, SEGMENT_HEADER_BYTES, SegmentHeader};
use crate::types::FileId;

/// The path of the segment `id` in `dir`.
pub(crate) fn segment_path(dir: &Path, id: FileId) -> PathBuf {
    dir.join(format!("{id:06}.log"))
}

/// The number of the segment with this file name, if it is one.
pub(crate) fn parse_segment_name(name: &str) -> Option<FileId> {
    let id = name.strip_suffix(".log")?.parse().ok()?;
    (format!("{id:06}.log") == name).then_some(id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_canonical() {
        assert_eq!(parse_segment_name("000012.log"), Some(12));
        assert_eq!(parse_segment_name("1234567.log"), Some(1_234_567));
        for other in ["12.log", "0000012.log", "+00012.log", "000012.sst", "000012.log.tmp", ".log"]
        {
            assert_eq!(parse_segment_name(other), None, "{other}");
        }
        assert_eq!(segment_path(Path::new("d"), 12), Path::new("d/000012.log"));
    }
}
