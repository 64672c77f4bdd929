# %% [case]
# id: agcn-adjacency-detached
# source: GitHub queenie88/A-GCN#4 "Question about gradient flow" https://github.com/queenie88/A-GCN/issues/4
# family: silent
# fails: -
# culprit: 2:13
# saved: -
# needed: -
# effect: same
# observe: [losses, model.W_theta.weight.grad.clone(), model.W_phi.weight.grad.clone(), model.gc.weight.grad.clone()]
# note: The learned adjacency is detached in forward, so W_theta.weight and W_phi.weight never get a gradient (None) and are never updated. The author agreed that the detach() should be removed.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(14)
# %%
class AGCN(nn.Module):
    def __init__(self, in_features, out_features, num_classes, emb=4):
        super().__init__()
        self.W_theta = nn.Linear(in_features, emb, bias=False)
        self.W_phi = nn.Linear(in_features, emb, bias=False)
        self.gc = nn.Linear(in_features, out_features)

    def gen_adj(self, inp):
        A = self.W_theta(inp) @ self.W_phi(inp).t()
        return F.softmax(A, dim=1)

    def forward(self, feature, inp):
        adj = self.gen_adj(inp).detach()
        x = F.leaky_relu(adj @ self.gc(inp), 0.2)
        return feature @ x.t()
# %%
num_classes = 5
model = AGCN(6, 8, num_classes)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inp = torch.randn(num_classes, 6)
feature = torch.randn(4, 8)
target = (torch.rand(4, num_classes) > 0.5).float()
# %%
criterion = nn.MultiLabelSoftMarginLoss()
losses = []
for epoch in range(4):
    output = model(feature, inp)
    loss = criterion(output, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(losses)
# %% [fixed 2]
class AGCN(nn.Module):
    def __init__(self, in_features, out_features, num_classes, emb=4):
        super().__init__()
        self.W_theta = nn.Linear(in_features, emb, bias=False)
        self.W_phi = nn.Linear(in_features, emb, bias=False)
        self.gc = nn.Linear(in_features, out_features)

    def gen_adj(self, inp):
        A = self.W_theta(inp) @ self.W_phi(inp).t()
        return F.softmax(A, dim=1)

    def forward(self, feature, inp):
        adj = self.gen_adj(inp)
        x = F.leaky_relu(adj @ self.gc(inp), 0.2)
        return feature @ x.t()
