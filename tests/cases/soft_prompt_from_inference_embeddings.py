# %% [case]
# id: soft-prompt-from-inference-embeddings
# source: https://github.com/pytorch/pytorch/pull/53343 (InferenceMode and its error handling: requires_grad on an inference tensor); docs notes/autograd.rst Inference Mode
# family: inference
# fails: 4
# culprit: 2:6|3:6
# saved: -
# needed: 3:6
# effect: same
# observe: [tuner.prompt.grad.clone(), tuner.prompt.detach().clone()]
# note: the initial value of a new parameter is an inference tensor, so it may not be made to require grad: no backward, no write. culprit = the lookup under inference_mode. Human fix: no_grad for the lookup.
# %%
import torch
from torch import nn
torch.manual_seed(8)
vocab = {w: i for i, w in enumerate('is this review good or bad ? great awful film plot'.split())}
lm_emb, lm_head = nn.Embedding(len(vocab), 6).requires_grad_(False), nn.Linear(6, len(vocab)).requires_grad_(False)
encode = lambda text: torch.tensor([vocab[w] for w in text.split()])
# %%
@torch.inference_mode()
def embed(text, n_tokens=None):
    ids = encode(text)
    if n_tokens is not None:
        ids = ids.repeat(-(-n_tokens // len(ids)))[:n_tokens]
    return lm_emb(ids)

print('closest:', (embed('great') @ lm_emb.weight.T).argmax().item())
# %%
class PromptTuner(nn.Module):
    """n soft tokens in front of the input, initialised from real words"""
    def __init__(self, n_tokens, init_text):
        super().__init__()
        init = embed(init_text, n_tokens)
        self.prompt = nn.Parameter(init)

    def forward(self, text):
        seq = torch.cat([self.prompt, lm_emb(encode(text))])
        w = torch.softmax(seq @ seq[-1], 0)
        return lm_head(w @ seq)
# %%
tuner = PromptTuner(5, 'is this review good')
opt = torch.optim.SGD(tuner.parameters(), lr=0.3)
for text, label in [('great film', 'good'), ('awful plot', 'bad')]:
    loss = nn.functional.cross_entropy(tuner(text)[None], encode(label))
    opt.zero_grad()
    loss.backward()
    opt.step()
# %% [fixed 2]
@torch.no_grad()
def embed(text, n_tokens=None):
    ids = encode(text)
    if n_tokens is not None:
        ids = ids.repeat(-(-n_tokens // len(ids)))[:n_tokens]
    return lm_emb(ids)

print('closest:', (embed('great') @ lm_emb.weight.T).argmax().item())
