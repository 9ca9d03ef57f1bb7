#!/usr/bin/env bash
# Makes the pictures of the status page, in docs/pictures: starts a server, gives it a million keys and some
# work, and has a headless browser look at it at two window sizes, in the light and in the dark.
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

# The graphs of the last hour need some of it.
sleep "${WORK_SECONDS:-120}"

# Screenshots are taken when the page has loaded: this one has the status page within it, in a frame because no
# window of the browser is narrower than 500 pixels, and goes on loading until the figures are there.
picture() {
    local width=$1 height=$2 scheme=$3 name=$4
    cat >"$scratch/page.html" <<EOF
<style>body { margin: 0 } #page { border: 0; display: block; width: ${width}px; height: ${height}px } #wait { display: none }</style>
<iframe id="page" src="http://127.0.0.1:$((port + 1))/"></iframe><iframe id="wait"></iframe>
<script>
  const loading = document.getElementById("wait").contentDocument;
  loading.open();
  setTimeout(() => loading.close(), 8000);
</script>
EOF
    "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars \
        --blink-settings="preferredColorScheme=$scheme" --user-data-dir="$scratch/browser" --timeout=120000 \
        --window-size="$width,$height" --screenshot="docs/pictures/$name.png" "file://$scratch/page.html" \
        >"$scratch/browser.log" 2>&1 || { cat "$scratch/browser.log" >&2; exit 1; }
}

mkdir -p docs/pictures
# The browser's numbers: 0 is dark and 1 is light.
picture 1280 2100 1 status-1280
picture 420 3350 0 status-420
ls -l docs/pictures
