# %% [case]
# id: beam-scores-expanded-then-masked
# source: beam search decoder, scores expanded over the beams
# family: overlap
# fails: 3
# culprit: 2:4
# saved: -
# needed: 2:4
# effect: same
# observe: [loss.detach(), lm.weight.grad.clone()]
# note: log_probs is expanded over the beams (stride 0), adding the beams' scores in place is refused. Fix: out of place.
# %%
import torch
from torch import nn
torch.manual_seed(0)
lm = nn.Linear(5, 7)
B, K, V = 2, 3, 7
# %%
def first_beams(h, beam_scores):
    lp = torch.log_softmax(lm(h), -1)                  # B x V
    lp = lp.unsqueeze(1).expand(B, K, V)
    lp += beam_scores.unsqueeze(-1)
    scores, idx = lp.reshape(B, -1).topk(K, dim=-1)
    return scores, idx // V, idx % V
# %%
beam_scores = torch.tensor([[0., -0.3, -1e9]]).repeat(B, 1)
scores, beams, tokens = first_beams(torch.randn(B, 5), beam_scores)
loss = -scores[:, 0].mean()
loss.backward()
# %% [fixed 2]
def first_beams(h, beam_scores):
    lp = torch.log_softmax(lm(h), -1)                  # B x V
    lp = lp.unsqueeze(1).expand(B, K, V)
    lp = lp + beam_scores.unsqueeze(-1)
    scores, idx = lp.reshape(B, -1).topk(K, dim=-1)
    return scores, idx // V, idx % V
