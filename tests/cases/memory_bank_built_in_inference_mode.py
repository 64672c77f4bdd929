# %% [case]
# id: memory-bank-built-in-inference-mode
# source: instance discrimination, memory bank filled by an inference pass
# family: inference
# fails: 4
# culprit: 2:6 | 4:6
# saved: -
# needed: 4:6
# effect: same
# observe: [bank, encoder.weight.detach().clone()]
# note: the bank is an inference tensor, updating its rows in the training loop is refused. Fix: no_grad when building it.
# %%
import torch, torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
encoder = nn.Linear(6, 4)
data = torch.randn(10, 6)
# %%
def init_memory(encoder, data, batch_size=5):
    chunks = []
    with torch.inference_mode():
        for i in range(0, len(data), batch_size):
            chunks.append(F.normalize(encoder(data[i:i + batch_size]), dim=1))
        return torch.cat(chunks)
# %%
bank = init_memory(encoder, data)
opt = torch.optim.SGD(encoder.parameters(), lr=0.03)
# %%
m, T = 0.5, 0.07
for idx in torch.arange(10).split(5):
    z = F.normalize(encoder(data[idx]), dim=1)
    with torch.no_grad():
        # running average of the entries
        bank[idx] = F.normalize(m * bank[idx] + (1 - m) * z, dim=1)
    logits = z @ bank.clone().t() / T
    loss = F.cross_entropy(logits, idx)
    opt.zero_grad(); loss.backward(); opt.step()
# %% [fixed 2]
def init_memory(encoder, data, batch_size=5):
    chunks = []
    with torch.no_grad():
        for i in range(0, len(data), batch_size):
            chunks.append(F.normalize(encoder(data[i:i + batch_size]), dim=1))
        return torch.cat(chunks)
