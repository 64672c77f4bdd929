# %% [case]
# id: rnn-state-in-dict
# source: a textbook mistake in other words
# family: second_backward
# fails: 3
# culprit: -
# saved: -
# needed: 3:9
# effect: truncates
# observe: [p.detach().clone() for p in cell.parameters()]
# note: a recurrent state under a key of a dict that a helper updates
# %%
import torch
from torch import nn
torch.manual_seed(0)
cell = nn.GRUCell(3, 4)
opt = torch.optim.SGD(cell.parameters(), lr=0.1)
chunks = [torch.randn(2, 3) for _ in range(4)]
# %%
memory = {"hidden": torch.zeros(2, 4)}
def advance(mem, x):
    mem["hidden"] = cell(x, mem["hidden"])
    return mem["hidden"]
# %%
seen = 0
for chunk in chunks:
    out = advance(memory, chunk)
    loss = out.pow(2).mean()
    seen += 1
    opt.zero_grad()
    # go back

    loss.backward()
    opt.step()
# %% [fixed 3]
seen = 0
for chunk in chunks:
    memory["hidden"] = memory["hidden"].detach()
    out = advance(memory, chunk)
    loss = out.pow(2).mean()
    seen += 1
    opt.zero_grad()
    # go back

    loss.backward()
    opt.step()
