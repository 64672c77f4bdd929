# %% [case]
# id: densenet-memory-lent-by-a-context-manager-es
# source: gpleiss/efficient_densenet_pytorch#28 (shared allocation), pytorch/pytorch#1340 ("Variables should never have out arguments")
# family: out_grad
# fails: 4
# culprit: 2:16
# saved: -
# needed: 2:16
# effect: same
# observe: [perdida.detach()] + [p.grad.clone() for p in red.parameters()]
# note: torch.concat(..., out=self.memoria...) escribe en una memoria comun; out= no admite gradientes. Fix: torch.concat sin out.
# %%
import torch
from torch import nn
from contextlib import contextmanager
torch.manual_seed(64)

class Memoria:
    def __init__(self, n): self.plano, self.libre = torch.zeros(n), True

    @contextmanager
    def prestada(self, *forma):
        assert self.libre, 'la memoria esta ocupada'
        self.libre = False
        total = torch.Size(forma).numel()
        yield self.plano[:total].reshape(forma)
        self.libre = True
# %%
class Capa(nn.Sequential):
    def __init__(self, entrada, k):
        super().__init__(nn.BatchNorm1d(entrada), nn.ReLU(), nn.Conv1d(entrada, k, 3, padding=1))

class BloqueDenso(nn.Module):
    def __init__(self, capas, entrada, k, memoria):
        super().__init__()
        self.memoria = memoria
        self.capas = nn.ModuleDict({f'capa{i}': Capa(entrada + i * k, k) for i in range(capas)})

    def forward(self, x):
        mapas = (x,)
        for capa in self.capas.values():
            canales = sum(m.size(1) for m in mapas)
            with self.memoria.prestada(x.size(0), canales, x.size(2)) as destino:
                junto = torch.concat(mapas, dim=1, out=destino)
                mapas += (capa(junto),)
        return torch.concat(mapas, dim=1)
# %%
memoria = Memoria(4 * 12 * 10)
red = nn.Sequential(nn.Conv1d(2, 5, 1), BloqueDenso(3, 5, 2, memoria), nn.AdaptiveMaxPool1d(1), nn.Flatten(), nn.Linear(11, 3))
datos, clases = torch.randn(4, 2, 10), torch.tensor([0, 2, 1, 1])
with torch.no_grad(): assert red(datos).shape == (4, 3)     # funciona
# %%
opt = torch.optim.SGD(red.parameters(), lr=0.05)
for paso in range(2):
    perdida = nn.functional.cross_entropy(red(datos), clases)
    opt.zero_grad(); perdida.backward(); opt.step()
    print(paso, float(perdida))
# %% [fixed 2]
class Capa(nn.Sequential):
    def __init__(self, entrada, k):
        super().__init__(nn.BatchNorm1d(entrada), nn.ReLU(), nn.Conv1d(entrada, k, 3, padding=1))

class BloqueDenso(nn.Module):
    def __init__(self, capas, entrada, k, memoria):
        super().__init__()
        self.memoria = memoria
        self.capas = nn.ModuleDict({f'capa{i}': Capa(entrada + i * k, k) for i in range(capas)})

    def forward(self, x):
        mapas = (x,)
        for capa in self.capas.values():
            junto = torch.concat(mapas, dim=1)
            mapas += (capa(junto),)
        return torch.concat(mapas, dim=1)
