# %% [case]
# id: cached-speaker-embedding-in-inference-mode
# source: text to speech fine-tuning, speaker vectors cached by lru_cache
# family: inference
# fails: 3
# culprit: 1:12
# saved: 2:4
# needed: 2:4
# effect: same
# observe: [p.grad.clone() for p in film.parameters()]
# note: the cached vectors were made under inference_mode and are saved by the trainable layer. Fix: no_grad.
# %%
from functools import lru_cache
import torch
from torch import nn
torch.manual_seed(0)
speaker_encoder = nn.GRU(4, 6, batch_first=True)
wavs = {n: torch.randn(1, 7, 4) for n in ('anna', 'bert')}

@lru_cache(maxsize=None)
def speaker_embedding(name):
    with torch.inference_mode():
        _, h = speaker_encoder(wavs[name])
        return nn.functional.normalize(h[0, 0], dim=0)
# %%
film = nn.Linear(6, 8)
tts = nn.Linear(5, 4)
def synthesise(text, name):
    scale, shift = film(speaker_embedding(name)).chunk(2)
    return tts(text) * (1 + scale) + shift
# %%
loss = sum(synthesise(torch.randn(3, 5), n).pow(2).mean() for n in wavs)
loss.backward()
# %% [fixed 1]
from functools import lru_cache
import torch
from torch import nn
torch.manual_seed(0)
speaker_encoder = nn.GRU(4, 6, batch_first=True)
wavs = {n: torch.randn(1, 7, 4) for n in ('anna', 'bert')}

@lru_cache(maxsize=None)
def speaker_embedding(name):
    with torch.no_grad():
        _, h = speaker_encoder(wavs[name])
        return nn.functional.normalize(h[0, 0], dim=0)
