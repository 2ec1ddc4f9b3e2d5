#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# check_traces.sh: what the action does; runs by hand too. All input comes by environment variables:
#   EPILOGUE_TRACES, EPILOGUE_BASELINE  paths or globs, separated by white space
#   EPILOGUE_TOLERANCE    percent [2]
#   EPILOGUE_EXPRESSIONS  for `epilogue check`, one a line
#   EPILOGUE_COMMAND      [epilogue]
#   GITHUB_STEP_SUMMARY, GITHUB_OUTPUT  files of the runner; stdout where there are none
#   GH_TOKEN, EPILOGUE_PULL_REQUEST     with both, gh posts the report as a comment
# Exit 0: nothing became worse, or there is no baseline. 1: something did. 2: an input is wrong.
set -euo pipefail

command="${EPILOGUE_COMMAND:-epilogue}"
tolerance="${EPILOGUE_TOLERANCE:-2}"
report="${RUNNER_TEMP:-${TMPDIR:-/tmp}}/epilogue-check-$$.md"
# GitHub refuses a comment of more than 65,536 characters.
comment_bytes=60000

fail() {
  echo "::error title=epilogue check::$1"
  exit 2
}

# Prints the files that a list of paths and globs names, one a line. A path without wildcards that is no file stays as it is.
expand() {
  local IFS=$' \t\n'
  shopt -s nullglob globstar
  # shellcheck disable=SC2086  # words and globs
  printf '%s\n' $1
}

command -v "$command" >/dev/null || fail "expected the command epilogue, got '$command', which is not there"
[[ $tolerance =~ ^[0-9]+([.][0-9]+)?$ ]] || fail "tolerance: expected a percentage such as 2, got '$tolerance'"
mapfile -t new < <(expand "${EPILOGUE_TRACES:-}" | sed '/^$/d')
mapfile -t old < <(expand "${EPILOGUE_BASELINE:-}" | sed '/^$/d')
((${#new[@]})) || fail "traces: expected one trace or more, got none for '${EPILOGUE_TRACES:-}'"
for trace in "${new[@]}"; do
  [[ -f $trace ]] || fail "traces: expected a file, got '$trace'"
done
present=()
for trace in "${old[@]}"; do
  if [[ -f $trace ]]; then present+=("$trace"); fi
done

result=pass
# run TITLE COMMAND...: a section of the report. Its exit status 1 is a regression, another one an error.
run() {
  local title="$1" text status=0
  shift
  text="$("$@" 2>&1)" || status=$?
  printf '### %s\n\n%s\n\n' "$title" "$text" >>"$report"
  if ((status == 1)); then
    result=regression
  elif ((status != 0)); then
    echo "$text"
    cat "$report" >>"${GITHUB_STEP_SUMMARY:-/dev/null}"
    fail "${text##*$'\n'}"
  fi
}

printf '## epilogue check\n\n' >"$report"
mapfile -t expressions < <(sed 's/^[[:space:]]*//; s/[[:space:]]*$//; /^$/d' <<<"${EPILOGUE_EXPRESSIONS:-}")
if ((${#expressions[@]})); then
  for trace in "${new[@]}"; do
    run "$trace" "$command" check "$trace" "${expressions[@]}" --format markdown
  done
fi
if ((${#present[@]})); then
  run "Steps" "$command" check "${new[@]}" --baseline "${present[@]}" --tolerance "$tolerance" --format markdown
  # One pair says where the time went; which one does not matter much, the check has looked at all.
  run "${present[0]} and ${new[0]}" "$command" diff "${present[0]}" "${new[0]}" --top 10 --format markdown
else
  if [[ $result == pass ]]; then result=no-baseline; fi
  echo "::notice title=epilogue check::no baseline: '${EPILOGUE_BASELINE:-}' names no file"
  printf 'There is no baseline yet: nothing was compared.\n' >>"$report"
fi

cat "$report" >>"${GITHUB_STEP_SUMMARY:-/dev/stdout}"
printf 'result=%s\nreport=%s\n' "$result" "$report" >>"${GITHUB_OUTPUT:-/dev/stdout}"
if [[ -n ${GH_TOKEN:-} && -n ${EPILOGUE_PULL_REQUEST:-} ]]; then
  head -c "$comment_bytes" "$report" >"$report.comment"
  # A fork's token may not write: the summary has the report all the same.
  gh pr comment "$EPILOGUE_PULL_REQUEST" --body-file "$report.comment" ${GITHUB_REPOSITORY:+--repo "$GITHUB_REPOSITORY"} ||
    echo "::warning title=epilogue check::the comment was refused; the report is in the job's summary"
fi
if [[ $result == regression ]]; then
  echo "::error title=epilogue check::the traces became worse; the job's summary says where"
  exit 1
fi
