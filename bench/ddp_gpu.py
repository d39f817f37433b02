#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel of one process with NCCL on the models of bench_gpu, beside the same model without it.

usage: ddp_gpu.py SECONDS OUT.json [toy]        toy: small models on the CPU with Gloo, to try the script itself
"""
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, before, width, stride):
        super().__init__()
        conv = lambda a, b, k, s: nn.Conv2d(a, b, k, stride=s, padding=k // 2, bias=False)
        after = 4 * width
        self.branch = nn.Sequential(conv(before, width, 1, 1), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                    conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                    conv(width, after, 1, 1), nn.BatchNorm2d(after))
        same = stride == 1 and before == after
        self.shortcut = nn.Identity() if same else nn.Sequential(conv(before, after, 1, stride), nn.BatchNorm2d(after))

    def forward(self, x):
        return torch.relu(self.branch(x) + self.shortcut(x))


class ResNet50(nn.Module):
    def __init__(self, classes, stages=(3, 4, 6, 3)):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 7, stride=2, padding=3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, stride=2, padding=1))
        blocks, before = [], 64
        for stage, count in enumerate(stages):
            width = 64 << stage
            for i in range(count):
                blocks.append(Bottleneck(before, width, 2 if i == 0 and stage > 0 else 1))
                before = 4 * width
        self.blocks, self.output = nn.Sequential(*blocks), nn.Linear(before, classes)

    def forward(self, x):
        return self.output(self.blocks(self.stem(x)).mean((2, 3)))


class Block(nn.Module):
    """Attention as Skein's gpt has it, product by product."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query_key_value, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x, future):
        batch, length, width = x.shape
        q, k, v = self.query_key_value(self.norm1(x)).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        scores = (q @ k.transpose(-2, -1)) * (width // self.heads) ** -0.5
        mixed = scores.masked_fill(future, -float("inf")).softmax(-1) @ v
        x = x + self.projection(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, vocabulary, context, width, depth, heads):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks, self.norm = nn.ModuleList([Block(width, heads) for _ in range(depth)]), nn.LayerNorm(width)

    def forward(self, x):
        length = x.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=x.device).triu(1)
        x = self.tokens(x) + self.positions.weight[:length]
        for block in self.blocks:
            x = block(x, future)
        return nn.functional.linear(self.norm(x), self.tokens.weight)


def cases(toy):
    for precision in ("f32", "bf16"):
        if toy:
            yield "resnet50", precision, 2, lambda: ResNet50(10, (1, 1, 1, 1)), (3, 32, 32), 10
            yield "gpt", precision, 4, lambda: Gpt(32, 16, 32, 2, 2), (16,), 32
        else:
            yield "resnet50", precision, 64, lambda: ResNet50(1000), (3, 224, 224), 1000
            yield "gpt", precision, 16, lambda: Gpt(96, 512, 768, 14, 12), (512,), 96


class Loop:
    def __init__(self, make, wrap, images, precision, device, data, target):
        torch.manual_seed(2)
        model = make().to(device)
        if images and precision == "bf16":
            model = model.to(memory_format=torch.channels_last)
        self.model = nn.parallel.DistributedDataParallel(model, device_ids=None if device == "cpu" else [0]) if wrap else model
        fused = {} if device == "cpu" else {"fused": True}
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9, **fused) if images else torch.optim.AdamW(model.parameters(), lr=1e-4, **fused)
        self.cast = (lambda: torch.autocast(device, torch.bfloat16)) if precision == "bf16" else contextlib.nullcontext
        self.data, self.target, self.device = data, target, device
        self.parameters = sum(p.numel() for p in model.parameters())

    def time(self, steps):
        begin = time.perf_counter()
        for _ in range(steps):
            self.optimizer.zero_grad()
            with self.cast():
                logits = self.model(self.data)
                loss = nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]).float(), self.target.reshape(-1))
            loss.backward()
            self.optimizer.step()
        if self.device != "cpu":
            torch.cuda.synchronize()
        return (time.perf_counter() - begin) / steps * 1e3


def main():
    seconds, out, toy = float(sys.argv[1]), sys.argv[2], sys.argv[3:] == ["toy"]
    device = "cpu" if toy else "cuda"
    if toy:
        torch.set_num_threads(1)
    store = tempfile.NamedTemporaryFile()
    dist.init_process_group("gloo" if toy else "nccl", init_method=f"file://{store.name}", rank=0, world_size=1)
    rows = []
    print(f"PyTorch {torch.__version__} in Python, milliseconds a step")
    print(f"{'model':<10}{'':<6}{'batch':>6}{'alone p50':>12}{'DDP p50':>12}{'ratio p50':>12}")
    for name, precision, batch, make, shape, classes in cases(toy):
        torch.manual_seed(1)
        images = len(shape) == 3
        data = (torch.randn(batch, *shape) if images else torch.randint(classes, (batch, *shape))).to(device)
        if images and precision == "bf16":
            data = data.contiguous(memory_format=torch.channels_last)
        target = torch.randint(classes, (batch,) if images else (batch, *shape)).to(device)
        alone, wrapped = (Loop(make, wrap, images, precision, device, data, target) for wrap in (False, True))
        for loop in (alone, wrapped, alone, wrapped):
            loop.time(3)
        steps = max(1, min(50, int(100 / max(alone.time(2), 1e-3))))
        times, end = ([], []), time.perf_counter() + seconds
        while len(times[0]) < 6 or time.perf_counter() < end:
            order = ((0, alone), (1, wrapped)) if len(times[0]) % 2 == 0 else ((1, wrapped), (0, alone))
            for i, loop in order:
                times[i].append(loop.time(steps))
        ratio = statistics.median(b / a for a, b in zip(*times))
        rows.append({"model": name, "precision": precision, "batch": batch, "parameters": alone.parameters, "torch": torch.__version__,
                     "alone_ms": statistics.median(times[0]), "ddp_ms": statistics.median(times[1]), "ratio": ratio})
        print(f"{name:<10}{precision:<6}{batch:>6}{rows[-1]['alone_ms']:>12.3f}{rows[-1]['ddp_ms']:>12.3f}{ratio:>10.3f} x", flush=True)
        del alone, wrapped
    dist.destroy_process_group()
    with open(out, "w") as file:
        json.dump(rows, file, indent=1)


main()
