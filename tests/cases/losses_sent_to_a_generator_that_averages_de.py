# %% [case]
# id: losses-sent-to-a-generator-that-averages-de
# source: a textbook mistake in other words
# family: second_backward
# fails: 4
# culprit: -
# saved: -
# needed: 4:5
# effect: other
# observe: [gewicht.detach().clone(), versatz.detach().clone()]
# note: ein Generator (send) glättet die Verluste mit einer deque und gibt den Mittelwert samt alten Graphen zurück. Human fix: the deque stores verlust.detach(), verlust.backward().
# %%
import collections
import torch
import torch.nn.functional as F
torch.manual_seed(40)

def glaettung(laenge):
    letzte = collections.deque([], laenge)
    mittel = None
    while True:
        verlust = yield mittel
        letzte.append(verlust)
        mittel = torch.mean(torch.stack(tuple(letzte)))
# %%
gewicht = torch.zeros(4, 1, requires_grad=True)
versatz = torch.zeros(1, requires_grad=True)
opt = torch.optim.SGD([gewicht, versatz], lr=0.5)

def vorhersage(x): return (x @ gewicht + versatz).sigmoid()
# %%
daten = [(torch.randn(12, 4), torch.randint(0, 2, (12, 1)).float()) for _ in range(5)]
glatt = glaettung(laenge=4)
next(glatt)
# %%
kurve = []
for nr, (x, ziel) in enumerate(daten):
    verlust = F.binary_cross_entropy(vorhersage(x), ziel)
    stand = glatt.send(verlust)
    opt.zero_grad(); stand.backward(); opt.step()
    kurve.append((nr, stand.item()))
print(kurve)
# %% [fixed 1]
import collections
import torch
import torch.nn.functional as F
torch.manual_seed(40)

def glaettung(laenge):
    letzte = collections.deque([], laenge)
    mittel = None
    while True:
        verlust = yield mittel
        letzte.append(verlust.detach())
        mittel = torch.mean(torch.stack(tuple(letzte)))
# %% [fixed 4]
kurve = []
for nr, (x, ziel) in enumerate(daten):
    verlust = F.binary_cross_entropy(vorhersage(x), ziel)
    stand = glatt.send(verlust)
    opt.zero_grad(); verlust.backward(); opt.step()
    kurve.append((nr, stand.item()))
print(kurve)
