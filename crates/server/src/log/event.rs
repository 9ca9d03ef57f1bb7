//! What the log tells of: the name of each event, which does not change, and how grave it is.

use super::LogLevel;

/// Declares the events, each with its name and its level.
macro_rules! events {
    ($($(#[$doc:meta])* $event:ident = $name:literal, $level:ident;)*) => {
        /// What a line tells of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Event {
            $($(#[$doc])* $event,)*
        }

        impl Event {
            /// All events, in the order of their numbers.
            pub(crate) const ALL: &[Self] = &[$(Self::$event,)*];

            /// How many there are.
            pub(crate) const COUNT: usize = Self::ALL.len();

            /// The name, by which programs find the lines.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Self::$event => $name,)*
                }
            }

            /// How grave it is.
            pub(crate) fn level(self) -> LogLevel {
                match self {
                    $(Self::$event => LogLevel::$level,)*
                }
            }
        }
    };
}

events! {
    /// The process has begun.
    Start = "start", Info;
    /// The data are being opened.
    RecoveryBegan = "recovery-began", Info;
    /// The data are open.
    RecoveryEnded = "recovery-ended", Info;
    /// Clients can come to an address.
    Listening = "listening", Info;
    /// The server was asked to end, by a signal or a client.
    Stopping = "stopping", Info;
    /// A stage of the end is over.
    Stopped = "stopped", Info;
    /// A write was refused by the disk.
    WriteFailed = "write-failed", Error;
    /// Writes work again.
    WriteRecovered = "write-recovered", Info;
    /// A sync failed: what was acknowledged since the last one may be lost in a power cut.
    SyncFailed = "sync-failed", Error;
    /// Syncs work again.
    SyncRecovered = "sync-recovered", Info;
    /// A read met damaged bytes.
    Damage = "damage", Error;
    /// A read was refused by the disk.
    ReadFailed = "read-failed", Error;
    /// A damaged file is gone, or an unreadable place can be read again.
    DamageGone = "damage-gone", Info;
    /// A flush or a compaction failed; it is tried again.
    BackgroundFailed = "background-failed", Error;
    /// Flushes and compactions work again.
    BackgroundRecovered = "background-recovered", Info;
    /// Other processes read a keyspace without asking.
    ShareLoaded = "share-loaded", Info;
    /// Other processes have to ask for a keyspace that is shared; it is tried again.
    ShareFailed = "share-failed", Warn;
    /// The sweeper of expired keys failed; it is tried again.
    SweepFailed = "sweep-failed", Warn;
    /// A client came past the limit.
    ClientRefused = "client-refused", Warn;
    /// A client was closed because it was silent or slow.
    ClientOverdue = "client-overdue", Warn;
    /// A client was closed because it did not take its messages.
    OutputLimit = "output-limit", Warn;
    /// A client sent what is not a command.
    ProtocolError = "protocol-error", Warn;
    /// A client spoke HTTP, as a browser does.
    HttpClient = "http-client", Warn;
    /// A connection could not be accepted.
    AcceptFailed = "accept-failed", Warn;
    /// A client gave a wrong password.
    WrongPassword = "wrong-password", Warn;
    /// A point was added to the backup.
    Saved = "saved", Info;
    /// Points of the backup that are no longer kept could not be removed.
    PointsNotRemoved = "points-not-removed", Warn;
    /// A copy of the data failed.
    SaveFailed = "save-failed", Error;
    /// A command took long.
    SlowCommand = "slow-command", Warn;
    /// A script says so, by `redis.log`.
    ScriptDebug = "script-debug", Debug;
    /// A script says so, by `redis.log`.
    ScriptNotice = "script-notice", Info;
    /// A script says so, by `redis.log`.
    ScriptWarning = "script-warning", Warn;
    /// The code of a library of functions cannot be loaded any more.
    LibraryFailed = "library-failed", Warn;
    /// A client changed users.
    UsersChanged = "users-changed", Info;
    /// The file of users could not be written.
    UsersNotSaved = "users-not-saved", Error;
    /// A client changed a setting.
    ConfigChanged = "config-changed", Info;
    /// A client came.
    Connected = "connected", Debug;
    /// A client left.
    Disconnected = "disconnected", Debug;
    /// Lines of the log were lost.
    LinesDropped = "lines-dropped", Warn;
}
