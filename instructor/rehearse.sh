#!/usr/bin/env bash
# Rehearses a course: every exercise run tiny, then its tables, a blank and a filled form, and its plot; one report.
#   bash instructor/rehearse.sh [EXERCISE ...] [-- SUBMIT_OPTION ...]      such as: fsdp resilience -- --local
# LOGS=FOLDER goes on with that rehearsal. On SLURM it waits WAIT_MIN minutes (20) for the jobs.
set -uo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.." || exit
unset LOG_DIR RUN_DIR SUBMISSION
source tiny.env
names=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do names+=("${1%/}") && shift; done
[ $# -eq 0 ] || shift
logs=$(realpath -m "${LOGS:-logs/rehearsal/$(date +%Y%m%d-%H%M%S)}")
mkdir -p "$logs/.output"
report=$logs/report.txt
: > "$report"

# tool FILE EXPECTED COMMAND...: what the command prints goes into FILE; another exit code is a line of the report.
tool() {
    local file=$logs/.output/$1 expected=$2 code
    shift 2
    python -m tools "$@" > "$file" 2>&1
    code=$?
    [[ " $expected " == *" $code "* ]] ||
        printf '%s\n' "FAILED with exit code $code: $(tail -n 1 "$file")" "  python -m tools $*" | tee -a "$report"
}

# In the course's order.
mapfile -t folders < <(grep -oE '\]\([a-z0-9_/-]+/README\.md\)' README.md | sed 's|](||; s|/README.md)||' | awk '!seen[$0]++')
exercises=()
for folder in "${folders[@]}"; do
    [ -f "$folder/tiny.txt" ] || continue
    [ ${#names[@]} -eq 0 ] || [[ " ${names[*]##*/} " == *" ${folder##*/} "* ]] || continue
    exercises+=("$folder")
done
[ ${#exercises[@]} -gt 0 ] || { echo "error: ${names[*]}: found no tiny.txt; expected an exercise such as fsdp" >&2; exit 2; }
echo "${#exercises[@]} exercises, in $logs"

for folder in "${exercises[@]}"; do
    name=${folder##*/}
    echo "$name ..."
    tool "$name-submit.txt" "0 1" submit --list "$folder/tiny.txt" --logs "$logs" "$@" # 1: a run failed; see below
    grep -E '^(job|error|[a-z]+ +[0-9]+ s )' "$logs/.output/$name-submit.txt"
    # Without SLURM, which queues it again by itself, a preempted run continues here.
    grep -oE 'python -m tools submit --resume .*' "$logs/.output/$name-submit.txt" | while read -r command; do
        bash -c "$command" > "$logs/.output/$name-resumed.txt" 2>&1
    done
done
jobs=$(sed -n 's/^job \([0-9]*\).*/\1/p' "$logs"/.output/*-submit.txt | paste -sd,)
end=$((SECONDS + 60 * ${WAIT_MIN:-20}))
while [ -n "$jobs" ] && [ "$SECONDS" -lt "$end" ] && squeue --noheader --jobs="$jobs" 2> /dev/null | grep -q .; do sleep 5; done

for folder in "${exercises[@]}"; do
    name=${folder##*/}
    tool "$name-left.txt" 0 submit --list "$folder/tiny.txt" --logs "$logs" --dry-run "$@"
    grep -E '^would' "$logs/.output/$name-left.txt" | sed "s|^would.*  \(.*  .*\)|NOT COMPLETED: \1|" | tee -a "$report"
    tool "$name-fill.txt" 0 fill "$name" --tiny --logs "$logs"
    tool "$name-blank.md" 0 fill "$name" --tiny --blank
    tool "$name-filled.md" 0 fill "$name" --tiny --plain --logs "$logs"
    tool "$name-check.txt" 1 check "$logs/.output/$name-blank.md" --logs "$logs" # nothing is filled in, and it says so
    tool "$name-check-of-fill.txt" 0 check "$logs/.output/$name-filled.md" --logs "$logs"
    table=()
    [ -f "$folder/submit.txt" ] || table=(--tiny --table "$(grep -m 1 -oP '^\*\*Table \K\w+' "$folder/README.md")")
    tool "$name-plot.txt" 0 plot "$name" --logs "$logs" --output "$logs/$name.png" "${table[@]}"
done
python -m tools runs --logs "$logs" --state failed,oom,timeout,preempted,cancelled,lost | tee -a "$report"
if grep -qE '^(FAILED|NOT COMPLETED)' "$report"; then
    echo "something failed: $report"
    exit 1
fi
echo "nothing failed; the tables and plots are in $logs"
