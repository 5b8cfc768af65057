#!/usr/bin/env bash
# What bash sees of skillexec's promises; prints a report as JSON. Needs no executable bit.
set -u
checks='[]'
ok=true

check() { # name, "true" or "false", detail
    checks=$(jq -c --arg name "$1" --argjson ok "$2" --arg detail "$3" '. + [{$name, $ok, $detail}]' <<<"$checks")
    [ "$2" = true ] || ok=false
}

holds() { if "$@" >/dev/null 2>&1; then echo true; else echo false; fi; }
refused() { if "$@" >/dev/null 2>&1; then echo false; else echo true; fi; }
write() { : >"$1"; }
connect() { timeout 2 bash -c 'exec 3<>/dev/tcp/1.1.1.1/443'; }

input=$(cat)
echo_back=null
if [ -n "$input" ]; then
    check input_echoed "$(holds jq -e -n --argjson input "$input" '[$input] | length == 1')" "${#input} characters"
    echo_back=$(jq -c . <<<"$input") || echo_back=null
fi
check working_folder "$(holds test "$PWD" = "$SKILLEXEC_SKILL" -a -f SKILL.md)" "$PWD"
check skill_read_only "$(refused write intruder)" "creating a file"
check root_read_only "$(refused write /etc/intruder)" "creating a file in /etc"
check scratch_writable "$(holds write "$HOME/trial-sh")" "$HOME"
check not_root "$(holds test "$(id -u)" -ne 0)" "$(id)"
check no_network "$(refused connect)" "connecting to 1.1.1.1"
check artifact_written "$(holds cp assets/greeting.txt "$SKILLEXEC_OUT/from-bash.txt")" "from-bash.txt"

jq -n --argjson ok "$ok" --argjson checks "$checks" --argjson echo "$echo_back" \
    '{skill: "skillexec-conformance", script: "check.sh", $ok, $checks, $echo, artifacts: ["from-bash.txt"]}'
[ "$ok" = true ]
