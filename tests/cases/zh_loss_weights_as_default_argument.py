# %% [case]
# id: zh-loss-weights-as-default-argument
# source: median-research-group/LibMTL issue 89 (weighted multi-task loss, every new batch fails with a second backward)
# family: second_backward
# fails: 4
# culprit: 4:8 | 3:10
# saved: 3:4
# needed: 4:8
# effect: same
# observe: 记录 + [任务权重.detach(), 模型.主干.weight.detach().sum()]
# note: The default value softmax(...) of the weights is computed once, when the function is defined; its graph is freed by the first backward. Fix: default None and compute the softmax inside the function.
# %%
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(9)
# 房间传感器：同时预测温度（回归）和是否有人（分类）
特征 = torch.randn(96, 5)
温度 = 特征[:, :2].sum(1) * 0.5 + 0.1 * torch.randn(96)
有人 = (特征[:, 2] + 0.3 * torch.randn(96) > 0).float()
# %%
class 双任务网络(nn.Module):
    def __init__(self):
        super().__init__()
        self.主干 = nn.Linear(5, 12)
        self.头_温度 = nn.Linear(12, 1)
        self.头_有人 = nn.Linear(12, 1)

    def forward(self, x):
        h = torch.tanh(self.主干(x))
        return self.头_温度(h).squeeze(1), self.头_有人(h).squeeze(1)
# %%
任务权重 = nn.Parameter(torch.zeros(2))


def 总损失(预测, 目标, 权重=2 * torch.softmax(任务权重, dim=0)):
    """两个任务的损失按可学习的权重相加，再加一个熵项防止只学一个任务"""
    损失 = torch.stack([
        F.mse_loss(预测[0], 目标[0]),
        F.binary_cross_entropy_with_logits(预测[1], 目标[1]),
    ])
    熵 = -(权重 / 2 * torch.log(权重 / 2)).sum()
    return (权重 * 损失).sum() - 0.5 * 熵
# %%
模型 = 双任务网络()
优化器 = torch.optim.Adam([*模型.parameters(), 任务权重], lr=0.01)
记录 = []
for 轮 in range(5):
    for idx in torch.arange(96).split(32):
        优化器.zero_grad()
        损失 = 总损失(模型(特征[idx]), (温度[idx], 有人[idx]))
        损失.backward()
        优化器.step()
    记录.append(round(损失.item(), 6))
print(记录)
# %% [fixed 3]
任务权重 = nn.Parameter(torch.zeros(2))


def 总损失(预测, 目标, 权重=None):
    """两个任务的损失按可学习的权重相加，再加一个熵项防止只学一个任务"""
    if 权重 is None:
        权重 = 2 * torch.softmax(任务权重, dim=0)
    损失 = torch.stack([
        F.mse_loss(预测[0], 目标[0]),
        F.binary_cross_entropy_with_logits(预测[1], 目标[1]),
    ])
    熵 = -(权重 / 2 * torch.log(权重 / 2)).sum()
    return (权重 * 损失).sum() - 0.5 * 熵
