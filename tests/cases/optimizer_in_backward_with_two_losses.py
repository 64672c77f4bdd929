# %% [case]
# id: optimizer-in-backward-with-two-losses
# source: pytorch tutorial optimizer_step_in_backward; pytorch/pytorch#107063 (register_post_accumulate_grad_hook); test/test_autograd.py test_post_accumulate_grad_hook_on_non_leaf
# family: modified
# fails: 4
# culprit: 2:5
# saved: 1:14
# needed: 3:8
# effect: same
# observe: [p.detach().clone() for p in net.parameters()]
# note: The optimizer steps inside backward (post-accumulate-grad hooks), so the first task's backward already changes the shared trunk that the second task's graph has saved. Human fix: one backward of the summed loss.
# %%
import torch
from torch import nn
import torch.nn.functional as F

class SegDepthNet(nn.Module):
    def __init__(self, c=4):
        super().__init__()
        self.stem = nn.Conv2d(3, c, 3, padding=1)
        self.body = nn.Conv2d(c, c, 3, padding=1)
        self.heads = nn.ModuleDict({"seg": nn.Conv2d(c, 2, 1), "depth": nn.Conv2d(c, 1, 1)})

    def forward(self, img):
        f = F.silu(self.stem(img))
        f = F.silu(self.body(f))
        return {name: head(f) for name, head in self.heads.items()}

torch.manual_seed(0)
net = SegDepthNet()
# %%
# optimizer fused into backward: gradients are freed at once (saves a lot of memory)
optimizers = {p: torch.optim.Adam([p], lr=1e-3) for p in net.parameters()}

def optimizer_hook(param):
    optimizers[param].step()
    optimizers[param].zero_grad()

for p in net.parameters():
    p.register_post_accumulate_grad_hook(optimizer_hook)
# %%
def train_step(img, seg, depth, w_depth=0.5):
    out = net(img)
    losses = {
        "seg": F.cross_entropy(out["seg"], seg),
        "depth": w_depth * F.l1_loss(out["depth"], depth),
    }
    for i, loss in enumerate(losses.values()):
        loss.backward(retain_graph=i + 1 < len(losses))
    return {k: v.item() for k, v in losses.items()}
# %%
img = torch.randn(2, 3, 6, 6)
seg = torch.randint(0, 2, (2, 6, 6))
depth = torch.rand(2, 1, 6, 6)
for it in range(2):
    print(it, train_step(img, seg, depth))
# %% [fixed 3]
def train_step(img, seg, depth, w_depth=0.5):
    out = net(img)
    losses = {
        "seg": F.cross_entropy(out["seg"], seg),
        "depth": w_depth * F.l1_loss(out["depth"], depth),
    }
    sum(losses.values()).backward()
    return {k: v.item() for k, v in losses.items()}
