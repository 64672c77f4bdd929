# %% [case]
# id: multitask-backward-per-task
# source: multi-task network, one backward for each task's loss
# family: second_backward
# fails: 4
# culprit: 4:6
# saved: 1:11
# needed: 4:6
# effect: same
# observe: [p.grad.clone() for p in mtl.parameters()]
# note: every loss goes back through the same trunk, the first call frees it. Fix: sum(losses.values()).backward().
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

class MTL(nn.Module):
    def __init__(self, tasks):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(7, 10), nn.ReLU(inplace=True), nn.Linear(10, 6), nn.Sigmoid())
        self.heads = nn.ModuleDict({t: nn.Linear(6, n) for t, n in tasks.items()})
    def forward(self, x):
        z = self.trunk(x)
        return {t: head(z) for t, head in self.heads.items()}
# %%
torch.manual_seed(0)
tasks = {'age': 1, 'gender': 2, 'income': 1}
mtl = MTL(tasks)
optimizer = torch.optim.RMSprop(mtl.parameters(), lr=1e-3)
batch = {'x': torch.randn(9, 7), 'age': torch.rand(9, 1), 'gender': torch.randint(0, 2, (9,)), 'income': torch.rand(9, 1)}
# %%
def compute_losses(out, batch):
    return {'age': F.l1_loss(out['age'], batch['age']),
            'gender': F.cross_entropy(out['gender'], batch['gender']),
            'income': F.mse_loss(out['income'], batch['income'])}
# %%
mtl.train()
out = mtl(batch['x'])
losses = compute_losses(out, batch)
optimizer.zero_grad()
for name, l in losses.items():
    l.backward()
optimizer.step()
# %% [fixed 4]
mtl.train()
out = mtl(batch['x'])
losses = compute_losses(out, batch)
optimizer.zero_grad()
sum(losses.values()).backward()
optimizer.step()
