"""A launcher in the middle of a long run: prints its pool's processes, then runs on."""

import json
import sys
import tempfile

import reshard_lab as rl

tempfile.tempdir = sys.argv[1]
cluster = rl.Cluster(hosts=2, devices_per_host=2)
layouts = rl.Layout(cluster.mesh(2), "S0"), rl.Layout(cluster.mesh(2, 1), "R")
plan = rl.plan(rl.ReshardingTask((1000,), "int8", *layouts, cluster), chunks=10)
pool = rl.runtime.Pool(4)
pool.run(plan, repeats=1, warmup=0)
print(json.dumps([pool._process.pid, *pool.pids.values()]), flush=True)
try:
    pool.run(plan, repeats=10**7)
except KeyboardInterrupt:
    measured = pool.run(plan, repeats=2, warmup=0)  # with fresh processes
    print(json.dumps([measured.verified, list(pool.pids.values())]), flush=True)
