# %% [case]
# id: smpl-kinematic-chain
# source: nkolot/GraphCMR#19
# family: modified
# fails: 4
# culprit: 2:26
# saved: 2:26
# needed: 4:6
# effect: same
# observe: [loss.detach(), regressor.weight.grad.clone(), beta.grad.clone()]
# note: G[:, i] = G[:, parent] @ G_[:, i]: matmul saved a view of G, every later joint writes into G. culprit and saved are the same line. Proposed in the issue: write to a clone G_new but read the parents from the old G (wrong: no chain any more). The repository's fix: a list of the 4x4 transforms, stacked at the end.
# %%
import torch
import torch.nn as nn

def rodrigues(theta):
    """axis-angle to rotation matrices, (N, 3) -> (N, 3, 3)"""
    angle = (theta + 1e-8).norm(p=2, dim=1, keepdim=True)
    x, y, z = (theta / angle).unbind(1)
    o = torch.zeros_like(x)
    K = torch.stack([o, -z, y, z, o, -x, -y, x, o], dim=1).view(-1, 3, 3)
    s, c = angle.sin()[..., None], angle.cos()[..., None]
    return torch.eye(3) + s * K + (1 - c) * K @ K
# %%
class SMPL(nn.Module):
    """cut down: 5 joints, 12 vertices, no pose blend shapes"""

    def __init__(self, n_joints=5, n_verts=12):
        super(SMPL, self).__init__()
        g = torch.Generator().manual_seed(11)
        self.n_joints, self.n_verts = n_joints, n_verts
        self.register_buffer('v_template', torch.randn(n_verts, 3, generator=g))
        self.register_buffer('shapedirs', 0.1 * torch.randn(n_verts * 3, 2, generator=g))
        self.register_buffer('J_regressor', torch.rand(n_joints, n_verts, generator=g).softmax(1))
        self.register_buffer('weights', (3 * torch.rand(n_verts, n_joints, generator=g)).softmax(1))
        self.register_buffer('parent', torch.LongTensor([0, 1, 1, 3]))

    def forward(self, pose, beta):
        B, N = pose.shape[0], self.n_joints
        v_shaped = (beta @ self.shapedirs.T).view(B, -1, 3) + self.v_template
        J = torch.matmul(self.J_regressor, v_shaped)
        R = rodrigues(pose.view(-1, 3)).view(B, N, 3, 3)
        J_ = J.clone()
        J_[:, 1:, :] = J[:, 1:, :] - J[:, self.parent, :]
        G_ = torch.cat([R, J_[:, :, :, None]], dim=-1)
        pad_row = torch.FloatTensor([0, 0, 0, 1]).view(1, 1, 1, 4).expand(B, N, -1, -1)
        G_ = torch.cat([G_, pad_row], dim=2)
        G = G_.clone()
        for i in range(1, N):
            G[:, i, :, :] = torch.matmul(G[:, self.parent[i-1], :, :], G_[:, i, :, :])
        rest = torch.cat([J, torch.zeros(B, N, 1)], dim=2).view(B, N, 4, 1)
        rest = torch.cat([torch.zeros(B, N, 4, 3), rest], dim=-1)
        rest = torch.matmul(G, rest)
        G = G - rest
        T = torch.einsum('vj,bjkl->bvkl', self.weights, G)
        v_h = torch.cat([v_shaped, torch.ones_like(v_shaped)[:, :, [0]]], dim=-1)
        return torch.matmul(T, v_h[:, :, :, None])[:, :, :3, 0]
# %%
torch.manual_seed(0)
smpl = SMPL()
regressor = nn.Linear(8, 5 * 3)              # image features -> theta
beta = torch.zeros(2, 2, requires_grad=True)
features = torch.randn(2, 8)
gt_vertices = smpl(0.3 * torch.randn(2, 15), torch.randn(2, 2))
# %%
optimizer = torch.optim.Adam([*regressor.parameters(), beta], lr=3e-4)
pred_theta = regressor(features)
pred_vertices = smpl(pred_theta, beta)
loss = nn.functional.l1_loss(pred_vertices, gt_vertices) + 1e-3 * beta.pow(2).sum()
optimizer.zero_grad()
loss.backward()
optimizer.step()
print('per-vertex', (pred_vertices - gt_vertices).norm(dim=-1).mean().item())
# %% [fixed 2]
class SMPL(nn.Module):
    """cut down: 5 joints, 12 vertices, no pose blend shapes"""

    def __init__(self, n_joints=5, n_verts=12):
        super(SMPL, self).__init__()
        g = torch.Generator().manual_seed(11)
        self.n_joints, self.n_verts = n_joints, n_verts
        self.register_buffer('v_template', torch.randn(n_verts, 3, generator=g))
        self.register_buffer('shapedirs', 0.1 * torch.randn(n_verts * 3, 2, generator=g))
        self.register_buffer('J_regressor', torch.rand(n_joints, n_verts, generator=g).softmax(1))
        self.register_buffer('weights', (3 * torch.rand(n_verts, n_joints, generator=g)).softmax(1))
        self.register_buffer('parent', torch.LongTensor([0, 1, 1, 3]))

    def forward(self, pose, beta):
        B, N = pose.shape[0], self.n_joints
        v_shaped = (beta @ self.shapedirs.T).view(B, -1, 3) + self.v_template
        J = torch.matmul(self.J_regressor, v_shaped)
        R = rodrigues(pose.view(-1, 3)).view(B, N, 3, 3)
        J_ = J.clone()
        J_[:, 1:, :] = J[:, 1:, :] - J[:, self.parent, :]
        G_ = torch.cat([R, J_[:, :, :, None]], dim=-1)
        pad_row = torch.FloatTensor([0, 0, 0, 1]).view(1, 1, 1, 4).expand(B, N, -1, -1)
        G_ = torch.cat([G_, pad_row], dim=2)
        G = [G_[:, 0].clone()]
        for i in range(1, N):
            G.append(torch.matmul(G[self.parent[i-1]], G_[:, i, :, :]))
        G = torch.stack(G, dim=1)
        rest = torch.cat([J, torch.zeros(B, N, 1)], dim=2).view(B, N, 4, 1)
        rest = torch.cat([torch.zeros(B, N, 4, 3), rest], dim=-1)
        rest = torch.matmul(G, rest)
        G = G - rest
        T = torch.einsum('vj,bjkl->bvkl', self.weights, G)
        v_h = torch.cat([v_shaped, torch.ones_like(v_shaped)[:, :, [0]]], dim=-1)
        return torch.matmul(T, v_h[:, :, :, None])[:, :, :3, 0]
