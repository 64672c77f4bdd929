# %% [case]
# id: coverage-attention-decoder
# source: pointer-generator style summariser, decoder loop with a coverage vector
# family: modified
# fails: 4
# culprit: 2:18
# saved: 1:15 | 2:17
# needed: 4:5
# effect: same
# observe: [p.grad.clone() for p in decoder.parameters()]
# note: coverage goes through a Linear at each step and is then added to in place. Fix: coverage = coverage + attn.
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F

class CoverageAttention(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.W_h = nn.Linear(hid, hid, bias=False)
        self.W_s = nn.Linear(hid, hid)
        self.W_c = nn.Linear(1, hid, bias=False)
        self.v = nn.Linear(hid, 1, bias=False)

    def forward(self, s, enc, coverage):
        feat = self.W_h(enc) + self.W_s(s).unsqueeze(1)
        feat = feat + self.W_c(coverage.unsqueeze(-1))     # B x L x H
        e = self.v(torch.tanh(feat)).squeeze(-1)
        attn = F.softmax(e, dim=-1)
        ctx = torch.bmm(attn.unsqueeze(1), enc).squeeze(1)
        return ctx, attn
# %%
class Decoder(nn.Module):
    def __init__(self, vocab=11, hid=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, hid)
        self.cell = nn.GRUCell(2 * hid, hid)
        self.attention = CoverageAttention(hid)
        self.out = nn.Linear(2 * hid, vocab)

    def forward(self, enc, trg):
        B, L, H = enc.shape
        s, ctx = enc.mean(1), enc.new_zeros(B, H)
        coverage = enc.new_zeros(B, L)
        logits, cov_loss = [], 0.
        for t in range(trg.size(1)):
            s = self.cell(torch.cat([self.emb(trg[:, t]), ctx], -1), s)
            ctx, attn = self.attention(s, enc, coverage)
            cov_loss = cov_loss + torch.min(attn, coverage).sum(-1).mean()
            coverage += attn
            logits.append(self.out(torch.cat([s, ctx], -1)))
        return torch.stack(logits, 1), cov_loss
# %%
torch.manual_seed(3)
decoder = Decoder()
enc_out = torch.randn(2, 5, 6)
trg = torch.randint(0, 11, (2, 4))
# %%
opt = torch.optim.Adagrad(decoder.parameters(), lr=0.15)
logits, cov = decoder(enc_out, trg)
loss = F.cross_entropy(logits[:, :-1].reshape(-1, 11), trg[:, 1:].reshape(-1)) + cov
opt.zero_grad()
loss.backward()
opt.step()
# %% [fixed 2]
class Decoder(nn.Module):
    def __init__(self, vocab=11, hid=6):
        super().__init__()
        self.emb = nn.Embedding(vocab, hid)
        self.cell = nn.GRUCell(2 * hid, hid)
        self.attention = CoverageAttention(hid)
        self.out = nn.Linear(2 * hid, vocab)

    def forward(self, enc, trg):
        B, L, H = enc.shape
        s, ctx = enc.mean(1), enc.new_zeros(B, H)
        coverage = enc.new_zeros(B, L)
        logits, cov_loss = [], 0.
        for t in range(trg.size(1)):
            s = self.cell(torch.cat([self.emb(trg[:, t]), ctx], -1), s)
            ctx, attn = self.attention(s, enc, coverage)
            cov_loss = cov_loss + torch.min(attn, coverage).sum(-1).mean()
            coverage = coverage + attn
            logits.append(self.out(torch.cat([s, ctx], -1)))
        return torch.stack(logits, 1), cov_loss
