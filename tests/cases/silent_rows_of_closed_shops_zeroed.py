# %% [case]
# id: silent-rows-of-closed-shops-zeroed
# source: naoto0804/pytorch-inpainting-with-partial-conv#6, in other words, in other words
# family: silent
# fails: -
# culprit: 1:13 | 1:17
# saved: -
# needed: 2:6
# effect: same
# observe: [w.grad.clone() for w in (model.slope, model.shift)]
# note: a static method decorated with no_grad zeroes the rows of the empty shops one by one, so their gradient still goes to the shift. Nothing is raised, since the addition before it saves nothing. Fix: a tracked torch.where in predict.
# %%
import torch
torch.manual_seed(23)

class ShopModel:
    def __init__(self, n_features, n_goods):
        self.slope = torch.randn(n_features, n_goods, requires_grad=True)
        self.shift = torch.full((n_goods,), 0.5, requires_grad=True)

    @staticmethod
    @torch.no_grad()
    def close(sales, open_):
        for i in range(len(open_)):
            if not open_[i]: sales[i].zero_()

    def predict(self, features, open_):
        sales = features @ self.slope + self.shift
        self.close(sales, open_)
        return sales
# %%
features, sold = torch.randn(6, 3), torch.rand(6, 2)
open_ = torch.tensor([True, True, False, True, False, True])
model = ShopModel(3, 2)
miss = model.predict(features, open_) - sold
loss = miss.abs().mean()
loss.backward()
print(loss.item(), model.shift.grad)
# %% [fixed 1]
import torch
torch.manual_seed(23)

class ShopModel:
    def __init__(self, n_features, n_goods):
        self.slope = torch.randn(n_features, n_goods, requires_grad=True)
        self.shift = torch.full((n_goods,), 0.5, requires_grad=True)

    @staticmethod
    @torch.no_grad()
    def close(sales, open_):
        for i in range(len(open_)):
            if not open_[i]: sales[i].zero_()

    def predict(self, features, open_):
        sales = features @ self.slope + self.shift
        sales = torch.where(open_[:, None], sales, 0.0)
        return sales
