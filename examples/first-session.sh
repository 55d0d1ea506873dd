#!/usr/bin/env bash
# A first session through the remote runtime API: start, act, pause, resume, stop.
# Reads SANDBOX_API_URL and SANDBOX_API_KEY; `make run` prints how to set them.
# SANDBOX_IMAGE and SANDBOX_USER choose what runs. Needs bash, curl and jq.
set -euo pipefail
: "${SANDBOX_API_URL:?}" "${SANDBOX_API_KEY:?}" "${SANDBOX_IMAGE:=host}" "${SANDBOX_USER:=openhands}"
session=${SESSION:-first-session-$$}

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
expect() { # WANTED GOT WHAT
	[ "$1" = "$2" ] || fail "$3: wanted '$1', got '$2'"
	echo "$3: $2"
}

api() { # METHOD PATH [JSON]
	curl -sS --fail-with-body --max-time 30 -X "$1" "$SANDBOX_API_URL$2" -H "X-API-Key: $SANDBOX_API_KEY" \
		${3:+-H 'Content-Type: application/json' --data "$3"}
}
action() { # NAME ARGS-JSON
	jq -n --arg a "$1" --argjson args "$2" '{action: {action: $a, args: $args, timeout: 30}}' |
		curl -sS --fail-with-body --max-time 60 "$url/execute_action" -H "X-Session-API-Key: $key" \
			-H 'Content-Type: application/json' --data @-
}
run() { action run "$(jq -n --arg c "$1" '{command: $c}')"; }
status_of() { curl -s -o /dev/null --max-time 30 -w '%{http_code}' "$1"; }
wait_ready() {
	for _ in $(seq 600); do
		info=$(api GET "/runtime/$id")
		case $(jq -r .pod_status <<<"$info") in
		Ready) return ;;
		Failed | CrashLoopBackOff | Unknown) fail "the sandbox failed: $info" ;;
		esac
		sleep 0.2
	done
	fail "not ready in time: $info"
}

say "start"
info=$(api POST /start "$(jq -n --arg session "$session" --arg image "$SANDBOX_IMAGE" --arg user "$SANDBOX_USER" '{
	session_id: $session, image: $image, working_dir: "/workspace", environment: {GREETING: "hello"},
	command: ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
		"--working-dir", "/workspace", "--username", $user, "--user-id", "1000", "--no-enable-browser"]}')")
id=$(jq -r .runtime_id <<<"$info") url=$(jq -r .url <<<"$info") key=$(jq -r .session_api_key <<<"$info")
trap 'api POST /stop "{\"runtime_id\": \"$id\"}" >/dev/null || true' EXIT
wait_ready
echo "$id is ready at $url"

say "act: the directory is kept from one action to the next"
run 'git init -q demo && cd demo && pwd' | jq -r .content
expect /workspace/demo "$(run pwd | jq -r .content)" "second action's directory"
expect hello "$(run 'echo $GREETING' | jq -r .content)" "environment of /start"

say "write and read a file"
action write '{"path": "/workspace/note.txt", "content": "kept"}' | jq -r .message
expect kept "$(action read '{"path": "/workspace/note.txt"}' | jq -r '.content | rtrimstr("\n")')" "content"

say "pause"
api POST /pause "{\"runtime_id\": \"$id\"}" >/dev/null
expect paused "$(api GET "/sessions/$session" | jq -r .status)" "status"
expect 503 "$(status_of "$url/alive")" "GET $url/alive"

say "resume: same URL, id and key, and the file is there"
info=$(api POST /resume "{\"runtime_id\": \"$id\"}")
expect "$id $url $key" "$(jq -r '"\(.runtime_id) \(.url) \(.session_api_key)"' <<<"$info")" "id, URL and key"
wait_ready
expect kept "$(run 'cat /workspace/note.txt' | jq -r .content)" "note.txt"

say "stop"
trap - EXIT
api POST /stop "{\"runtime_id\": \"$id\"}" >/dev/null
expect 404 "$(status_of "$url/alive")" "GET $url/alive"
expect stopped "$(api GET "/sessions/$session" | jq -r .status)" "status"
echo
echo "The first session worked."
