# %% [case]
# id: decoder-kv-cache-preallocated-in-training
# source: autoregressive decoder trained with its own samples, preallocated key and value cache
# family: modified
# fails: 4
# culprit: 1:16 | 1:17
# saved: 1:19 | 1:20
# needed: 4:7
# effect: same
# observe: [p.grad.clone() for p in dec.parameters()]
# note: attention at step t saved the cache that step t+1 writes. Fix: keep lists and stack them.
# %%
import torch, math
import torch.nn as nn
import torch.nn.functional as F

class CachedAttention(nn.Module):
    def __init__(self, d, max_len):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.max_len = max_len

    def reset(self, bsz, d):
        self.cache_k = torch.zeros(bsz, self.max_len, d)
        self.cache_v = torch.zeros(bsz, self.max_len, d)

    def forward(self, x, pos):
        self.cache_k[:, pos] = self.k(x)
        self.cache_v[:, pos] = self.v(x)
        K, V = self.cache_k[:, :pos + 1], self.cache_v[:, :pos + 1]
        a = torch.einsum('bd,btd->bt', self.q(x), K) / math.sqrt(x.size(-1))
        return torch.einsum('bt,btd->bd', a.softmax(-1), V)
# %%
class TinyDecoder(nn.Module):
    def __init__(self, vocab=7, d=6, max_len=8):
        super().__init__()
        self.tok = nn.Embedding(vocab, d)
        self.att = CachedAttention(d, max_len)
        self.lm = nn.Linear(d, vocab)
    def step(self, tok, pos):
        h = self.tok(tok)
        return self.lm(h + self.att(h, pos))
# %%
torch.manual_seed(0)
dec = TinyDecoder()
gold = torch.randint(0, 7, (2, 4))
# %%
dec.att.reset(2, 6)
tok, loss = torch.zeros(2, dtype=torch.long), 0
for t in range(gold.size(1)):
    logits = dec.step(tok, t)
    loss = loss + F.cross_entropy(logits, gold[:, t])
    tok = logits.argmax(-1)      # scheduled sampling, p = 1
loss.backward()
# %% [fixed 1]
import torch, math
import torch.nn as nn
import torch.nn.functional as F

class CachedAttention(nn.Module):
    def __init__(self, d, max_len):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.max_len = max_len

    def reset(self, bsz, d):
        self.cache_k, self.cache_v = [], []

    def forward(self, x, pos):
        self.cache_k.append(self.k(x))
        self.cache_v.append(self.v(x))
        K, V = torch.stack(self.cache_k, 1), torch.stack(self.cache_v, 1)
        a = torch.einsum('bd,btd->bt', self.q(x), K) / math.sqrt(x.size(-1))
        return torch.einsum('bt,btd->bd', a.softmax(-1), V)
