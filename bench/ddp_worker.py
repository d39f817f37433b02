#!/usr/bin/env python3
"""One worker of PyTorch's DistributedDataParallel with Gloo on a model of Skein's, timed; bench/hosts.py starts it.

usage: RANK=… WORLD_SIZE=… MASTER_ADDR=… MASTER_PORT=… ddp_worker.py MODEL BATCH STEPS HOOK OUT.json

MODEL: resnet18 (the form for small pictures) or mlp (2048 x 6) or bytes:N (an all-reduce of so many bytes); HOOK: none, half (fp16: the one for bf16 needs NCCL) or powersgd (rank 4).
"""
import datetime
import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn


class Block(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        conv = lambda a, b, k, s: nn.Conv2d(a, b, k, stride=s, padding=k // 2, bias=False)
        self.branch = nn.Sequential(conv(before, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(), conv(width, width, 3, 1), nn.BatchNorm2d(width))
        same = stride == 1 and before == width
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(before, width, 1, stride), nn.BatchNorm2d(width))

    def forward(self, x):
        return torch.relu(self.branch(x) + self.shortcut(x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        blocks, before = [], 64
        for width in (64, 128, 256, 512):
            for i in range(2):
                blocks.append(Block(before, width, 2 if i == 0 and width > 64 else 1))
                before = width
        self.blocks, self.output = nn.Sequential(*blocks), nn.Linear(before, 10)

    def forward(self, x):
        return self.output(self.blocks(self.stem(x)).mean((2, 3)))


def mlp():
    layers = [nn.Flatten()]
    for i in range(6):
        layers += [nn.Linear(3072 if i == 0 else 2048, 2048), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(2048, 10))


def time_bytes(count, steps):
    values = torch.zeros(count // 4)
    for _ in range(3):
        dist.all_reduce(values)
    times = []
    for _ in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(values)
        times.append(time.perf_counter() - begin)
    return times


def time_steps(name, batch, steps, hook):
    torch.manual_seed(1)
    model = nn.parallel.DistributedDataParallel(ResNet18() if name == "resnet18" else mlp())
    if hook == "half":
        from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    elif hook == "powersgd":
        from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
        state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2)
        model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    pictures, labels = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    marks = []
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(pictures), labels).backward()
        optimizer.step()
        marks.append(time.perf_counter())
    return [b - a for a, b in zip(marks[3:], marks[4:])]


def main():
    name, batch, steps, hook, out = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    times = time_bytes(int(name[6:]), steps) if name.startswith("bytes:") else time_steps(name, batch, steps, hook)
    if dist.get_rank() == 0:
        with open(out, "w") as file:
            json.dump({"ms": statistics.median(times) * 1e3, "torch": torch.__version__}, file)
    dist.barrier()
    dist.destroy_process_group()


main()
