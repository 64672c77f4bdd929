# %% [case]
# id: layer-outputs-kept-ahead-of-inplace-relu
# source: https://github.com/tfjgeorge/nngeometry/pull/42
# family: silent
# fails: -
# culprit: 2:5|2:8|2:9
# saved: -
# needed: 3:18
# effect: same
# observe: [j.clone() for j in jac.jacobians] + [fim.clone()]
# note: Forward hooks keep each layer's output to get per-example gradients from it. The ReLU after it is in place, so the kept tensor has become the activation, and the gradient to it lacks the ReLU's mask. Fix: ReLU out of place (the pull request instead catches the gradient with a tensor hook put on the output before the ReLU).
# %%
import torch
import torch.nn as nn
torch.manual_seed(40)
# %%
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 2)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x):
        x = self.act(self.fc1(x))
        x = self.act(self.fc2(x))
        return self.out(x)
# %%
class Jacobian:
    """per-example gradients of each output with respect to the weights of the linear layers"""
    def __init__(self, model):
        self.model = model
        self.layers = [m for m in model.modules() if isinstance(m, nn.Linear)]
        self.xs, self.ys = {}, {}

    def _hook(self, mod, inp, out):
        self.xs[mod] = inp[0]
        self.ys[mod] = out

    def compute(self, x):
        handles = [m.register_forward_hook(self._hook) for m in self.layers]
        output = self.model(x)
        for h in handles: h.remove()
        rows = []
        for k in range(output.size(1)):
            gys = torch.autograd.grad(output[:, k].sum(), [self.ys[m] for m in self.layers], retain_graph=True)
            per_layer = [torch.einsum('bo,bi->boi', gy, self.xs[m]).flatten(1)
                         for m, gy in zip(self.layers, gys)]
            rows.append(torch.cat(per_layer, 1).detach())
        self.jacobians = rows
        return torch.stack(rows)          # (outputs, examples, weights)
# %%
model = Net()
examples = torch.randn(7, 4)
jac = Jacobian(model)
J = jac.compute(examples)
fim = torch.einsum('kbi,kbj->ij', J, J) / len(examples)
print('trace of the FIM', fim.trace().item())
# %% [fixed 2]
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.out = nn.Linear(4, 6), nn.Linear(6, 5), nn.Linear(5, 2)
        self.act = nn.ReLU()

    def forward(self, x):
        x = self.act(self.fc1(x))
        x = self.act(self.fc2(x))
        return self.out(x)
