#!/bin/bash
# loggers.sh PID: logs this node's memory into $RUN_DIR once a second until process PID ends, or until this script is told to.
#   gpu_memory.csv   nvidia-smi, the GPUs of this job, every GPU_LOG_INTERVAL_MS where that is set
#   cpu_memory.txt   psrecord: resident memory of PID and its children, added up
#   cpu_pss.txt      memory_logger: the same with shared pages counted once, every five seconds
# On several nodes each file carries the node's name.

here=$(dirname "$0")
suffix=""
[ "${NNODES:-1}" -gt 1 ] && suffix=-$(hostname -s)
trap 'kill $(jobs -p) 2>/dev/null' EXIT  # before the first starts: the run may be over by then
trap exit TERM

if command -v nvidia-smi >/dev/null; then
    devices=()
    [ -n "${CUDA_VISIBLE_DEVICES:-}" ] && devices=(-i "$CUDA_VISIBLE_DEVICES")
    fields=timestamp,index,name,memory.used,memory.total,utilization.gpu
    format=csv
    [ -s "$RUN_DIR/gpu_memory$suffix.csv" ] && format+=,noheader  # the run goes on
    "$here/kill_with_parent.sh" KILL nvidia-smi --query-gpu=$fields --format=$format -lms "${GPU_LOG_INTERVAL_MS:-1000}" "${devices[@]}" >> "$RUN_DIR/gpu_memory$suffix.csv" &
else
    echo "warning: nvidia-smi not found: no GPU memory log"
fi
if command -v psrecord >/dev/null; then
    "$here/kill_with_parent.sh" KILL psrecord "$1" --include-children --interval 1 --log >(exec cat >> "$RUN_DIR/cpu_memory$suffix.txt") \
        2> >(exec awk 'END { if (NR) print "warning: psrecord ended, CPU memory is not logged: " $0 }') >/dev/null &
else
    echo "warning: psrecord not found: no CPU memory log (pip install -r requirements.txt)"
fi
"$here/kill_with_parent.sh" KILL python -m workshop.memory_logger "$1" "$RUN_DIR/cpu_pss$suffix.txt" &
"$here/kill_with_parent.sh" KILL tail -f --pid="$1" /dev/null &
wait $!
