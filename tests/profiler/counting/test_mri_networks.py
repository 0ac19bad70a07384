"""The networks of MRI reconstruction, small, with their MACs worked out: k-space, coils, conjugate gradients, DFTs."""

import itertools
import math

import torch
import torch.nn.functional as F
from torch import nn

from swinmr_profiling.profiler.counting import count_forward, count_training_step

C64 = torch.complex64


def conv_macs(places, *channels, kernel=9):
    """A chain of convolutions of the same size of image."""
    return sum(places * a * b * kernel for a, b in itertools.pairwise(channels))


class Regulariser(nn.Module):
    """Two convolutions on real and imaginary parts as channels."""

    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 2, 3, padding=1)
        )

    def forward(self, image):
        parts = torch.view_as_real(image).permute(0, 3, 1, 2)
        return torch.view_as_complex(self.layers(parts).permute(0, 2, 3, 1).contiguous())


def to_kspace(image, maps):
    return torch.fft.fft2(maps * image[:, None])


def to_image(kspace, maps):
    return (torch.fft.ifft2(kspace) * maps.conj()).sum(1)


class VarNetCascade(nn.Module):
    """E2E-VarNet (Sriram et al. 2020, equation 5): k - eta M (k - k0) + F E(R(reduce(k)))."""

    def __init__(self, width):
        super().__init__()
        self.regulariser = Regulariser(width)
        self.eta = nn.Parameter(torch.ones(1))

    def forward(self, kspace, measured, mask, maps):
        refined = to_kspace(self.regulariser(to_image(kspace, maps)), maps)
        return kspace - self.eta * mask * (kspace - measured) + refined


class VarNet(nn.Module):
    """Sensitivities are estimated, coil by coil, by a network of their own; then cascades."""

    def __init__(self, cascades, width):
        super().__init__()
        self.sensitivities = Regulariser(4)
        self.cascades = nn.ModuleList(VarNetCascade(width) for _ in range(cascades))

    def forward(self, measured, mask):
        batch, coils, height, width = measured.shape
        images = torch.fft.ifft2(measured).reshape(batch * coils, height, width)
        maps = self.sensitivities(images).reshape(measured.shape)
        maps = maps / maps.abs().square().sum(1, keepdim=True).sqrt()
        kspace = measured
        for cascade in self.cascades:
            kspace = cascade(kspace, measured, mask, maps)
        return torch.fft.ifft2(kspace).abs().square().sum(1).sqrt()


def test_e2e_varnet():
    report = count_forward(VarNet(3, 8), (torch.ones(2, 5, 16, 12, dtype=C64), torch.ones(16, 12)))
    # Per image of 16 x 12: five coils through 2-4-2, and three cascades of 2-8-2. FFTs and coils are not products.
    places = 16 * 12
    assert report.macs == 2 * (5 * conv_macs(places, 2, 4, 2) + 3 * conv_macs(places, 2, 8, 2))
    assert report.by_kind["convolution"] == report.macs
    assert report.uncounted_operators == {}
    assert report.counted_on == "meta"
    assert report.macs_complex_as_one == report.macs


def inner(a, b):
    return torch.vdot(a.flatten(), b.flatten())


class MoDL(nn.Module):
    """MoDL (Aggarwal et al. 2019): a denoiser, then (A'A + lambda) x = A'b + lambda z by conjugate gradients.

    steps: of the gradients, fixed; None: until the residual is small, as the paper's code does.
    """

    def __init__(self, rounds, width, steps):
        super().__init__()
        self.denoiser = Regulariser(width)
        self.rounds, self.steps = rounds, steps
        self.weight = nn.Parameter(torch.tensor(0.5))

    def solve(self, right, maps, mask):
        x, residual = torch.zeros_like(right), right
        direction, size = residual, inner(residual, residual).real
        step = 0
        while step < self.steps if self.steps is not None else size > 1e-6:
            applied = to_image(mask * to_kspace(direction, maps), maps) + self.weight * direction
            alpha = size / inner(direction, applied).real
            x, residual = x + alpha * direction, residual - alpha * applied
            size, before = inner(residual, residual).real, size
            direction = residual + size / before * direction
            step += 1
        return x

    def forward(self, measured, maps, mask):
        start = x = to_image(measured, maps)
        for _ in range(self.rounds):
            x = self.solve(start + self.weight * (x + self.denoiser(x)), maps, mask)
        return x


def modl_inputs(places=(8, 8)):
    generator = torch.Generator().manual_seed(0)
    measured = torch.randn(1, 3, *places, dtype=C64, generator=generator)
    maps = torch.ones(1, 3, *places, dtype=C64) / math.sqrt(3)
    return measured, maps, torch.ones(places)


def modl_macs(rounds, products, places):
    """A denoiser 2-6-2 for each round; each inner product is of complex numbers, one for each place."""
    return rounds * conv_macs(places, 2, 6, 2) + products * 4 * places


def test_modl_with_fixed_steps():
    report = count_forward(MoDL(2, 6, steps=5), modl_inputs())
    # One inner product before the gradients, two in each step.
    assert report.macs == modl_macs(2, 2 * (1 + 2 * 5), 64)
    assert report.counted_on == "meta"
    assert report.uncounted_operators == {}


def test_modl_by_tolerance_says_that_another_input_counts_otherwise():
    # All of k-space is measured and the maps have length one: A'A is the identity, and one step solves.
    report = count_forward(MoDL(2, 6, steps=None), modl_inputs())
    assert report.macs == modl_macs(2, 2 * (1 + 2 * 1), 64)
    assert report.counted_on == "cpu"
    assert "another input can give another count" in report.note


def dft_matrix(n):
    k = torch.arange(n)
    return torch.exp(-2j * math.pi * k[:, None] * k[None] / n).to(C64)


def test_explicit_dft_matrices_are_products():
    class DFT(nn.Module):
        def __init__(self, height, width):
            super().__init__()
            self.register_buffer("rows", dft_matrix(height))
            self.register_buffer("columns", dft_matrix(width))

        def forward(self, image):
            return self.rows @ image @ self.columns

    report = count_forward(DFT(16, 12), (torch.ones(2, 16, 12, dtype=C64),))
    # (16 x 16)(16 x 12) and (16 x 12)(12 x 12), complex, per image.
    one = 16 * 16 * 12 + 16 * 12 * 12
    assert (report.macs, report.macs_complex_as_one) == (4 * 2 * one, 2 * one)
    # The same by real matrices: cosines and sines of a real image are two, not four.
    real = count_forward(nn.Linear(16, 2 * 16, bias=False), (torch.ones(2, 12, 16),))
    assert real.macs == 2 * 12 * 16 * 2 * 16


def test_the_fft_of_the_same_size_is_none():
    class FFT(nn.Module):
        def forward(self, image):
            return torch.fft.fft2(image)

    assert count_forward(FFT(), (torch.ones(2, 16, 12, dtype=C64),)).macs == 0


class ComplexUnrolled(nn.Module):
    """Complex convolutions between steps of data consistency, with shared weights."""

    def __init__(self, rounds, width):
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv2d(1, width, 3, padding=1, dtype=C64), nn.Conv2d(width, 1, 3, padding=1, dtype=C64)]
        )
        self.rounds = rounds

    def forward(self, measured, mask):
        image = torch.fft.ifft2(measured)
        for _ in range(self.rounds):
            first, second = self.layers
            inside = first(image[:, None])
            inside = torch.complex(F.relu(inside.real), F.relu(inside.imag))
            image = image + second(inside)[:, 0]
            image = torch.fft.ifft2(torch.where(mask > 0, measured, torch.fft.fft2(image)))
        return image


def test_an_unrolled_complex_network_and_its_training():
    module = ComplexUnrolled(4, 6)
    inputs = (torch.ones(2, 16, 12, dtype=C64), torch.ones(16, 12))
    one = conv_macs(16 * 12, 1, 6, 1)
    report = count_forward(module, inputs)
    assert (report.macs, report.macs_complex_as_one) == (4 * 2 * 4 * one, 2 * 4 * one)

    def step(module, *inputs):
        module(*inputs).abs().sum().backward()

    training = count_training_step(step, module, inputs)
    # Only the first convolution of the first round needs no gradient of its input.
    assert training.macs == 3 * report.macs - 4 * 2 * conv_macs(16 * 12, 1, 6)


class DataTermByGradient(nn.Module):
    """A variational network that takes the gradient of its data term and its regulariser by autograd."""

    def __init__(self, rounds):
        super().__init__()
        self.potential = nn.Conv2d(2, 5, 3, padding=1)
        self.rounds = rounds

    def forward(self, measured, mask):
        image = torch.fft.ifft2(measured)
        for _ in range(self.rounds):
            image = image.detach().requires_grad_()
            data = (mask * torch.fft.fft2(image) - measured).abs().square().sum()
            parts = torch.view_as_real(image).permute(0, 3, 1, 2)
            energy = data + self.potential(parts).square().sum()
            image = image - 0.1 * torch.autograd.grad(energy, image)[0]
        return image


def test_a_variational_network_that_takes_gradients():
    report = count_forward(DataTermByGradient(3), (torch.ones(2, 16, 12, dtype=C64), torch.ones(16, 12)))
    # Each round: the convolution, and once more for its input's gradient.
    assert report.macs == 3 * 2 * 2 * conv_macs(16 * 12, 2, 5)
    assert "takes gradients itself" in report.note
