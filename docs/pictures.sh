#!/usr/bin/env bash
# Makes the pictures of the status page, in docs/pictures: starts a server, gives it a million keys and some
# work, and has a headless browser look at it at two window sizes.
#
# Needs a release build, redis-benchmark, and Chromium: the command in $BROWSER, or `chromium`.
set -euo pipefail
cd "$(dirname "$0")/.."

browser=${BROWSER:-chromium}
binary=${RHUMB:-${CARGO_TARGET_DIR:-target}/release/rhumb}
port=${PORT:-7380}
scratch=$(mktemp -d)
"$binary" serve --data "$scratch/data" --listen "127.0.0.1:$port" --metrics "127.0.0.1:$((port + 1))" \
    --memory 256M >"$scratch/banner" &
server=$!
work=
end() {
    [[ -z $work ]] || kill "$work" 2>/dev/null || true
    kill "$server" 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap end EXIT
until [[ -s $scratch/banner ]]; do sleep 0.1; done

redis-benchmark -p "$port" -t set -n 1500000 -r 1000000 -d 100 -P 64 -q >/dev/null
redis-benchmark -p "$port" -t get,set,zadd -n 100000000 -r 1000000 -d 100 -P 4 -q >/dev/null &
work=$!

mkdir -p docs/pictures
for window in 1280,1100 420,1500; do
    # The page asks for figures every second: after fifteen there is something to see.
    "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$scratch/browser" --timeout=15000 --window-size="$window" \
        --screenshot="docs/pictures/status-${window%,*}.png" "http://127.0.0.1:$((port + 1))/" \
        >"$scratch/browser.log" 2>&1 || { cat "$scratch/browser.log" >&2; exit 1; }
done
ls -l docs/pictures
