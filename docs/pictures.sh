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
work=()
end() {
    kill "${work[@]}" 2>/dev/null || true
    kill "$server" 2>/dev/null || true
    wait
    rm -rf "$scratch"
}
trap end EXIT
until [[ -s $scratch/banner ]]; do sleep 0.1; done

redis-benchmark -p "$port" -t set -n 1500000 -r 1000000 -d 100 -P 64 -q >/dev/null
for test in get set; do
    redis-benchmark -p "$port" -t "$test" -n 100000000 -r 1000000 -d 100 -P 4 -c 25 -q >/dev/null &
    work+=($!)
done

# Screenshots are taken when the page has loaded: this one has the status page within it, and goes on loading
# for so long that there is something to see.
cat >"$scratch/page.html" <<EOF
<style>body { margin: 0 } #page { border: 0; display: block; width: 100vw; height: 100vh } #wait { display: none }</style>
<iframe id="page" src="http://127.0.0.1:$((port + 1))/"></iframe><iframe id="wait"></iframe>
<script>
  const loading = document.getElementById("wait").contentDocument;
  loading.open();
  setTimeout(() => loading.close(), 20000);
</script>
EOF

mkdir -p docs/pictures
for window in 1280,1100 420,1560; do
    "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --user-data-dir="$scratch/browser" --timeout=120000 --window-size="$window" \
        --screenshot="docs/pictures/status-${window%,*}.png" "file://$scratch/page.html" \
        >"$scratch/browser.log" 2>&1 || { cat "$scratch/browser.log" >&2; exit 1; }
done
ls -l docs/pictures
