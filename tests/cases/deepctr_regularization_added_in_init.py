# %% [case]
# id: deepctr-regularization-added-in-init
# source: https://github.com/shenweichen/DeepCTR-Torch/issues/90, https://github.com/shenweichen/DeepCTR-Torch/issues/89
# family: modified
# fails: 4
# culprit: 2:29|2:8|2:9
# saved: 2:14
# needed: 2:28
# effect: same
# observe: [p.detach().clone() for p in model.parameters()]
# note: reg_loss is computed once, in __init__, from the first weights; retain_graph=True keeps that graph alive, and the norm has saved weights that optim.step() then updates in place. Fix (as in v0.2.2): remember the weights in __init__, compute the regularization anew in every batch; retain_graph is then needless.
# %%
import torch
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(1024)
feature_columns = {'user_id': 7, 'item_id': 9, 'city': 3}
# %%
class BaseModel(nn.Module):
    def __init__(self, feature_columns, l2_reg_linear=1e-2, l2_reg_embedding=1e-2, embedding_dim=4):
        super(BaseModel, self).__init__()
        self.reg_loss = torch.zeros((1,))
        self.embedding_dict = nn.ModuleDict({k: nn.Embedding(n, embedding_dim) for k, n in feature_columns.items()})
        self.linear_dict = nn.ModuleDict({k: nn.Embedding(n, 1) for k, n in feature_columns.items()})
        # 正则项
        self.add_regularization_loss(self.embedding_dict.parameters(), l2_reg_embedding)
        self.add_regularization_loss(self.linear_dict.parameters(), l2_reg_linear)

    def add_regularization_loss(self, weight_list, weight_decay, p=2):
        reg_loss = torch.zeros((1,))
        for w in weight_list:
            l2_reg = torch.norm(w, p=p)
            reg_loss = reg_loss + l2_reg
        self.reg_loss = self.reg_loss + weight_decay * reg_loss

    def fit(self, loader, epochs=1, lr=0.05):
        optim = torch.optim.Adagrad(self.parameters(), lr=lr)
        for epoch in range(epochs):
            loss_epoch = 0.
            for x, y in loader:
                y_pred = self(x).squeeze()
                optim.zero_grad()
                loss = F.binary_cross_entropy(y_pred, y, reduction='sum')
                total_loss = loss + self.reg_loss
                loss_epoch += loss.item()
                total_loss.backward(retain_graph=True)
                optim.step()
            print('epoch', epoch, 'loss %.4f' % (loss_epoch / len(loader.dataset)))
# %%
class DeepFM(BaseModel):
    def __init__(self, feature_columns, dnn_hidden=8, **kw):
        super(DeepFM, self).__init__(feature_columns, **kw)
        n_in = sum(e.embedding_dim for e in self.embedding_dict.values())
        self.dnn = nn.Sequential(nn.Linear(n_in, dnn_hidden), nn.ReLU(inplace=True), nn.Linear(dnn_hidden, 1))

    def forward(self, X):
        emb = torch.stack([e(X[:, i]) for i, e in enumerate(self.embedding_dict.values())], 1)
        logit = torch.cat([e(X[:, i]) for i, e in enumerate(self.linear_dict.values())], 1).sum(1, keepdim=True)
        # FM 二阶交叉
        logit += 0.5 * (emb.sum(1).pow(2) - emb.pow(2).sum(1)).sum(1, keepdim=True)
        logit += self.dnn(emb.flatten(1))
        return torch.sigmoid(logit)
# %%
X = torch.stack([torch.randint(n, (24,)) for n in feature_columns.values()], 1)
y = torch.bernoulli(torch.full((24,), 0.4))
model = DeepFM(feature_columns)
model.fit(DataLoader(TensorDataset(X, y), batch_size=8), epochs=2)
# %% [fixed 2]
class BaseModel(nn.Module):
    def __init__(self, feature_columns, l2_reg_linear=1e-2, l2_reg_embedding=1e-2, embedding_dim=4):
        super(BaseModel, self).__init__()
        self.regularization_weight = []
        self.embedding_dict = nn.ModuleDict({k: nn.Embedding(n, embedding_dim) for k, n in feature_columns.items()})
        self.linear_dict = nn.ModuleDict({k: nn.Embedding(n, 1) for k, n in feature_columns.items()})
        # 正则项
        self.add_regularization_weight(self.embedding_dict.parameters(), l2_reg_embedding)
        self.add_regularization_weight(self.linear_dict.parameters(), l2_reg_linear)

    def add_regularization_weight(self, weight_list, weight_decay, p=2):
        self.regularization_weight.append((list(weight_list), weight_decay, p))

    def get_regularization_loss(self):
        total_reg_loss = torch.zeros((1,))
        for weight_list, weight_decay, p in self.regularization_weight:
            for w in weight_list:
                total_reg_loss = total_reg_loss + weight_decay * torch.norm(w, p=p)
        return total_reg_loss

    def fit(self, loader, epochs=1, lr=0.05):
        optim = torch.optim.Adagrad(self.parameters(), lr=lr)
        for epoch in range(epochs):
            loss_epoch = 0.
            for x, y in loader:
                y_pred = self(x).squeeze()
                optim.zero_grad()
                loss = F.binary_cross_entropy(y_pred, y, reduction='sum')
                total_loss = loss + self.get_regularization_loss()
                loss_epoch += loss.item()
                total_loss.backward()
                optim.step()
            print('epoch', epoch, 'loss %.4f' % (loss_epoch / len(loader.dataset)))
