# %% [case]
# id: d2l-sgd-assigns-whole-slice-zh
# source: 从零开始的线性回归, sgd 用切片赋值更新参数
# family: leaf
# fails: 3
# culprit: 2:7
# saved: -
# needed: 2:7
# effect: same
# observe: [w.detach().clone(), b.detach().clone()]
# note: param[:] = ... 写的就是叶子张量本身. 修改: with torch.no_grad().
# %%
import torch
torch.manual_seed(0)
特征 = torch.randn(20, 2)
标签 = 特征 @ torch.tensor([2., -3.4]) + 4.2
w = torch.normal(0, 0.01, size=(2,), requires_grad=True)
b = torch.zeros(1, requires_grad=True)
# %%
def linreg(X, w, b):
    return X @ w + b

def sgd(params, lr, batch_size):
    """小批量随机梯度下降"""
    for param in params:
        param[:] = param - lr * param.grad / batch_size
        param.grad.zero_()
# %%
for epoch in range(2):
    for i in range(0, 20, 10):
        l = ((linreg(特征[i:i + 10], w, b) - 标签[i:i + 10]) ** 2 / 2).sum()
        l.backward()
        sgd([w, b], 0.1, 10)
    print(f'epoch {epoch + 1}, loss {float(l):f}')
# %% [fixed 2]
def linreg(X, w, b):
    return X @ w + b

def sgd(params, lr, batch_size):
    """小批量随机梯度下降"""
    with torch.no_grad():
        for param in params:
            param[:] = param - lr * param.grad / batch_size
            param.grad.zero_()
