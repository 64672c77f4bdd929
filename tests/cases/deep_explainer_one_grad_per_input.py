# %% [case]
# id: deep-explainer-one-grad-per-input
# source: https://github.com/shap/shap/pull/684
# family: second_backward
# fails: 4
# culprit: 2:16
# saved: 1:14 | 2:14
# needed: 2:16
# effect: same
# observe: list(phis)
# note: a model with two inputs; the comprehension asks for one gradient after the other and the first call frees the shared head. One input works. Human fix (the PR): retain_graph=True for all inputs but the last.
# %%
import torch
import torch.nn as nn
torch.manual_seed(684)

class TabularAndText(nn.Module):
    """two branches, one head"""
    def __init__(self, n_num=4, n_bow=6, n_classes=3):
        super().__init__()
        self.num = nn.Sequential(nn.Linear(n_num, 5), nn.ReLU())
        self.bow = nn.Sequential(nn.Linear(n_bow, 5), nn.Tanh())
        self.head = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, n_classes))

    def forward(self, num, bow):
        return self.head(torch.cat([self.num(num), self.bow(bow)], dim=1))
# %%
class PyTorchDeepExplainer:
    def __init__(self, model, data):
        self.multi_input = isinstance(data, list)
        self.data = data if self.multi_input else [data]
        self.model = model.eval()
        with torch.no_grad():
            outputs = self.model(*self.data)
        self.multi_output = outputs.shape[1] > 1
        self.expected_value = outputs.mean(0)

    def gradient(self, idx, inputs):
        self.model.zero_grad()
        X = [x.requires_grad_() for x in inputs]
        outputs = self.model(*X)
        selected = [val for val in outputs[:, idx]]
        grads = [torch.autograd.grad(selected, x)[0].detach() for x in X]
        return grads

    def shap_values(self, X, ranked_outputs=None):
        X = X if self.multi_input else [X]
        phis = []
        for l in range(len(X)):
            phis.append(torch.zeros_like(X[l]))
        for j in range(X[0].shape[0]):
            with torch.no_grad():
                scores = self.model(*[x[j:j + 1] for x in X])
            top = scores.argmax().item()
            # tile the inputs to line up with the background data samples
            tiled_X = [X[l][j:j + 1].repeat(len(self.data[l]), 1) for l in range(len(X))]
            sample_phis = self.gradient(top, tiled_X)
            for l in range(len(X)):
                phis[l][j] = (sample_phis[l] * (X[l][j:j + 1] - self.data[l])).mean(0)
        return phis if self.multi_input else phis[0]
# %%
background = [torch.randn(7, 4), torch.rand(7, 6).round()]
test = [torch.randn(2, 4), torch.rand(2, 6).round()]
model = TabularAndText()

single = nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 3))
print(PyTorchDeepExplainer(single, background[0]).shap_values(test[0]).shape)   # fine
# %%
e = PyTorchDeepExplainer(model, background)
phis = e.shap_values(test)
for name, phi in zip(("numeric", "bag of words"), phis):
    print(name, phi.sum(1).tolist())
# %% [fixed 2]
class PyTorchDeepExplainer:
    def __init__(self, model, data):
        self.multi_input = isinstance(data, list)
        self.data = data if self.multi_input else [data]
        self.model = model.eval()
        with torch.no_grad():
            outputs = self.model(*self.data)
        self.multi_output = outputs.shape[1] > 1
        self.expected_value = outputs.mean(0)

    def gradient(self, idx, inputs):
        self.model.zero_grad()
        X = [x.requires_grad_() for x in inputs]
        outputs = self.model(*X)
        selected = [val for val in outputs[:, idx]]
        grads = [torch.autograd.grad(selected, x, retain_graph=True if i + 1 < len(X) else None)[0].detach()
                 for i, x in enumerate(X)]
        return grads

    def shap_values(self, X, ranked_outputs=None):
        X = X if self.multi_input else [X]
        phis = []
        for l in range(len(X)):
            phis.append(torch.zeros_like(X[l]))
        for j in range(X[0].shape[0]):
            with torch.no_grad():
                scores = self.model(*[x[j:j + 1] for x in X])
            top = scores.argmax().item()
            # tile the inputs to line up with the background data samples
            tiled_X = [X[l][j:j + 1].repeat(len(self.data[l]), 1) for l in range(len(X))]
            sample_phis = self.gradient(top, tiled_X)
            for l in range(len(X)):
                phis[l][j] = (sample_phis[l] * (X[l][j:j + 1] - self.data[l])).mean(0)
        return phis if self.multi_input else phis[0]
