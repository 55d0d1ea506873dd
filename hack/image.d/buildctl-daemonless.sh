#!/bin/sh
# Runs one buildctl command on a buildkitd of its own, by the name and with the variables of the program in
# BuildKit's images: BUILDKITD_FLAGS, and BUILDCTL_CONNECT_RETRIES_MAX, which has a pause of about 0.2 s each.
set -eu
runtime=/run launcher=
if [ "$(id -u)" != 0 ]; then runtime=$XDG_RUNTIME_DIR launcher=rootlesskit; fi
address=unix://$runtime/buildkit/buildkitd.sock
log=$(mktemp)
# shellcheck disable=SC2086 # several flags, and no launcher
$launcher buildkitd ${BUILDKITD_FLAGS:-} --addr="$address" >"$log" 2>&1 &
daemon=$!
trap 'kill "$daemon" 2>/dev/null || true; wait "$daemon" || true; rm -f "$log"' EXIT
tries=0
until buildctl --addr="$address" debug workers >/dev/null 2>&1; do
	tries=$((tries + 1))
	if [ "$tries" -gt "${BUILDCTL_CONNECT_RETRIES_MAX:-10}" ]; then
		echo "buildkitd does not answer at $address:" >&2
		cat "$log" >&2
		exit 1
	fi
	sleep 0.2
done
buildctl --addr="$address" "$@"
