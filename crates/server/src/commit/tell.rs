//! What is told of a commit once it is to be seen, under the locks of its keys.

use crate::{
    db::Databases,
    key_event::{EventClass, KeyEvent},
    listeners::{Changed, Topic},
    txn::Told,
};

/// Lets the clients know that watch or track the written keys.
pub(super) fn touch(databases: &Databases, changed: &[Changed]) {
    if changed.is_empty() {
        return;
    }
    if databases.watches.any() {
        // A key whose time is over is no change to those who watch it.
        for Changed { number, key, .. } in changed.iter().filter(|changed| !changed.has_ended) {
            databases.watches.touch(databases.database_of(*number), key);
        }
    }
    let listeners = &databases.listeners;
    if listeners.tracking.any() {
        listeners.tracking.tell(&listeners.limits, changed);
    }
}

/// Has the clients look that wait for the written keys: after what happened was told, since they
/// have that of theirs told as soon as they are served.
pub(super) fn wake(databases: &Databases, changed: &[Changed]) {
    if databases.waiters.any() {
        for Changed { number, key, is_made, .. } in changed.iter().filter(|one| !one.is_no_news) {
            databases.waiters.touch(databases.database_of(*number), key, *is_made);
        }
    }
}

/// Sends what happened and what was published to the clients that listen, in this order.
#[inline]
pub(crate) fn tell(databases: &Databases, told: Vec<Told>) {
    for one in told {
        match one {
            Told::Event(number, event, key) => {
                tell_event(databases, databases.database_of(number), event, &key);
            }
            Told::Message(topic, channel, message) => {
                databases.listeners.publish(topic, &channel, &message);
            }
        }
    }
}

fn tell_event(databases: &Databases, database: usize, event: KeyEvent, key: &[u8]) {
    let (events, name) = (databases.events(), event.name);
    let publish = |channel: &[u8], message: &[u8]| {
        databases.listeners.publish(Topic::Channel, channel, message);
    };
    if events.meets(EventClass::KEYSPACE) {
        let channel = [format!("__keyspace@{database}__:").as_bytes(), key].concat();
        publish(&channel, name.as_bytes());
    }
    if events.meets(EventClass::KEYEVENT) {
        publish(format!("__keyevent@{database}__:{name}").as_bytes(), key);
    }
}
