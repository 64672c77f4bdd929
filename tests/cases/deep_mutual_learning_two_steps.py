# %% [case]
# id: deep-mutual-learning-two-steps
# source: deep mutual learning, two students that learn from each other
# family: modified
# fails: 3
# culprit: 3:6
# saved: 3:1
# needed: 3:8
# effect: truncates
# observe: [p.detach().clone() for n in nets for p in n.parameters()]
# note: the second loss contains the logits of the first student, whose optimizer has stepped. Fix: detach the peer's logits.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(3)
nets = [nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 3)) for _ in range(2)]
opts = [torch.optim.SGD(n.parameters(), lr=0.1, momentum=0.9) for n in nets]

def kl(student, teacher, T=2.):
    return F.kl_div(F.log_softmax(student / T, 1), F.softmax(teacher / T, 1), reduction='batchmean') * T * T
# %%
xb, yb = torch.randn(10, 5), torch.randint(0, 3, (10,))
# %%
out = [n(xb) for n in nets]
l0 = F.cross_entropy(out[0], yb) + kl(out[0], out[1])
l1 = F.cross_entropy(out[1], yb) + kl(out[1], out[0])
opts[0].zero_grad()
l0.backward(retain_graph=True)
opts[0].step()
opts[1].zero_grad()
l1.backward()
opts[1].step()
# %% [fixed 3]
out = [n(xb) for n in nets]
l0 = F.cross_entropy(out[0], yb) + kl(out[0], out[1].detach())
l1 = F.cross_entropy(out[1], yb) + kl(out[1], out[0].detach())
opts[0].zero_grad()
l0.backward(retain_graph=True)
opts[0].step()
opts[1].zero_grad()
l1.backward()
opts[1].step()
