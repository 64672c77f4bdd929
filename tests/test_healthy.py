"""Training code that is right: a watch must find nothing in it, and leave every bit of its result as it is."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

import inplace_magic

from .cells import new_shell, run_in

STEPS = 3
Training = Callable[[], list[torch.Tensor]]
HEALTHY: list[Training] = []
ALIVE: list[torch.optim.Optimizer] = []  # what is said of one that is gone is nobody's concern


def healthy(training: Training) -> Training:
    HEALTHY.append(training)
    return training


def parameters(*modules: nn.Module) -> list[torch.Tensor]:
    return [value for module in modules for value in module.state_dict().values()]


class Block(nn.Module):
    """A residual block as ResNet has it: the ReLU and the addition in place."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.conv2, self.bn2 = nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += x
        return self.relu(out)


# ---- one kind of training each ------------------------------------------------------------------------------------


@healthy
def a_straight_through_function_beside_a_round_number() -> list[torch.Tensor]:
    class RoundSTE(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.round()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        out = net(torch.ones(4, 3))
        assert (out.round() == 1.0).sum() >= 0
        rounded: torch.Tensor = RoundSTE.apply(out)  # type: ignore[no-untyped-call]
        (rounded.float() - 0.3).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def a_part_that_first_is_behind_a_round_number_and_then_by_itself() -> list[torch.Tensor]:
    encoder, decoder = nn.Linear(3, 2), nn.Linear(2, 1)
    both = torch.optim.SGD([*encoder.parameters(), *decoder.parameters()], lr=0.1)
    for _ in range(STEPS):
        both.zero_grad()
        decoder(encoder(torch.ones(4, 3)).round()).square().sum().backward()
        both.step()
    alone = torch.optim.SGD(encoder.parameters(), lr=0.1)
    for _ in range(STEPS):
        alone.zero_grad()
        encoder(torch.ones(4, 3)).square().sum().backward()
        alone.step()
    return parameters(encoder, decoder)


@healthy
def rows_that_read_other_parts_of_what_they_write() -> list[torch.Tensor]:
    net = nn.Linear(2, 4)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        h = net(torch.randn(3, 2))
        h[:, 1:] += h[:, :1]
        h[:2] -= h[2:]
        h *= h.detach().clone()
        h.view(-1)[0] += h.view(-1)[-1]
        h[:, 0] += h.detach()[:, 0].clone()
        h[0, 1:] = h[0, :1]
        z = torch.view_as_complex(h.view(3, 2, 2).clone())
        z[:2] += z[:2].real
        z[:1] += z[2:].conj()
        h = h + torch.view_as_real(z).reshape(3, 4)
        sparse = torch.eye(3).to_sparse()
        sparse.add_(sparse)
        h.square().mean().backward()
        optimizer.step()
    return parameters(net)


class Pair(NamedTuple):
    scale: torch.Tensor
    shift: torch.Tensor


class Codebook(nn.Module):
    """Vector quantisation: a codebook that moving averages train, read as ``.data``."""

    def __init__(self) -> None:
        super().__init__()
        self.codes = nn.Parameter(torch.randn(5, 3))

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        codes = self.codes.data
        nearest = codes[torch.cdist(z, codes).argmin(1)]
        self.codes.data.mul_(0.9).add_(0.1 * z.detach().mean(0))
        return z + (nearest - z).detach() + 0 * nearest


@healthy
def a_codebook_that_is_read_as_data_and_trained_by_hand() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(2, 3), Codebook(), nn.Linear(3, 1))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(4, 2)).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def leaves_of_a_named_tuple_and_edges_of_the_graph() -> list[torch.Tensor]:
    pair = Pair(torch.ones(2, requires_grad=True), torch.full((2,), 2.0, requires_grad=True))
    y = (pair.scale * pair.shift).exp()
    grads = torch.autograd.grad(y.sum(), pair, create_graph=True)
    edge = torch.autograd.graph.get_gradient_edge(y)
    (more,) = torch.autograd.grad(edge, pair.scale, torch.ones(2), retain_graph=True)
    torch.autograd.backward(iter([(grads[0] * grads[1]).sum()]), inputs=pair)
    return [*grads, more, *(leaf.grad for leaf in pair if leaf.grad is not None)]


@healthy
def losses_that_weigh_each_other_and_are_logged_as_tensors() -> list[torch.Tensor]:
    net, unused = nn.Linear(2, 2), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*net.parameters(), unused], lr=0.1)
    logged = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        first, second = net(torch.randn(4, 2)).square().mean(0)
        weights = torch.tensor([first.item(), second.item()]).softmax(0)
        logged.append(torch.tensor([(unused.detach() * 2).sum().item(), float(first.detach())]))
        (weights * torch.stack([first, second])).sum().backward()
        optimizer.step()
    return [*parameters(net), *logged]


@healthy
def losses_that_are_weighed_by_copies_of_themselves() -> list[torch.Tensor]:
    net = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    totals = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        first, second = net(torch.randn(4, 2)).square().mean(0)
        with warnings.catch_warnings(action="ignore"):
            weights, shown = torch.tensor([first, second]).softmax(0), torch.tensor(second)
        totals.append(first + shown)
        ((weights * torch.stack([first, second])).sum() + (first - shown).square()).backward()
        optimizer.step()
    return [*parameters(net), *totals]


@healthy
def weights_that_are_kept_near_to_where_they_began_and_watched() -> list[torch.Tensor]:
    net, unused = nn.Linear(2, 1), nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([*net.parameters(), unused], lr=0.1)
    begun = [p.data.clone() for p in net.parameters()]
    norms = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        near = sum((p - b).square().sum() for p, b in zip(net.parameters(), begun))
        (net(torch.randn(4, 2)).square().mean() + near).backward()
        norms.append(unused.data.norm() + net.weight.data.norm())
        optimizer.step()
    return [*parameters(net), *norms]


@healthy
def binary_weights_whose_gradients_are_set_by_hand() -> list[torch.Tensor]:
    net, head = nn.Linear(2, 3), nn.Linear(3, 1)
    optimizer = torch.optim.SGD([*net.parameters(), *head.parameters()], lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        signs = net.weight.data.sign().requires_grad_()
        head(F.linear(torch.randn(4, 2), signs, net.bias)).square().mean().backward()
        net.weight.grad = signs.grad
        optimizer.step()
    return parameters(net, head)


@healthy
def residual_conv_net_with_inplace_relu_and_batch_norm() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), Block(4), Block(4), nn.Flatten(), nn.LazyLinear(3))
    net(torch.randn(2, 1, 8, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-3)
    for _ in range(STEPS):
        optimizer.zero_grad()
        F.cross_entropy(net(torch.randn(4, 1, 8, 8)), torch.randint(0, 3, (4,))).backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
    return parameters(net)


@healthy
def inplace_dropout_and_activations() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(5, 8), nn.ReLU6(inplace=True), nn.Dropout(0.3, inplace=True), nn.Linear(8, 8),
                        nn.LeakyReLU(0.1, inplace=True), nn.Linear(8, 1), nn.Hardtanh(inplace=True))  # fmt: skip
    optimizer = torch.optim.RMSprop(net.parameters(), lr=0.01)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        net(torch.randn(6, 5)).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def lstm_with_a_detached_state() -> list[torch.Tensor]:
    lstm, head = nn.LSTM(3, 6, 2, dropout=0.1), nn.Linear(6, 3)
    optimizer = torch.optim.Adam([*lstm.parameters(), *head.parameters()])
    state = (torch.zeros(2, 4, 6), torch.zeros(2, 4, 6))
    for _ in range(STEPS):
        state = tuple(s.detach() for s in state)
        out, state = lstm(torch.randn(5, 4, 3), state)
        optimizer.zero_grad()
        head(out).square().mean().backward()
        optimizer.step()
    return parameters(lstm, head)


@healthy
def gru_cell_with_a_state_that_is_detached_in_place() -> list[torch.Tensor]:
    cell = nn.GRUCell(3, 5)
    optimizer = torch.optim.Adagrad(cell.parameters())
    hidden = torch.zeros(2, 5)
    for _ in range(STEPS):
        for x in torch.randn(4, 2, 3):
            hidden = cell(x, hidden)
        optimizer.zero_grad()
        hidden.square().sum().backward()
        optimizer.step()
        hidden.detach_()
        hidden *= 0.9
    return parameters(cell)


@healthy
def attention_with_masks_filled_in_place() -> list[torch.Tensor]:
    embedding, layer = nn.Embedding(10, 8, max_norm=None), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    optimizer = torch.optim.AdamW([*embedding.parameters(), *layer.parameters()], foreach=True)
    for _ in range(STEPS):
        tokens = torch.randint(0, 10, (2, 6))
        x = embedding(tokens)
        scores = x @ x.transpose(1, 2)
        scores.masked_fill_(torch.ones(6, 6).triu(1).bool(), -1e9)
        x = scores.softmax(-1) @ x
        x = layer(x, src_mask=nn.Transformer.generate_square_subsequent_mask(6), is_causal=True)
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()
    return parameters(embedding, layer)


@healthy
def gan_with_batch_norm_and_one_backward_for_real_and_fake() -> list[torch.Tensor]:
    def make(a: int, b: int) -> nn.Module:
        return nn.Sequential(nn.Linear(a, 8), nn.BatchNorm1d(8), nn.LeakyReLU(0.2, inplace=True), nn.Linear(8, b))

    generator, critic = make(2, 4), make(4, 1)
    step_g = torch.optim.Adam(generator.parameters(), lr=1e-2)
    step_d = torch.optim.Adam(critic.parameters(), lr=1e-2)
    for _ in range(STEPS):
        real, fake = torch.randn(6, 4), generator(torch.randn(6, 2))
        loss_d = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
        step_d.zero_grad()
        loss_d.backward()
        step_d.step()
        step_g.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        step_g.step()
    return parameters(generator, critic)


@healthy
def wgan_with_clipped_weights() -> list[torch.Tensor]:
    critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 1))
    optimizer = torch.optim.RMSprop(critic.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        (critic(torch.randn(5, 4)).mean() - critic(torch.randn(5, 4) + 1).mean()).backward()
        optimizer.step()
        for p in critic.parameters():
            p.data.clamp_(-0.05, 0.05)
    return parameters(critic)


@healthy
def moving_average_of_the_weights() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.BatchNorm1d(2), nn.Conv1d(2, 1, 3))
    ema = copy.deepcopy(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(3, 1, 9)).square().mean().backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(ema.parameters(), net.parameters()):
                slow.lerp_(fast, 0.1)
            for slow, fast in zip(ema.buffers(), net.buffers()):
                slow.copy_(fast)
        backup = [p.data for p in net.parameters()]
        for p, e in zip(net.parameters(), ema.parameters()):
            p.data = e.data
        with torch.no_grad():
            net.eval()(torch.randn(3, 1, 9))
        for p, b in zip(net.train().parameters(), backup):
            p.data = b
    return parameters(net, ema)


@healthy
def weights_swapped_and_put_back_before_the_backward() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Linear(5, 1))
    average = [p.detach() * 0.5 for p in net.parameters()]
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        loss = net(torch.randn(3, 1, 7)).square().mean()
        kept = [p.data for p in net.parameters()]
        for p, a in zip(net.parameters(), average):
            p.data = a
        with torch.no_grad():
            net(torch.randn(3, 1, 7))
        for p, k in zip(net.parameters(), kept):
            p.data = k
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(net)


@healthy
def gradient_accumulation() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 4), nn.SiLU(inplace=False), nn.Linear(4, 1))
    optimizer = torch.optim.NAdam(net.parameters())
    for i in range(4 * STEPS):
        (net(torch.randn(2, 4)).square().mean() / 4).backward()
        if i % 4 == 3:
            optimizer.step()
            optimizer.zero_grad(set_to_none=i % 8 == 3)
    return parameters(net)


@healthy
def autocast_to_bfloat16() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(net.parameters(), fused=True)
    for _ in range(STEPS):
        with torch.autocast("cpu", torch.bfloat16):
            loss = F.cross_entropy(net(torch.randn(6, 4)), torch.randint(0, 2, (6,)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return parameters(net)


@healthy
def checkpointing_of_both_kinds() -> list[torch.Tensor]:
    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Dropout(0.2), nn.Linear(4, 4))

    first, second, third = block(), block(), block()
    everything = [p for b in (first, second, third) for p in b.parameters()]
    optimizer = torch.optim.Adam(everything)
    for _ in range(STEPS):
        x = first(torch.randn(5, 4))
        x = checkpoint(second, x, use_reentrant=False)
        x = checkpoint(third, x, use_reentrant=True)
        optimizer.zero_grad()
        x.square().mean().backward()
        optimizer.step()
    return parameters(first, second, third)


@healthy
def checkpointing_with_batch_norm() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(inplace=True))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        checkpoint(net, torch.randn(6, 4), use_reentrant=False).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def spectral_and_weight_norm() -> list[torch.Tensor]:
    net = nn.Sequential(
        nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)),
        nn.ReLU(inplace=True),
        nn.utils.parametrizations.weight_norm(nn.Linear(6, 6)),
        nn.utils.spectral_norm(nn.Linear(6, 1)),
    )
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(5, 4)).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def spectral_norm_used_twice_before_one_backward() -> list[torch.Tensor]:
    net = nn.Sequential(nn.utils.spectral_norm(nn.Linear(4, 6)), nn.ReLU(inplace=True),
                        nn.utils.parametrizations.spectral_norm(nn.Linear(6, 1)))  # fmt: skip
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        (net(torch.randn(5, 4)).mean() - net(torch.randn(5, 4)).mean()).backward()
        optimizer.step()
    return parameters(net)


@healthy
def sharpness_aware_minimisation() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        x = torch.randn(5, 4)
        net(x).square().mean().backward()
        steps = []
        with torch.no_grad():
            for p in net.parameters():
                steps.append(0.05 * p.grad / p.grad.norm())
                p.add_(steps[-1])
        optimizer.zero_grad()
        net(x).square().mean().backward()
        for p, s in zip(net.parameters(), steps):
            p.data.sub_(s)
        optimizer.step()
        optimizer.zero_grad()
    return parameters(net)


@healthy
def gradient_penalty() -> list[torch.Tensor]:
    critic = nn.Sequential(nn.Linear(3, 6), nn.Softplus(), nn.Linear(6, 1))
    optimizer = torch.optim.Adam(critic.parameters())
    for _ in range(STEPS):
        x = torch.randn(5, 3, requires_grad=True)
        score = critic(x).mean()
        (gradient,) = torch.autograd.grad(score, x, create_graph=True)
        optimizer.zero_grad()
        (score + (gradient.norm(dim=1) - 1).square().mean()).backward()
        optimizer.step()
    return parameters(critic)


@healthy
def q_learning_with_a_target_net() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    target = copy.deepcopy(net).requires_grad_(False)
    optimizer = torch.optim.Adam(net.parameters(), fused=True)
    memory = [(torch.randn(4), int(i) % 2, float(i), torch.randn(4)) for i in range(12)]
    for step in range(STEPS):
        state, action, reward, following = zip(*memory[step * 3 : step * 3 + 6])
        value = net(torch.stack(state)).gather(1, torch.tensor(action)[:, None])
        with torch.no_grad():
            wanted = torch.tensor(reward) + 0.9 * target(torch.stack(following)).max(1).values
        optimizer.zero_grad()
        F.smooth_l1_loss(value[:, 0], wanted).backward()
        for p in net.parameters():
            p.grad.data.clamp_(-1, 1)
        optimizer.step()
        target.load_state_dict(net.state_dict())
        for slow, fast in zip(target.parameters(), net.parameters()):
            slow.data.mul_(0.5).add_(fast.data, alpha=0.5)
    return parameters(net, target)


@healthy
def variational_autoencoder() -> list[torch.Tensor]:
    encoder, decoder = nn.Linear(6, 4), nn.Sequential(nn.Linear(2, 6), nn.Sigmoid())
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(STEPS):
        x = torch.rand(5, 6)
        mean, log_variance = encoder(x).chunk(2, dim=1)
        std = torch.exp(0.5 * log_variance)
        z = torch.randn_like(std).mul_(std).add_(mean)
        kl = -0.5 * (1 + log_variance - mean.pow(2) - log_variance.exp()).sum()
        optimizer.zero_grad()
        (F.binary_cross_entropy(decoder(z), x, reduction="sum") + kl).backward()
        optimizer.step()
    return parameters(encoder, decoder)


@healthy
def vector_quantisation_with_a_codebook_that_follows() -> list[torch.Tensor]:
    encoder, decoder, book = nn.Linear(4, 3), nn.Linear(3, 4), nn.Embedding(5, 3)
    book.weight.requires_grad_(False)
    optimizer = torch.optim.Adam([*encoder.parameters(), *decoder.parameters()])
    for _ in range(STEPS):
        x = torch.randn(6, 4)
        z = encoder(x)
        distance = z.square().sum(1, keepdim=True) - 2 * z @ book.weight.t() + book.weight.square().sum(1)
        hot = F.one_hot(distance.argmin(1), 5).to(z.dtype)
        nearest = hot @ book.weight
        loss = F.mse_loss(nearest.detach(), z)
        book.weight.data.mul_(0.9).add_(hot.t() @ z.detach(), alpha=0.1)
        nearest = z + (nearest - z).detach()
        optimizer.zero_grad()
        (loss + F.mse_loss(decoder(nearest), x)).backward()
        optimizer.step()
    return parameters(encoder, decoder, book)


@healthy
def adversarial_training_with_an_attack_in_eval_mode() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(inplace=True), nn.Linear(6, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        x, y = torch.randn(5, 4), torch.randint(0, 2, (5,))
        delta = torch.zeros_like(x, requires_grad=True)
        net.eval()
        for _ in range(2):
            F.cross_entropy(net(x + delta), y).backward()
            delta.data.add_(delta.grad.sign(), alpha=0.1).clamp_(-0.2, 0.2)
            delta.grad.zero_()
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(x + delta.detach()), y).backward()
        optimizer.step()
    return parameters(net)


@healthy
def lbfgs_with_a_closure() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=4, line_search_fn="strong_wolfe")
    x, y = torch.randn(8, 3), torch.randn(8, 1)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), y)
        loss.backward()
        return loss

    for _ in range(STEPS):
        optimizer.step(closure)
    return parameters(net)


@healthy
def functional_call_and_meta_learning() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(STEPS):
        fast = dict(net.named_parameters())
        for _ in range(2):
            loss = torch.func.functional_call(net, fast, (torch.randn(4, 3),)).square().mean()
            gradients = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
            fast = {name: p - 0.1 * g for (name, p), g in zip(fast.items(), gradients)}
        optimizer.zero_grad()
        torch.func.functional_call(net, fast, (torch.randn(4, 3),)).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def embeddings_with_sparse_gradients_and_max_norm() -> list[torch.Tensor]:
    bag, table, head = nn.EmbeddingBag(9, 4, sparse=True), nn.Embedding(9, 4, max_norm=1.0), nn.Linear(4, 1)
    sparse = torch.optim.SparseAdam(bag.parameters())
    dense = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.1)
    for _ in range(STEPS):
        words = torch.randint(0, 9, (3, 5))
        loss = head(bag(words) + table(words).mean(1)).square().mean()
        sparse.zero_grad()
        dense.zero_grad()
        loss.backward()
        sparse.step()
        dense.step()
    return parameters(bag, table, head)


@healthy
def data_that_lives_in_numpy() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))
    with torch.no_grad():
        net[0].weight.copy_(torch.from_numpy(numpy.arange(12, dtype=numpy.float32).reshape(4, 3) / 12))
        net[2].bias.numpy()[:] = 0.5
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    buffer = numpy.zeros((5, 3), dtype=numpy.float32)
    batch = torch.from_numpy(buffer)
    losses = []
    for step in range(STEPS):
        buffer[:] = step + numpy.arange(15).reshape(5, 3)
        loss = net(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach().numpy())
        buffer *= 0
    rows = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.from_numpy(buffer)), batch_size=2)
    for (x,) in rows:
        x += 1
        optimizer.zero_grad()
        net(x).square().mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def static_buffers_refilled_after_each_backward() -> list[torch.Tensor]:
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    static = torch.zeros(5, 3)
    for _ in range(STEPS):
        static.copy_(torch.randn(5, 3))
        optimizer.zero_grad()
        net(static).tanh().sum().backward()
        optimizer.step()
        static.data.zero_()
    return parameters(net)


@healthy
def custom_function_that_keeps_shapes_and_tensors_on_ctx() -> list[torch.Tensor]:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):  # type: ignore[no-untyped-def]
            ctx.factor, ctx.shape, ctx.x = factor, x.shape, x
            ctx.save_for_backward(x)
            return x * factor

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            return g * ctx.factor + 0 * x, None

    class Rectify(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):  # type: ignore[no-untyped-def]
            ctx.mark_dirty(x)
            x.clamp_(min=0)
            ctx.save_for_backward(x)
            return x

        @staticmethod
        def backward(ctx, g):  # type: ignore[no-untyped-def]
            (x,) = ctx.saved_tensors
            return g * (x > 0)

    net = nn.Linear(3, 3)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        optimizer.zero_grad()
        h = Scale.apply(net(torch.randn(4, 3)), 2.0)
        Rectify.apply(h + 0).sum().backward()
        optimizer.step()
        h.data.zero_()
    return parameters(net)


@healthy
def double_backward_with_a_retained_graph() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for _ in range(STEPS):
        out = net(torch.randn(4, 3))
        optimizer.zero_grad()
        out[:, 0].mean().backward(retain_graph=True)
        out[:, 1].mean().backward()
        optimizer.step()
    return parameters(net)


@healthy
def hooks_and_a_logged_activation() -> list[torch.Tensor]:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 1))
    seen: list[torch.Tensor] = []
    net[0].register_forward_hook(lambda module, args, out: seen.append(out.detach().clone()))
    net[2].weight.register_hook(lambda g: g * 0.5)
    optimizer = torch.optim.Adam(net.parameters())
    for _ in range(STEPS):
        optimizer.zero_grad()
        net(torch.randn(4, 3)).sum().backward()
        optimizer.step()
        seen[-1].clamp_(0, 1)
        seen[-1] /= 2
    return parameters(net)


class Sharpness(torch.optim.Optimizer):
    """Sharpness-aware minimisation: two backwards in one step, the gradients cleared when it ends."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, {})
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)

    @torch.no_grad()
    def step(self, closure: Callable[[], torch.Tensor]) -> torch.Tensor:  # type: ignore[override]
        held = [p for group in self.param_groups for p in group["params"]]
        with torch.enable_grad():
            loss = closure()
        moves = [0.05 * p.grad for p in held]
        for p, move in zip(held, moves, strict=True):
            p.add_(move)
        self.zero_grad()
        with torch.enable_grad():
            closure()
        for p, move in zip(held, moves, strict=True):
            p.sub_(move)
        self.base.step()
        self.zero_grad()
        return loss


@healthy
def optimizers_that_are_handed_a_closure() -> list[torch.Tensor]:
    nets = [nn.Linear(4, 1) for _ in range(3)]
    makers = torch.optim.Adam, torch.optim.LBFGS, Sharpness
    optimizers = [make(net.parameters()) for make, net in zip(makers, nets, strict=True)]
    ALIVE.extend(optimizers)
    x, y = torch.randn(16, 4), torch.randn(16, 1)
    for net, optimizer in zip(nets, optimizers, strict=True):

        def closure(net: nn.Module = net, optimizer: torch.optim.Optimizer = optimizer) -> torch.Tensor:
            if isinstance(optimizer, torch.optim.LBFGS):
                optimizer.zero_grad()
            loss = (net(x) - y).pow(2).mean()
            loss.backward()
            return loss

        for _ in range(STEPS):
            optimizer.zero_grad()
            optimizer.step(closure)
    return parameters(*nets)


def ids(trainings: list[Training]) -> Iterator[str]:
    return (training.__name__.replace("_", " ") for training in trainings)


def state_of_torch() -> tuple[object, ...]:
    return (
        torch.get_rng_state().numpy().tobytes(),
        torch.is_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.autograd.backward,
        torch.autograd.grad,
        torch.autograd.Function.__dict__["apply"],
    )


@pytest.mark.parametrize("training", HEALTHY, ids=ids(HEALTHY))
@pytest.mark.filterwarnings("ignore")
def test_a_watch_finds_nothing_and_changes_nothing(training: Training) -> None:
    torch.manual_seed(7)
    plain = training()
    after_plain = state_of_torch()
    torch.manual_seed(7)
    with inplace_magic.check() as seen:
        watched = training()
    assert [f.sentence for f in seen.findings] == []
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert state_of_torch() == after_plain
    assert seen.backwards > 0


@pytest.mark.parametrize(
    "training",
    [
        residual_conv_net_with_inplace_relu_and_batch_norm,
        gan_with_batch_norm_and_one_backward_for_real_and_fake,
        data_that_lives_in_numpy,
        checkpointing_of_both_kinds,
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_the_magic_finds_nothing_and_changes_nothing(training: Training) -> None:
    cells = ["import torch", "torch.manual_seed(7)\n_ = torch.randn(1)"]
    results = []
    for magic in ("", "%%autograd_check\n"):
        shell = new_shell()
        shell.user_ns["training"] = training
        run = run_in(shell, [*cells, f"{magic}values = training()\nstate = torch.get_rng_state()"])
        assert run.error is None and run.diagnosis is None
        assert ("nothing found" in run.output) == bool(magic)
        results.append([*shell.user_ns["values"], shell.user_ns["state"]])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
