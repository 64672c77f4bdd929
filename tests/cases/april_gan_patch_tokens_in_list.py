# %% [case]
# id: april-gan-patch-tokens-in-list
# source: ByChelsea/VAND-APRIL-GAN#9
# family: modified
# fails: 4
# culprit: 3:9
# saved: 3:9
# needed: 3:22
# effect: same
# observe: [p.grad.clone() for p in trainable_layer.parameters()]
# note: patch_tokens[layer] /= patch_tokens[layer].norm(...): norm saves the list element that the same statement divides in place (LinalgVectorNormBackward0 in the report). Fix: patch_tokens[layer] = patch_tokens[layer] / ....norm(...). The image and text features a few lines above are normalised the same way without gradient, harmless.
# %%
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

class LinearLayer(nn.Module):
    def __init__(self, dim_in, dim_out, k):
        super(LinearLayer, self).__init__()
        self.fc = nn.ModuleList([nn.Linear(dim_in, dim_out) for i in range(k)])

    def forward(self, tokens):
        for i in range(len(tokens)):
            tokens[i] = self.fc[i](tokens[i][:, 1:, :])
        return tokens

class BinaryDiceLoss(nn.Module):
    def forward(self, input, targets):
        N = targets.size(0)
        a, b = input.view(N, -1), targets.view(N, -1)
        return 1 - ((2 * (a * b).sum(1) + 1) / (a.sum(1) + b.sum(1) + 1)).sum() / N
# %%
class FrozenCLIP(nn.Module):
    """stand-in for open_clip with intermediate features"""
    def __init__(self, width=10, embed=6, layers=2):
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))
        self.proj = nn.Linear(width, embed, bias=False)

    def encode_image(self, image):
        x = self.patch(image).flatten(2).transpose(1, 2)
        x = torch.cat([x.mean(1, keepdim=True), x], dim=1)
        tokens = []
        for blk in self.blocks:
            x = x + blk(x).tanh()
            tokens.append(x)
        return self.proj(x[:, 0]), tokens

torch.manual_seed(10)
model = FrozenCLIP().eval()
text_prompts = F.normalize(torch.randn(6, 2), dim=0)      # normal / anomalous
trainable_layer = LinearLayer(10, 6, 2)
optimizer = torch.optim.Adam(list(trainable_layer.parameters()), lr=1e-3, betas=(0.5, 0.999))
loss_dice = BinaryDiceLoss()
# %%
def train_step(items, img_size):
    image, gt = items['img'], items['img_mask']
    with torch.no_grad():
        image_features, patch_tokens = model.encode_image(image)
        image_features /= image_features.norm(dim=-1, keepdim=True)
    patch_tokens = trainable_layer(patch_tokens)
    anomaly_maps = []
    for layer in range(len(patch_tokens)):
        patch_tokens[layer] /= patch_tokens[layer].norm(dim=-1, keepdim=True)
        anomaly_map = (10.0 * patch_tokens[layer] @ text_prompts)
        B, L, C = anomaly_map.shape
        H = int(np.sqrt(L))
        anomaly_map = F.interpolate(anomaly_map.permute(0, 2, 1).view(B, 2, H, H),
                                    size=img_size, mode='bilinear', align_corners=True)
        anomaly_maps.append(torch.softmax(anomaly_map, dim=1))

    loss = 0
    for num in range(len(anomaly_maps)):
        loss += F.nll_loss((anomaly_maps[num] + 1e-6).log(), gt.long())
        loss += loss_dice(anomaly_maps[num][:, 1, :, :], gt)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
# %%
dataset = [{'img': torch.rand(2, 3, 12, 12), 'img_mask': (torch.rand(2, 12, 12) > 0.8).float()} for _ in range(2)]
for epoch in range(2):
    loss_list = [train_step(items, 12) for items in dataset]
    print('epoch [{}/{}], loss:{:.4f}'.format(epoch + 1, 2, np.mean(loss_list)))
# %% [fixed 3]
def train_step(items, img_size):
    image, gt = items['img'], items['img_mask']
    with torch.no_grad():
        image_features, patch_tokens = model.encode_image(image)
        image_features /= image_features.norm(dim=-1, keepdim=True)
    patch_tokens = trainable_layer(patch_tokens)
    anomaly_maps = []
    for layer in range(len(patch_tokens)):
        patch_tokens[layer] = patch_tokens[layer] / patch_tokens[layer].norm(dim=-1, keepdim=True)
        anomaly_map = (10.0 * patch_tokens[layer] @ text_prompts)
        B, L, C = anomaly_map.shape
        H = int(np.sqrt(L))
        anomaly_map = F.interpolate(anomaly_map.permute(0, 2, 1).view(B, 2, H, H),
                                    size=img_size, mode='bilinear', align_corners=True)
        anomaly_maps.append(torch.softmax(anomaly_map, dim=1))

    loss = 0
    for num in range(len(anomaly_maps)):
        loss += F.nll_loss((anomaly_maps[num] + 1e-6).log(), gt.long())
        loss += loss_dice(anomaly_maps[num][:, 1, :, :], gt)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
