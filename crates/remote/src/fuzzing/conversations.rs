//! Whole conversations over a Unix socket: a host that is sent anything, and a client that is
//! answered anything.

use std::{
    io::{Read, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    sync::LazyLock,
    thread,
    time::Duration,
};

use super::Input;
use crate::{
    Client, Error, Host, Keyspace, Preset, Result, ShareOptions,
    layout::{Geometry, control},
    message::{
        Frame, PartInfo, Reply, Request,
        format::{LENGTH_BYTES, failure},
    },
    region::HostRegion,
    socket::{Listener, Stream},
};

/// Far longer than an answer takes: a host, or a client, that is silent for it hangs.
const PATIENCE: Duration = Duration::from_secs(20);
/// The presets, which are the names of the keyspaces too.
const PRESETS: [(&str, Preset); 3] =
    [("runs", Preset::Rhumb), ("two-stage", Preset::XStore), ("arrays", Preset::FineStore)];
/// Bytes of answers that are read of a host: more are not needed to see that it goes on.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// A name for a socket of this process.
fn socket(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("rhumb-fuzz-{name}-{}.sock", std::process::id()))
}

/// One host for all inputs, and a client that is served as it should be.
static HOST: LazyLock<(Host, Vec<Keyspace>)> = LazyLock::new(|| {
    let options = ShareOptions::default().capacity_bytes(64 << 20).entry_bytes(40);
    let host = PRESETS.iter().fold(Host::listen(socket("host")), |host, (name, preset)| {
        host.share(*name, options.preset(*preset))
    });
    let host = host.start().expect("a host in an empty place");
    let client = Client::connect(host.path()).expect("the host listens");
    let open = |(name, _): &(&str, _)| client.keyspace(name).expect("it is shared");
    let keyspaces = PRESETS.iter().map(open).collect();
    (host, keyspaces)
});

/// Frames, each after its length, which is made right: two bytes say how long it is.
fn frames(input: &mut Input<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    while !input.is_empty() {
        let len = input.number(2) as usize % 4096;
        let body = input.take(len);
        out.extend_from_slice(&(body.len() as u32).to_le_bytes());
        out.extend_from_slice(body);
    }
    out
}

/// Sends a host what a client may never send: after a greeting, and after opening keyspaces, unless
/// the first byte says otherwise.
///
/// # Panics
///
/// If the host does not end the conversation, or does not serve another client afterwards.
pub fn host(data: &[u8]) {
    let (host, keyspaces) = &*HOST;
    let mut input = Input(data);
    let (kind, mut out) = (input.number(1), Vec::new());
    let mut say = |id, request: Request<'_>| request.encode(id, &mut out).expect("it is short");
    if kind % 8 > 0 {
        say(1, Request::Hello { program: "fuzz", features: 0, token: None });
    }
    if kind % 8 > 1 {
        (2..).zip(PRESETS).for_each(|(id, (name, _))| {
            say(id, Request::Open { keyspace: name.as_bytes() });
        });
    }
    if kind >= 128 {
        out.extend_from_slice(input.0);
    } else {
        out.extend(frames(&mut input));
    }
    let mut stream = UnixStream::connect(host.path()).expect("the host listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out is set");
    // The host may have closed the connection by then.
    let _ = stream.write_all(&out).and_then(|()| stream.shutdown(Shutdown::Write));
    let ended = (&mut stream).take(ANSWER_BYTES_MAX).read_to_end(&mut Vec::new());
    let hangs = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!hangs, "the host does not end");
    for keyspace in keyspaces {
        keyspace.insert("a healthy client's", "value").expect("the host goes on");
        let found = keyspace.get("a healthy client's").expect("the host goes on");
        assert_eq!(found.as_deref(), Some(&b"value"[..]));
    }
}

/// Answers a client by the input, and with a refusal after its end: greetings as it should, and
/// opens with a region of nothing.
fn answer(stream: &Stream, input: &mut Input<'_>) -> Result<()> {
    const BYTES: u64 = 2 << 20;
    let (mut frame, mut out) = (Vec::new(), Vec::new());
    loop {
        stream.receive(&mut frame)?;
        let parsed = Frame::parse(&frame)?;
        out.clear();
        match Request::decode(&parsed)? {
            Request::Hello { .. } => {
                Reply::Hello { features: 0 }.encode(parsed.id, &mut out)?;
                stream.send(&out, &[])?;
            }
            Request::Open { .. } => {
                let part = || {
                    let region = HostRegion::new(BYTES)?;
                    region.grow(BYTES)?;
                    Ok::<_, Error>(region)
                };
                let (control, leaves) = (part()?, part()?);
                control::write_header(control.words(), Geometry::new(1024, 24)?);
                let info = || PartInfo { capacity_bytes: BYTES, segments: vec![BYTES] };
                let (control_part, leaf_part) = (info(), info());
                let lease_ms = 1_000;
                Reply::Opened { keyspace: 0, control: control_part, leaves: leaf_part, lease_ms }
                    .encode(parsed.id, &mut out)?;
                let segments = [control.segments(), leaves.segments()].concat();
                let fds: Vec<_> = segments.iter().map(|segment| segment.fd()).collect();
                stream.send(&out, &fds)?;
            }
            _ if input.is_empty() => {
                Reply::Failed { code: failure::REFUSED, text: "enough" }
                    .encode(parsed.id, &mut out)?;
                stream.send(&out, &[])?;
            }
            _ => {
                let (turns, len) = (input.number(1), input.number(2) as usize % 4096);
                let body = input.take(len);
                out.extend_from_slice(&(body.len() as u32).to_le_bytes());
                out.extend_from_slice(body);
                // Most answers are to the question.
                if let Some(id) = out.get_mut(LENGTH_BYTES + 1..LENGTH_BYTES + 5)
                    && turns % 8 > 0
                {
                    id.copy_from_slice(&parsed.id.to_le_bytes());
                }
                stream.send_frames(&out, &[])?;
            }
        }
    }
}

/// Has a client ask a host that answers anything.
///
/// # Panics
///
/// If the client panics, or does not end.
pub fn client(data: &[u8]) {
    let path = socket("client");
    let listener = Listener::bind(&path).expect("a socket in an empty place");
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut input = Input(data);
            // A client that lost a connection comes again.
            while let Ok((stream, _)) = listener.accept() {
                let _ = answer(&stream, &mut input);
                let _ = stream.shutdown();
            }
        });
        ask(&path);
        let _ = listener.shutdown();
    });
}

/// Every call of a client, each of which may fail.
fn ask(path: &Path) {
    let Ok(client) = Client::connect(path) else { return };
    let Ok(keyspace) = client.keyspace("k") else { return };
    let keys = ["a", "b"];
    let calls: [&dyn Fn() -> Result<()>; 9] = [
        &|| keyspace.get("a").map(drop),
        &|| keyspace.multi_get(&keys).map(drop),
        &|| keyspace.multi_get_atomic(&keys).map(drop),
        &|| keyspace.range("a".."m").take(100).try_for_each(|pair| pair.map(drop)),
        &|| keyspace.iter().rev().take(100).try_for_each(|pair| pair.map(drop)),
        &|| keyspace.range_atomic("a".., 10).map(drop),
        &|| keyspace.insert("a", "1"),
        &|| keyspace.compare_and_swap("a", None, Some(b"1")).map(drop),
        &|| {
            let mut batch = client.batch();
            batch.insert(&keyspace, "a", "1");
            batch.commit()
        },
    ];
    for call in calls {
        // Any error is right.
        let _ = call();
    }
}
