#!/bin/sh
# Install Chromium and its driver for the browser tests where that is possible; never fails. Without a browser these tests
# are skipped.
if command -v chromedriver >/dev/null 2>&1; then
    exit 0
fi
if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get install -y -qq --no-install-recommends chromium chromium-driver >/dev/null 2>&1 \
        || { apt-get update -qq && apt-get install -y -qq --no-install-recommends chromium chromium-driver; } >/dev/null 2>&1
fi
command -v chromedriver >/dev/null 2>&1 \
    || echo "Browser tests will be skipped: install Chromium and its driver (Debian: apt-get install chromium chromium-driver)."
exit 0
