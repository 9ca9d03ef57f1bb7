//! `ACL`: there is one user, `default`, who may do all. Its password is the setting
//! `requirepass`.

use super::{Context, Done, help, is_word};
use crate::{fault::Fault, resp::Args};

/// The only user.
const USER: &[u8] = b"default";

/// Bits of a password that `ACL GENPASS` makes by default, and at most.
const PASSWORD_BITS_DEFAULT: i64 = 256;
const PASSWORD_BITS_MAX: i64 = 4096;

/// `ACL` and its parts.
pub(super) fn acl(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let (part, is_open) = (args.at(1), context.server.password().is_none());
    let out = &mut *context.out;
    if is_word(part, "help") {
        help::write("ACL", help::ACL, out);
    } else if is_word(part, "whoami") {
        out.bulk(USER);
    } else if is_word(part, "users") {
        out.array(1);
        out.bulk(USER);
    } else if is_word(part, "list") {
        // How the password begins is not said, its hash neither.
        let password = if is_open { "nopass " } else { "" };
        out.array(1);
        out.bulk(format!("user default on {password}sanitize-payload ~* &* +@all").as_bytes());
    } else if is_word(part, "genpass") {
        return genpass(context, args);
    } else if args.at(2) == USER {
        write_default(context, is_open);
    } else {
        out.null();
    }
    Ok(())
}

/// `ACL GETUSER` of the only user.
fn write_default(context: &mut Context<'_, '_>, is_open: bool) {
    let out = &mut *context.out;
    let flags: &[&str] =
        if is_open { &["on", "nopass", "sanitize-payload"] } else { &["on", "sanitize-payload"] };
    out.map(6);
    out.bulk(b"flags");
    out.set(flags.len());
    flags.iter().for_each(|flag| out.bulk(flag.as_bytes()));
    out.bulk(b"passwords");
    out.array(0);
    for (name, value) in [("commands", "+@all"), ("keys", "~*"), ("channels", "&*")] {
        out.bulk(name.as_bytes());
        out.bulk(value.as_bytes());
    }
    out.bulk(b"selectors");
    out.array(0);
}

fn genpass(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    let bits = match args.get(2) {
        None => PASSWORD_BITS_DEFAULT,
        Some(bits) => super::integer(bits)?,
    };
    if !(1..=PASSWORD_BITS_MAX).contains(&bits) {
        let text = "ERR ACL GENPASS argument must be the number of bits for the output password, a \
                    positive number up to 4096";
        return Err(Fault::from(text));
    }
    // Not from the generator of random choices, which a setting makes the same at each start.
    let mut bytes = vec![0; (PASSWORD_BITS_MAX / 8) as usize];
    let mut source = std::fs::File::open("/dev/urandom").map_err(no_random)?;
    std::io::Read::read_exact(&mut source, &mut bytes).map_err(no_random)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let len = (bits as usize).div_ceil(4);
    context.out.bulk(&digits.as_bytes()[..len]);
    Ok(())
}

fn no_random(_error: std::io::Error) -> Fault {
    "ERR the system gives no random bytes".into()
}
