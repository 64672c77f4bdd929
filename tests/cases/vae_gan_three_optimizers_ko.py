# %% [case]
# id: vae-gan-three-optimizers-ko
# source: VAE-GAN 학습 노트북, 옵티마이저 세 개
# family: modified
# fails: 3
# culprit: 3:13
# saved: 3:3 | 3:4
# needed: 3:17
# effect: other
# observe: [p.detach().clone() for p in E.parameters()]
# note: optE.step() 이 인코더를 바꾼 뒤 decoder 손실이 다시 그 인코더를 지나간다. 수정: backward 를 모두 한 다음 step.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(1)
E, Dec = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)), nn.Sequential(nn.Linear(2, 12), nn.ReLU(), nn.Linear(12, 6))
Dis = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1))
optE, optG, optD = (torch.optim.RMSprop(m.parameters(), lr=3e-4) for m in (E, Dec, Dis))
# %%
def reparam(mu, logvar):
    return mu + torch.randn_like(mu) * (0.5 * logvar).exp()

def bce(logit, y):
    return F.binary_cross_entropy_with_logits(logit, torch.full_like(logit, y))
# %%
for x in torch.randn(2, 5, 6):
    # 인코더 → 디코더
    mu, logvar = E(x).chunk(2, 1)
    x_rec = Dec(reparam(mu, logvar))
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
    # 판별기
    d_loss = bce(Dis(x), 1.) + bce(Dis(x_rec.detach()), 0.)
    optD.zero_grad(); d_loss.backward(); optD.step()
    # 인코더
    e_loss = kl + F.mse_loss(x_rec, x)
    optE.zero_grad()
    e_loss.backward(retain_graph=True)
    optE.step()
    # 디코더
    g_loss = F.mse_loss(x_rec, x) + 0.1 * bce(Dis(x_rec), 1.)
    optG.zero_grad()
    g_loss.backward()
    optG.step()
# %% [fixed 3]
for x in torch.randn(2, 5, 6):
    # 인코더 → 디코더
    mu, logvar = E(x).chunk(2, 1)
    x_rec = Dec(reparam(mu, logvar))
    kl = -0.5 * (1 + logvar - mu.pow(2) - logvar.exp()).mean()
    # 판별기
    d_loss = bce(Dis(x), 1.) + bce(Dis(x_rec.detach()), 0.)
    optD.zero_grad(); d_loss.backward(); optD.step()
    # 인코더
    e_loss = kl + F.mse_loss(x_rec, x)
    optE.zero_grad()
    e_loss.backward(retain_graph=True)
    # 디코더
    g_loss = F.mse_loss(x_rec, x) + 0.1 * bce(Dis(x_rec), 1.)
    optG.zero_grad()
    g_loss.backward(inputs=list(Dec.parameters()))
    optE.step()
    optG.step()
