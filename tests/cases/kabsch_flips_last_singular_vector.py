# %% [case]
# id: kabsch-flips-last-singular-vector
# source: docs torch.linalg.svd (U and Vh are used by backward); sign/reflection correction as in sklearn svd_flip; similar fix in jcmgray/symmray#2 (x *= y to x = x * y in truncated SVD)
# family: modified
# fails: 4
# culprit: 1:11
# saved: 1:9
# needed: 4:9
# effect: same
# observe: [net.offset.weight.grad.clone(), loss.detach()]
# note: svd keeps its own outputs for backward; the reflection correction of Kabsch's algorithm writes the last row of Vh in place. Human fix: multiply by a vector of signs, out of place.
# %%
import torch
from torch import nn

def kabsch(P, Q):
    """rotation R (B,3,3) that best maps P onto Q, both (B,N,3)"""
    Pc = P - P.mean(1, keepdim=True)
    Qc = Q - Q.mean(1, keepdim=True)
    H = Pc.transpose(1, 2) @ Qc
    U, S, Vh = torch.linalg.svd(H)
    d = torch.sign(torch.det(U @ Vh)).detach()
    Vh[:, -1] *= d[:, None]
    R = U @ Vh
    return R

def rmsd(P, Q, R):
    Pc, Qc = (t - t.mean(1, keepdim=True) for t in (P, Q))
    return (Pc @ R - Qc).square().sum(-1).mean(-1).sqrt()
# %%
class ConformerNet(nn.Module):
    def __init__(self, n_feat=4):
        super().__init__()
        self.embed = nn.Linear(n_feat, 8)
        self.offset = nn.Linear(8, 3)
    def forward(self, feats, coords):
        return coords + self.offset(torch.tanh(self.embed(feats)))
# %%
torch.manual_seed(3)
net = ConformerNet()
opt = torch.optim.Adam(net.parameters(), lr=1e-2)
coords = torch.randn(3, 6, 3, dtype=torch.float32)
mirror = torch.tensor([1., 1., -1.])          # some references are mirror images
ref = torch.stack([coords[0], coords[1] * mirror, coords[2]]) + 0.05 * torch.randn(3, 6, 3)
feats = torch.randn(3, 6, 4)
# %%
for epoch in range(2):
    opt.zero_grad()
    pred = net(feats, coords)
    R = kabsch(pred, ref)
    per_mol = rmsd(pred, ref, R)
    # orthogonality is monitored only
    drift = (R @ R.transpose(1, 2) - torch.eye(3)).abs().max().item()
    loss = per_mol.mean()
    loss.backward()
    opt.step()
    print(f"{epoch} rmsd {loss.item():.4f} drift {drift:.1e}")
# %% [fixed 1]
import torch
from torch import nn

def kabsch(P, Q):
    """rotation R (B,3,3) that best maps P onto Q, both (B,N,3)"""
    Pc = P - P.mean(1, keepdim=True)
    Qc = Q - Q.mean(1, keepdim=True)
    H = Pc.transpose(1, 2) @ Qc
    U, S, Vh = torch.linalg.svd(H)
    d = torch.sign(torch.det(U @ Vh)).detach()
    signs = torch.stack([torch.ones_like(d), torch.ones_like(d), d], -1)
    R = U @ (signs[:, :, None] * Vh)
    return R

def rmsd(P, Q, R):
    Pc, Qc = (t - t.mean(1, keepdim=True) for t in (P, Q))
    return (Pc @ R - Qc).square().sum(-1).mean(-1).sqrt()
