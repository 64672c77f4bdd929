# %% [case]
# id: dense-layer-computes-with-data-es
# source: github.com/d2l-ai/d2l-en pull 2600 (custom layer: self.weight and self.bias must be used instead of self.weight.data and self.bias.data)
# family: silent
# fails: -
# culprit: 2:9
# saved: -
# needed: 4:6
# effect: same
# observe: [p.grad for p in red.parameters()] + [p.detach().clone() for p in red.parameters()] + [historial]
# note: The forward of the layer computes with .data, so its weight and bias get no gradient (grad stays None) and never change; only the last layer learns. Fix: use the parameters themselves.
# %%
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(1)
# %%
class CapaDensa(nn.Module):
    """capa totalmente conectada escrita a mano"""
    def __init__(self, entradas, unidades):
        super().__init__()
        self.peso = nn.Parameter(torch.randn(entradas, unidades) * 0.3)
        self.sesgo = nn.Parameter(torch.zeros(unidades))

    def forward(self, x):
        z = torch.matmul(x, self.peso.data) + self.sesgo.data
        return F.relu(z)

red = nn.Sequential(CapaDensa(5, 16), nn.Linear(16, 1))
# %%
casas = torch.rand(64, 5)
precio = (casas @ torch.tensor([3.0, -1.0, 0.5, 2.0, 0.0])).unsqueeze(1) + 0.05 * torch.randn(64, 1)
opt = torch.optim.Adam(red.parameters(), lr=0.01)
perdida = nn.MSELoss()
# %%
def entrenar(epocas):
    historial = []
    for _ in range(epocas):
        opt.zero_grad()
        error = perdida(red(casas), precio)
        error.backward()
        opt.step()
        historial.append(error.item())
    return historial

peso_inicial = red[0].peso.detach().clone()
historial = entrenar(30)
print(historial[0], historial[-1], "cambio del peso:", (red[0].peso - peso_inicial).abs().max().item())
# %% [fixed 2]
class CapaDensa(nn.Module):
    """capa totalmente conectada escrita a mano"""
    def __init__(self, entradas, unidades):
        super().__init__()
        self.peso = nn.Parameter(torch.randn(entradas, unidades) * 0.3)
        self.sesgo = nn.Parameter(torch.zeros(unidades))

    def forward(self, x):
        z = torch.matmul(x, self.peso) + self.sesgo
        return F.relu(z)

red = nn.Sequential(CapaDensa(5, 16), nn.Linear(16, 1))
