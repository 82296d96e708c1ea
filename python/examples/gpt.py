"""Trains a small GPT on the bytes of a text, under a memory budget.

    python gpt.py --steps 20
    python gpt.py --steps 20 --budget 40%
    python gpt.py --text book.txt --layers 12 --width 768 --heads 12 --context 1024 --budget 6GiB

Without `--text`, the text is made up. Nothing in the model or in the loop knows of remat.
"""

import argparse
import contextlib
import random

import torch
import torch.nn.functional as F
from torch import nn

import remat


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(dropout)
        )

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = self.out(y.transpose(1, 2).reshape(batch, length, width))
        x = x + F.dropout(y, self.dropout, self.training)
        return x + self.mlp(self.norm2(x))


class GPT(nn.Module):
    def __init__(self, width, layers, heads, context, dropout, vocabulary=256):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads, dropout) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.token.weight
        nn.init.normal_(self.token.weight, std=0.02)

    def forward(self, tokens):
        x = self.token(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        return self.head(self.norm(self.blocks(x)))


def made_up(length=100_000):
    """Sentences of a few words."""
    words = "the a cat dog bird tree river sees follows finds old small green and then".split()
    rng = random.Random(0)
    return " ".join(rng.choice(words) for _ in range(length // 4)).encode()


def train(args):
    text = open(args.text, "rb").read() if args.text else made_up()
    text = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    model = GPT(args.width, args.layers, args.heads, args.context, args.dropout).to(args.device)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for i in range(args.steps):
        starts = torch.randint(0, len(text) - args.context - 1, (args.batch,)).tolist()
        tokens = torch.stack([text[start : start + args.context + 1] for start in starts]).to(args.device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        print(f"step {i + 1:3}: loss {loss.item():.4f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--budget", help="such as 6GiB or 40%%; default: plain PyTorch")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--record", metavar="FILE", help="file for a recording; needs --budget")
    parser.add_argument("--text", metavar="FILE", help="what to train on; default: a text that is made up")
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--batch", type=int, default=16)
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
