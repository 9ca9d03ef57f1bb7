//! Commands of a client that listens, and of all clients while there are monitors: each is run by
//! itself.

use super::{Found, Pipeline, Session, wrong_arguments};
use crate::{
    command::{
        listening::{self, Replies},
        permission,
    },
    resp::Reply,
    server::Server,
};

impl Session {
    /// Runs one command, as a client that listens may.
    pub(super) fn run_listening(
        &mut self,
        server: &Server,
        found: Option<Found>,
        (pipeline, at): (Pipeline<'_>, usize),
        out: &mut Reply,
    ) {
        let from = out.len();
        if let Some(own) = &mut self.client.listening
            && own.replies == Replies::SkipNext
        {
            own.replies = Replies::SkipThis;
        }
        let args = pipeline.at(at);
        let right = found.filter(|(_, command)| wrong_arguments(command, args).is_none());
        // What the user may not run is refused as such.
        let limited = self.client.limited_user();
        let may = |index| permission::permits(limited.as_deref(), index, args);
        let right = right.filter(|(index, _)| !self.needs_password(server) && may(*index));
        let refusal = right.and_then(|(_, command)| {
            let text = listening::refusal(&self.client, command, args)?;
            Some((command, text))
        });
        match refusal {
            Some((command, text)) => self.refuse_call(server, command, &text, out),
            None => self.run_one(server, found, (pipeline, at), out),
        }
        let is_client = found.is_some_and(|(_, command)| command.name == "client");
        let is_queueing = self.client.queue.is_some();
        let Some(own) = &mut self.client.listening else { return };
        if let Some(tracking) = own.tracking.as_mut().filter(|_| !is_client && !is_queueing) {
            tracking.caching = false;
        }
        let replies = own.replies;
        if replies == Replies::SkipThis {
            own.replies = Replies::All;
            self.client.settle();
        }
        if matches!(replies, Replies::None | Replies::SkipThis) {
            self.finish_waiting(server, out);
            out.truncate(from);
        }
    }
}
