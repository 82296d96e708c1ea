"""Median milliseconds of a training step in PyTorch eager: the baseline of networks.rs. Takes the network's name."""

import sys
import time

import torch
from torch import nn
from torch.nn import functional as F

torch.set_num_threads(2)
torch.manual_seed(1)


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class DenseLayer(nn.Module):
    def __init__(self, width, growth):
        super().__init__()
        self.path = nn.Sequential(
            nn.BatchNorm2d(width), nn.ReLU(), conv(width, 4 * growth, 1),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), conv(4 * growth, growth, 3),
        )

    def forward(self, features):
        return self.path(torch.cat(features, 1))


class DenseBlock(nn.Module):
    """Dense block with the structure of torchvision."""

    def __init__(self, width, growth, layers):
        super().__init__()
        self.layers = nn.ModuleList(DenseLayer(width + i * growth, growth) for i in range(layers))

    def forward(self, x):
        features = [x]
        for layer in self.layers:
            features.append(layer(features))
        return torch.cat(features, 1)


def densenet121():
    width, layers = 64, [conv(3, 64, 3), nn.BatchNorm2d(64), nn.ReLU()]
    for i, count in enumerate([6, 12, 24, 16]):
        layers.append(DenseBlock(width, 32, count))
        width += 32 * count
        if i < 3:
            layers += [nn.BatchNorm2d(width), nn.ReLU(), conv(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10))


def double(inputs, outputs):
    return nn.Sequential(
        conv(inputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
        conv(outputs, outputs, 3), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self, width=16, depth=3):
        super().__init__()
        self.inc = double(3, width)
        self.down = nn.ModuleList(double(width << i, width << (i + 1)) for i in range(depth))
        levels = range(depth - 1, -1, -1)
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in levels)
        self.conv = nn.ModuleList(double(width << (i + 1), width << i) for i in levels)
        self.outc = nn.Conv2d(width, 3, 1)

    def forward(self, x):
        y, levels = self.inc(x), []
        for down in self.down:
            levels.append(y)
            y = down(F.max_pool2d(y, 2))
        for up, conv in zip(self.up, self.conv):
            y = conv(torch.cat([levels.pop(), up(y)], 1))
        return self.outc(y)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.rnn, self.decoder = nn.Embedding(256, 128), nn.LSTM(128, 128, 2, batch_first=True), nn.Linear(128, 256)

    def forward(self, x):
        return self.decoder(self.rnn(self.encoder(x))[0]).flatten(0, 1)


class Depthwise(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(0.3 * torch.randn(64, 1, 3, 3))

    def forward(self, x):
        return F.conv2d(F.conv2d(x, self.weight, padding=1, groups=64), self.weight, padding=1, groups=64)


def case(name):
    if name == "unet":
        return UNet(), torch.randn(8, 3, 64, 64), None
    if name == "densenet121":
        return densenet121(), torch.randn(2, 3, 32, 32), torch.randint(10, (2,))
    if name == "lstm":
        return Lstm(), torch.randint(256, (16, 64)), torch.randint(251, (16 * 64,))
    return Depthwise(), torch.randn(16, 64, 56, 56), None


model, x, labels = case(sys.argv[1])
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4)
times = []
for step in range(18):
    start = time.perf_counter()
    y = model(x)
    loss = F.mse_loss(y, x) if labels is None else F.cross_entropy(y, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    times.append(time.perf_counter() - start)
times = sorted(times[3:])
print(1e3 * times[len(times) // 2])
