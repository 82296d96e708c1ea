"""Views, and writes through them."""

import torch

from . import check


@check
def views():
    x = torch.arange(24.0).sin().view(4, 6)
    y = x.t()[1:4].unsqueeze(0).expand(2, 3, 4)
    return y + 1, x.view(-1)[3:7], y.reshape(-1), torch.as_strided(x, (2, 2), (1, 2))


@check
def views_only_are_returned():
    x = torch.arange(24.0).sin().view(2, 3, 4)
    return x.diagonal(0, 1, 2), x.unfold(2, 2, 1), x.permute(2, 0, 1), x.movedim(0, 2), x.narrow(1, 1, 2)


@check
def a_view_outlives_its_base():
    def inner():
        x = torch.arange(30.0).cos()
        return x[10:20]

    y = inner()
    z = y.exp()
    return y * z, y


@check
def split_and_chunk():
    x = torch.arange(24.0).exp2().view(4, 6)
    a, b = x.split([2, 4], 1)
    c, d = x.chunk(2)
    e = x.unbind(0)
    a.mul_(2)
    return [a + c[:1, :2], b, d, *torch.tensor_split(x, 3, 1), *e, *torch.hsplit(x, 2)]


@check
def views_of_another_type():
    x = torch.arange(8.0).cos()
    bits = x.view(torch.int32)
    bits[0] = 0
    z = torch.view_as_complex(x.view(4, 2))
    z.mul_(1j)
    return x, bits.view(torch.uint8) + 1, z.real, z.imag.clone(), torch.view_as_real(z)


@check
def writes_through_views():
    x = torch.zeros(4, 6) + 1
    y = x * 2
    x[:, 0] = 5
    x.view(-1)[3:9].mul_(3)
    z = x.cos()
    x.t()[2].copy_(y[0, :4])
    return x, y, z


@check
def writes_through_views_with_gradients():
    w = torch.ones(4, 4, requires_grad=True)
    x = w * 2
    v = x[1:3]
    v.mul_(3)
    x.t()[0].exp_()
    row = x[0].detach()
    x.sum().backward()
    return x, v, row, w.grad


@check
def detached_views_share_bytes():
    x = (torch.ones(4, requires_grad=True) * 3).sigmoid()
    y = x.detach()
    z = x.data
    z += 1
    return x, y, z * 2


@check
def overlapping_views():
    x = torch.arange(6.0).exp()
    x[1:].copy_(x[:-1].clone())
    y = x.expand(3, 6)
    z = x.as_strided((3, 3), (1, 1))
    return x, y.sum(0), z @ z


@check
def reshapes_that_copy():
    x = torch.arange(24.0).sin().view(2, 3, 4)
    y = x.transpose(0, 2).reshape(6, 4)
    y.zero_()
    return x.transpose(0, 2).contiguous(), x.flatten(1), x.ravel() * 1, y, x.mT.clone()


@check
def channels_last():
    from torch import nn

    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3))
    model.to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 9, 9).contiguous(memory_format=torch.channels_last)
    y = model(x)
    y.square().sum().backward()
    return [y, *(p.grad for p in model.parameters())]
