//! Commands survive any cutting of their bytes, and no bytes make the parser panic or hoard.

use proptest::prelude::*;

use super::*;

/// How many commands are parsed before they are taken out.
const COMMANDS_MAX: usize = 64;

const LIMITS: ReadLimits = ReadLimits {
    inline_bytes: 64 << 10,
    arguments: 1 << 20,
    bulk_bytes: 512 << 20,
    unauthenticated: false,
};

type Commands = Vec<Vec<Vec<u8>>>;

/// Feeds `bytes` in pieces of the given lengths, taking complete commands out after each.
fn parse_in_pieces(bytes: &[u8], pieces: &[usize]) -> (Commands, Option<ProtocolError>) {
    let (mut parser, mut frames, mut buffer) = (Parser::default(), Frames::default(), Vec::new());
    let mut commands = Vec::new();
    let mut rest = bytes;
    let mut lengths = pieces.iter().copied().cycle();
    while !rest.is_empty() {
        let len = lengths.next().unwrap_or(usize::MAX).clamp(1, rest.len());
        buffer.extend_from_slice(&rest[..len]);
        rest = &rest[len..];
        loop {
            let outcome = parser.parse(&mut buffer, &mut frames, &LIMITS, COMMANDS_MAX);
            let complete = frames.len();
            for index in 0..complete {
                let args = frames.command(&buffer, index);
                commands.push(args.iter_from(0).map(<[u8]>::to_vec).collect());
            }
            if let Err(error) = outcome {
                return (commands, Some(error));
            }
            let taken = parser.consume(&mut frames);
            buffer.drain(..taken);
            if complete < COMMANDS_MAX {
                break;
            }
        }
    }
    (commands, None)
}

fn encode(commands: &Commands) -> Vec<u8> {
    let mut bytes = Vec::new();
    for command in commands {
        bytes.extend(format!("*{}\r\n", command.len()).bytes());
        for argument in command {
            bytes.extend(format!("${}\r\n", argument.len()).bytes());
            bytes.extend(argument);
            bytes.extend(b"\r\n");
        }
    }
    bytes
}

fn error_of(bytes: &[u8]) -> String {
    parse_in_pieces(bytes, &[usize::MAX]).1.map(|e| e.to_string()).unwrap_or_default()
}

fn inline(line: &str) -> Vec<Vec<u8>> {
    let (commands, error) = parse_in_pieces(format!("{line}\r\n").as_bytes(), &[3]);
    assert_eq!(error, None, "{line:?}");
    commands.into_iter().next().unwrap_or_default()
}

proptest! {
    #[test]
    fn commands_survive_any_cutting(
        commands in prop::collection::vec(
            prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..6), 0..20),
        pieces in prop::collection::vec(1_usize..50, 1..8),
    ) {
        let (parsed, error) = parse_in_pieces(&encode(&commands), &pieces);
        prop_assert_eq!(error, None);
        prop_assert_eq!(parsed, commands);
    }

    #[test]
    fn no_bytes_make_it_panic_and_cutting_changes_nothing(
        bytes in prop::collection::vec(
            prop_oneof![Just(b'*'), Just(b'$'), Just(b'\r'), Just(b'\n'), Just(b'1'), Just(b'"'),
                Just(b'-'), Just(b' '), Just(b'\\'), any::<u8>()], 0..200),
        pieces in prop::collection::vec(1_usize..9, 1..5),
    ) {
        let whole = parse_in_pieces(&bytes, &[usize::MAX]);
        prop_assert_eq!(parse_in_pieces(&bytes, &pieces), whole);
    }
}

#[test]
fn many_commands_come_in_turns() {
    let commands: Commands = (0..5000).map(|i| vec![vec![b'a'; i % 7], vec![b'b']]).collect();
    assert_eq!(parse_in_pieces(&encode(&commands), &[usize::MAX]), (commands, None));
}

#[test]
fn inline_commands_are_split_and_unquoted() {
    assert_eq!(inline("SET  a   b"), [b"SET".to_vec(), b"a".to_vec(), b"b".to_vec()]);
    assert_eq!(inline(r#"GET "a b\n\x41""#), [b"GET".to_vec(), b"a b\nA".to_vec()]);
    assert_eq!(inline(r"GET 'it\'s \n'"), [b"GET".to_vec(), br"it's \n".to_vec()]);
    assert_eq!(inline("  "), [b""; 0]);
    assert!(error_of(b"GET \"a\r\n").contains("unbalanced quotes"));
    assert!(error_of(b"GET \"a\"b\r\n").contains("unbalanced quotes"));
}

#[test]
fn empty_commands_are_passed_over() {
    let (commands, error) = parse_in_pieces(b"*0\r\n*-1\r\n\r\nPING\r\n", &[1]);
    assert_eq!((commands.len(), error), (1, None));
}

#[test]
fn what_is_no_command_is_named() {
    assert_eq!(error_of(b"*x\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1048577\r\n"), "Protocol error: invalid multibulk length");
    assert_eq!(error_of(b"*1\r\nx\r\n"), "Protocol error: expected '$', got 'x'");
    assert_eq!(error_of(b"*1\r\n$-1\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(b"*1\r\n$536870913\r\n"), "Protocol error: invalid bulk length");
    assert_eq!(error_of(&[b'*'; 100]), "Protocol error: too big mbulk count string");
    assert_eq!(error_of(&vec![b'a'; 70_000]), "Protocol error: too big inline request");
}

#[test]
fn headers_promise_nothing() {
    let (mut parser, mut frames) = (Parser::default(), Frames::default());
    let mut bytes = b"*1048576\r\n$536870912\r\n".to_vec();
    parser.parse(&mut bytes, &mut frames, &LIMITS, COMMANDS_MAX).unwrap();
    assert!(parser.is_inside() && parser.wanted() > 512 << 20);
    assert!(frames.spans.capacity() < 16);
}
