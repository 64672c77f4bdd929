# %% [case]
# id: lora-merge-adds-into-weight
# source: low-rank adaptation, merging the adapters before export
# family: leaf
# fails: 3
# culprit: 1:17
# saved: -
# needed: 1:17
# effect: same
# observe: [merged.detach()]
# note: merging writes into the frozen weight's parameter, which still requires grad. Fix: no_grad.
# %%
import torch
import torch.nn as nn

class LoRALinear(nn.Linear):
    def __init__(self, i, o, r=2, alpha=4):
        super().__init__(i, o)
        self.A = nn.Parameter(torch.randn(r, i) * 0.02)
        self.B = nn.Parameter(torch.randn(o, r) * 0.02)
        self.scaling, self.merged = alpha / r, False

    def forward(self, x):
        y = super().forward(x)
        return y if self.merged else y + (x @ self.A.T @ self.B.T) * self.scaling

    def merge(self):
        if not self.merged:
            self.weight += (self.B @ self.A) * self.scaling
            self.merged = True
# %%
torch.manual_seed(0)
lm = nn.Sequential(LoRALinear(4, 6), nn.GELU(), LoRALinear(6, 2))
x = torch.randn(3, 4)
before = lm(x)
# %%
for m in lm.modules():
    if isinstance(m, LoRALinear):
        m.merge()
merged = lm(x)
print((merged - before).abs().max())
# %% [fixed 1]
import torch
import torch.nn as nn

class LoRALinear(nn.Linear):
    def __init__(self, i, o, r=2, alpha=4):
        super().__init__(i, o)
        self.A = nn.Parameter(torch.randn(r, i) * 0.02)
        self.B = nn.Parameter(torch.randn(o, r) * 0.02)
        self.scaling, self.merged = alpha / r, False

    def forward(self, x):
        y = super().forward(x)
        return y if self.merged else y + (x @ self.A.T @ self.B.T) * self.scaling

    def merge(self):
        if not self.merged:
            with torch.no_grad():
                self.weight += (self.B @ self.A) * self.scaling
            self.merged = True
