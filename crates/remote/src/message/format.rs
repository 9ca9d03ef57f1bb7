//! The numbers of the messages that `docs/wire.md` describes.

/// What the first frame of either side begins with, after its head.
pub(crate) const MAGIC: [u8; 8] = *b"RHUMBWIR";

/// The version of the messages, which both sides must share. Raise it with every change of bytes.
pub(crate) const VERSION: u32 = 1;

/// The bytes of a frame's length, which does not count itself.
pub(crate) const LENGTH_BYTES: usize = 4;

/// The bytes of a frame before its body: length, kind and request id.
pub(crate) const HEAD_BYTES: usize = LENGTH_BYTES + 1 + 4;

/// The most bytes of a frame after its length. A side buffers one frame of each connection, so this
/// bounds what a peer can make it keep; a longer value is read and written by other means.
pub(crate) const FRAME_BYTES_MAX: usize = 16 << 20;

/// The most bytes of a key, as in the leaves, whose lengths have 16 bits.
pub(crate) const KEY_BYTES_MAX: usize = (64 << 10) - 1;

/// The most bytes of a keyspace's name, as in the engine.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// The most bytes of a program's name: enough for a file's name, and short enough for a log line.
pub(crate) const PROGRAM_BYTES_MAX: usize = 64;

/// The most bytes of a token: several times those of a key that nobody guesses, and little enough
/// that a greeting stays short.
pub(crate) const TOKEN_BYTES_MAX: usize = 256;

/// The most bytes of a client's first frame: a host reads no more of a client that it does not
/// know.
pub(crate) const GREETING_BYTES_MAX: usize = 512;

/// The most bytes of a failure's text. It is for people: a few sentences.
pub(crate) const TEXT_BYTES_MAX: usize = 1024;

/// The most keys, values, pairs or operations of one message. A decoded one takes up to 40 bytes
/// beside the frame, and perhaps one byte in it. This bounds what a frame expands to: 2.5 MiB.
pub(crate) const ITEMS_MAX: usize = 1 << 16;

/// The most bytes of a host's address in a routing table: a path has at most 108 on a Unix socket,
/// and a name at most 253.
pub(crate) const SERVER_BYTES_MAX: usize = 1024;

/// The most keyspaces of one renewal, as many as a connection opens by default. A decoded one takes
/// 64 bytes.
pub(crate) const RENEWED_MAX: usize = 256;

/// The most segments that one message announces, and the most descriptors that come with a frame.
/// Sixteen segments of 64 MiB are a gibibyte; further ones come in further messages.
pub(crate) const SEGMENTS_MAX: usize = 16;

/// Milliseconds that a read by RDMA may take, to count. A host that is about to change what it does
/// not serve any more waits for twice as long first: no such read sees the change and takes the
/// keys for those of before. 700 times what a read takes on a software device in an emulated
/// machine (`cargo xtask rdma` prints it).
#[cfg(all(feature = "rdma", target_os = "linux"))]
pub(crate) const REMOTE_READ_MS: u64 = 500;

/// Bits of the features in a client's greeting.
pub(crate) mod feature {
    /// No descriptors reach the client, so that it asks the host to look into leaves.
    pub(crate) const NO_DESCRIPTORS: u64 = 1;
}

/// Set in the bytes of a leaf of a described keyspace: its leaves and records have checksums.
pub(crate) const HAS_CHECKSUMS: u32 = 1 << 31;

/// Kinds of requests. Replies have the high bit set, so a frame is never taken for one of the other
/// direction.
pub(crate) mod request {
    /// The client's first frame.
    pub(crate) const HELLO: u8 = 0x01;
    /// Opens a keyspace.
    pub(crate) const OPEN: u8 = 0x02;
    /// Reads one key.
    pub(crate) const GET: u8 = 0x03;
    /// Reads several keys.
    pub(crate) const MULTI_GET: u8 = 0x04;
    /// Reads a range.
    pub(crate) const SCAN: u8 = 0x05;
    /// Writes a value.
    pub(crate) const INSERT: u8 = 0x06;
    /// Removes a key.
    pub(crate) const REMOVE: u8 = 0x07;
    /// Writes or removes if the present value is the expected one.
    pub(crate) const COMPARE_AND_SWAP: u8 = 0x08;
    /// Writes and removes as one.
    pub(crate) const BATCH: u8 = 0x09;
    /// Renews the lease.
    pub(crate) const RENEW: u8 = 0x0a;
    /// The client's last frame.
    pub(crate) const GOODBYE: u8 = 0x0b;
    /// Looks for one key in a leaf.
    pub(crate) const READ: u8 = 0x10;
    /// Looks for several keys in leaves.
    pub(crate) const READ_MANY: u8 = 0x11;
    /// Reads the directory's top.
    pub(crate) const TOP: u8 = 0x12;
    /// Reads a block of the directory.
    pub(crate) const BLOCK: u8 = 0x13;
    /// Asks the host of an assembly whose clients keep models.
    pub(crate) const CONSULT: u8 = 0x20;
    /// Reads pieces of a region.
    pub(crate) const PIECES: u8 = 0x22;
    /// Asks which keys the host serves, and for the routing table.
    pub(crate) const ROUTING: u8 = 0x28;
    /// Connects a queue pair.
    pub(crate) const ATTACH: u8 = 0x30;
    /// Asks for segments that RDMA reaches.
    pub(crate) const REMOTE_SEGMENTS: u8 = 0x31;
    /// A request for a queue pair that calls go over.
    pub(crate) const ATTACH_CALLS: u8 = 0x32;
}

/// Kinds of replies.
pub(crate) mod reply {
    /// The host's first frame.
    pub(crate) const HELLO: u8 = 0x81;
    /// A keyspace is open.
    pub(crate) const OPENED: u8 = 0x82;
    /// A region has new segments.
    pub(crate) const SEGMENTS: u8 = 0x83;
    /// The value of one key.
    pub(crate) const VALUE: u8 = 0x84;
    /// The values of several keys.
    pub(crate) const VALUES: u8 = 0x85;
    /// Keys and values of a range.
    pub(crate) const PAIRS: u8 = 0x86;
    /// A write is done.
    pub(crate) const DONE: u8 = 0x87;
    /// A compare-and-swap is decided.
    pub(crate) const SWAPPED: u8 = 0x88;
    /// The lease is renewed.
    pub(crate) const RENEWED: u8 = 0x89;
    /// The request failed.
    pub(crate) const FAILED: u8 = 0x8a;
    /// A keyspace is open whose region the client cannot map.
    pub(crate) const DESCRIBED: u8 = 0x90;
    /// What a leaf said of one key.
    pub(crate) const READ: u8 = 0x91;
    /// What leaves said of several keys.
    pub(crate) const READ_MANY: u8 = 0x92;
    /// A part of the directory's top.
    pub(crate) const TOP: u8 = 0x93;
    /// A block of the directory.
    pub(crate) const BLOCK: u8 = 0x94;
    /// What the host of an assembly answers.
    pub(crate) const CONSULTED: u8 = 0xa0;
    /// Pieces of a region.
    pub(crate) const PIECES: u8 = 0xa2;
    /// A keyspace is open that the client reads piece by piece.
    pub(crate) const SHOWN: u8 = 0xa3;
    /// The keys belong to another host.
    pub(crate) const MOVED: u8 = 0xa8;
    /// Which keys the host serves, and the routing table.
    pub(crate) const ROUTING: u8 = 0xa9;
    /// A queue pair is connected.
    pub(crate) const ATTACHED: u8 = 0xb0;
    /// Segments that RDMA reaches.
    pub(crate) const REMOTE_SEGMENTS: u8 = 0xb1;
}

/// Codes of failures: what a client does about one depends on its code alone.
pub(crate) mod failure {
    /// The request is malformed or out of order. The host closes the connection.
    pub(crate) const BAD_REQUEST: u16 = 1;
    /// The host shares no keyspace of that name or number.
    pub(crate) const NO_SUCH_KEYSPACE: u16 = 2;
    /// This client may not do that.
    pub(crate) const REFUSED: u16 = 3;
    /// The region's budget is spent. Nothing was written.
    pub(crate) const FULL: u16 = 4;
    /// The answer does not fit a frame.
    pub(crate) const TOO_LARGE: u16 = 5;
    /// The host is about to end. Nothing was written.
    pub(crate) const CLOSING: u16 = 6;
    /// The host could not, through no fault of the request. A write may or may not have happened.
    pub(crate) const INTERNAL: u16 = 7;
}
