# %% [case]
# id: reference-bank-cleared-only-with-a-step
# source: https://github.com/MooreThreads/Moore-AnimateAnyone/issues/92
# family: second_backward
# fails: 4
# culprit: 4:8|2:13
# saved: 2:8
# needed: 4:8
# effect: same
# observe: [p.detach().clone() for p in list(reference_unet.parameters()) + list(denoising_unet.parameters())]
# note: the writer's bank is cleared only when the optimizer steps, so with gradient accumulation > 1 the second micro batch also attends to the reference features of the first, whose graph is freed. Human fix: clear both banks after every micro batch.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(92)
C, GRAD_ACC = 6, 2
# %%
class BasicBlock(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.kv = nn.LayerNorm(C), nn.Linear(C, C), nn.Linear(C, 2 * C)
        self.mode, self.bank = None, []

    def forward(self, x):
        h = self.norm(x)
        ctx = h
        if self.mode == "write":
            self.bank.append(h)
        elif self.mode == "read":
            ctx = torch.cat([h] + self.bank, dim=1)
        k, v = self.kv(ctx).chunk(2, dim=-1)
        return x + F.scaled_dot_product_attention(self.q(h), k, v)

class UNet(nn.Module):
    def __init__(self, n=2):
        super().__init__()
        self.conv_in = nn.Linear(4, C)
        self.blocks = nn.ModuleList(BasicBlock() for _ in range(n))
        self.conv_out = nn.Linear(C, 4)
    def forward(self, x):
        x = self.conv_in(x)
        for b in self.blocks: x = b(x)
        return self.conv_out(x)
# %%
class ReferenceAttentionControl:
    def __init__(self, unet, mode):
        self.unet = unet
        for b in unet.blocks: b.mode = mode
    def update(self, writer):
        for r, w in zip(self.unet.blocks, writer.unet.blocks):
            r.bank = list(w.bank)
    def clear(self):
        for b in self.unet.blocks: b.bank.clear()

reference_unet, denoising_unet = UNet(), UNet()
writer = ReferenceAttentionControl(reference_unet, "write")
reader = ReferenceAttentionControl(denoising_unet, "read")
optimizer = torch.optim.AdamW([*reference_unet.parameters(), *denoising_unet.parameters()], lr=1e-3)
# %%
data = [(torch.randn(2, 5, 4), torch.randn(2, 5, 4)) for _ in range(4)]
for step, (ref_latents, latents) in enumerate(data):
    noise = torch.randn_like(latents)
    reference_unet(ref_latents)
    reader.update(writer)
    model_pred = denoising_unet(latents + 0.5 * noise)
    loss = F.mse_loss(model_pred, noise)
    (loss / GRAD_ACC).backward()
    if (step + 1) % GRAD_ACC == 0:
        optimizer.step()
        optimizer.zero_grad()
        reader.clear()
        writer.clear()
# %% [fixed 4]
data = [(torch.randn(2, 5, 4), torch.randn(2, 5, 4)) for _ in range(4)]
for step, (ref_latents, latents) in enumerate(data):
    noise = torch.randn_like(latents)
    reference_unet(ref_latents)
    reader.update(writer)
    model_pred = denoising_unet(latents + 0.5 * noise)
    loss = F.mse_loss(model_pred, noise)
    (loss / GRAD_ACC).backward()
    reader.clear()
    writer.clear()
    if (step + 1) % GRAD_ACC == 0:
        optimizer.step()
        optimizer.zero_grad()
