# %% [case]
# id: pose-joints-unbind-then-narrow
# source: github.com/pytorch/pytorch issue 36608 (unbind, then narrow of one of the outputs, then mul_: views of multi-output views)
# family: multi_output_view
# fails: 3
# culprit: 2:5
# saved: -
# needed: -
# effect: same
# observe: [loss.item(), pose.detach().clone()] + list(grads.values())
# note: xy is a view of an output of unbind and is multiplied in place. Fix: compute the scaled coordinates out of place (or multiply pose[..., :2], a view with one output).
# %%
import torch
from torch import nn

torch.manual_seed(6)
JOINTS = ["hip", "knee", "ankle"]

class PoseNet(nn.Module):
    """markers -> 3 joints with (x, y, confidence)"""
    def __init__(self, n_markers=10):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(n_markers, 16), nn.ReLU())
        self.joints = nn.Linear(16, len(JOINTS) * 3)

    def forward(self, m):
        return self.joints(self.trunk(m)).view(-1, len(JOINTS), 3)
# %%
def to_metres(pose, scale):
    """image coordinates -> metres, the confidence stays as it is"""
    for joint in pose.unbind(1):
        xy = joint.narrow(-1, 0, 2)
        xy.mul_(scale)
    return pose

def limb_lengths(pose):
    hip, knee, ankle = pose[..., :2].unbind(1)
    return torch.stack([(hip - knee).norm(dim=-1), (knee - ankle).norm(dim=-1)], dim=1)
# %%
net = PoseNet()
markers = torch.randn(12, 10)
target = torch.tensor([0.45, 0.42]).expand(12, 2)
pose = to_metres(net(markers), scale=0.01)
# %%
conf = pose[..., 2].sigmoid().mean(1)
loss = (conf * (limb_lengths(pose) - target).abs().sum(1)).mean() - 0.1 * conf.log().mean()
loss.backward()
grads = {n: p.grad.clone() for n, p in net.named_parameters()}
print(loss.item())
# %% [fixed 2]
def to_metres(pose, scale):
    """image coordinates -> metres, the confidence stays as it is"""
    return torch.cat([pose[..., :2] * scale, pose[..., 2:]], dim=-1)

def limb_lengths(pose):
    hip, knee, ankle = pose[..., :2].unbind(1)
    return torch.stack([(hip - knee).norm(dim=-1), (knee - ankle).norm(dim=-1)], dim=1)
