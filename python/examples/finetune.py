"""Fine-tunes a small model of `transformers` within a memory budget, cell by cell.

    pip install transformers
    python finetune.py --steps 10
    python finetune.py --steps 10 --budget 30MiB

VS Code, Jupyter (with jupytext) and Spyder show the parts marked `# %%` as cells of a notebook. Nothing is
downloaded: the model is made from a configuration. To start from trained weights, use `from_pretrained` in its
place.
"""

# %% Options. In a notebook, change the defaults.
import argparse
import os
import tempfile

import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification

import remat

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--budget", help="such as 30MiB; default: plain PyTorch")
parser.add_argument("--steps", type=int, default=10)
parser.add_argument("--record", metavar="FILE", help="file for a recording; needs --budget")
parser.add_argument("--accumulate", type=int, default=2, help="batches in a step")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--length", type=int, default=64, help="tokens in a text")
parser.add_argument("--frozen", type=int, default=2, help="lower layers that are not trained")
parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
args = parser.parse_args(None if "__file__" in globals() else [])
if args.record and not args.budget:
    parser.error("--record needs --budget")
torch.manual_seed(0)

# %% The budget. From here on, all tensors on the device fit in it, in every cell, until `b.stop()`.
b = None
if args.budget:
    b = remat.budget(args.budget, device=args.device, record=args.record)
    b.start()

# %% The model, with its embeddings and lower layers frozen.
config = DistilBertConfig(vocab_size=1000, dim=128, hidden_dim=512, n_heads=4, n_layers=6, num_labels=2)
model = DistilBertForSequenceClassification(config).to(args.device)
model.distilbert.embeddings.requires_grad_(False)
for layer in model.distilbert.transformer.layer[: args.frozen]:
    layer.requires_grad_(False)
trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
total = sum(parameter.numel() for parameter in model.parameters())
print(f"{sum(parameter.numel() for parameter in trained):,} of {total:,} parameters are trained")


# %% The data: texts of random tokens. A text is of class 1 if it begins with a token below 500.
def batch():
    tokens = torch.randint(0, 1000, (args.batch, args.length))
    return {"input_ids": tokens.to(args.device), "labels": (tokens[:, 0] < 500).long().to(args.device)}


# %% Training. Gradients of some batches are added up before a step.
optimizer = torch.optim.AdamW(trained, 1e-3)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, 1.0, total_iters=5)


def train(steps):
    model.train()
    for step in range(steps):
        total = 0.0
        for _ in range(args.accumulate):
            loss = model(**batch()).loss / args.accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        print(f"step {step + 1:3}: loss {total:.4f}")


train(args.steps)

# %% A checkpoint: saved, and loaded again, within the budget.
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "checkpoint.pt")
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
    print(f"checkpoint: {os.path.getsize(path):,} bytes")
    train(2)
    saved = torch.load(path)
model.load_state_dict(saved["model"])
optimizer.load_state_dict(saved["optimizer"])
assert all(torch.equal(value, saved["model"][name]) for name, value in model.state_dict().items())
del saved

# %% Evaluation. Without gradients, almost no tensor is kept.
model.eval()
with torch.no_grad():
    right = 0
    for _ in range(10):
        texts = batch()
        right += (model(**texts).logits.argmax(-1) == texts["labels"]).sum().item()
print(f"right: {right} of {10 * args.batch}")

# %% The end of the budget. Tensors stay as they are.
if b:
    b.stop()
    print(b)
