# %% [case]
# id: clip-logit-scale-clamped
# source: contrastive image-text training, temperature kept below 100
# family: leaf
# fails: 3
# culprit: 3:7
# saved: -
# needed: 3:7
# effect: same
# observe: [clip.logit_scale.detach().clone(), clip.img.weight.detach().clone()]
# note: logit_scale is a Parameter and is clamped in place in the loop. Fix: no_grad (or .data).
# %%
import math
import torch, torch.nn as nn, torch.nn.functional as F

class TinyCLIP(nn.Module):
    def __init__(self):
        super().__init__()
        self.img, self.txt = nn.Linear(8, 4), nn.Linear(6, 4)
        self.logit_scale = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
    def forward(self, i, t):
        i, t = F.normalize(self.img(i), dim=-1), F.normalize(self.txt(t), dim=-1)
        logits = self.logit_scale.exp() * i @ t.T
        y = torch.arange(len(i))
        return (F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y)) / 2
# %%
torch.manual_seed(0)
clip = TinyCLIP()
opt = torch.optim.AdamW(clip.parameters(), lr=1e-2, weight_decay=0.2)
pairs = [(torch.randn(4, 8), torch.randn(4, 6)) for _ in range(3)]
# %%
for i, t in pairs:
    loss = clip(i, t)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    # clamp to 4.6052 as in the paper
    clip.logit_scale.clamp_(0, 4.6052)
    print(f'{loss.item():.3f}', clip.logit_scale.exp().item())
# %% [fixed 3]
for i, t in pairs:
    loss = clip(i, t)
    opt.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
    # clamp to 4.6052 as in the paper
    with torch.no_grad():
        clip.logit_scale.clamp_(0, 4.6052)
    print(f'{loss.item():.3f}', clip.logit_scale.exp().item())
