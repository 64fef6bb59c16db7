#!/bin/bash
# kill_with_parent.sh SIGNAL COMMAND...: becomes COMMAND, which the kernel sends SIGNAL to when the calling process dies, however it dies.
# Without util-linux's setpriv the command simply runs.
command -v setpriv >/dev/null && exec setpriv --pdeathsig "$@"
shift
exec "$@"
