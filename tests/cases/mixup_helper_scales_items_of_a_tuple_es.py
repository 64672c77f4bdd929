# %% [case]
# id: mixup-helper-scales-items-of-a-tuple-es
# source: the same as mixup_scales_chunks, in a loop over numbers
# family: multi_output_view
# fails: 4
# culprit: 1:14 | 2:11
# saved: -
# needed: 1:14 | 2:11
# effect: same
# observe: [red.codificador.weight.grad.clone(), red.codificador.bias.grad.clone(), red.salida.weight.grad.clone()]
# note: escalar_ multiplies the chunks, views of one tensor, in place. Fix: a list of products.
# %%
from dataclasses import dataclass, field
import torch
from torch import nn, Tensor

@dataclass
class Mezcla:
    # pesos de una mezcla de tres ejemplos
    alfa: float = 0.7
    pesos: list = field(default_factory=list)
    def sortear(self):
        self.pesos = torch.distributions.Dirichlet(torch.full((3,), self.alfa)).sample().tolist()

def escalar_(trozo: Tensor, peso: float) -> None:
    trozo.mul_(peso)
# %%
class Red(nn.Module):
    def __init__(self, mezcla):
        super().__init__()
        self.mezcla = mezcla
        self.codificador = nn.Linear(4, 6)
        self.salida = nn.Linear(6, 2)
    def forward(self, x):
        self.mezcla.sortear()
        trozos = torch.chunk(self.codificador(x).tanh(), chunks=3, dim=0)
        for j in range(len(trozos)):
            escalar_(trozos[j], self.mezcla.pesos[j])
        return self.salida(torch.stack(trozos).sum(0)).log_softmax(-1)
# %%
torch.manual_seed(70)
red = Red(Mezcla())
x, y = torch.rand(9, 4), torch.randint(0, 2, (9,))
# %%
logp = red(x)
# pérdida ponderada por trozo
perdida = 0.
for p, etiquetas in zip(red.mezcla.pesos, y.chunk(3)):
    perdida = perdida + p * nn.functional.nll_loss(logp, etiquetas)
perdida.backward()
print(perdida)
# %% [fixed 2]
class Red(nn.Module):
    def __init__(self, mezcla):
        super().__init__()
        self.mezcla = mezcla
        self.codificador = nn.Linear(4, 6)
        self.salida = nn.Linear(6, 2)
    def forward(self, x):
        self.mezcla.sortear()
        trozos = torch.chunk(self.codificador(x).tanh(), chunks=3, dim=0)
        trozos = [t * p for t, p in zip(trozos, self.mezcla.pesos)]
        return self.salida(torch.stack(trozos).sum(0)).log_softmax(-1)
