"""The memory of the process follows the budget."""

import re
import subprocess
import sys
import textwrap

import pytest

MODELS = {
    "mlp": "nn.Sequential(*(layer for _ in range(12) for layer in (nn.Linear(512, 512), nn.Tanh(), nn.Dropout(0.1))))",
    "cnn": "nn.Sequential(*(layer for _ in range(6) for layer in (nn.Conv2d(16, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU())))",
    "encoder": "nn.Sequential(*(nn.TransformerEncoderLayer(128, 4, 512, 0.1, batch_first=True) for _ in range(4)))",
}
INPUTS = {"mlp": (4096, 512), "cnn": (64, 16, 48, 48), "encoder": (32, 128, 128)}

PROGRAM = """
    import sys

    import torch
    from torch import nn

    import remat

    def memory(name):
        return next(int(line.split()[1]) << 10 for line in open("/proc/self/status") if line.startswith(name))

    def train(model, shape, steps):
        optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.randn(shape)).square().mean().backward()
            optimizer.step()

    torch.set_num_threads(1)
    shape = {shape}
    small = (2, *shape[1:])
    # All imports, code and buffers of libraries.
    train({model}, small, 2)
    with remat.budget("1GiB"):
        train({model}, small, 2)
    full = remat.suggest(lambda: train({model}, shape, 1), steps=1).peak_bytes
    budget = full * {percent} // 100
    open("/proc/self/clear_refs", "w").write("5")
    before = memory("VmRSS")
    with remat.budget(budget) as run:
        train({model}, shape, 5)
    print(full, budget, memory("VmHWM") - before, run.stats().evictions)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("percent", [50])
@pytest.mark.parametrize("name", MODELS)
def test_peak_of_the_process(name, percent):
    program = textwrap.dedent(PROGRAM).format(model=MODELS[name], shape=INPUTS[name], percent=percent)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    full, budget, taken, evictions = map(int, re.findall(r"\d+", done.stdout))
    assert evictions > 0 and full > 64 << 20
    assert taken <= 1.1 * budget + (32 << 20), f"{taken} of a budget of {budget}"
