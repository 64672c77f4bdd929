# %% [case]
# id: crf-forward-algorithm-emissions-zh
# source: 命名实体识别, 自己写的 CRF 层, 前向算法
# family: modified
# fails: 3
# culprit: 1:17
# saved: 1:16
# needed: 3:3
# effect: same
# observe: [crf.transitions.grad.clone(), emissions.grad.clone()]
# note: logsumexp 保存了它的结果 alpha, 接着 alpha += emit 把它改掉了. Fix: alpha = alpha + emit.
# %%
import torch
import torch.nn as nn

class CRF(nn.Module):
    """线性链条件随机场"""
    def __init__(self, num_tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags).uniform_(-0.1, 0.1))

    def _log_partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            旧 = alpha
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1)
            alpha += emissions[:, t]                       # 加上发射分数
            alpha = torch.where(mask[:, t:t + 1], alpha, 旧)   # 填充的位置保持不变
        return torch.logsumexp(alpha + self.end, dim=1)

    def _score(self, emissions, tags, mask):
        b = torch.arange(len(tags))
        score = self.start[tags[:, 0]] + emissions[b, 0, tags[:, 0]]
        for t in range(1, tags.size(1)):
            step = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[b, t, tags[:, t]]
            score = score + step * mask[:, t]
        last = mask.long().sum(1) - 1
        return score + self.end[tags[b, last]]

    def forward(self, emissions, tags, mask):
        return (self._log_partition(emissions, mask) - self._score(emissions, tags, mask)).mean()
# %%
torch.manual_seed(42)
crf = CRF(5)
emissions = torch.randn(3, 6, 5, requires_grad=True)   # 来自 BiLSTM
tags = torch.randint(0, 5, (3, 6))
mask = torch.arange(6)[None] < torch.tensor([6, 4, 3])[:, None]
# %%
损失 = crf(emissions, tags, mask)
print('nll =', 损失.item())
损失.backward()
# %% [fixed 1]
import torch
import torch.nn as nn

class CRF(nn.Module):
    """线性链条件随机场"""
    def __init__(self, num_tags):
        super().__init__()
        self.start = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.end = nn.Parameter(torch.empty(num_tags).uniform_(-0.1, 0.1))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags).uniform_(-0.1, 0.1))

    def _log_partition(self, emissions, mask):
        alpha = self.start + emissions[:, 0]
        for t in range(1, emissions.size(1)):
            旧 = alpha
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.transitions, dim=1)
            alpha = alpha + emissions[:, t]                # 加上发射分数
            alpha = torch.where(mask[:, t:t + 1], alpha, 旧)   # 填充的位置保持不变
        return torch.logsumexp(alpha + self.end, dim=1)

    def _score(self, emissions, tags, mask):
        b = torch.arange(len(tags))
        score = self.start[tags[:, 0]] + emissions[b, 0, tags[:, 0]]
        for t in range(1, tags.size(1)):
            step = self.transitions[tags[:, t - 1], tags[:, t]] + emissions[b, t, tags[:, t]]
            score = score + step * mask[:, t]
        last = mask.long().sum(1) - 1
        return score + self.end[tags[b, last]]

    def forward(self, emissions, tags, mask):
        return (self._log_partition(emissions, mask) - self._score(emissions, tags, mask)).mean()
