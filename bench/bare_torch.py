"""A training script as a person writes it: no trainscale, no harness. Run by torchrun; prints images per second.

torchrun --nproc-per-node 2 bench/bare_torch.py --depth 18 --image-size 96 --batch 8
"""

import argparse
import os
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class Block(nn.Module):
    """Two 3×3 convolutions, or 1×1, 3×3, 1×1 (with the stride on the 3×3) in the deep networks."""

    def __init__(self, channels: int, width: int, stride: int, deep: bool) -> None:
        super().__init__()
        out = width * 4 if deep else width
        kernels = (1, 3, 1) if deep else (3, 3)
        sizes = (channels, width, width, out) if deep else (channels, width, out)
        strides = (1, stride, 1) if deep else (stride, 1)
        layers: list[nn.Module] = []
        for i, kernel in enumerate(kernels):
            conv = nn.Conv2d(sizes[i], sizes[i + 1], kernel, strides[i], kernel // 2, bias=False)
            layers += [conv, nn.BatchNorm2d(sizes[i + 1]), nn.ReLU(inplace=True)]
        self.body = nn.Sequential(*layers[:-1])
        self.short = nn.Sequential()
        if stride != 1 or channels != out:
            self.short = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.relu(self.body(x) + self.short(x), inplace=True)


def resnet(depth: int) -> nn.Module:
    deep = depth >= 50
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True)]
    layers.append(nn.MaxPool2d(3, 2, 1))
    channels = 64
    for stage, count in enumerate(STAGES[depth]):
        width = 64 << stage
        for block in range(count):
            layers.append(Block(channels, width, 2 if stage and not block else 1, deep))
            channels = width * 4 if deep else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=18, choices=STAGES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--channels-last", action="store_true")
    parser.add_argument("--compile", action="store_true")
    options = parser.parse_args()

    rank, world = int(os.environ["LOCAL_RANK"]), int(os.environ["WORLD_SIZE"])
    cuda = options.device == "cuda"
    if cuda:
        torch.cuda.set_device(rank)
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = False
    else:
        os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[rank]})
        torch.set_num_threads(1)
    if world > 1:
        dist.init_process_group("nccl" if cuda else "gloo")

    torch.manual_seed(0)
    layout = torch.channels_last if options.channels_last else torch.contiguous_format
    model: nn.Module = resnet(options.depth).to(options.device, memory_format=layout)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001, momentum=0.9, weight_decay=1e-4, fused=True)
    if world > 1:
        model = nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)
    if options.compile:
        model = torch.compile(model)
    size = options.image_size
    images = torch.randn(options.batch, 3, size, size, device=options.device).contiguous(memory_format=layout)
    labels = torch.randint(1000, (options.batch,), device=options.device)

    def step() -> None:
        with torch.autocast(options.device, torch.bfloat16, enabled=options.bf16):
            loss = functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def synchronize() -> None:
        if cuda:
            torch.cuda.synchronize()
        if world > 1:
            dist.barrier()

    for _ in range(options.warmup):
        step()
    synchronize()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    synchronize()
    seconds = time.perf_counter() - began
    if rank == 0:
        print(f"images/s {world * options.batch * options.steps / seconds:.3f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
