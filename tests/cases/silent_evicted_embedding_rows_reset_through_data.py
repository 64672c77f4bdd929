# %% [case]
# id: silent-evicted-embedding-rows-reset-through-data
# source: meta-pytorch/torchrec#2836 ("use in-place updates with .data ... to safely reinitialize evicted embeddings")
# family: silent
# fails: -
# culprit: 2:10
# saved: 2:20
# needed: 4:4
# effect: same
# observe: [loss.detach(), mc_ec.emb.weight.grad.clone(), tower.weight.grad.clone()]
# note: the second forward of a step evicts rows and re-initialises them through .data; the first forward's full-softmax matmul still has the table saved, so the gradient for the tower is computed with the new rows and nothing is raised. Human fix: score against a snapshot of the table (other right fix: evict after the optimizer step).
# %%
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(2836)

class MCHManagedCollisionModule:
    '''zero collision hashing: raw id -> slot, LFU eviction'''
    def __init__(self, zch_size):
        self.zch_size, self.slot, self.count = zch_size, {}, {}

    def remap(self, raw_ids):
        evicted = []
        for i in raw_ids.flatten().tolist():
            if i not in self.slot:
                if len(self.slot) < self.zch_size:
                    self.slot[i] = len(self.slot)
                else:
                    victim = min(self.slot, key=lambda k: (self.count[k], k))
                    self.slot[i] = self.slot.pop(victim)
                    evicted.append(self.slot[i])
                self.count[i] = 0
            self.count[i] += 1
        out = raw_ids.clone().apply_(lambda i: self.slot[i])
        return out, evicted
# %%
class ManagedCollisionEmbeddingCollection(nn.Module):
    def __init__(self, zch_size=6, dim=4):
        super().__init__()
        self.emb = nn.Embedding(zch_size, dim)
        self.mc = MCHManagedCollisionModule(zch_size)

    def _evict(self, rows):
        # do not go through autograd: several forwards per backward
        for r in rows:
            self.emb.weight.data[r].fill_(0.5)

    def forward(self, raw_ids):
        ids, evicted = self.mc.remap(raw_ids)
        if evicted:
            self._evict(evicted)
        return ids, self.emb(ids)

    def scores(self, query):
        '''logits over all slots'''
        return query @ self.emb.weight.t()
# %%
mc_ec = ManagedCollisionEmbeddingCollection()
tower = nn.Linear(4, 4)
optimizer = torch.optim.SGD([{'params': mc_ec.parameters(), 'lr': 0.5}, {'params': tower.parameters()}], lr=0.1)

def next_item_loss(history, target):
    _, h = mc_ec(history)
    ids, _ = mc_ec(target)
    return F.cross_entropy(mc_ec.scores(tower(h.mean(1))), ids)

# two surfaces (click / purchase log) share the table: two forwards, one backward
click = torch.tensor([[101, 102, 103], [102, 104, 103]]), torch.tensor([104, 105])
purchase = torch.tensor([[106, 107, 102], [104, 106, 108]]), torch.tensor([107, 102])
# %%
optimizer.zero_grad()
losses = {name: next_item_loss(*batch) for name, batch in {'click': click, 'purchase': purchase}.items()}
loss = losses['click'] + 0.5 * losses['purchase']
loss.backward()
print({k: round(v.item(), 4) for k, v in losses.items()}, mc_ec.mc.slot)
# %% [fixed 2]
class ManagedCollisionEmbeddingCollection(nn.Module):
    def __init__(self, zch_size=6, dim=4):
        super().__init__()
        self.emb = nn.Embedding(zch_size, dim)
        self.mc = MCHManagedCollisionModule(zch_size)

    def _evict(self, rows):
        # do not go through autograd: several forwards per backward
        for r in rows:
            self.emb.weight.data[r].fill_(0.5)

    def forward(self, raw_ids):
        ids, evicted = self.mc.remap(raw_ids)
        if evicted:
            self._evict(evicted)
        return ids, self.emb(ids)

    def scores(self, query):
        '''logits over all slots'''
        return query @ self.emb.weight.clone().t()
