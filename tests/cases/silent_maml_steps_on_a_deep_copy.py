# %% [case]
# id: silent-maml-steps-on-a-deep-copy
# source: KanishJebaMathewM/Truxify#13118 (MAML inner-loop param.data -= detaches the graph)
# family: silent
# fails: -
# culprit: 2:8|2:12
# saved: -
# needed: -
# effect: same
# observe: [history, [p.grad.clone() for p in maml.model.parameters()]]
# note: the inner step writes param.data of a deep copy, so the query loss has no path to maml.model: .grad of every meta parameter stays None and the five meta losses are all equal; the fix keeps fast weights p - lr*g as tensors of the graph (functional_call), the second-order meta gradient that the code means
# %%
import copy
import torch
import torch.nn as nn
torch.manual_seed(6)
class DemandModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    def forward(self, x):
        return self.net(x)
# %%
class MAML:
    def __init__(self, model, inner_lr=0.1, outer_lr=0.01):
        self.model = model
        self.inner_lr = inner_lr
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=outer_lr)
    def inner_update(self, model, support_x, support_y):
        adapted_model = copy.deepcopy(model)
        loss = self.criterion(adapted_model(support_x), support_y)
        grads = torch.autograd.grad(loss, adapted_model.parameters(), create_graph=True)
        for param, grad in zip(adapted_model.parameters(), grads):
            param.data -= self.inner_lr * grad
        return adapted_model
    def outer_update(self, meta_loss):
        self.optimizer.zero_grad()
        meta_loss.backward()
        self.optimizer.step()
    def meta_train_step(self, tasks):
        meta_loss = 0.0
        for support_x, support_y, query_x, query_y in tasks:
            adapted_model = self.inner_update(self.model, support_x, support_y)
            pred = adapted_model(query_x)
            meta_loss = meta_loss + self.criterion(pred, query_y)
        meta_loss = meta_loss / len(tasks)
        self.outer_update(meta_loss)
        return meta_loss.item()
# %%
def make_task():
    w = torch.randn(3, 1)
    sx, qx = torch.randn(10, 3), torch.randn(10, 3)
    return sx, sx @ w, qx, qx @ w
maml = MAML(DemandModel())
tasks = [make_task() for _ in range(4)]
# %%
history = [maml.meta_train_step(tasks) for _ in range(5)]
print(history)
# %% [fixed 2]
from torch.func import functional_call
class MAML:
    def __init__(self, model, inner_lr=0.1, outer_lr=0.01):
        self.model = model
        self.inner_lr = inner_lr
        self.criterion = nn.MSELoss()
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=outer_lr)
    def inner_update(self, model, support_x, support_y):
        params = dict(model.named_parameters())
        loss = self.criterion(model(support_x), support_y)
        grads = torch.autograd.grad(loss, list(params.values()), create_graph=True)
        return {n: p - self.inner_lr * g for (n, p), g in zip(params.items(), grads)}
    def outer_update(self, meta_loss):
        self.optimizer.zero_grad()
        meta_loss.backward()
        self.optimizer.step()
    def meta_train_step(self, tasks):
        meta_loss = 0.0
        for support_x, support_y, query_x, query_y in tasks:
            fast = self.inner_update(self.model, support_x, support_y)
            pred = functional_call(self.model, fast, (query_x,))
            meta_loss = meta_loss + self.criterion(pred, query_y)
        meta_loss = meta_loss / len(tasks)
        self.outer_update(meta_loss)
        return meta_loss.item()
