# %% [case]
# id: penalty-of-the-first-weights-under-steps-by-hand
# source: logistic regression homework, the penalty made in the constructor
# family: second_backward
# fails: 2
# culprit: -
# saved: 1:10
# needed: 1:18
# effect: other
# observe: [model.w.detach().clone()]
# note: the penalty is computed once, of weights that a step by hand updates: nobody means a copy of the first weights. Fix: computed in each cost.
# %%
import torch
torch.manual_seed(9)
data = torch.randn(30, 3)
goal = (data @ torch.tensor([1.0, -1.0, 0.5]) > 0).float()

class Logistic:
    def __init__(self, n, strength):
        self.w = torch.full((n,), 0.2, requires_grad=True)
        self.strength = strength
        self.ridge = strength * self.w.dot(self.w)

    def cost(self, x, y):
        fit = torch.nn.functional.binary_cross_entropy_with_logits(x @ self.w, y)
        return fit + self.ridge

    def epoch(self, x, y, rate):
        c = self.cost(x, y)
        c.backward()
        with torch.no_grad():
            self.w.sub_(rate * self.w.grad)
            self.w.grad = None
        return c.item()
# %%
model = Logistic(3, 0.05)
curve = [model.epoch(data, goal, rate=0.3) for _ in range(5)]
# %% [fixed 1]
import torch
torch.manual_seed(9)
data = torch.randn(30, 3)
goal = (data @ torch.tensor([1.0, -1.0, 0.5]) > 0).float()

class Logistic:
    def __init__(self, n, strength):
        self.w = torch.full((n,), 0.2, requires_grad=True)
        self.strength = strength

    def cost(self, x, y):
        fit = torch.nn.functional.binary_cross_entropy_with_logits(x @ self.w, y)
        return fit + self.strength * self.w.dot(self.w)

    def epoch(self, x, y, rate):
        c = self.cost(x, y)
        c.backward()
        with torch.no_grad():
            self.w.sub_(rate * self.w.grad)
            self.w.grad = None
        return c.item()
