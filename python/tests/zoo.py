"""Models of timm, transformers, torchvision and diffusers, trained with and without a budget.

    pip install timm transformers diffusers torchvision
    python tests/zoo.py                        one model of each architecture, with random weights: hours
    python tests/zoo.py --part 3/20            each twentieth, from the third on
    python tests/zoo.py --only detection

Each model trains for a few steps by SGD: without a budget; in a budget so large that nothing is evicted; and in two
budgets that leave a half and a fifth of the bytes beyond parameters and gradients. Parameters, buffers and losses must
have the same bits in all four. Printed are also the peak that `remat.suggest` foretells, and the work recomputed in
the last two steps. Each model runs in a process of its own. Ends with exit code 1 after a crash, an error that does
not say that the budget is too small, or other bits. Models that cannot be made here, or do not repeat their own bits,
are counted.
"""

import argparse
import collections
import os
import random
import resource
import signal
import sys
import time
import traceback
import warnings

import numpy
import torch
import torch.nn.functional as F
from apart import apart
from bits import bits

import remat

STEPS = 5
SHARES = (50, 20)
# Seconds for a model.
PATIENCE = 300
MOST_PARAMETERS = 30_000_000
# Bytes of a run without a budget: some configurations have parts that no field of `SMALL` makes smaller.
MOST_BYTES = 8 << 30
MIB = 1 << 20

# Sizes of configurations of transformers. A configuration has some of these fields.
SMALL = {
    **dict.fromkeys(["hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"], 64),
    **dict.fromkeys(["num_hidden_layers", "num_layers", "n_layer", "n_layers", "encoder_layers", "decoder_layers"], 2),
    **dict.fromkeys(["num_decoder_layers", "num_key_value_heads", "num_experts_per_tok", "type_vocab_size"], 2),
    **dict.fromkeys(["num_attention_heads", "n_head", "n_heads", "num_heads", "encoder_attention_heads"], 4),
    **dict.fromkeys(["decoder_attention_heads", "num_experts", "num_local_experts", "n_routed_experts"], 4),
    **dict.fromkeys(["intermediate_size", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "ffn_dim"], 128),
    **dict.fromkeys(["vocab_size", "max_position_embeddings"], 128),
    **dict.fromkeys(["d_kv", "head_dim", "kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim"], 16),
    **dict.fromkeys(["patch_size", "state_size"], 8),
    **dict.fromkeys(["n_group", "topk_group", "bos_token_id"], 1),
    "v_head_dim": 16,
    "image_size": 32,
    "moe_intermediate_size": 64,
    "pad_token_id": 0,
    "eos_token_id": 2,
}
# How one finds the smallest model of an architecture by its name.
SMALLEST = "femto atto pico nano zepto tiny mini xxs xs _s small 050 18".split()


def timm_models():
    import timm

    families = collections.defaultdict(list)
    for name in timm.list_models():
        families[timm.models.model_entrypoint(name).__module__].append(name)
    size = lambda name: next((i for i, word in enumerate(SMALLEST) if word in name), len(SMALLEST))
    return [min(names, key=lambda name: (size(name), len(name))) for _, names in sorted(families.items())]


def timm(name):
    import timm

    size = 64
    try:
        model = timm.create_model(name, num_classes=10, img_size=size)
    except Exception:
        model = timm.create_model(name, num_classes=10)
        if model.default_cfg.get("fixed_input_size"):
            size = model.default_cfg["input_size"][-1]
    channels = model.default_cfg["input_size"][0]
    return model, lambda: F.cross_entropy(model(torch.randn(8, channels, size, size)), torch.randint(10, (8,)))


HEADS = {
    "CAUSAL_LM": "tokens",
    "SEQ_TO_SEQ_CAUSAL_LM": "pairs",
    "MASKED_LM": "tokens",
    "IMAGE_CLASSIFICATION": "images",
    "AUDIO_CLASSIFICATION": "sounds",
}


def heads():
    """The class of the model, and its input, by the name of the architecture."""
    from transformers.models.auto import modeling_auto

    found = {}
    for head, kind in HEADS.items():
        for name, classes in getattr(modeling_auto, f"MODEL_FOR_{head}_MAPPING_NAMES").items():
            found.setdefault(name, (classes if isinstance(classes, str) else classes[0], kind))
    return found


def transformers(name):
    import transformers

    class_name, kind = heads()[name]
    make = getattr(transformers, class_name)
    config = make.config_class()
    for field, value in SMALL.items():
        if isinstance(getattr(config, field, None), int):
            setattr(config, field, value)
    if isinstance(getattr(config, "layer_types", None), list):
        config.layer_types = config.layer_types[:2]
    model = make(config)
    tokens = lambda *shape: torch.randint(3, min(config.vocab_size, 128), shape)
    size = getattr(config, "image_size", 32)

    def loss():
        if kind == "images":
            channels = getattr(config, "num_channels", 3)
            result = model(pixel_values=torch.randn(2, channels, size, size), labels=torch.randint(2, (2,)))
        elif kind == "sounds":
            result = model(torch.randn(2, 16000), labels=torch.randint(2, (2,)))
        elif kind == "pairs" and "input_features" in model.forward.__code__.co_varnames:
            result = model(input_features=torch.randn(2, 80, 3000), labels=tokens(2, 16))
        elif kind == "pairs":
            result = model(input_ids=tokens(2, 32), labels=tokens(2, 16))
        else:
            words = tokens(2, 32)
            result = model(input_ids=words, labels=words)
        return result.loss

    return model, loss


DETECTION = "fasterrcnn_mobilenet_v3_large_320_fpn retinanet_resnet50_fpn maskrcnn_resnet50_fpn keypointrcnn_resnet50_fpn fcos_resnet50_fpn"
SEGMENTATION = "deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large fcn_resnet50"
VIDEO = "r3d_18 mc3_18 r2plus1d_18 s3d swin3d_t"


def detection(name):
    from torchvision.models import detection

    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=5, min_size=96, max_size=128)

    def loss():
        images = [torch.rand(3, 96, 96), torch.rand(3, 80, 112)]
        target = lambda image: {
            "boxes": torch.tensor([[10.0, 10, 40, 50], [30, 20, 70, 60]]),
            "labels": torch.tensor([1, 2]),
            "masks": torch.ones(2, *image.shape[1:], dtype=torch.uint8),
            "keypoints": torch.tensor([[[20.0, 20, 1]] * 17] * 2),
        }
        return sum(model(images, [target(image) for image in images]).values())

    return model, loss


def segmentation(name):
    from torchvision.models import segmentation

    model = getattr(segmentation, name)(weights=None, weights_backbone=None, num_classes=5)
    return model, lambda: F.cross_entropy(model(torch.randn(2, 3, 64, 64))["out"], torch.randint(5, (2, 64, 64)))


def video(name):
    from torchvision.models import video

    model = getattr(video, name)(weights=None, num_classes=5)
    return model, lambda: F.cross_entropy(model(torch.randn(2, 3, 16, 64, 64)), torch.randint(5, (2,)))


def flow(name):
    from torchvision.models import optical_flow

    model = getattr(optical_flow, name)(weights=None)
    images = lambda: torch.rand(1, 3, 128, 128) * 2 - 1
    return model, lambda: sum(found.square().mean() for found in model(images(), images(), num_flow_updates=3))


def diffusion(name):
    import diffusers

    two = {"layers_per_block": 1, "block_out_channels": (32, 64)}
    if name == "UNet2DModel":
        model = diffusers.UNet2DModel(
            sample_size=32,
            down_block_types=("DownBlock2D", "AttnDownBlock2D"),
            up_block_types=("AttnUpBlock2D", "UpBlock2D"),
            **two,
        )
        run = lambda: model(torch.randn(4, 3, 32, 32), torch.randint(1000, (4,)))
    elif name == "UNet2DConditionModel":
        model = diffusers.UNet2DConditionModel(
            sample_size=16,
            down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
            up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
            cross_attention_dim=32,
            attention_head_dim=8,
            **two,
        )
        run = lambda: model(torch.randn(4, 4, 16, 16), torch.randint(1000, (4,)), torch.randn(4, 8, 32))
    elif name == "AutoencoderKL":
        blocks = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
        model = diffusers.AutoencoderKL(latent_channels=4, **blocks, **two)
        run = lambda: model(torch.randn(2, 3, 32, 32), sample_posterior=True)
    elif name == "DiTTransformer2DModel":
        model = diffusers.DiTTransformer2DModel(
            num_attention_heads=4, attention_head_dim=16, out_channels=8, num_layers=2, sample_size=16, num_embeds_ada_norm=10
        )
        run = lambda: model(torch.randn(2, 4, 16, 16), timestep=torch.randint(1000, (2,)), class_labels=torch.randint(10, (2,)))
    elif name == "SD3Transformer2DModel":
        model = diffusers.SD3Transformer2DModel(
            sample_size=16,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            attention_head_dim=8,
            num_attention_heads=4,
            joint_attention_dim=32,
            caption_projection_dim=32,
            pooled_projection_dim=64,
        )
        run = lambda: model(torch.randn(2, 4, 16, 16), torch.randn(2, 8, 32), torch.randn(2, 64), torch.randint(1000, (2,)))
    elif name == "FluxTransformer2DModel":
        model = diffusers.FluxTransformer2DModel(
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
        )
        run = lambda: model(
            hidden_states=torch.randn(2, 16, 4),
            encoder_hidden_states=torch.randn(2, 8, 32),
            pooled_projections=torch.randn(2, 32),
            timestep=torch.rand(2),
            img_ids=torch.zeros(16, 3),
            txt_ids=torch.zeros(8, 3),
        )
    else:
        model = diffusers.VQModel(block_out_channels=(32,), norm_num_groups=8)
        run = lambda: model(torch.randn(2, 3, 32, 32))
    return model, lambda: run().sample.square().mean()


DIFFUSION = (
    "UNet2DModel UNet2DConditionModel AutoencoderKL DiTTransformer2DModel SD3Transformer2DModel FluxTransformer2DModel VQModel"
)


def all_models():
    """Pairs of a function that makes a model with its loss, and the name of the model, in random order."""
    pairs = [(timm, name) for name in timm_models()] + [(transformers, name) for name in sorted(heads())]
    for make, names in (
        (detection, DETECTION),
        (segmentation, SEGMENTATION),
        (video, VIDEO),
        (flow, "raft_small raft_large"),
        (diffusion, DIFFUSION),
    ):
        pairs += [(make, name) for name in names.split()]
    random.Random(1).shuffle(pairs)
    return pairs


def reseed(seed):
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


class Training:
    def __init__(self, make, name):
        reseed(0)
        self.model, self.loss_of = make(name)
        count = sum(parameter.numel() for parameter in self.model.parameters())
        if count > MOST_PARAMETERS:
            raise ValueError(f"{count:,} parameters")
        self.model.train()
        self.optimizer = torch.optim.SGD(self.model.parameters(), 1e-3)
        self.losses = []

    def step(self):
        reseed(1 + len(self.losses))
        self.optimizer.zero_grad()
        loss = self.loss_of()
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def bits(self):
        return bits([self.model.state_dict(), self.losses])

    def kept(self):
        """Bytes of parameters, buffers and gradients."""
        state = [*self.model.state_dict().values(), *(p.grad for p in self.model.parameters() if p.grad is not None)]
        return sum(tensor.untyped_storage().nbytes() for tensor in state if isinstance(tensor, torch.Tensor))


def plain(make, name):
    training = Training(make, name)
    for _ in range(STEPS):
        training.step()
    return training


def within(make, name, budget):
    """Trains in a budget. Returns the training, the counters at the end, and those of two steps before."""
    training = Training(make, name)
    with remat.budget(budget, device="cpu") as run:
        for i in range(STEPS):
            if i == STEPS - 2:
                before = run.stats()
            training.step()
        after = run.stats()
    return training, after, before


def check(make, name):
    """How a model fares, as pairs of a kind (`same`, `other bits`, `too small`, `error`, `not made`) and a text."""
    limits = resource.getrlimit(resource.RLIMIT_DATA)
    try:
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, limits[1]))
        expected = plain(make, name)
    except Exception as error:
        yield "not made", f"{type(error).__name__}: {error}".splitlines()[0]
        return
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, limits)
    if plain(make, name).bits() != expected.bits():
        yield "not repeated", "two runs without a budget have other bits"
        return
    try:
        suggested = remat.suggest(Training(make, name).step, device="cpu").peak_bytes
    except Exception as error:
        suggested = None
        yield "error", f"suggest: {type(error).__name__}: {error}"
    peak = None
    for share in (None, *SHARES):
        if share is not None and peak is None:
            return
        budget = 1 << 40 if share is None else kept + (peak - kept) * share // 100
        at = "without evictions" if share is None else f"{share} %"
        try:
            training, stats, before = within(make, name, budget)
        except MemoryError as error:
            # Without a limit, memory must do.
            yield "error" if peak is None else "too small", f"{at}: {str(error).splitlines()[0]}"
            continue
        except Exception:
            yield "error", f"{at}: {traceback.format_exc()}"
            continue
        if share is None:
            peak, kept = stats.peak_bytes, min(training.kept(), stats.peak_bytes)
            foretold = f", {suggested / peak:.3f} of it suggested" if suggested else ""
            at = f"{stats.ops:,} ops, {kept / MIB:.1f} of {peak / MIB:.1f} MiB kept{foretold}"
        else:
            cost = stats.base_cost - before.base_cost
            at += f": {100 * (stats.recompute_cost - before.recompute_cost) / max(cost, 1e-9):.1f} % recomputed"
        is_same = training.bits() == expected.bits() and (budget >= 1 << 40 or stats.peak_bytes <= budget)
        yield "same" if is_same else "other bits", at


def quiet_check(make, name):
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    return list(check(make, name))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="1/1", help="which part of the models, such as 3/20 (default: all)")
    parser.add_argument("--only", default="", help="models whose library and name have this in them")
    args = parser.parse_args()
    first, parts = map(int, args.part.split("/"))
    os.environ["HF_HUB_OFFLINE"] = "1"
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    counts = collections.Counter()
    for make, name in all_models()[first - 1 :: parts]:
        title = f"{make.__name__} {name}"
        if args.only not in title:
            continue
        start = time.monotonic()
        try:
            found = apart(lambda: quiet_check(make, name), PATIENCE)
        except AssertionError as error:
            is_slow = str(error).endswith(f"status {int(signal.SIGALRM)}")
            found = [("too slow", f"not done after {PATIENCE} s") if is_slow else ("crash", str(error))]
        for kind, said in found:
            counts[kind] += 1
            print(f"{title}: {kind}, {said}", flush=True)
        print(f"  {time.monotonic() - start:.1f} s", flush=True)
    print(", ".join(f"{kind} {count}" for kind, count in sorted(counts.items())))
    sys.exit(1 if counts["other bits"] + counts["crash"] + counts["error"] else 0)


if __name__ == "__main__":
    main()
