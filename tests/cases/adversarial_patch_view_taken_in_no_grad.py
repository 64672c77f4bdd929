# %% [case]
# id: adversarial-patch-view-taken-in-no-grad
# source: adversarial patch pasted into an image, the window cut under no_grad
# family: no_grad_view
# fails: 3
# culprit: 2:6
# saved: -
# needed: 2:6
# effect: same
# observe: [patch.grad.clone()]
# note: the window is a view made in no_grad mode, adding the trainable patch to it in grad mode is refused. Fix: take the view outside.
# %%
import torch
from torch import nn
torch.manual_seed(0)
detector = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3 * 36, 1))
patch = torch.zeros(3, 3, requires_grad=True)
# %%
def paste(scene, patch, y=2, x=2):
    scene = scene.clone()
    with torch.no_grad():
        h, w = patch.shape
        window = scene[:, :, y:y + h, x:x + w]
    window += patch
    return scene
# %%
scene = torch.rand(2, 1, 8, 8)
score = detector(paste(scene, patch)).mean()
score.backward()
print(patch.grad)
# %% [fixed 2]
def paste(scene, patch, y=2, x=2):
    scene = scene.clone()
    h, w = patch.shape
    window = scene[:, :, y:y + h, x:x + w]
    window += patch
    return scene
