"""PyTorch workers add up their ranks."""

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank() + 1)])
dist.all_reduce(total)
print(f"sum {total.item():.0f} of {dist.get_world_size()}")
dist.destroy_process_group()
