# %% [case]
# id: activation-zeroed-at-token-positions
# source: https://github.com/ndif-team/nnsight/pull/126, https://discuss.pytorch.org/t/post-processing-model-output-while-retaining-gradients/181602
# family: view_of_leaf
# fails: 4
# culprit: 2:13
# saved: -
# needed: 2:13
# effect: same
# observe: [embeds.grad.clone(), torch.tensor(scores)]
# note: The intervention writes zeros into slices of what it is handed; at the first hook point that is the embedding leaf whose gradient is wanted. Fix: the out-of-place counterpart, here on a clone, so that the caller's leaf keeps its values. The PR names the error and the zero() intervention; the model is ours.
# %%
import torch
from torch import nn
torch.manual_seed(126)
# %%
class Envoy:
    """hook points of a model, with interventions by name"""
    def __init__(self):
        self.interventions = {}

    def zero(self, name, positions):
        self.interventions[name] = positions

    def __call__(self, name, activation):
        if name not in self.interventions:
            return activation
        for pos in self.interventions[name]:
            activation[:, pos].zero_()
        return activation


class TinyTransformer(nn.Module):
    def __init__(self, dim=4, vocab=6):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(2))
        self.mix = nn.Linear(3, 3)
        self.unembed = nn.Linear(dim, vocab)
    def forward(self, x, envoy):
        x = envoy("embed", x)
        for i, block in enumerate(self.blocks):
            x = envoy(f"block{i}", x + self.mix(block(x).transpose(1, 2)).transpose(1, 2))
        return self.unembed(x)
# %%
model = TinyTransformer().requires_grad_(False)
embeds = torch.randn(2, 3, 4, requires_grad=True)
answer, scores = 3, []
# %%
for name, positions in [("block0", [1]), ("embed", [0, 2])]:
    envoy = Envoy()
    envoy.zero(name, positions)
    logits = model(embeds, envoy)
    score = logits[:, -1].log_softmax(-1)[:, answer].sum()
    score.backward()
    scores.append(score.item())
print(scores, embeds.grad.norm(dim=-1))
# %% [fixed 2]
class Envoy:
    """hook points of a model, with interventions by name"""
    def __init__(self):
        self.interventions = {}

    def zero(self, name, positions):
        self.interventions[name] = positions

    def __call__(self, name, activation):
        if name not in self.interventions:
            return activation
        activation = activation.clone()
        for pos in self.interventions[name]:
            activation[:, pos].zero_()
        return activation


class TinyTransformer(nn.Module):
    def __init__(self, dim=4, vocab=6):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU()) for _ in range(2))
        self.mix = nn.Linear(3, 3)
        self.unembed = nn.Linear(dim, vocab)
    def forward(self, x, envoy):
        x = envoy("embed", x)
        for i, block in enumerate(self.blocks):
            x = envoy(f"block{i}", x + self.mix(block(x).transpose(1, 2)).transpose(1, 2))
        return self.unembed(x)
