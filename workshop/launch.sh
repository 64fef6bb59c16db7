# What every launcher does before its training; a .slurm sources this file in its exercise's folder, under sbatch or bash.
#
#   start_run    find Python, check all that this job was given, export what its training reads; a mistake ends it here
#
# Then the launcher exports the loggers' commands, of which each node starts its own, and becomes the supervisor of the
# training (workshop/job/supervisor.py), which makes the run folder and starts loggers and training.
#
# Without SLURM GPUS_PER_NODE (default 1) is the number of processes, and EMULATED_NODES=2 lets this host play two nodes:
# each has its own GPUS_PER_NODE GPUs and launcher, and NCCL takes the network from one to the other.

export REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)  # a snapshot of the code has no git
export EXERCISE_DIR=$PWD LAUNCHER=${0##*/} LAUNCHER_PID=$$ LAUNCHER_ARGUMENTS="${*@Q}"
trap 'export NOTICED=USR1' USR1  # SLURM's notice of the time limit (#SBATCH --signal): the supervisor reads the variable

die() { echo "error: $*" >&2; exit 1; }

# The conda environment that cluster.env, the shell or env_vars.sh names, else .venv, else the python on PATH.
activate_python() {
    eval "$(source ./env_vars.sh > /dev/null 2>&1; printf 'local conda=%q environment=%q' "${CONDA_SH_PATH:-}" "${CONDA_ENV:-}")"
    if [ -n "${conda:-}" ]; then
        [ -f "$conda" ] || die "CONDA_SH_PATH='$conda': no such file; expected conda's etc/profile.d/conda.sh"
        source "$conda"
        conda activate "${environment:?CONDA_ENV is empty although CONDA_SH_PATH is set}" ||
            die "CONDA_ENV='$environment': cannot activate it"
    elif [ -x "${WORKSHOP_VENV:-$REPO/.venv}/bin/python" ]; then  # a container has its own
        PATH=${WORKSHOP_VENV:-$REPO/.venv}/bin:$PATH
    fi
    command -v python >/dev/null || die "no python on PATH; run \`make install\` once, or set CONDA_SH_PATH and CONDA_ENV"
}

start_run() {
    local exports
    [ ! -f "$REPO/cluster.env" ] || source "$REPO/cluster.env"  # site settings
    activate_python
    export PYTHONPATH=$REPO${PYTHONPATH:+:$PYTHONPATH} OLDPWD
    exports=$(python -m workshop.launch) || exit 1  # lines such as: export MASTER_PORT=20007
    eval "$exports"
    trap '' USR1  # for the moment until the supervisor waits for it
}
