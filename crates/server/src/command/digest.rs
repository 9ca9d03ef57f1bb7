//! Digests of values, by which tests of programs compare data: `DEBUG DIGEST` and
//! `DEBUG DIGEST-VALUE`. They are of the values' contents, not of how they are kept, and others
//! than those of Redis.

use std::ops::Bound;

use sha1_smol::Sha1;

use super::{Context, Done, dump};
use crate::{
    encode::{Entry, format::DATABASES},
    fault::Fault,
    resp::Args,
    txn::{Space, damaged},
};

/// Bytes of a digest.
const DIGEST_BYTES: usize = 20;

type Digest = [u8; DIGEST_BYTES];

/// The digest of a value, whatever its time of expiry.
fn of_value(context: &Context<'_, '_>, entry: &Entry) -> Result<Digest, Fault> {
    let bytes_max = context.server.limits.read().query_bytes;
    // Of a hash whose fields have all ended there are none.
    let payload = dump::payload(context, entry, bytes_max)?.unwrap_or_default();
    Ok(Sha1::from(payload).digest().bytes())
}

fn write(context: &mut Context<'_, '_>, digest: Digest) {
    let text: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    context.out.simple(&text);
}

/// `DEBUG DIGEST-VALUE`: the digest of each key's value; zeros for a key that is not there.
pub(super) fn values(context: &mut Context<'_, '_>, args: Args<'_>) -> Done {
    context.server.databases.commit_submitted();
    context.out.array(args.len() - 2);
    for key in args.iter_from(2) {
        let digest = match context.txn.read(key)? {
            Some(entry) => of_value(context, &entry)?,
            None => [0; DIGEST_BYTES],
        };
        write(context, digest);
    }
    Ok(())
}

/// `DEBUG DIGEST`: one digest of all databases; zeros if there are no keys.
pub(super) fn all(context: &mut Context<'_, '_>) -> Done {
    context.server.databases.commit_submitted();
    let here = context.txn.number;
    let mut digest = [0; DIGEST_BYTES];
    for database in 0..DATABASES {
        context.txn.number = context.server.databases.number(database);
        let done = add_database(context, database, &mut digest);
        context.txn.number = here;
        done?;
    }
    write(context, digest);
    Ok(())
}

/// Adds the keys of the present database, whose index this is.
fn add_database(context: &Context<'_, '_>, database: usize, digest: &mut Digest) -> Done {
    for pair in context.txn.scan(Space::Keys, Bound::Unbounded, Bound::Unbounded, false)? {
        let (key, value) = pair?;
        if !context.txn.is_live(&key, &value) {
            continue;
        }
        let entry = Entry::decode(value).ok_or_else(damaged)?;
        let mut one = Sha1::from([database as u8]);
        // The lengths of all parts but the key are the same for all.
        one.update(&of_value(context, &entry)?);
        one.update(&entry.expires_ms.to_le_bytes());
        one.update(&key);
        digest.iter_mut().zip(one.digest().bytes()).for_each(|(all, byte)| *all ^= byte);
    }
    Ok(())
}
