//! Rate limiters as libraries have them: a script by its hash, for one of many users.
//!
//! The time is an argument, so that the reply to each request is known.

use std::collections::VecDeque;

use anyhow::{Result, ensure};
use rhumb_bench::random::Rng;

use super::{CLIENTS, Figures, Size};
use crate::redis_bench::client::{self, Client, Load, digits};

/// Users of each client.
const USERS: usize = 200;

/// Requests of one round.
const REQUESTS: u64 = 200_000;

/// What a user may do: this number of requests in a window, or at once.
const LIMIT: u64 = 10;

/// Milliseconds of the window, in which a bucket is filled as well.
const WINDOW_MS: u64 = 60_000;

/// Milliseconds in which a bucket is given a token.
const TOKEN_MS: u64 = WINDOW_MS / LIMIT;

/// Which limiter.
#[derive(Clone, Copy)]
pub(in crate::redis_bench) enum Limiter {
    /// A hash with the tokens that are left and the time of the last look.
    TokenBucket,
    /// A sorted set with the times of the requests in the window.
    SlidingWindow,
}

/// Replies with whether the request is allowed, and how many tokens are left. Whole tokens only, so
/// that no fraction is rounded.
const TOKEN_BUCKET: &str = "\
local now, limit, each = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local state = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens, at = tonumber(state[1]) or limit, tonumber(state[2]) or now
local fresh = math.floor((now - at) / each)
if fresh > 0 then
  tokens = math.min(limit, tokens + fresh)
  at = at + fresh * each
end
local allowed = 0
if tokens >= 1 then
  tokens = tokens - 1
  allowed = 1
end
redis.call('HSET', KEYS[1], 'tokens', tokens, 'at', at)
redis.call('PEXPIRE', KEYS[1], limit * each)
return {allowed, tokens}
";

/// Replies with whether the request is allowed, and how many more are.
const SLIDING_WINDOW: &str = "\
local now, limit, window = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - window)
local used = redis.call('ZCARD', KEYS[1])
if used < limit then
  redis.call('ZADD', KEYS[1], now, ARGV[4])
  redis.call('PEXPIRE', KEYS[1], window)
  return {1, limit - used - 1}
end
return {0, 0}
";

/// One user as the script is to see them.
#[derive(Default)]
struct User {
    now: u64,
    requests: u64,
    /// For a bucket.
    tokens: Option<u64>,
    at: u64,
    /// For a window.
    times: VecDeque<u64>,
}

impl User {
    /// The reply to a request at this time.
    fn request(&mut self, limiter: Limiter) -> (u64, u64) {
        let now = self.now;
        self.requests += 1;
        match limiter {
            Limiter::TokenBucket => {
                let mut tokens = self.tokens.unwrap_or_else(|| {
                    self.at = now;
                    LIMIT
                });
                let fresh = (now - self.at) / TOKEN_MS;
                tokens = LIMIT.min(tokens + fresh);
                self.at += fresh * TOKEN_MS;
                let allowed = u64::from(tokens >= 1);
                self.tokens = Some(tokens - allowed);
                (allowed, tokens - allowed)
            }
            Limiter::SlidingWindow => {
                while self.times.front().is_some_and(|time| *time + WINDOW_MS <= now) {
                    self.times.pop_front();
                }
                let used = self.times.len() as u64;
                if used >= LIMIT {
                    return (0, 0);
                }
                self.times.push_back(now);
                (1, LIMIT - used - 1)
            }
        }
    }
}

struct Limits {
    limiter: Limiter,
    sha: Vec<u8>,
    rng: Rng,
    users: Vec<User>,
    asked: Vec<VecDeque<(u64, u64)>>,
}

fn key(user: usize) -> Vec<u8> {
    [b"bench:limit:", &digits(user as u64)[..]].concat()
}

impl Load for Limits {
    fn ask(&mut self, client: usize, out: &mut Vec<u8>) {
        let number = client * USERS + self.rng.below(USERS as u64) as usize;
        let user = &mut self.users[number];
        // Somewhat more often than is allowed.
        user.now += 1 + self.rng.below(2 * TOKEN_MS - TOKEN_MS / 2);
        let expected = user.request(self.limiter);
        let (key, now, limit) = (key(number), digits(user.now), digits(LIMIT));
        let (token, window) = (digits(TOKEN_MS), digits(WINDOW_MS));
        let request = digits(user.requests);
        match self.limiter {
            Limiter::TokenBucket => {
                client::push_words(out, &[b"EVALSHA", &self.sha, b"1", &key, &now, &limit, &token]);
            }
            Limiter::SlidingWindow => {
                let words = [b"EVALSHA", &self.sha[..], b"1", &key, &now, &limit, &window];
                client::push_words(out, &[&words[..], &[&request]].concat());
            }
        }
        self.asked[client].push_back(expected);
    }

    fn check(&mut self, client: usize, replies: &mut Client) -> Result<()> {
        let expected = self.asked[client].pop_front().unwrap_or_default();
        ensure!(replies.array()? == 2, "the script replies with something else");
        let got = (replies.int()?, replies.int()?);
        ensure!(got == expected, "{got:?} in the place of {expected:?}");
        Ok(())
    }
}

/// Measures one round.
pub(super) fn measure(port: u16, size: Size, limiter: Limiter) -> Result<Figures> {
    let mut client = Client::connect(port)?;
    for user in 0..CLIENTS * USERS {
        client.push(&[b"DEL", &key(user)]);
    }
    client.send()?;
    for _ in 0..CLIENTS * USERS {
        client.int()?;
    }
    let script = match limiter {
        Limiter::TokenBucket => TOKEN_BUCKET,
        Limiter::SlidingWindow => SLIDING_WINDOW,
    };
    client.call(&[b"SCRIPT", b"LOAD", script.as_bytes()])?;
    let sha = client.bulk()?.to_vec();
    let begin = || User { now: 1_700_000_000_000, ..User::default() };
    let mut load = Limits {
        limiter,
        sha,
        rng: Rng::new(38),
        users: (0..CLIENTS * USERS).map(|_| begin()).collect(),
        asked: vec![VecDeque::new(); CLIENTS],
    };
    client::drive(port, (CLIENTS, 1, REQUESTS / size.divisor), &mut load)
}
