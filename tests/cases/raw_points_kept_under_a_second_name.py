# %% [case]
# id: raw-points-kept-under-a-second-name
# source: https://github.com/Yochengliu/Relation-Shape-CNN/issues/23
# family: silent
# fails: -
# culprit: 2:19
# saved: 2:18
# needed: 4:8
# effect: same
# observe: [loss.detach(), net.tnet.weight.grad.clone()] + [p.grad.clone() for p in net.mlp.parameters()]
# note: raw_grouped_xyz is the same tensor as grouped_xyz, so centring it in place leaves only relative coordinates in the features and the gradients with respect to the absolute ones are lost. Fix: centre out of place.
# %%
import torch
import torch.nn as nn
torch.manual_seed(23)
# %%
def ball_query(radius, nsample, xyz, new_xyz):
    d = torch.cdist(new_xyz.detach(), xyz.detach())
    d = d.masked_fill(d > radius, 1e5)
    return d.topk(nsample, dim=-1, largest=False).indices          # (B, npoint, nsample)

def grouping_operation(points, idx):
    B, C, N = points.shape
    return points[:, :, None].expand(-1, -1, idx.shape[1], -1).gather(3, idx[:, None].expand(-1, C, -1, -1))

class QueryAndGroup(nn.Module):
    def __init__(self, radius, nsample):
        super().__init__()
        self.radius, self.nsample = radius, nsample

    def forward(self, xyz, new_xyz):
        idx = ball_query(self.radius, self.nsample, xyz, new_xyz)
        grouped_xyz = grouping_operation(xyz.transpose(1, 2), idx)    # (B, 3, npoint, nsample)
        raw_grouped_xyz = grouped_xyz
        grouped_xyz -= new_xyz.transpose(1, 2).unsqueeze(-1)
        dist = grouped_xyz.pow(2).sum(1, keepdim=True)
        # absolute, relative, squared distance
        return torch.cat([raw_grouped_xyz, grouped_xyz, dist], dim=1)
# %%
class Net(nn.Module):
    def __init__(self, npoint=4):
        super().__init__()
        self.tnet = nn.Linear(3, 3, bias=False)
        nn.init.eye_(self.tnet.weight)
        self.npoint = npoint
        self.group = QueryAndGroup(1.5, 5)
        self.mlp = nn.Sequential(nn.Conv2d(7, 8, 1), nn.ReLU(), nn.Conv2d(8, 3, 1))

    def forward(self, pc):
        xyz = self.tnet(pc)
        new_xyz = xyz[:, :self.npoint]
        f = self.mlp(self.group(xyz, new_xyz))
        return f.max(-1).values.max(-1).values
# %%
net = Net()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
points = torch.randn(3, 16, 3) + torch.tensor([2.0, 0.0, -1.0])
label = torch.tensor([0, 1, 2])
pred = net(points)
loss = nn.functional.cross_entropy(pred, label)
optimizer.zero_grad()
loss.backward()
print(loss.item(), net.tnet.weight.grad)
# %% [fixed 2]
def ball_query(radius, nsample, xyz, new_xyz):
    d = torch.cdist(new_xyz.detach(), xyz.detach())
    d = d.masked_fill(d > radius, 1e5)
    return d.topk(nsample, dim=-1, largest=False).indices          # (B, npoint, nsample)

def grouping_operation(points, idx):
    B, C, N = points.shape
    return points[:, :, None].expand(-1, -1, idx.shape[1], -1).gather(3, idx[:, None].expand(-1, C, -1, -1))

class QueryAndGroup(nn.Module):
    def __init__(self, radius, nsample):
        super().__init__()
        self.radius, self.nsample = radius, nsample

    def forward(self, xyz, new_xyz):
        idx = ball_query(self.radius, self.nsample, xyz, new_xyz)
        grouped_xyz = grouping_operation(xyz.transpose(1, 2), idx)    # (B, 3, npoint, nsample)
        raw_grouped_xyz = grouped_xyz
        grouped_xyz = grouped_xyz - new_xyz.transpose(1, 2).unsqueeze(-1)
        dist = grouped_xyz.pow(2).sum(1, keepdim=True)
        # absolute, relative, squared distance
        return torch.cat([raw_grouped_xyz, grouped_xyz, dist], dim=1)
