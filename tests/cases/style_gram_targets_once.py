# %% [case]
# id: style-gram-targets-once
# source: neural style transfer, targets computed once with a trainable extractor
# family: second_backward
# fails: 3
# culprit: 3:6
# saved: 2:2 | 2:3
# needed: 3:9
# effect: truncates
# observe: [img.detach().clone()]
# note: the gram targets keep the graph of the extractor, the first backward frees it. Fix: detach the targets.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)

vgg = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 8, 3, padding=1), nn.ReLU())
def gram_matrix(y):
    b, c, h, w = y.size()
    f = y.view(b, c, h * w)
    return f.bmm(f.transpose(1, 2)) / (c * h * w)
# %%
content, style = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8)
style_gram = gram_matrix(vgg(style))
content_feat = vgg(content)
# %%
img = content.clone().requires_grad_(True)
optimizer = torch.optim.Adam([img], lr=0.05)
for it in range(4):
    optimizer.zero_grad()
    feat = vgg(img)
    c_loss = F.mse_loss(feat, content_feat)
    s_loss = F.mse_loss(gram_matrix(feat), style_gram)
    total = c_loss + 100. * s_loss
    total.backward()
    optimizer.step()
    with torch.no_grad():
        img.clamp_(0, 1)
# %% [fixed 2]
content, style = torch.rand(1, 3, 8, 8), torch.rand(1, 3, 8, 8)
style_gram = gram_matrix(vgg(style)).detach()
content_feat = vgg(content).detach()
