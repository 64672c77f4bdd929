# %% [case]
# id: own-descent-copies-into-a-list-of-weights-zh
# source: Anomaly Transformer, with a descent of its own
# family: modified
# fails: 2
# culprit: 1:14|2:6
# saved: -
# needed: 2:6
# effect: same
# observe: [q.detach().clone() for q in 网.parameters()] + 记录
# note: 一次前向得到两个损失 (生成器逐个给出), 每次反向之后马上手动更新权重. Fix: 循环之后只更新一次.
# %%
import torch
import torch.nn as nn
torch.manual_seed(1)

class 下降:
    def __init__(self, 网, 学习率):
        self.网 = 网; self.学习率 = 学习率
    def 清零(self):
        self.网.zero_grad(set_to_none=True)
    def 更新(self):
        参数表 = list(self.网.parameters())
        with torch.no_grad():
            for i in range(len(参数表)):
                if 参数表[i].grad is not None: 参数表[i].copy_(参数表[i] - self.学习率 * 参数表[i].grad)

def 两个损失(网, x):
    隐 = torch.relu(网[0](x))
    误差 = nn.functional.l1_loss(网[1](隐), x)
    注意, 尺度 = 隐.softmax(-1), nn.functional.softplus(网[2](隐))
    yield 误差 - (注意 * 尺度.detach()).mean()
    yield 误差 + (注意.detach() * 尺度).mean()

网 = nn.ModuleList([nn.Linear(6, 9), nn.Linear(9, 6), nn.Linear(9, 1)])
# %%
步 = 下降(网, 学习率=0.02)
for 批 in torch.randn(4, 5, 6).unbind():
    记录 = []
    步.清零()
    for 第几, 损失 in enumerate(两个损失(网, 批)):
        损失.backward(retain_graph=(第几 == 0)); 步.更新()
        记录.append(损失.detach())
# %% [fixed 2]
步 = 下降(网, 学习率=0.02)
for 批 in torch.randn(4, 5, 6).unbind():
    记录 = []
    步.清零()
    for 第几, 损失 in enumerate(两个损失(网, 批)):
        损失.backward(retain_graph=(第几 == 0))
        记录.append(损失.detach())
    步.更新()
