//! Tells requests of browsers from commands: what follows them is the body of a request, which a
//! page chose.

use crate::resp::Args;

/// Returns true for a line of an HTTP request, which a web page can make a browser send: a name
/// that Redis ends the connection at as well, or a request line, which is no command that succeeds.
/// Of the methods only `GET` is a command, too.
pub(crate) fn is_http(args: Args<'_>, is_command: bool) -> bool {
    let is = |word: &[u8]| args.at(0).eq_ignore_ascii_case(word);
    if is_command {
        return is(b"get") && is_request_line(args);
    }
    is(b"post") || is(b"host:") || is_request_line(args)
}

/// Returns true for a method, a target and a version, as in `GET / HTTP/1.1`.
fn is_request_line(args: Args<'_>) -> bool {
    args.len() == 3 && args.at(2).starts_with(b"HTTP/")
}
