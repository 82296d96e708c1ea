"""Layers of torch.nn, each with its gradients."""

import torch
import torch.nn.functional as F
from torch import nn

from . import check
from .nets import grads, net, ones


def passed(layer, *inputs):
    """Outputs and gradients of a layer."""
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    out = layer(*inputs)
    tensors = [t for t in torch.utils._pytree.tree_leaves(out) if isinstance(t, torch.Tensor)]
    sum(t.square().sum() for t in tensors).backward()
    return [*tensors, *(x.grad for x in inputs), *grads(layer), *layer.buffers()]


@check
def batch_norm():
    model = net(nn.BatchNorm1d(16))
    for _ in range(3):
        model(torch.randn(5, 8, generator=torch.Generator().manual_seed(1))).square().sum().backward()
    model.eval()
    y = model(ones())
    model.train()
    model(torch.ones(3, 8) * 2)
    return [y, *model.buffers(), *grads(model)]


@check
def statistics_of_batch_norm_by_themselves():
    x = torch.arange(48.0).view(4, 3, 4).sin()
    mean, variance = torch.zeros(3), torch.ones(3)
    made = torch.batch_norm_update_stats(x * 2, mean, variance, 0.1)
    again = torch.batch_norm_update_stats(x * 3, mean, variance, 0.1)
    return mean, variance, made, again


@check
def norms():
    x = torch.randn(2, 4, 6)
    layers = (
        nn.BatchNorm1d(4),
        nn.BatchNorm1d(4, momentum=None),
        nn.BatchNorm1d(4, affine=False, track_running_stats=False),
        nn.LayerNorm([4, 6]),
        nn.RMSNorm(6),
        nn.GroupNorm(2, 4),
        nn.InstanceNorm1d(4, affine=True, track_running_stats=True),
        nn.LocalResponseNorm(2),
    )
    return [t for layer in layers for t in passed(layer, x.clone())]


@check
def norms_in_two_and_three_dimensions():
    a = passed(nn.Sequential(nn.BatchNorm2d(2), nn.InstanceNorm2d(2)), torch.randn(2, 2, 4, 4))
    return a + passed(nn.Sequential(nn.BatchNorm3d(2), nn.InstanceNorm3d(2, affine=True)), torch.randn(2, 2, 3, 3, 3))


@check
def weight_and_spectral_norm():
    w = nn.utils.parametrizations.weight_norm(nn.Linear(8, 4))
    s = nn.utils.parametrizations.spectral_norm(nn.Linear(8, 4))
    o = nn.utils.parametrizations.orthogonal(nn.Linear(4, 4))
    return passed(w, ones()) + passed(s, ones()) + passed(o, torch.ones(2, 4))


@check
def pruning():
    from torch.nn.utils import prune

    model = net()
    prune.l1_unstructured(model[0], "weight", 0.5)
    out = passed(model, ones())
    prune.remove(model[0], "weight")
    return [*out, model[0].weight]


@check
def convolutions():
    a = passed(nn.Conv1d(2, 3, 3, padding="same"), torch.randn(1, 2, 8))
    b = passed(nn.Conv2d(4, 4, 3, stride=2, groups=2, dilation=2), torch.randn(2, 4, 9, 9))
    return a + b + passed(nn.Conv3d(1, 2, 2, padding=1, padding_mode="circular"), torch.randn(1, 1, 4, 4, 4))


@check
def transposed_convolutions():
    a = passed(nn.ConvTranspose1d(2, 3, 3), torch.randn(1, 2, 8))
    b = passed(nn.ConvTranspose2d(4, 2, 3, stride=2, output_padding=1), torch.randn(2, 4, 5, 5))
    return a + b + passed(nn.ConvTranspose3d(1, 2, 2), torch.randn(1, 1, 3, 3, 3))


@check
def depthwise_and_large_convolutions():
    a = passed(nn.Conv2d(8, 8, 3, groups=8, padding=1), torch.randn(2, 8, 8, 8))
    return a + passed(nn.Conv2d(16, 32, 5), torch.randn(2, 16, 16, 16)) + passed(nn.Conv2d(3, 4, 1), torch.randn(3, 6, 6))


@check
def unfold_and_fold():
    x = torch.randn(1, 2, 6, 6)
    return passed(nn.Sequential(nn.Unfold(2, stride=2), nn.Fold((6, 6), 2, stride=2)), x)


@check
def pools():
    layers = (
        nn.MaxPool2d(2, return_indices=False),
        nn.AvgPool2d(3, 2, 1),
        nn.LPPool2d(2, 2),
        nn.AdaptiveAvgPool2d(3),
        nn.AdaptiveMaxPool2d((2, 3)),
        nn.MaxPool2d(3, 1, 1, dilation=1, ceil_mode=True),
        nn.FractionalMaxPool2d(2, output_size=3),
    )
    out = [t for layer in layers for t in passed(layer, torch.randn(1, 2, 8, 8))]
    y, indices = F.max_pool1d(torch.randn(1, 2, 8), 2, return_indices=True)
    return [*out, y, indices, F.max_unpool1d(y, indices, 2), F.max_pool3d(torch.randn(1, 1, 4, 4, 4), 2)]


@check
def paddings():
    x = torch.randn(1, 2, 4, 5)
    layers = (nn.ReflectionPad2d(1), nn.ReplicationPad2d(2), nn.ZeroPad2d((1, 0, 2, 0)), nn.CircularPad2d(1))
    out = [t for layer in layers for t in passed(layer, x.clone())]
    return [*out, F.pad(x, (1, -1)), F.pad(x[0, 0], (1, 1), value=3.0), nn.ReflectionPad1d(2)(x[0])]


@check
def interpolations():
    class Resize(nn.Module):
        def forward(self, x):
            modes = ("nearest", "bilinear", "bicubic", "area", "nearest-exact")
            return [F.interpolate(x, (5, 7), mode=mode) for mode in modes]

    x = torch.randn(1, 2, 4, 4)
    smooth = F.interpolate(x, scale_factor=0.5, mode="bilinear", antialias=True)
    return [*passed(Resize(), x), smooth, F.interpolate(x[0], 9, mode="linear")]


@check
def samples_of_grids():
    x = torch.randn(1, 2, 4, 4, requires_grad=True)
    turn = torch.tensor([[[0.5, 0.1, 0], [-0.1, 0.6, 0.2]]], requires_grad=True)
    grid = F.affine_grid(turn, (1, 2, 3, 3), align_corners=False)
    y = F.grid_sample(x, grid, padding_mode="border", align_corners=True)
    z = F.grid_sample(x, grid, mode="nearest", align_corners=False)
    (y.square().sum() + z.sum()).backward()
    return y, z, x.grad, turn.grad


@check
def pixels_and_channels():
    x = torch.randn(1, 8, 4, 4)
    return [*passed(nn.PixelShuffle(2), x), nn.PixelUnshuffle(2)(x), nn.ChannelShuffle(2)(x), nn.Upsample(scale_factor=2)(x)]


@check
def attention():
    q, k, v = (torch.randn(2, 4, 6, 8, requires_grad=True) for _ in range(3))
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    outs = [
        F.scaled_dot_product_attention(q, k, v),
        F.scaled_dot_product_attention(q, k, v, is_causal=True),
        F.scaled_dot_product_attention(q, k, v, mask),
        F.scaled_dot_product_attention(q, k, v, torch.zeros(6, 6), dropout_p=0.3),
        F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
    ]
    sum(o.square().sum() for o in outs).backward()
    return [*outs, q.grad, k.grad, v.grad]


@check
def attention_by_each_backend():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(2, 2, 16, 16, requires_grad=True)
    outs = []
    for backend in (SDPBackend.MATH, SDPBackend.FLASH_ATTENTION):
        with sdpa_kernel(backend):
            outs.append(F.scaled_dot_product_attention(q, q, q, is_causal=True))
    sum(o.sin().sum() for o in outs).backward()
    return [*outs, q.grad]


@check
def multihead_attention():
    layer = nn.MultiheadAttention(8, 2, dropout=0.2, batch_first=True)
    x = torch.randn(2, 5, 8)
    a = passed(lambda_of(layer, lambda l, x: l(x, x, x)), x)
    b = passed(lambda_of(layer, lambda l, x: l(x, x, x, need_weights=False, key_padding_mask=torch.zeros(2, 5))), x)
    layer.eval()
    with torch.no_grad():
        return [*a, *b, *layer(x, x, x)]


def lambda_of(layer, function):
    """A module that calls a function of a layer."""

    class Call(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = layer

        def forward(self, *inputs):
            return function(self.layer, *inputs)

    return Call()


@check
def transformer():
    model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
    mask = nn.Transformer.generate_square_subsequent_mask(4)
    both = lambda_of(model, lambda m, x, y: m(x, y, tgt_mask=mask, tgt_is_causal=True))
    return passed(both, torch.randn(2, 5, 8), torch.randn(2, 4, 8))


@check
def fast_path_of_the_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=True).eval()
    padding = torch.tensor([[False, False, False, True], [False] * 4])
    with torch.no_grad():
        return model(torch.randn(2, 4, 8)), model(torch.randn(2, 4, 8), src_key_padding_mask=padding)


@check
def recurrent_layers():
    x = torch.randn(2, 5, 4)
    layers = (
        nn.LSTM(4, 6, 2, batch_first=True, dropout=0.2),
        nn.LSTM(4, 6, bidirectional=True, proj_size=3),
        nn.GRU(4, 6, 2, bidirectional=True),
        nn.RNN(4, 6, nonlinearity="relu"),
    )
    return [t for layer in layers for t in passed(layer, x.clone())]


@check
def recurrent_layers_without_gradients():
    x = torch.randn(2, 5, 4)
    with torch.no_grad():
        y, (h, c) = nn.LSTM(4, 6, 2)(x)
        return [y, h, c, *nn.GRU(4, 6).eval()(x), *nn.LSTM(4, 6, bias=False, bidirectional=True)(x)[1]]


@check
def packed_sequences():
    x = torch.randn(3, 5, 4, requires_grad=True)
    packed = nn.utils.rnn.pack_padded_sequence(x, [5, 3, 2], batch_first=True)
    y, (h, _) = nn.LSTM(4, 6)(packed)
    y, lengths = nn.utils.rnn.pad_packed_sequence(y)
    (y.sum() + h.square().sum()).backward()
    return y, h, lengths, x.grad, nn.utils.rnn.pad_sequence([x[0, :2], x[1]])


@check
def recurrent_cells():
    x, h, c = torch.randn(2, 4), torch.zeros(2, 6), torch.zeros(2, 6)
    lstm, gru, rnn = nn.LSTMCell(4, 6), nn.GRUCell(6, 6), nn.RNNCell(6, 6)
    for _ in range(4):
        h, c = lstm(x, (h, c))
        h = gru(rnn(h), h)
    h.sum().backward()
    return [h, c, *grads(lstm), *grads(gru), *grads(rnn)]


@check
def embeddings():
    ids = torch.tensor([[1, 2, 2], [0, 5, 9]])
    a = passed(nn.Embedding(10, 4, padding_idx=0, max_norm=1.0), ids)
    b = passed(nn.Embedding(10, 4, scale_grad_by_freq=True), ids)
    return [t for t in a + b if t is not None]


@check
def embedding_bags():
    ids, offsets = torch.tensor([1, 2, 2, 0, 5, 9]), torch.tensor([0, 2, 2])
    out = []
    for mode in ("sum", "mean", "max"):
        layer = nn.EmbeddingBag(10, 4, mode=mode)
        y = layer(ids, offsets)
        y.square().sum().backward()
        out += [y, layer.weight.grad, layer(ids.view(2, 3))]
    return out


@check
def sparse_embedding():
    table = nn.Embedding(10, 4, sparse=True)
    nn.init.ones_(table.weight)
    optimizer = torch.optim.SGD(table.parameters(), 0.1)
    table(torch.tensor([1, 2, 2])).square().sum().backward()
    optimizer.step()
    return table.weight, table.weight.grad


@check
def activations():
    layers = (
        nn.ELU, nn.Hardshrink, nn.Hardsigmoid, nn.Hardtanh, nn.Hardswish, nn.LeakyReLU, nn.LogSigmoid, nn.PReLU,
        nn.ReLU6, nn.RReLU, nn.SELU, nn.CELU, nn.GELU, nn.Sigmoid, nn.SiLU, nn.Mish, nn.Softplus, nn.Softshrink,
        nn.Softsign, nn.Tanhshrink, nn.GLU, nn.Softmin, nn.Softmax2d, nn.LogSoftmax,
    )  # fmt: skip
    out = []
    for kind in layers:
        layer = kind(1) if kind in (nn.GLU, nn.Softmin, nn.LogSoftmax) else kind()
        out += passed(layer, torch.linspace(-3, 3, 24).view(1, 2, 3, 4))
    return out


@check
def losses():
    x = torch.randn(4, 5)
    y, classes, signs = torch.rand(4, 5), torch.tensor([0, 3, 4, 1]), torch.tensor([1.0, -1, 1, -1])
    pairs = (
        (nn.MSELoss(), y), (nn.L1Loss(), y), (nn.SmoothL1Loss(), y), (nn.HuberLoss(), y), (nn.BCEWithLogitsLoss(), y),
        (nn.KLDivLoss(reduction="batchmean"), y), (nn.PoissonNLLLoss(), y), (nn.SoftMarginLoss(), y.sign()),
        (nn.CrossEntropyLoss(label_smoothing=0.1), classes), (nn.CrossEntropyLoss(), y.softmax(1)),
        (nn.CrossEntropyLoss(torch.rand(5), ignore_index=3), classes), (nn.MultiMarginLoss(), classes),
        (nn.MultiLabelSoftMarginLoss(), y.round()), (nn.MultiLabelMarginLoss(), torch.tensor([[1, 2, -1, 0, 0]] * 4)),
    )  # fmt: skip
    out = [t for loss, target in pairs for t in passed(lambda_of(loss, lambda l, x, t=target: l(x, t)), x.clone())]
    a, b = x.clone().requires_grad_(), y
    more = F.triplet_margin_loss(a, b, b.flip(0)) + F.cosine_embedding_loss(a, b, signs) + F.nll_loss(a.log_softmax(1), classes)
    more = more + F.margin_ranking_loss(a[:, 0], b[:, 0], signs) + F.gaussian_nll_loss(a, b, y + 1) + F.hinge_embedding_loss(a[:, 0], signs)
    more = more + F.binary_cross_entropy(a.sigmoid(), b)
    more.backward()
    return [*out, more, a.grad]


@check
def ctc_loss():
    x = torch.randn(8, 2, 5, requires_grad=True)
    loss = F.ctc_loss(x.log_softmax(2), torch.tensor([[1, 2, 3], [2, 2, 4]]), [8, 7], [3, 2])
    loss.backward()
    return loss, x.grad


@check
def distances():
    x, y = torch.randn(5, 3, requires_grad=True), torch.randn(4, 3)
    out = [torch.cdist(x, y), torch.cdist(x, y, 1.0), F.pdist(x), F.pairwise_distance(x[:4], y), F.cosine_similarity(x[:4], y)]
    sum(o.sum() for o in out).backward()
    bilinear = nn.Bilinear(3, 3, 2)
    return [*out, x.grad, *passed(lambda_of(bilinear, lambda l, a: l(a, y)), torch.randn(4, 3))]
