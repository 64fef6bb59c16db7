#!/bin/bash
# One node's share of a job: runs the command given with the loggers beside it, and returns its exit code. Whatever happens to
# the command or to this script, the loggers end: older material stopped them in another shell than the one that started them,
# so they ran on (erratum K11).
#
#   RUN_DIR=… with_loggers.sh python train.py

here=$(dirname "$0")

# A session of its own, so that a signal reaches the command's children too; TERM first, KILL for what is left after 10 s.
stop() {
    stopped=1
    [ -z "$training" ] || { kill -TERM -- -$training 2>/dev/null; (sleep 10; kill -KILL -- -$training 2>/dev/null) & }
}
training="" stopped=""
trap stop TERM INT
setsid "$here/kill_with_parent.sh" KILL "$@" &
training=$!
[ -z "$stopped" ] || stop  # told while the command was being started
"$here/kill_with_parent.sh" TERM "$here/loggers.sh" $training &
loggers=$!

# `wait` returns early when a signal arrives; the command then still has to end.
wait $training; code=$?
while kill -0 $training 2>/dev/null; do wait $training; code=$?; done
kill $loggers 2>/dev/null
wait $loggers
exit $code
