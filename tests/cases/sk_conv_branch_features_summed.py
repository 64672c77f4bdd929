# %% [case]
# id: sk-conv-branch-features-summed
# source: https://github.com/aupendu/zero-restore/issues/7
# family: modified
# fails: 4
# culprit: 2:20
# saved: 2:17
# needed: 4:8
# effect: other
# observe: [loss.detach()] + [p.grad.clone() for p in net.parameters()]
# note: Selective kernel convolution sums its branches into the first branch's own tensor, which ReLU has saved (and which is weighted by attention afterwards). Thread: .clone() in the SKConv layer's forward.
# %%
import torch
import torch.nn as nn
torch.manual_seed(7)
# %%
class SKConv(nn.Module):
    def __init__(self, features, M=2, r=2, L=4):
        super().__init__()
        d = max(features // r, L)
        self.M, self.features = M, features
        self.convs = nn.ModuleList([
            nn.Sequential(
                nn.Conv2d(features, features, kernel_size=3 + i * 2, padding=1 + i),
                nn.ReLU(),
            ) for i in range(M)
        ])
        self.fc = nn.Linear(features, d)
        self.fcs = nn.ModuleList([nn.Linear(d, features) for _ in range(M)])
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        feats = [conv(x) for conv in self.convs]
        fea_U = feats[0]
        for fea in feats[1:]:
            fea_U += fea
        fea_s = fea_U.mean(-1).mean(-1)
        fea_z = self.fc(fea_s)
        attention = torch.stack([fc(fea_z) for fc in self.fcs], dim=1)
        attention = self.softmax(attention).unsqueeze(-1).unsqueeze(-1)
        return (torch.stack(feats, dim=1) * attention).sum(dim=1)
# %%
class RestoreNet(nn.Module):
    def __init__(self, ch=4):
        super().__init__()
        self.head = nn.Conv2d(3, ch, 3, padding=1)
        self.sk = SKConv(ch)
        self.tail = nn.Conv2d(ch, 3, 3, padding=1)

    def forward(self, x):
        return x - self.tail(self.sk(self.head(x)))

net = RestoreNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
# %%
clean = torch.rand(2, 3, 8, 8)
for it in range(2):
    hazy = (clean + 0.1 * torch.randn_like(clean)).clamp(0, 1)
    out = net(hazy)
    loss = (out - clean).abs().mean()

    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(it, loss.item())
# %% [fixed 2]
class SKConv(nn.Module):
    def __init__(self, features, M=2, r=2, L=4):
        super().__init__()
        d = max(features // r, L)
        self.M, self.features = M, features
        self.convs = nn.ModuleList([
            nn.Sequential(
                nn.Conv2d(features, features, kernel_size=3 + i * 2, padding=1 + i),
                nn.ReLU(),
            ) for i in range(M)
        ])
        self.fc = nn.Linear(features, d)
        self.fcs = nn.ModuleList([nn.Linear(d, features) for _ in range(M)])
        self.softmax = nn.Softmax(dim=1)

    def forward(self, x):
        feats = [conv(x) for conv in self.convs]
        fea_U = feats[0].clone()
        for fea in feats[1:]:
            fea_U += fea
        fea_s = fea_U.mean(-1).mean(-1)
        fea_z = self.fc(fea_s)
        attention = torch.stack([fc(fea_z) for fc in self.fcs], dim=1)
        attention = self.softmax(attention).unsqueeze(-1).unsqueeze(-1)
        return (torch.stack(feats, dim=1) * attention).sum(dim=1)
