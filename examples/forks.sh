#!/usr/bin/env bash
# Forks a running sandbox: three others begin with its files, and with its processes where it keeps them.
# Reads SANDBOX_API_URL and SANDBOX_API_KEY; `make run` prints how to set them. SANDBOX_IMAGE chooses what runs, LEVEL what
# a fork begins with: Root or Memory. Needs bash, curl and jq.
set -euo pipefail
: "${SANDBOX_API_URL:?}" "${SANDBOX_API_KEY:?}" "${SANDBOX_IMAGE:=host}" "${LEVEL:=Root}"
session=${SESSION:-forks-$$} ids=() snapshot=

say() { printf '\n== %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
api() { # METHOD PATH [JSON]
	curl -sS --fail-with-body --max-time 30 -X "$1" "$SANDBOX_API_URL$2" -H "X-API-Key: $SANDBOX_API_KEY" \
		${3:+-H 'Content-Type: application/json' --data "$3"}
}
clean_up() {
	for id in "${ids[@]}"; do api POST /stop "{\"runtime_id\": \"$id\"}" >/dev/null || true; done
	[ -z "$snapshot" ] || api DELETE "/snapshots/$snapshot" || true
}
trap clean_up EXIT
until_is() { # WANTED PATH FILTER
	for _ in $(seq 600); do
		state=$(api GET "$2")
		case $(jq -r "$3" <<<"$state") in
		"$1") return ;;
		Failed | CrashLoopBackOff | failed) fail "$state" ;;
		esac
		sleep 0.1
	done
	fail "not $1 in time: $state"
}
run() { # INFO COMMAND
	jq -n --arg c "$2" '{action: {action: "run", args: {command: $c}, timeout: 30}}' |
		curl -sS --fail-with-body --max-time 60 "$(jq -r .url <<<"$1")/execute_action" \
			-H "X-Session-API-Key: $(jq -r .session_api_key <<<"$1")" -H 'Content-Type: application/json' --data @- |
		jq -r .content
}

say "start a sandbox, and prepare it"
parent=$(api POST /start "$(jq -n --arg session "$session" --arg image "$SANDBOX_IMAGE" --arg level "$LEVEL" '{
	session_id: $session, image: $image, working_dir: "/workspace", environment: {}, persistence: $level,
	command: ["python", "-u", "-m", "openhands.runtime.action_execution_server", "60000",
		"--working-dir", "/workspace", "--username", "root", "--user-id", "0", "--no-enable-browser"]}')")
ids+=("$(jq -r .runtime_id <<<"$parent")")
until_is Ready "/runtime/${ids[0]}" .pod_status
run "$parent" 'echo prepared >/etc/prepared; echo "a file" >note.txt; answer=42; echo done'

say "take a snapshot; the sandbox goes on"
snapshot=$(api POST /snapshots "{\"runtime_id\": \"${ids[0]}\"}" | jq -r .snapshot_id)
until_is ready "/snapshots/$snapshot" .status
jq '{snapshot_id, level, size_bytes}' <<<"$state"

say "start three forks"
forks=$(api POST "/snapshots/$snapshot/start" '{"count": 3}')
mapfile -t infos < <(jq -c '.runtimes[]' <<<"$forks")
for info in "${infos[@]}"; do ids+=("$(jq -r .runtime_id <<<"$info")"); done
for at in 0 1 2; do
	id=${ids[at + 1]}
	until_is Ready "/runtime/$id" .pod_status
	echo "$id began at level $(jq -r .restored.level <<<"$state"): $(run "${infos[at]}" 'echo $(cat /etc/prepared note.txt) $answer')"
	run "${infos[at]}" "echo fork $at >/workspace/note.txt; cat /workspace/note.txt"
done

say "the first sandbox has its own"
[ "$(run "$parent" 'cat /workspace/note.txt')" = "a file" ] || fail "a fork has changed the first sandbox"
echo "a file"
