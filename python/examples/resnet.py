"""Trains a ResNet on synthetic pictures, under a memory budget.

    python resnet.py --steps 10
    python resnet.py --steps 10 --budget 80%
    python resnet.py --depth 50 --size 224 --batch 32 --budget 3GiB

The network has the layers and the numbers of parameters of torchvision's. Nothing in it knows of remat.
"""

import argparse
import contextlib

import torch
import torch.nn.functional as F
from torch import nn

import remat


class Basic(nn.Module):
    """Two convolutions of 3x3, as in ResNet-18."""

    grows = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels, width * self.grows, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += self.downsample(x)
        return self.relu(y)


class Bottleneck(nn.Module):
    """Convolutions of 1x1, 3x3 and 1x1, as in ResNet-50."""

    grows = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, width * self.grows, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(width * self.grows)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(channels, width * self.grows, stride)

    def forward(self, x):
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += self.downsample(x)
        return self.relu(y)


def shortcut(channels, out, stride):
    if stride == 1 and channels == out:
        return nn.Identity()
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class ResNet(nn.Module):
    def __init__(self, depth=18, classes=1000):
        super().__init__()
        block, counts = {18: (Basic, [2, 2, 2, 2]), 50: (Bottleneck, [3, 4, 6, 3])}[depth]
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        layers, channels = [], 64
        for stage, count in enumerate(counts):
            width = 64 << stage
            for i in range(count):
                layers.append(block(channels, width, 2 if stage and not i else 1))
                channels = width * block.grows
        self.layers = nn.Sequential(*layers)
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        return self.fc(F.adaptive_avg_pool2d(self.layers(x), 1).flatten(1))


def pictures(count, batch, size, classes):
    """Batches of noise, each picture with a stripe whose place is its class."""
    for _ in range(count):
        labels = torch.randint(0, classes, (batch,))
        x = torch.randn(batch, 3, size, size)
        for picture, label in zip(x, labels.tolist()):
            picture[:, label * size // classes] += 3
        yield x, labels


def train(args):
    model = ResNet(args.depth, args.classes).to(args.device)
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=1e-4)
    for i, (x, labels) in enumerate(pictures(args.steps, args.batch, args.size, args.classes)):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x.to(args.device)), labels.to(args.device))
        loss.backward()
        optimizer.step()
        print(f"step {i + 1:3}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="such as 3GiB or 50%%; default: plain PyTorch")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--record", metavar="FILE", help="file for a recording; needs --budget")
    parser.add_argument("--depth", type=int, choices=[18, 50], default=18)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=96, help="width and height of a picture")
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.record and not args.budget:
        parser.error("--record needs --budget")
    torch.manual_seed(0)
    if args.budget:
        run = remat.budget(args.budget, device=args.device, record=args.record)
    else:
        run = contextlib.nullcontext()
    with run as b:
        train(args)
    if b:
        print(b)


if __name__ == "__main__":
    main()
