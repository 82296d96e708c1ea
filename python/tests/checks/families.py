"""Families of operators."""

import torch

from . import check


def sample(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(7))


@check
def pointwise():
    x, y = sample(4, 5), sample(5)
    names = (
        "abs acos acosh asin atan ceil cos cosh deg2rad digamma erf erfc erfinv exp exp2 expm1 floor frac lgamma log log10 "
        "log1p log2 logit neg positive reciprocal round rsqrt sgn sigmoid sign signbit sin sinc sinh sqrt square tan tanh "
        "trunc i0 isfinite isnan isinf nan_to_num"
    )
    one = [getattr(torch, name)(x) for name in names.split()]
    names = "add sub mul div atan2 fmod remainder hypot maximum fmin copysign logaddexp nextafter heaviside xlogy floor_divide"
    two = [getattr(torch, name)(x, y) for name in names.split()]
    return [*one, *two, torch.addcdiv(x, y, y, value=2), torch.lerp(x, y, 0.3), torch.where(x > 0, x, y), x**2, 2**x, x.clip(y - 1, y)]


@check
def special_functions():
    x = sample(6).abs()
    names = "bessel_j0 bessel_y1 modified_bessel_i0 entr erfcx i1 i1e log_ndtr ndtri spherical_bessel_j0"
    return [getattr(torch.special, name)(x) for name in names.split()] + [torch.special.zeta(x + 1.5, 2.0), torch.polygamma(1, x)]


@check
def comparisons_and_bits():
    x, y = torch.arange(8), torch.arange(8).flip(0)
    names = "eq ne lt ge logical_and logical_xor bitwise_and bitwise_or bitwise_xor gcd lcm bitwise_left_shift"
    out = [getattr(torch, name)(x, y) for name in names.split()]
    return [*out, ~x, torch.isin(x, y[:3]), torch.isclose(x.float(), y.float()), torch.equal(x, y), bool((x == y).any())]


@check
def reductions():
    x = sample(4, 5)
    names = "sum mean prod std var amax amin argmax argmin all any logsumexp nansum norm"
    out = [getattr(torch, name)(x, dim=1) for name in names.split()]
    whole = [x.sum(), x.max(), x.min(), x.mean(), x.norm(), x.median(), x.nanmedian(), torch.count_nonzero(x), torch.aminmax(x)]
    pairs = [x.max(0), x.min(1), x.median(0), x.mode(0), x.kthvalue(2, 1), torch.var_mean(x, 1), torch.cummax(x, 0), torch.cummin(x, 1)]
    more = [x.cumsum(0), x.cumprod(1), x.logcumsumexp(0), x.quantile(0.3), x.diff(), torch.trapezoid(x), x.softmax(0), x.renorm(2, 0, 1)]
    return [*out, *whole, *map(tuple, pairs), *more]


@check
def indexing():
    x, i = sample(4, 5), torch.tensor([2, 0, 0])
    j = torch.tensor([[0, 4], [1, 1], [2, 2], [3, 0]])
    return (
        x[i], x[i, 1:], x[:, i], x[i, torch.tensor([1, 2, 3])], x[None, ..., -1], x[1, 2], x[x > 0], x[::2, [0, 3]],
        x.index_select(1, i), x.gather(1, j), x.take(i), torch.take_along_dim(x, j, 1), x.select(0, 2), x.masked_fill(x > 0, 9),
        torch.tril_indices(3, 3), x.diag(), torch.diag_embed(x), torch.meshgrid(i, i, indexing="ij"),
    )  # fmt: skip


@check
def scatters():
    x, i = torch.zeros(4, 5), torch.tensor([[0, 1], [2, 2]])
    s = sample(2, 2)
    return (
        x.scatter(1, i, s), x.scatter_add(1, i, s), x.scatter_reduce(1, i, s, "amax"), x.index_add(0, i[0], sample(2, 5)),
        x.index_copy(0, i[0], sample(2, 5)), x.index_fill(1, i[1], 3), x.index_reduce(0, i[0], sample(2, 5), "prod"),
        x.masked_scatter(x == 0, sample(20)), x.put(i, s), x.slice_scatter(s[0].expand(4, 2), 1, 0, 2), x.select_scatter(sample(5), 0, 1),
        x.diagonal_scatter(sample(4)), torch.bincount(i.flatten(), minlength=4), torch.histc(s, 3), torch.histogram(s, 3),
    )  # fmt: skip


@check
def gradients_of_indexing():
    x = sample(4, 5).requires_grad_()
    i = torch.tensor([[0, 1], [2, 2]])
    y = x.gather(1, i).sum() + x[[0, 0, 3]].square().sum() + x.masked_select(x > 0).sum() + x.sort(1)[0][:, 0].sum()
    y = y + x.topk(2)[0].prod() + x.max(0)[0].sum() + x.unfold(0, 2, 1).cos().sum() + x.roll(1, 1).cumprod(1).sum()
    y.backward()
    return y, x.grad


@check
def sorts():
    x = sample(6, 5)
    lines = torch.tensor([1.0, 2, 3])
    return (
        x.sort(0), x.sort(dim=1, descending=True, stable=True), x.argsort(), x.topk(2), x.topk(3, 0, largest=False), torch.msort(x),
        torch.searchsorted(lines, x), torch.bucketize(x, lines), x.round().unique(return_inverse=True, return_counts=True),
        x.round().unique(dim=0), torch.unique_consecutive(x.round()), torch.combinations(lines), torch.cartesian_prod(lines, lines),
    )  # fmt: skip


@check
def shapes_by_value():
    x = torch.tensor([1.0, 0, 2, 0, 3]) * 2
    i = x.nonzero()
    m = x[x > 1]
    return i, m, m * 2, torch.unique(x), x.masked_select(x > 3)


@check
def shapes_by_value_in_a_chain():
    x = sample(40).exp()
    for _ in range(4):
        x = x[x > x.mean()] * 1.1
        x = torch.cat([x, x.sin(), torch.ones_like(x).repeat_interleave((x.detach() > 1).long())])
    return x, *torch.where(x > 1), x.argwhere(), torch.nonzero_static(x, size=3)


@check
def joins_and_makers():
    x, y = sample(2, 3), sample(2, 3)
    made = [torch.full((2, 2), 3.0), torch.eye(3), torch.linspace(0, 1, 5), torch.logspace(0, 1, 3), x.new_ones(2), torch.zeros_like(x)]
    return [
        *made, torch.cat([x, y], 1), torch.stack([x, y]), torch.hstack([x, y]), torch.dstack([x, y]), torch.block_diag(x, y), x.repeat(2, 1),
        x.tile(2), x.repeat_interleave(2, 0), x.roll(1), x.flip(0), torch.rot90(x), torch.kron(x, y), torch.broadcast_to(x[0], (2, 3)),
        torch.tril(x), torch.triu(x, 1), torch.vander(x[0]), torch.tensor([[1, 2], [3, 4]]), torch.as_tensor(x), torch.scalar_tensor(2.0),
        torch.hann_window(5), torch.empty(2, 3).fill_(1),
    ]  # fmt: skip


@check
def products():
    a, b, v = sample(3, 4), sample(4, 2), sample(4)
    batch = sample(2, 3, 4)
    return (
        a @ b, a @ v, v.dot(v), torch.vdot(v, v), torch.outer(v, v), torch.bmm(batch, batch.mT), batch @ b, torch.einsum("bij,jk->bki", batch, b),
        torch.addmm(torch.ones(2), a, b), torch.baddbmm(torch.ones(3, 3), batch, batch.mT), torch.addmv(torch.ones(3), a, v),
        torch.addr(torch.zeros(4, 4), v, v), torch.chain_matmul(a, b), torch.tensordot(batch, b, 1), torch.cross(a[:, :3], a[:, :3].flip(0), 1),
        torch.inner(a, v), torch.linalg.multi_dot([a, b, b.mT]), torch.cov(a), torch.corrcoef(a),
    )  # fmt: skip


@check
def linalg():
    x = torch.randn(4, 4)
    return torch.linalg.svd(x @ x.t())[1], torch.linalg.inv(x), torch.linalg.qr(x)[0]


@check
def linalg_of_all_kinds():
    x = sample(4, 4)
    s = x @ x.mT + torch.eye(4)
    one = "cholesky det slogdet eigh eigvalsh matrix_exp matrix_norm pinv lu_factor ldl_factor eigvals inv_ex cond lu"
    out = [getattr(torch.linalg, name)(s) for name in one.split()]
    two = [torch.linalg.solve(s, x), torch.linalg.lstsq(s, x).solution, torch.cholesky_solve(x, s), torch.linalg.solve_triangular(s, x, upper=True)]
    more = [torch.linalg.matrix_power(s, 3), torch.linalg.vector_norm(x, 3), torch.linalg.matrix_rank(s), torch.linalg.householder_product(x, x[0])]
    return [*map(plain, out), *two, *more, torch.linalg.tensorsolve(s.view(2, 2, 4), x[:2, :2]), torch.linalg.lu_solve(*torch.linalg.lu_factor(s), x)]


def plain(value):
    return tuple(value) if isinstance(value, tuple) else value


@check
def gradients_of_linalg():
    x = sample(4, 4).requires_grad_()
    s = x @ x.mT + torch.eye(4)
    y = torch.linalg.cholesky(s).sum() + torch.linalg.slogdet(s)[1] + torch.linalg.svdvals(x).sum() + torch.linalg.eigvalsh(s).square().sum()
    (y + torch.linalg.solve(s, x).sum() + torch.linalg.inv(s).sum() + torch.linalg.qr(x)[1].diagonal().prod()).backward()
    return y, x.grad


@check
def complex_and_fft():
    x = torch.ones(8) * 2
    return torch.fft.rfft(x).abs(), torch.view_as_real(torch.fft.fft(x)), torch.fft.fft(x).conj() * 2


@check
def fourier():
    x = sample(4, 8)
    z = torch.fft.fft2(x)
    back = torch.fft.irfft(torch.fft.rfft(x, norm="ortho"), norm="ortho")
    short = torch.stft(x, 4, 2, window=torch.ones(4), return_complex=True)
    return z, back, torch.fft.fftshift(z), torch.fft.hfft(z), torch.fft.ifftn(z).real, short, torch.istft(short, 4, 2, window=torch.ones(4))


@check
def complex_numbers():
    z = torch.complex(sample(3), sample(3).flip(0)).requires_grad_()
    w = z.conj() * z + z.exp() / (1 + 2j)
    lazy = z.detach().conj()
    negative = lazy.imag
    (w.abs().sum() + z.angle().sum() + z.real.sum()).backward()
    more = torch.polar(sample(3).abs(), sample(3)), torch.mv(torch.diag(lazy), lazy), lazy.resolve_conj(), negative.resolve_neg() + 1
    return w, z.grad, lazy * 2, negative, *more


@check
def no_elements_and_one():
    none, one = torch.zeros(0, 3), torch.tensor(2.0)
    w = torch.ones(3, 2, requires_grad=True)
    (none @ w).sum().backward()
    y = one.exp()
    y.mul_(one)
    return none @ w, w.grad, none.sum(), none.mean(0), torch.cat([none, torch.ones(1, 3)]), y, y.view(1), y.expand(0), none.sort(), y.sort()


@check
def foreach_and_stacks():
    xs = [sample(n) for n in (1, 4, 0, 3)]
    out = torch._foreach_add(xs, 1), torch._foreach_addcmul(xs, xs, xs, 0.5), torch._foreach_maximum(xs, xs), torch._foreach_exp(xs)
    return [t for group in out for t in group] + [torch.cat(xs), torch.nested.nested_tensor(xs).to_padded_tensor(0)]


@check
def assertions_and_metadata():
    x = sample(3)
    torch._assert_async(x.isfinite().all())
    torch.testing.assert_close(x * 1, x)
    return x.shape, x.dtype, x.is_contiguous(), (x * 2).storage_offset(), x.element_size(), len(x), x.size(0), tuple(x.stride())
