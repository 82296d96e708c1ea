"""Records training steps of models of today, with random weights, for `remat sweep` and `remat bound`.

    python modern_steps.py
    python modern_steps.py llama mamba --scale 2 --out recordings
    remat sweep llama.jsonl.gz

Each model makes a file `<name>.jsonl.gz`. A recording has the ops with their sizes and costs, and no values.

| name | what is special |
|---|---|
| llama | rotary embedding, groups of heads that share keys and values, gated layers |
| unet | diffusion: long skips, group norm, attention at one size, an embedding of time |
| mamba | selective scan, written in plain ops: many small ops in a long chain |
| vit | patches by one convolution, then a stack of equal blocks |
| moe | a mixture of experts, with tokens routed by `nonzero` and an index |
"""

import argparse
import os
import time

import torch
import torch.nn.functional as F
from torch import nn

import remat


# ---------------------------------------------------------------- Llama


def rotary(length, width, base=10_000.0):
    """Cosines and sines of the angles for each place."""
    speeds = base ** -(torch.arange(0, width, 2) / width)
    angles = torch.outer(torch.arange(length), speeds).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cos, sin):
    left, right = x.chunk(2, -1)
    return x * cos + torch.cat((-right, left), -1) * sin


class LlamaBlock(nn.Module):
    def __init__(self, width, heads, groups):
        super().__init__()
        self.heads, self.groups, self.each = heads, groups, width // heads
        self.norm1, self.norm2 = nn.RMSNorm(width), nn.RMSNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, groups * self.each, bias=False)
        self.v = nn.Linear(width, groups * self.each, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        hidden = 8 * width // 3
        self.gate = nn.Linear(width, hidden, bias=False)
        self.up = nn.Linear(width, hidden, bias=False)
        self.down = nn.Linear(hidden, width, bias=False)

    def forward(self, x, cos, sin):
        batch, length, width = x.shape
        y = self.norm1(x)
        q = self.q(y).view(batch, length, self.heads, self.each).transpose(1, 2)
        k = self.k(y).view(batch, length, self.groups, self.each).transpose(1, 2)
        v = self.v(y).view(batch, length, self.groups, self.each).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        k, v = (part.repeat_interleave(self.heads // self.groups, 1) for part in (k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, scale, vocabulary=512, layers=4, heads=8, groups=2, length=128):
        super().__init__()
        width = 128 * scale
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(LlamaBlock(width, heads, groups) for _ in range(layers))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)
        for name, table in zip(("cos", "sin"), rotary(length, width // heads)):
            self.register_buffer(name, table)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


# ---------------------------------------------------------------- Diffusion U-Net


def embedding_of_time(steps, width):
    speeds = 10_000.0 ** -(torch.arange(width // 2) / (width // 2))
    angles = steps[:, None] * speeds
    return torch.cat((angles.cos(), angles.sin()), 1)


class Residual(nn.Module):
    def __init__(self, channels, out, time):
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(8, channels), nn.Conv2d(channels, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.norm2, self.conv2 = nn.GroupNorm(8, out), nn.Conv2d(out, out, 3, padding=1)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x, time):
        y = self.conv1(F.silu(self.norm1(x))) + self.time(time)[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(y)))


class Attention(nn.Module):
    def __init__(self, channels, heads=4):
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, channels)
        self.qkv, self.out = nn.Conv2d(channels, 3 * channels, 1), nn.Conv2d(channels, channels, 1)

    def forward(self, x):
        batch, channels, height, width = x.shape
        qkv = self.qkv(self.norm(x)).view(batch, 3, self.heads, -1, height * width).transpose(-1, -2)
        y = F.scaled_dot_product_attention(*qkv.unbind(1))
        return x + self.out(y.transpose(-1, -2).reshape(batch, channels, height, width))


class UNet(nn.Module):
    def __init__(self, scale, levels=3):
        super().__init__()
        first, self.width = 16 * scale, 32 * scale
        widths = [first << level for level in range(levels)]
        time = nn.Linear(self.width, self.width), nn.SiLU(), nn.Linear(self.width, self.width)
        self.time = nn.Sequential(*time)
        self.stem = nn.Conv2d(3, first, 3, padding=1)
        self.down, self.shrink, self.up, self.grow = (nn.ModuleList() for _ in range(4))
        before = first
        for level, now in enumerate(widths):
            self.down.append(Residual(before, now, self.width))
            last = level == levels - 1
            self.shrink.append(nn.Identity() if last else nn.Conv2d(now, now, 3, 2, 1))
            before = now
        self.middle1 = Residual(before, before, self.width)
        self.attention = Attention(before)
        self.middle2 = Residual(before, before, self.width)
        for level, now in reversed(list(enumerate(widths))):
            self.up.append(Residual(before + now, now, self.width))
            self.grow.append(nn.ConvTranspose2d(now, now, 2, 2) if level else nn.Identity())
            before = now
        self.norm, self.head = nn.GroupNorm(8, first), nn.Conv2d(first, 3, 3, padding=1)

    def forward(self, x, steps):
        time = self.time(embedding_of_time(steps, self.width))
        x, skips = self.stem(x), []
        for block, shrink in zip(self.down, self.shrink):
            x = block(x, time)
            skips.append(x)
            x = shrink(x)
        x = self.middle2(self.attention(self.middle1(x, time)), time)
        for block, grow in zip(self.up, self.grow):
            x = grow(block(torch.cat((x, skips.pop()), 1), time))
        return self.head(F.silu(self.norm(x)))


# ---------------------------------------------------------------- Mamba


class MambaBlock(nn.Module):
    """A block of Mamba. The scan goes from place to place, as in the article."""

    def __init__(self, width, states=8, kernel=4):
        super().__init__()
        inner, self.rank, self.states = 2 * width, max(1, width // 16), states
        self.norm = nn.RMSNorm(width)
        self.into, self.out = nn.Linear(width, 2 * inner, bias=False), nn.Linear(inner, width, bias=False)
        self.conv = nn.Conv1d(inner, inner, kernel, padding=kernel - 1, groups=inner)
        self.select = nn.Linear(inner, self.rank + 2 * states, bias=False)
        self.delta = nn.Linear(self.rank, inner)
        self.log = nn.Parameter(torch.arange(1.0, states + 1).log().repeat(inner, 1))
        self.pass_on = nn.Parameter(torch.ones(inner))

    def forward(self, x):
        length = x.shape[1]
        y, gate = self.into(self.norm(x)).chunk(2, -1)
        y = F.silu(self.conv(y.transpose(1, 2))[..., :length].transpose(1, 2))
        delta, b, c = self.select(y).split([self.rank, self.states, self.states], -1)
        delta = F.softplus(self.delta(delta))
        decay = (delta[..., None] * -self.log.exp()).exp()
        fed = (delta * y)[..., None] * b[:, :, None]
        state, seen = torch.zeros_like(fed[:, 0]), []
        for place in range(length):
            state = decay[:, place] * state + fed[:, place]
            seen.append((state * c[:, place, None]).sum(-1))
        y = torch.stack(seen, 1) + y * self.pass_on
        return x + self.out(y * F.silu(gate))


class Mamba(nn.Module):
    def __init__(self, scale, vocabulary=256, layers=2):
        super().__init__()
        width = 64 * scale
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.Sequential(*(MambaBlock(width) for _ in range(layers)))
        self.norm, self.head = nn.RMSNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        return self.head(self.norm(self.blocks(self.embed(tokens))))


# ---------------------------------------------------------------- ViT


class ViTBlock(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, dropout=0.1, batch_first=True)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Dropout(0.1), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, scale, size=64, patch=8, layers=6, heads=4, classes=10):
        super().__init__()
        width = 96 * scale
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.mark = nn.Parameter(torch.zeros(1, 1, width))
        self.position = nn.Parameter(0.02 * torch.randn(1, (size // patch) ** 2 + 1, width))
        self.blocks = nn.Sequential(*(ViTBlock(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.mark.expand(len(x), -1, -1), x), 1) + self.position
        return self.head(self.norm(self.blocks(x))[:, 0])


# ---------------------------------------------------------------- Mixture of experts


class Experts(nn.Module):
    """Each token goes to the two experts that its gate likes best."""

    def __init__(self, width, experts, best=2):
        super().__init__()
        self.best, self.gate = best, nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)
        )

    def forward(self, x):
        flat = x.flatten(0, 1)
        shares, chosen = self.gate(flat).softmax(-1).topk(self.best, -1)
        shares = shares / shares.sum(-1, keepdim=True)
        out = torch.zeros_like(flat)
        for number, expert in enumerate(self.experts):
            token, rank = (chosen == number).nonzero(as_tuple=True)
            out = out.index_add(0, token, expert(flat[token]) * shares[token, rank, None])
        return out.view_as(x)


class MoEBlock(nn.Module):
    def __init__(self, width, heads, experts):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.experts = Experts(width, experts)

    def forward(self, x, mask):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, is_causal=True, need_weights=False)[0]
        return x + self.experts(self.norm2(x))


class MoE(nn.Module):
    def __init__(self, scale, vocabulary=512, layers=2, heads=4, experts=4):
        super().__init__()
        width = 96 * scale
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(MoEBlock(width, heads, experts) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


# ---------------------------------------------------------------- Steps


def next_token(model, vocabulary, batch, length):
    tokens = torch.randint(0, vocabulary, (batch, length + 1))
    return F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())


def noise(model, batch, size):
    """A step of diffusion: the model names the noise in a picture."""
    steps = torch.randint(0, 1000, (batch,))
    clean, added = torch.rand(batch, 3, size, size), torch.randn(batch, 3, size, size)
    share = (0.5 * torch.pi * steps / 1000).cos()[:, None, None, None]
    return F.mse_loss(model(share * clean + (1 - share**2).sqrt() * added, steps), added)


def classes(model, batch, size):
    return F.cross_entropy(model(torch.rand(batch, 3, size, size)), torch.randint(0, 10, (batch,)))


# Name: the model, and the loss of a step on random data.
STEPS = {
    "llama": (Llama, lambda model: next_token(model, 512, 8, 128)),
    "unet": (UNet, lambda model: noise(model, 8, 32)),
    "mamba": (Mamba, lambda model: next_token(model, 256, 4, 32)),
    "vit": (ViT, lambda model: classes(model, 16, 64)),
    "moe": (MoE, lambda model: next_token(model, 512, 8, 64)),
}


def train(name, steps, scale):
    torch.manual_seed(0)
    make, loss_of = STEPS[name]
    model = make(scale)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        optimizer.step()
    return loss.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(STEPS)}; default: all")
    parser.add_argument("--budget", default="64GiB", help="default: so much that nothing is evicted")
    parser.add_argument("--steps", type=int, default=2, help="the first one also makes the optimizer's state")
    parser.add_argument("--record", default="{name}.jsonl.gz", metavar="FILE", help="a name with {name}")
    parser.add_argument("--scale", type=int, default=1, help="factor for the width of each model")
    parser.add_argument("--out", default=".", metavar="FOLDER")
    args = parser.parse_args()
    if unknown := set(args.names) - set(STEPS):
        parser.error(f"{', '.join(unknown)}: no model here; choose of {', '.join(STEPS)}")
    os.makedirs(args.out, exist_ok=True)
    for name in args.names or STEPS:
        file, start = os.path.join(args.out, args.record.format(name=name)), time.monotonic()
        with remat.budget(args.budget, record=file, device="cpu") as b:
            loss = train(name, args.steps, args.scale)
        size, seconds = os.path.getsize(file), time.monotonic() - start
        print(f"{name}: loss {loss:.4f}, {seconds:.1f} s, {size:,} bytes in {file}")
        print(f"  {b}")


if __name__ == "__main__":
    main()
