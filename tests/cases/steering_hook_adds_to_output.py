# %% [case]
# id: steering-hook-adds-to-output
# source: activation steering, a forward hook adds a vector to a layer's output
# family: modified
# fails: 3
# culprit: 2:4
# saved: 1:13
# needed: 3:5
# effect: same
# observe: [soft_prompt.grad.clone()]
# note: the hook changes Tanh's output, which Tanh has kept. Fix: return output + vec from the hook.
# %%
import torch
import torch.nn as nn
torch.manual_seed(0)

class TinyLM(nn.Module):
    def __init__(self, vocab=9, d=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(d, d), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(d, vocab)
    def forward(self, e):
        for b in self.blocks:
            e = e + b(e)
        return self.head(e)
lm = TinyLM().requires_grad_(False)
# %%
vec = torch.randn(6) * 0.5

def steer(module, inp, output):
    output += vec

handle = lm.blocks[1].register_forward_hook(steer)
# %%
soft_prompt = lm.emb(torch.tensor([1, 2])).clone().requires_grad_()
tokens = torch.tensor([3, 4, 5])
seq = torch.cat([soft_prompt, lm.emb(tokens)])
nll = nn.functional.cross_entropy(lm(seq)[1:-1], tokens)
nll.backward()
handle.remove()
# %% [fixed 2]
vec = torch.randn(6) * 0.5

def steer(module, inp, output):
    return output + vec

handle = lm.blocks[1].register_forward_hook(steer)
