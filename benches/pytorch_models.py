"""The networks of `remat train` in PyTorch: the baselines' side of the benchmarks."""

from torch import nn
from torch.nn import functional as F


def conv(inputs, outputs, kernel, stride):
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False)


class Residual(nn.Module):
    """y = relu(body(x) + shortcut(x))"""

    def __init__(self, inputs, outputs, stride, body):
        super().__init__()
        self.body = body
        self.shortcut = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(conv(inputs, outputs, 1, stride), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.shortcut(x))


def basic(inputs, width, stride):
    body = nn.Sequential(
        conv(inputs, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(),
        conv(width, width, 3, 1), nn.BatchNorm2d(width),
    )
    return Residual(inputs, width, stride, body), width


def bottleneck(inputs, width, stride):
    body = nn.Sequential(
        conv(inputs, width, 1, 1), nn.BatchNorm2d(width), nn.ReLU(),
        conv(width, width, 3, stride), nn.BatchNorm2d(width), nn.ReLU(),
        conv(width, 4 * width, 1, 1), nn.BatchNorm2d(4 * width),
    )
    return Residual(inputs, 4 * width, stride, body), 4 * width


# Name -> block, (width, blocks) of each stage.
NETWORKS = {
    "resnet20": (basic, [(16, 3), (32, 3), (64, 3)]),
    "resnet32": (basic, [(16, 5), (32, 5), (64, 5)]),
    "resnet110": (basic, [(16, 18), (32, 18), (64, 18)]),
    "resnet1202": (basic, [(16, 200), (32, 200), (64, 200)]),
    "resnet18": (basic, [(64, 2), (128, 2), (256, 2), (512, 2)]),
    "resnet50": (bottleneck, [(64, 3), (128, 4), (256, 6), (512, 3)]),
}


def build(name, channels, size, classes):
    """A list of modules, one after the other: a natural place to checkpoint between any two."""
    block, stages = NETWORKS[name]
    width = stages[0][0]
    large = len(stages) == 4 and min(size) >= 64
    layers = [conv(channels, width, *((7, 2) if large else (3, 1))), nn.BatchNorm2d(width), nn.ReLU()]
    if large:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = width
    for stage, (width, blocks) in enumerate(stages):
        for i in range(blocks):
            module, inputs = block(inputs, width, 2 if stage > 0 and i == 0 else 1)
            layers.append(module)
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes))
    return [*layers, head]
