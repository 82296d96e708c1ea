"""The step of benches/gpt.rs in PyTorch eager on 2 threads: prints its median in milliseconds."""

import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

torch.set_num_threads(2)
torch.manual_seed(1)
VOCABULARY, CONTEXT, LAYERS, WIDTH, HEADS, BATCH = 256, 128, 4, 128, 4, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.c_attn, self.c_proj = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.fc, self.proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        n, t, w = x.shape
        q, k, v = self.c_attn(self.ln_1(x)).split(w, 2)
        q, k, v = (y.view(n, t, HEADS, w // HEADS).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(n, t, w))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.h = nn.ModuleList(Block() for _ in range(LAYERS))
        self.ln_f = nn.LayerNorm(WIDTH)
        self.position = torch.arange(CONTEXT)

    def forward(self, x):
        y = self.wte(x) + self.wpe(self.position)
        for block in self.h:
            y = block(y)
        return self.ln_f(y) @ self.wte.weight.t()


network = Gpt()
optimizer = torch.optim.SGD(network.parameters(), lr=0.05, momentum=0.9)
count = BATCH * CONTEXT
tokens = [torch.tensor([(i + shift) * 31 % 251 for i in range(count)]) for shift in (0, 1)]
x, labels = tokens[0].view(BATCH, CONTEXT), tokens[1]
seconds = []
for step in range(13):
    start = time.perf_counter()
    loss = F.cross_entropy(network(x).view(count, VOCABULARY), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    if step >= 3:
        seconds.append(time.perf_counter() - start)
print(statistics.median(seconds) * 1e3)
