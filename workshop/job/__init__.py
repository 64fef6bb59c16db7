"""The processes of a job around its training: one per job (supervisor.py), one per node (node.py).

Both need only the standard library, so they also record runs whose Python packages are broken.

How the supervisor handles signals. *Saves*: a training with checkpoints (SAVE=steps or epoch), from its first to its
last step.

| Signal | Sent by | The training | What happens | State recorded |
|---|---|---|---|---|
| USR1 | SLURM before the time limit (`--signal`) | saves | it saves and ends; the job queues itself again | timeout |
| USR1 | | has not begun | it is ended; the job queues itself again | timeout |
| USR1 | | saves nothing | nothing: it trains until the limit | |
| TERM, INT, HUP | `scancel`, preemption; Ctrl-C; a closed terminal | saves | it saves and ends | cancelled, preempted |
| TERM, INT, HUP | | otherwise | it is ended | cancelled, preempted |
| TERM, INT, HUP | a second time | | it is ended at once | cancelled |
| KILL | SLURM after KillWait, `kill -9` | | loggers and training end with it | lost, until you resume the run |
"""
