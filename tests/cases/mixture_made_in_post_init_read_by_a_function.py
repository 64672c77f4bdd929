# %% [case]
# id: mixture-made-in-post-init-read-by-a-function
# source: https://github.com/pytorch/pytorch/issues/11192 (Cannot Backward Twice Through Distribution), in other words
# family: second_backward
# fails: 4
# culprit: 2:2
# saved: 1:15 | 1:16
# needed: 4:4
# effect: other
# observe: [surprise.detach()] + [p.grad.clone() for p in mix.tensors().values()]
# note: __post_init__ of the dataclass makes the mixture, which computes log_width.exp() and the normalised logits and keeps them; the first backward frees that part of the graph, the second step goes through it again. Human fix: a property that makes it anew from the parameters.
# %%
from dataclasses import dataclass
import torch
from torch import distributions as td

@dataclass
class Mixture1d:
    centres: torch.Tensor
    log_width: torch.Tensor
    logits: torch.Tensor

    def __post_init__(self):
        for t in self.tensors().values():
            t.requires_grad_()
        self.dist = td.MixtureSameFamily(
            td.Categorical(logits=self.logits),
            td.Normal(self.centres, self.log_width.exp()))

    def tensors(self):
        return {"centres": self.centres, "log_width": self.log_width, "logits": self.logits}
# %%
def surprise_of(mix, waits):
    return -mix.dist.log_prob(waits).mean()
# %%
torch.manual_seed(27)
waits = torch.cat([54 + 6 * torch.randn(30), 80 + 6 * torch.randn(50)]) / 10
waits = waits[torch.randperm(80)]
mix = Mixture1d(torch.tensor([5.0, 9.0]), torch.zeros(2), torch.zeros(2))
adam = torch.optim.Adam(mix.tensors().values(), lr=0.05)
# %%
for start in range(0, 80, 20):
    surprise = surprise_of(mix, waits[start:start + 20])
    adam.zero_grad()
    surprise.backward()
    adam.step()
print(mix.tensors())
# %% [fixed 1]
from dataclasses import dataclass
import torch
from torch import distributions as td

@dataclass
class Mixture1d:
    centres: torch.Tensor
    log_width: torch.Tensor
    logits: torch.Tensor

    def __post_init__(self):
        for t in self.tensors().values():
            t.requires_grad_()

    @property
    def dist(self):
        return td.MixtureSameFamily(
            td.Categorical(logits=self.logits),
            td.Normal(self.centres, self.log_width.exp()))

    def tensors(self):
        return {"centres": self.centres, "log_width": self.log_width, "logits": self.logits}
