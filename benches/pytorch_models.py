"""The networks of `remat train` in PyTorch, for the baselines of the benchmarks."""

import torch
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
    """A list of consecutive modules; checkpoints can be placed between any two of them."""
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


# -- Networks without residual blocks -----------------------------------------------------------------


class DenseLayer(nn.Module):
    """Adds `growth` channels."""

    def __init__(self, inputs, growth=32):
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), conv(inputs, 4 * growth, 1, 1),
            nn.BatchNorm2d(4 * growth), nn.ReLU(), conv(4 * growth, growth, 3, 1),
        )

    def forward(self, x):
        return torch.cat([x, self.body(x)], 1)


def densenet121(channels, size, classes):
    """A list of consecutive modules, as from `build`."""
    large = min(size) >= 64
    layers = [conv(channels, 64, *((7, 2) if large else (3, 1))), nn.BatchNorm2d(64), nn.ReLU()]
    if large:
        layers.append(nn.MaxPool2d(3, 2, 1))
    inputs = 64
    for block, count in enumerate([6, 12, 24, 16]):
        for _ in range(count):
            layers.append(DenseLayer(inputs))
            inputs += 32
        if block < 3:
            layers.append(nn.Sequential(
                nn.BatchNorm2d(inputs), nn.ReLU(), conv(inputs, inputs // 2, 1, 1), nn.AvgPool2d(2),
            ))
            inputs //= 2
    layers.append(nn.Sequential(
        nn.BatchNorm2d(inputs), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, classes),
    ))
    return layers


def double_conv(inputs, outputs):
    return nn.Sequential(
        conv(inputs, outputs, 3, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
        conv(outputs, outputs, 3, 1), nn.BatchNorm2d(outputs), nn.ReLU(),
    )


class UNet(nn.Module):
    """U-Net of Ronneberger et al. with padding and batch norms. `run(part, ..)` runs a part, with or without a checkpoint."""

    def __init__(self, channels, outputs, width, depth):
        super().__init__()
        self.first = double_conv(channels, width)
        self.down = nn.ModuleList(double_conv(width << i, width << (i + 1)) for i in range(depth))
        deep = list(reversed(range(depth)))
        self.up = nn.ModuleList(nn.ConvTranspose2d(width << (i + 1), width << i, 2, 2) for i in deep)
        self.join = nn.ModuleList(double_conv(width << (i + 1), width << i) for i in deep)
        self.last = nn.Conv2d(width, outputs, 1)

    def forward(self, x, run=lambda part, *x: part(*x)):
        levels = [run(self.first, x)]
        for down in self.down:
            levels.append(run(lambda x, down=down: down(F.max_pool2d(x, 2)), levels[-1]))
        y = levels.pop()
        for up, join in zip(self.up, self.join):
            y = run(lambda y, level, up=up, join=join: join(torch.cat([level, up(y)], 1)), y, levels.pop())
        return self.last(y)


class Block(nn.Module):
    """A block of GPT-2."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        n, t, width = x.shape
        parts = self.qkv(self.norm1(x)).view(n, t, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(n, t, width))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class Embed(nn.Module):
    def __init__(self, vocabulary, context, width):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(context, width)

    def forward(self, x):
        return self.tokens(x) + self.positions.weight[: x.shape[1]]


class Head(nn.Module):
    def __init__(self, width, embed):
        super().__init__()
        self.norm, self.embed = nn.LayerNorm(width), [embed]

    def forward(self, x):
        return F.linear(self.norm(x), self.embed[0].tokens.weight)


def gpt(vocabulary, context, layers, width, heads):
    """A list of consecutive modules, with GPT-2's initial weights."""
    embed = Embed(vocabulary, context, width)
    modules = [embed, *(Block(width, heads) for _ in range(layers)), Head(width, embed)]
    for module in modules:
        for name, parameter in module.named_parameters():
            if name.endswith("bias"):
                nn.init.zeros_(parameter)
            elif parameter.dim() == 2:
                scale = (2 * layers) ** -0.5 if "out." in name or "narrow." in name else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)
    return modules


class Lstm(nn.Module):
    def __init__(self, vocabulary, width, layers):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.rnn = nn.LSTM(width, width, layers, batch_first=True)
        self.out = nn.Linear(width, vocabulary)

    def forward(self, x):
        return self.out(self.rnn(self.tokens(x))[0])
