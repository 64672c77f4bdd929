# %% [case]
# id: detector-bias-set-through-narrow-es
# source: hustvl/YOLOP#17 (also ultralytics/yolov5#1552, hitfeelee/Yolo3D#7)
# family: view_of_leaf
# fails: 4
# culprit: 2:14
# saved: -
# needed: -
# effect: same
# observe: [q.detach().clone() for n, q in modelo.named_parameters() if n.endswith('bias')] + [perdida.detach()]
# note: el método iniciar_sesgos() suma con add_ y copy_ sobre una vista del sesgo (view(na, -1)). Fix: the method's in-place lines under torch.no_grad().
# %%
import math, torch, torch.nn as nn
torch.manual_seed(8)
# %%
class Cabeza(nn.Module):
    """una salida por escala: caja (4), objeto (1), clases (nc)"""
    def __init__(self, canales, na=3, nc=2):
        super().__init__()
        self.na, self.nc = na, nc
        self.salidas = nn.ModuleList(nn.Conv2d(c, na * (5 + nc), kernel_size=1) for c in canales)
        self.pasos = [8, 16]

    def iniciar_sesgos(self, frecuencia=None):
        i = 0
        while i < len(self.salidas):
            conv = self.salidas[i]
            b = conv.bias.view(self.na, -1)
            b.select(1, 4).add_(math.log(8 / (640 / self.pasos[i]) ** 2))
            clases = b.narrow(1, 5, self.nc)
            clases.add_(math.log(0.6 / (self.nc - 0.99)) if frecuencia is None else (frecuencia / frecuencia.sum()).log())
            i += 1
        return self

    def forward(self, mapas):
        return [s(m).permute(0, 2, 3, 1).reshape(len(m), -1, 5 + self.nc) for s, m in zip(self.salidas, mapas)]
# %%
class Modelo(nn.Module):
    def __init__(self):
        super().__init__()
        self.bloques = nn.ModuleList([nn.Conv2d(3, 4, 8, 8), nn.Conv2d(4, 6, 2, 2)])
        self.cabeza = Cabeza([4, 6])
    def preparar(self):
        self.cabeza.iniciar_sesgos(torch.tensor([3.0, 1.0])); return self
    def forward(self, x):
        mapas = [x := torch.nn.functional.leaky_relu(b(x), 0.1) for b in self.bloques]
        return torch.cat(self.cabeza(mapas), dim=1)
# %%
modelo = Modelo().preparar()
optimizador = torch.optim.SGD(modelo.parameters(), lr=0.1, momentum=0.9)
pred = modelo(torch.rand(2, 3, 32, 32))
perdida = nn.BCEWithLogitsLoss()(pred[..., 4:], torch.zeros(pred[..., 4:].shape))
perdida.backward()
optimizador.step()
print(perdida.item())
# %% [fixed 2]
class Cabeza(nn.Module):
    """una salida por escala: caja (4), objeto (1), clases (nc)"""
    def __init__(self, canales, na=3, nc=2):
        super().__init__()
        self.na, self.nc = na, nc
        self.salidas = nn.ModuleList(nn.Conv2d(c, na * (5 + nc), kernel_size=1) for c in canales)
        self.pasos = [8, 16]

    def iniciar_sesgos(self, frecuencia=None):
        i = 0
        while i < len(self.salidas):
            conv = self.salidas[i]
            b = conv.bias.view(self.na, -1)
            with torch.no_grad():
                b.select(1, 4).add_(math.log(8 / (640 / self.pasos[i]) ** 2))
                clases = b.narrow(1, 5, self.nc)
                clases.add_(math.log(0.6 / (self.nc - 0.99)) if frecuencia is None else (frecuencia / frecuencia.sum()).log())
            i += 1
        return self

    def forward(self, mapas):
        return [s(m).permute(0, 2, 3, 1).reshape(len(m), -1, 5 + self.nc) for s, m in zip(self.salidas, mapas)]
