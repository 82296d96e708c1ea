"""Median milliseconds of one ResNet-20 training step in PyTorch eager: the baseline of resnet20.rs."""

import time

import torch
from pytorch_models import build
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(2)
torch.manual_seed(1)

model = nn.Sequential(*build("resnet20", 3, (32, 32), 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
images, labels = torch.randn(64, 3, 32, 32), torch.randint(10, (64,))

times = []
for step in range(25):
    start = time.perf_counter()
    loss = F.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    times.append(time.perf_counter() - start)
times = sorted(times[5:])
print(1e3 * times[len(times) // 2])
