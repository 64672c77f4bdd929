# %% [case]
# id: mixup-scales-chunks-in-loop
# source: the same as mixup_scales_chunks, in a loop over numbers
# family: multi_output_view
# fails: 4
# culprit: 2:13
# saved: -
# needed: 2:13
# effect: same
# observe: [q.grad.clone() for q in lit.parameters()]
# note: chunk's outputs, kept in a list, are scaled in place one after another. Fix: build the mixture out of place.
# %%
import random
import torch
random.seed(2)
torch.manual_seed(2)
# %%
class Mixer(torch.nn.Module):
    def __init__(self, d_in, d, classes):
        super().__init__()
        self.stem = torch.nn.Linear(d_in, d)
        self.fc = torch.nn.Linear(d, classes)

    def training_step(self, batch):
        x, y = batch['x'], batch['y']
        self.lam = random.betavariate(0.5, 0.5)
        halves = torch.sigmoid(self.stem(x)).chunk(2, dim=0)
        weights = [self.lam, 1 - self.lam]
        for i in range(2):
            halves[i].mul_(weights[i])
        logp = self.fc(halves[0] + halves[1]).log_softmax(1)
        y1, y2 = y.chunk(2)
        nll = torch.nn.functional.nll_loss
        return self.lam * nll(logp, y1) + (1 - self.lam) * nll(logp, y2)
# %%
lit = Mixer(3, 5, 4)
optimizer = torch.optim.SGD(lit.parameters(), lr=0.1)
batch = dict(x=torch.randn(6, 3), y=torch.randint(0, 4, (6,)))
# %%
loss = lit.training_step(batch)
optimizer.zero_grad()
loss.backward()
optimizer.step()
# %% [fixed 2]
class Mixer(torch.nn.Module):
    def __init__(self, d_in, d, classes):
        super().__init__()
        self.stem = torch.nn.Linear(d_in, d)
        self.fc = torch.nn.Linear(d, classes)

    def training_step(self, batch):
        x, y = batch['x'], batch['y']
        self.lam = random.betavariate(0.5, 0.5)
        halves = torch.sigmoid(self.stem(x)).chunk(2, dim=0)
        weights = [self.lam, 1 - self.lam]
        mixed = [h * w for h, w in zip(halves, weights)]
        logp = self.fc(mixed[0] + mixed[1]).log_softmax(1)
        y1, y2 = y.chunk(2)
        nll = torch.nn.functional.nll_loss
        return self.lam * nll(logp, y1) + (1 - self.lam) * nll(logp, y2)
