# %% [case]
# id: forcefield-forces-free-the-energy-graph
# source: learningmatter-mit/Atomistic-Adversarial-Attacks#1, aiqm/torchani#238, atomistic-machine-learning/schnetpack#279
# family: second_backward
# fails: 4
# culprit: 3:17
# saved: -
# needed: 4:16
# effect: other
# observe: [loss.detach()] + [p.grad.clone() for p in model.parameters()]
# note: the forces are taken with autograd.grad inside the model without create_graph, which frees the energy's graph (and would leave the force term without gradient). Not retain_graph: create_graph=True, here while training, as NFF and schnetpack do.
# %%
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(31)
# %%
def gaussian_smearing(distances, offset, width):
    return torch.exp(-0.5 * ((distances[:, None] - offset) / width) ** 2)


class SchNetConv(nn.Module):
    def __init__(self, n_atom_basis, n_gaussians, cutoff=3.0):
        super().__init__()
        self.register_buffer("offset", torch.linspace(0.3, cutoff, n_gaussians))
        self.width = float(self.offset[1] - self.offset[0])
        self.edge_filter = nn.Sequential(nn.Linear(n_gaussians, n_atom_basis), nn.Softplus())
        self.node_filter = nn.Linear(n_atom_basis, n_atom_basis)
        self.update = nn.Sequential(nn.Linear(n_atom_basis, n_atom_basis), nn.Softplus(), nn.Linear(n_atom_basis, n_atom_basis))

    def forward(self, r, e, a):
        w = self.edge_filter(gaussian_smearing(e, self.offset, self.width))
        m = self.node_filter(r)[a[:, 1]] * w
        agg = torch.zeros_like(r).index_add_(0, a[:, 0], m)
        return r + self.update(agg)
# %%
class NeuralFF(nn.Module):
    """energy and forces of a batch of molecules (nxyz: charges and positions of all atoms)"""
    def __init__(self, n_atom_basis=8, n_gaussians=6, n_convolutions=2):
        super().__init__()
        self.atom_embed = nn.Embedding(10, n_atom_basis, padding_idx=0)
        self.convolutions = nn.ModuleList(SchNetConv(n_atom_basis, n_gaussians) for _ in range(n_convolutions))
        self.atomwisereadout = nn.Sequential(nn.Linear(n_atom_basis, 4), nn.Softplus(), nn.Linear(4, 1))

    def forward(self, batch):
        xyz = batch["nxyz"][:, 1:].clone().requires_grad_(True)
        r, a = self.atom_embed(batch["nxyz"][:, 0].long()), batch["nbr_list"]
        e = (xyz[a[:, 0]] - xyz[a[:, 1]]).norm(dim=-1)
        for conv in self.convolutions:
            r = conv(r, e, a)
        atomic = self.atomwisereadout(r).squeeze(-1)
        energy = torch.stack([x.sum() for x in atomic.split(batch["num_atoms"])])
        forces = -torch.autograd.grad(energy.sum(), xyz)[0]
        return {"energy": energy, "energy_grad": -forces}
# %%
mols, N = 3, 3
positions = torch.tensor([[0., 0., 0.], [.96, 0., 0.], [-.24, .93, 0.]]).repeat(mols, 1) + .05 * torch.randn(mols * N, 3)
pairs = [(m * N + i, m * N + j) for m in range(mols) for i in range(N) for j in range(N) if i != j]
batch = {"nxyz": torch.cat([torch.tensor([8., 1., 1.]).repeat(mols)[:, None], positions], 1),
         "nbr_list": torch.tensor(pairs), "num_atoms": [N] * mols,
         "energy": torch.randn(mols), "energy_grad": .1 * torch.randn(mols * N, 3)}

model = NeuralFF()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
loss_coef = {"energy": 0.01, "energy_grad": 1.0}
for epoch in range(3):
    model.train()
    results = model(batch)
    loss = sum(coef * F.mse_loss(results[key], batch[key]) for key, coef in loss_coef.items())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(epoch, loss.item())
# %% [fixed 3]
class NeuralFF(nn.Module):
    """energy and forces of a batch of molecules (nxyz: charges and positions of all atoms)"""
    def __init__(self, n_atom_basis=8, n_gaussians=6, n_convolutions=2):
        super().__init__()
        self.atom_embed = nn.Embedding(10, n_atom_basis, padding_idx=0)
        self.convolutions = nn.ModuleList(SchNetConv(n_atom_basis, n_gaussians) for _ in range(n_convolutions))
        self.atomwisereadout = nn.Sequential(nn.Linear(n_atom_basis, 4), nn.Softplus(), nn.Linear(4, 1))

    def forward(self, batch):
        xyz = batch["nxyz"][:, 1:].clone().requires_grad_(True)
        r, a = self.atom_embed(batch["nxyz"][:, 0].long()), batch["nbr_list"]
        e = (xyz[a[:, 0]] - xyz[a[:, 1]]).norm(dim=-1)
        for conv in self.convolutions:
            r = conv(r, e, a)
        atomic = self.atomwisereadout(r).squeeze(-1)
        energy = torch.stack([x.sum() for x in atomic.split(batch["num_atoms"])])
        forces = -torch.autograd.grad(energy.sum(), xyz, create_graph=self.training)[0]
        return {"energy": energy, "energy_grad": -forces}
