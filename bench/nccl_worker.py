"""One of N processes that time NCCL's operations on one GPU, or on several: started by gpu_fabric.py and nccl.py.

    RANK=0 WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 nccl_worker.py BYTES ROUNDS FILE

Every rank gives itself another NCCL_HOSTID: NCCL refuses ranks of one host that share a GPU. Times are
from the first rank's begin to the last one's end, on the host's clock, with the device done, as
`skein bench fabric` takes them.
"""
import json
import os
import sys
import time

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
os.environ.setdefault("NCCL_HOSTID", f"host{rank}")
os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist


def main():
    count, rounds, path = int(sys.argv[1]) // 4, int(sys.argv[2]), sys.argv[3]
    gpu = rank % torch.cuda.device_count()
    torch.cuda.set_device(gpu)
    dist.init_process_group("nccl")
    gloo = dist.new_group(backend="gloo")
    count = count // size * size
    values, other = torch.zeros(count, device="cuda"), torch.zeros(count, device="cuda")
    part = torch.zeros(count // size, device="cuda")

    def exchange():
        peer = rank ^ 1
        work = dist.batch_isend_irecv([dist.P2POp(dist.isend, values, peer), dist.P2POp(dist.irecv, other, peer)])
        for each in work:
            each.wait()

    def both():
        dist.reduce_scatter_tensor(part, values)
        dist.all_gather_into_tensor(values, part)

    operations = {
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part, values),
        "all_gather": lambda: dist.all_gather_into_tensor(values, part),
        "all_reduce": lambda: dist.all_reduce(values),
        "broadcast": lambda: dist.broadcast(values, 0),
        "both": both,
    }
    if size % 2 == 0:
        operations["exchange"] = exchange
    laps = {name: [] for name in operations}
    for turn in range(rounds + 2):
        for name, run in operations.items():
            values.zero_()
            torch.cuda.synchronize()
            dist.barrier(gloo)
            begin = time.clock_gettime(time.CLOCK_MONOTONIC)
            run()
            torch.cuda.synchronize()
            if turn >= 2:
                laps[name].append((begin, time.clock_gettime(time.CLOCK_MONOTONIC)))
    everybody = [None] * size
    dist.all_gather_object(everybody, laps, group=gloo)
    if rank == 0:
        result = {}
        for name in operations:
            whole = sorted(max(each[name][i][1] for each in everybody) - min(each[name][i][0] for each in everybody)
                           for i in range(rounds))
            result[name] = {"min_ms": 1e3 * whole[0], "p50_ms": 1e3 * whole[rounds // 2]}
        with open(path, "w") as file:
            json.dump({"nccl": ".".join(map(str, torch.cuda.nccl.version())), "operations": result}, file)
    dist.barrier(gloo)
    dist.destroy_process_group()


main()
