"""Engines: who trains the nodes of a plan. All give the same results on a CPU, to the last bit.

`local`       one node after the other, in this process
`processes`   several processes on this machine: `--jobs N`
`cluster`     tasks on a Ray cluster: `--engine ray`

A node is trained by `node.train_node` in each of them, with the same number of threads. `schedule` says which
node comes next; `worker` is what runs in a process that is not this one.
"""
