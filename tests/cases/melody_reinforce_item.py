# %% [case]
# id: melody-reinforce-item
# source: github.com/isayev/ReLeaSE issue 39 (weights are not updating: log_probs[...].item() * discounted_reward in the policy gradient loss, all grads None)
# family: silent
# fails: -
# culprit: 3:7
# saved: -
# needed: -
# effect: same
# observe: [None if p.grad is None else p.grad.clone() for p in policy.parameters()]
# note: .item() makes a number of the log probability, so the loss has no path to the policy: all gradients stay None and the weights never change. Fix: multiply the tensor itself.
# %%
import torch
from torch import nn
torch.manual_seed(19)

class Policy(nn.Module):
    def __init__(self, notes=7, width=10):
        super().__init__()
        self.emb = nn.Embedding(notes, width)
        self.cell = nn.GRUCell(width, width)
        self.out = nn.Linear(width, notes)
    def forward(self, note, h):
        h = self.cell(self.emb(note), h)
        return torch.log_softmax(self.out(h), dim=-1), h
# %%
policy = Policy()

def compose(length):
    note, h = torch.zeros(1, dtype=torch.long), torch.zeros(1, 10)
    notes, log_probs = [], []
    for _ in range(length):
        lp, h = policy(note, h)
        note = torch.multinomial(lp.exp()[0].detach(), 1)
        notes.append(note.item())
        log_probs.append(lp[0, note])
    return notes, log_probs

def score(notes):
    return sum(abs(a - b) <= 2 for a, b in zip(notes, notes[1:])) / len(notes)
# %%
def melody_loss(n_melodies=4, length=6, discount=0.9):
    rl_loss = torch.zeros(1, requires_grad=True)
    for _ in range(n_melodies):
        notes, log_probs = compose(length)
        gain = score(notes)
        for step in reversed(range(length)):
            rl_loss = rl_loss - log_probs[step].item() * gain
            gain = gain * discount
    return rl_loss / n_melodies
# %%
opt = torch.optim.Adam(policy.parameters(), lr=1e-2)
losses = []
for epoch in range(3):
    opt.zero_grad()
    loss = melody_loss()
    loss.backward()
    opt.step()
    losses.append(loss.item())
print(losses)
# %% [fixed 3]
def melody_loss(n_melodies=4, length=6, discount=0.9):
    rl_loss = torch.zeros(1, requires_grad=True)
    for _ in range(n_melodies):
        notes, log_probs = compose(length)
        gain = score(notes)
        for step in reversed(range(length)):
            rl_loss = rl_loss - log_probs[step] * gain
            gain = gain * discount
    return rl_loss / n_melodies
