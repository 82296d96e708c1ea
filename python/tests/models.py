"""Small models, each with its training loop. Nothing here knows of remat."""

import torch
import torch.nn.functional as F
from torch import nn


class Residual(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.second = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.first_norm, self.second_norm = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.second_norm(self.second(self.relu(self.first_norm(self.first(x)))))
        y += x
        return self.relu(y)


def cnn():
    width = 8
    stem = nn.Conv2d(3, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU(inplace=True)
    head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(width, 10)
    return nn.Sequential(*stem, *(Residual(width) for _ in range(4)), *head)


def mlp():
    layers = (layer for _ in range(8) for layer in (nn.Linear(32, 32), nn.Tanh(), nn.Dropout(0.1)))
    return nn.Sequential(*layers, nn.Linear(32, 10))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attention_norm, self.norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))
        self.heads = heads

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.qkv(self.attention_norm(x)).chunk(3, -1)
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + F.dropout(self.out(y.transpose(1, 2).reshape(batch, length, width)), 0.1, self.training)
        return x + self.mlp(self.norm(x))


class GPT(nn.Module):
    def __init__(self, vocabulary=32, width=16, layers=3):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, width), nn.Embedding(16, width)
        self.blocks = nn.Sequential(*(Block(width, 2) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids):
        x = self.token(ids) + self.place(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def encoder():
    layer = nn.TransformerEncoderLayer(16, 2, 64, 0.1, batch_first=True)
    return nn.Sequential(nn.Embedding(32, 16), nn.TransformerEncoder(layer, 3, enable_nested_tensor=False), nn.Linear(16, 32))


class LSTM(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.head = nn.Embedding(32, 16), nn.Linear(16, 32)
        self.rnn = nn.LSTM(16, 16, 2, batch_first=True, dropout=0.1)

    def forward(self, ids):
        return self.head(self.rnn(self.token(ids))[0])


MODELS = {"cnn": cnn, "mlp": mlp, "gpt": GPT, "encoder": encoder, "lstm": LSTM}


class Training:
    """A model in training on two batches of random data."""

    def __init__(self, name):
        torch.manual_seed(0)
        self.model = MODELS[name]()
        if name == "cnn":
            self.optimizer = torch.optim.SGD(self.model.parameters(), 0.05, momentum=0.9, weight_decay=1e-4)
            self.data = [(torch.randn(8, 3, 12, 12), torch.randint(0, 10, (8,))) for _ in range(2)]
        elif name == "mlp":
            self.optimizer = torch.optim.Adam(self.model.parameters(), 1e-3)
            self.data = [(torch.randn(128, 32), torch.randint(0, 10, (128,))) for _ in range(2)]
        else:
            self.optimizer = torch.optim.AdamW(self.model.parameters(), 1e-3)
            self.data = [(ids[:, :-1], ids[:, 1:]) for ids in torch.randint(0, 32, (2, 8, 17))]
        self.losses = []

    def step(self):
        x, y = self.data[len(self.losses) % 2]
        self.optimizer.zero_grad()
        loss = F.cross_entropy(self.model(x).flatten(0, -2), y.flatten())
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())


def train(name, steps=3):
    """Trains a model. Returns its parameters, its buffers and the losses."""
    training = Training(name)
    for _ in range(steps):
        training.step()
    return [*training.model.parameters(), *training.model.buffers(), training.losses]
