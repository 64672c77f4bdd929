# %% [case]
# id: none-truncated-bptt-with-buffers
# source: stateful recurrent language model with detached state and a metric buffer
# family: none
# fails: -
# culprit: -
# saved: -
# needed: -
# effect: same
# observe: [rnn.weight_hh_l0.grad]
# note: state detached after each chunk, metrics written under no_grad: healthy.
# %%
import torch
from torch import nn
torch.manual_seed(0)
rnn, head = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 2)
opt = torch.optim.AdamW([*rnn.parameters(), *head.parameters()], lr=1e-2)
seq, y = torch.randn(2, 12, 3), torch.randint(0, 2, (2, 12))
confusion = torch.zeros(2, 2, dtype=torch.long)
# %%
h = torch.zeros(1, 2, 5)
total = torch.zeros(())
for chunk, yc in zip(seq.split(4, 1), y.split(4, 1)):
    out, h = rnn(chunk, h)
    logits = head(nn.functional.dropout(out, 0.2))
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), yc.flatten())
    opt.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(rnn.parameters(), 0.5)
    opt.step()
    h = h.detach()
    total += loss.detach()
    with torch.no_grad():
        confusion.view(-1).index_add_(0, (2 * yc + logits.argmax(-1)).flatten(), torch.ones(8, dtype=torch.long))
print(total / 3, confusion)
